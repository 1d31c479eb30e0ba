//! What planning drops without a trace.

use std::ops::ControlFlow;

use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Statement, TableFactor, Visit, Visitor};
use lakemark::{Error, Result};

use super::refuse;

/// Checks the syntax tree: one query, and no TABLESAMPLE, which leaves no node in a plan.
pub(crate) fn check_sql(statement: &DfStatement) -> Result<()> {
    let statement = match statement {
        DfStatement::Statement(statement) => statement.as_ref(),
        DfStatement::Explain(explain) => return check_sql(&explain.statement),
        other => return Err(not_a_query(&other.to_string())),
    };
    match statement {
        Statement::Query(_) | Statement::Explain { .. } => {}
        other => return Err(not_a_query(&other.to_string())),
    }
    match statement.visit(&mut Samples) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => {
            Err(refuse("TABLESAMPLE", "selects rows: which rows it takes changes from run to run"))
        }
    }
}

fn not_a_query(text: &str) -> Error {
    let shown: String = text.chars().take(60).collect();
    Error::invalid(format!("`sql` must be one query, not `{shown}`")).way("write a SELECT")
}

struct Samples;

impl Visitor for Samples {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { sample: Some(_), .. } | TableFactor::Derived { sample: Some(_), .. } => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
