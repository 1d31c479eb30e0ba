//! The query as the user wrote it.

use std::collections::{HashMap, HashSet};

use datafusion::catalog::default_table_source::source_as_provider;
use datafusion::common::NullEquality;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Distinct, Expr, Join, JoinType, LogicalPlan};
use lakemark::{Error, ErrorKind, Result};

use super::refuse;
use crate::errors::from_datafusion;
use crate::table::tracked_name;

/// Checks that every operator above a tracked source is row-local, and that each source occurs once. The names of the
/// sources.
///
/// # Errors
/// [`ErrorKind::Refused`] naming the operator; [`ErrorKind::Invalid`] when no tracked source is read.
pub(crate) fn check_logical(plan: &LogicalPlan) -> Result<HashSet<String>> {
    if let LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) = plan {
        return Err(Error::invalid("EXPLAIN shows a plan: it has no rows to seal").way("collect it as any DataFrame"));
    }
    let mut seen = HashMap::new();
    count_sources(plan, &mut seen)
        .map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the query cannot be planned"))?;
    if let Some((name, _)) = seen.iter().find(|(_, times)| **times > 1) {
        return Err(refuse(
            &format!("source `{name}`"),
            "occurs more than once: a row would need rows of other tasks, or be counted twice",
        ));
    }
    if seen.is_empty() {
        return Err(Error::invalid("the query reads no tracked source").way("select from a source of the job"));
    }
    check(plan)?;
    Ok(seen.into_keys().collect())
}

fn count_sources(plan: &LogicalPlan, seen: &mut HashMap<String, u32>) -> DfResult<()> {
    plan.apply_with_subqueries(|node| {
        if let Some(name) = tracked_scan(node)? {
            *seen.entry(name).or_default() += 1;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn tracked_scan(node: &LogicalPlan) -> DfResult<Option<String>> {
    let LogicalPlan::TableScan(scan) = node else { return Ok(None) };
    let provider = source_as_provider(&scan.source)?;
    Ok(tracked_name(&provider).map(str::to_owned))
}

/// Whether a tracked source lies below `plan`, subqueries included.
fn has_source(plan: &LogicalPlan) -> bool {
    let mut seen = HashMap::new();
    count_sources(plan, &mut seen).is_err() || !seen.is_empty()
}

fn check(plan: &LogicalPlan) -> Result<()> {
    if !has_source(plan) {
        // A lookup side may do anything: it is materialised on the driver.
        return Ok(());
    }
    check_node(plan)?;
    check_expressions(plan)?;
    plan.inputs().into_iter().try_for_each(check)
}

fn check_node(plan: &LogicalPlan) -> Result<()> {
    let across = "needs rows of more than one task";
    match plan {
        LogicalPlan::Projection(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Unnest(_) => Ok(()),
        LogicalPlan::Union(union) if union.inputs.iter().all(|input| has_source(input)) => Ok(()),
        LogicalPlan::Union(_) => {
            Err(refuse("UNION ALL", "has a branch that reads no tracked source: its rows would belong to no task"))
        }
        LogicalPlan::TableScan(scan) if scan.fetch.is_some() => {
            Err(refuse("LIMIT", "selects rows: which rows it takes changes from run to run"))
        }
        LogicalPlan::TableScan(_) => Ok(()),
        LogicalPlan::Limit(limit) => {
            let name = match (&limit.skip, &limit.fetch) {
                (Some(_), None) => "OFFSET",
                _ => "LIMIT",
            };
            Err(refuse(name, "selects rows: which rows it takes changes from run to run"))
        }
        LogicalPlan::Sort(sort) if sort.fetch.is_some() => Err(refuse("ORDER BY ... LIMIT", across)),
        LogicalPlan::Sort(_) => Err(refuse("ORDER BY", across)),
        LogicalPlan::Distinct(Distinct::On(_)) => Err(refuse("DISTINCT ON", across)),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            let union = matches!(input.as_ref(), LogicalPlan::Union(_));
            Err(refuse(if union { "UNION (without ALL)" } else { "DISTINCT" }, across))
        }
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty() => {
            Err(refuse("an aggregate function", across))
        }
        LogicalPlan::Aggregate(_) => Err(refuse("GROUP BY", across)),
        LogicalPlan::Window(_) => Err(refuse("a window function", across)),
        LogicalPlan::Repartition(_) => Err(refuse("a repartitioning", "moves rows between tasks")),
        LogicalPlan::RecursiveQuery(_) => Err(refuse("WITH RECURSIVE", across)),
        LogicalPlan::Join(join) => {
            let (left, right) = (has_source(&join.left), has_source(&join.right));
            if let Some(name) = set_operation(join)
                && (right || matches!(join.left.as_ref(), LogicalPlan::Distinct(_)))
            {
                return Err(refuse(name, across));
            }
            if left && right {
                return Err(refuse("JOIN", "joins two tracked sources: rows of one task meet rows of others"));
            }
            let keeps_lake = match (join.join_type, left) {
                (JoinType::Inner, _) => true,
                (JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark, lake_left) => lake_left,
                (JoinType::Right | JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark, lake_left) => {
                    !lake_left
                }
                (JoinType::Full, _) => false,
            };
            if !keeps_lake {
                return Err(refuse(
                    &format!("a {} join", join.join_type),
                    "does not preserve the tracked side: rows of the lookup side would come out once a task",
                ));
            }
            // Whether it has an equality is seen when the filters around it were pushed into it: on the physical plan.
            Ok(())
        }
        other => Err(refuse(&other.display().to_string(), "is not known to be row-local")),
    }
}

/// INTERSECT and EXCEPT, which are planned as joins in which nulls are equal.
fn set_operation(join: &Join) -> Option<&'static str> {
    match (join.null_equality, join.join_type) {
        (NullEquality::NullEqualsNull, JoinType::LeftSemi) => Some("INTERSECT"),
        (NullEquality::NullEqualsNull, JoinType::LeftAnti) => Some("EXCEPT"),
        _ => None,
    }
}

/// Subqueries in expressions become joins: over a lookup they may, over a tracked source they may not.
fn check_expressions(plan: &LogicalPlan) -> Result<()> {
    let mut found = None;
    let walked = plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            let (name, subquery) = match expr {
                Expr::ScalarSubquery(subquery) => ("a scalar subquery", subquery),
                Expr::InSubquery(inner) => ("IN (SELECT ...)", &inner.subquery),
                Expr::Exists(inner) => ("EXISTS", &inner.subquery),
                _ => return Ok(TreeNodeRecursion::Continue),
            };
            if has_source(&subquery.subquery) {
                found = Some((name, "reads a tracked source: every task would need all of it"));
                return Ok(TreeNodeRecursion::Stop);
            }
            if name == "a scalar subquery" {
                found = Some((name, "is evaluated across tasks; join the lookup instead"));
                return Ok(TreeNodeRecursion::Stop);
            }
            Ok(TreeNodeRecursion::Continue)
        })
    });
    walked.map_err(|e| from_datafusion(e, ErrorKind::Invalid, "the query cannot be planned"))?;
    match found {
        Some((name, why)) => Err(refuse(name, why)),
        None => Ok(()),
    }
}
