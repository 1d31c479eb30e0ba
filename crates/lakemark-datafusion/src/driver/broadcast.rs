//! Joins with a lookup side, so that the lookup is what is collected and the tracked side streams past it.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::config::ConfigOptions;
use datafusion::error::Result;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::joins::{HashJoinExec, PartitionMode};

use crate::validate::has_scan;

/// Decides the sides of joins with a tracked source, whatever is known of the lookup's size: DataFusion goes by
/// statistics, and repartitions both sides when it has none (of an aggregated lookup, of a CSV file).
#[derive(Debug)]
pub(super) struct BroadcastLookups;

impl BroadcastLookups {
    /// `rules` with this one before DataFusion's own choice, which keeps what is already chosen.
    pub(super) fn among(
        rules: &[Arc<dyn PhysicalOptimizerRule + Send + Sync>],
    ) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
        let mut rules = rules.to_vec();
        let before = rules.iter().position(|rule| rule.name() == "join_selection").unwrap_or(0);
        rules.insert(before, Arc::new(Self));
        rules
    }
}

impl PhysicalOptimizerRule for BroadcastLookups {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|plan| {
            let Some(join) = plan.downcast_ref::<HashJoinExec>() else { return Ok(Transformed::no(plan)) };
            match (has_scan(join.left()), has_scan(join.right())) {
                (true, false) if join.join_type().supports_swap() && !join.null_aware => {
                    Ok(Transformed::yes(join.swap_inputs(PartitionMode::CollectLeft)?))
                }
                (false, true) => {
                    let collected = join.builder().with_partition_mode(PartitionMode::CollectLeft).build()?;
                    Ok(Transformed::yes(Arc::new(collected)))
                }
                _ => Ok(Transformed::no(plan)),
            }
        })
        .data()
    }

    fn name(&self) -> &str {
        "broadcast_lookups"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
