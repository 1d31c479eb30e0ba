//! The plan that runs.

use std::sync::Arc;

use datafusion::common::JoinType;
use datafusion::physical_plan::async_func::AsyncFuncExec;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::unnest::UnnestExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use lakemark::{InputId, Result};

use super::refuse;
use crate::rows::KeyFilterExec;
use crate::scan::CheckpointedScanExec;

/// The task of each partition of a map-only plan; `None` where a union's source has nothing to do.
pub(crate) type Mapped = Vec<Option<InputId>>;

/// Checks that `plan` is map-only and that each of its partitions is exactly one task.
///
/// # Errors
/// [`Refused`](lakemark::ErrorKind::Refused) naming the operator.
pub(crate) fn check_physical(plan: &Arc<dyn ExecutionPlan>) -> Result<Mapped> {
    let mapped = map(plan)?;
    let partitions = plan.output_partitioning().partition_count();
    if mapped.len() != partitions {
        return Err(refuse(plan.name(), &format!("has {partitions} partitions for {} tasks", mapped.len())));
    }
    Ok(mapped)
}

pub(crate) fn has_scan(plan: &Arc<dyn ExecutionPlan>) -> bool {
    let is_scan =
        plan.downcast_ref::<CheckpointedScanExec>().is_some() || plan.downcast_ref::<KeyFilterExec>().is_some();
    is_scan || plan.children().into_iter().any(has_scan)
}

fn map(plan: &Arc<dyn ExecutionPlan>) -> Result<Mapped> {
    if let Some(scan) = plan.downcast_ref::<CheckpointedScanExec>() {
        if !scan.is_runnable() {
            return Err(refuse("a row limit or another operator", "was pushed into the scan"));
        }
        return Ok(scan.inputs().collect());
    }
    if let Some(filter) = plan.downcast_ref::<KeyFilterExec>() {
        if !filter.is_runnable() {
            return Err(refuse("a row limit or another operator", "was pushed into the scan"));
        }
        return Ok(filter.inputs().iter().copied().map(Some).collect());
    }
    if plan.downcast_ref::<EmptyExec>().is_some() {
        return Ok(vec![None; plan.output_partitioning().partition_count()]);
    }
    if plan.fetch().is_some() {
        return Err(refuse(friendly(plan.name()), "has a row limit"));
    }
    if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
        return map_join(join);
    }
    if plan.downcast_ref::<UnionExec>().is_some() {
        let parts: Vec<Mapped> = plan.children().into_iter().map(map).collect::<Result<_>>()?;
        return Ok(parts.concat());
    }
    let row_local = plan.downcast_ref::<FilterExec>().is_some()
        || plan.downcast_ref::<ProjectionExec>().is_some()
        || plan.downcast_ref::<UnnestExec>().is_some()
        || plan.downcast_ref::<AsyncFuncExec>().is_some()
        || plan.downcast_ref::<CooperativeExec>().is_some();
    match (row_local, plan.children().as_slice()) {
        (true, [child]) => map(child),
        _ => Err(refuse(friendly(plan.name()), "is not row-local")),
    }
}

fn map_join(join: &HashJoinExec) -> Result<Mapped> {
    if join.null_aware {
        return Err(refuse(
            "NOT IN (SELECT ...)",
            "over columns that can be null needs all rows of both sides at once; write NOT EXISTS, which does not",
        ));
    }
    if has_scan(join.left()) {
        return Err(refuse(
            "a join",
            "builds its hash table from the tracked side: the lookup side must be the smaller one",
        ));
    }
    let kept = matches!(
        join.join_type(),
        JoinType::Inner | JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark
    );
    if !kept {
        return Err(refuse(&format!("a {} join", join.join_type()), "does not preserve the tracked side"));
    }
    if *join.partition_mode() != PartitionMode::CollectLeft {
        return Err(refuse("a join", "moves rows of the tracked side: its lookup side is too large to broadcast"));
    }
    map(join.right())
}

/// An operator in the words of SQL.
fn friendly(name: &str) -> &str {
    match name {
        "GlobalLimitExec" | "LocalLimitExec" | "CoalescePartitionsExec" => "LIMIT (or another gathering of all rows)",
        "SortExec" | "SortPreservingMergeExec" | "PartialSortExec" => "ORDER BY",
        "AggregateExec" => "an aggregation or DISTINCT",
        "WindowAggExec" | "BoundedWindowAggExec" => "a window function",
        "RepartitionExec" | "InterleaveExec" => "a repartitioning",
        "CrossJoinExec" => "a cross join",
        "NestedLoopJoinExec" => "a join without an equality",
        "SortMergeJoinExec" | "SymmetricHashJoinExec" => "a join of two large sides",
        "ScalarSubqueryExec" => "a scalar subquery",
        other => other,
    }
}
