//! lakemark for Apache DataFusion: checkpointed reads and sealed writes.
//!
//! ```no_run
//! use datafusion::prelude::*;
//! use lakemark::{DirectorySink, ObjectCheckpointStore};
//! use lakemark_datafusion::{Checkpoints, LakemarkExt, Output, SourceSpec};
//!
//! # async fn example() -> lakemark::Result<()> {
//! let ctx = SessionContext::new();
//! let store = ObjectCheckpointStore::open("/lake/docs_upper.lakemark/store")?;
//! let checkpoints = Checkpoints::new(store, Default::default());
//! ctx.register_checkpointed(&checkpoints, SourceSpec::new("docs", "/lake/docs")).await?;
//! let query = ctx.checkpointed_sql("SELECT doc_id, upper(text) AS text FROM docs").await?;
//! let sink = DirectorySink::open("parquet", "/lake/docs_upper")?;
//! let report = ctx.write_sealed(&checkpoints, query, Output::parquet(sink)).await?;
//! println!("{} tasks sealed", report.tasks.sealed);
//! # Ok(())
//! # }
//! ```
//!
//! Each task of the plan is one partition: it reads whole row groups of pinned file versions, runs the fused map-only
//! pipeline, writes files of its own and seals. Plans that would regroup rows across tasks are refused with the operator
//! named.

mod checkpoints;
mod compression;
mod driver;
mod errors;
mod ext;
mod files;
mod formats;
mod handover;
mod hive;
mod look;
mod lookup;
mod reader;
mod report;
mod rows;
mod scan;
mod schema;
mod seal;
mod snapshot;
mod table;
mod timed;
mod validate;
mod whole;
mod wrap;

pub use checkpoints::{Checkpoints, Options, SourceSpec};
pub use driver::{Plan, PlannedTasks, Progress, StopSignal};
pub use errors::{from_datafusion, to_datafusion};
pub use ext::{LakemarkExt, SealedExt};
pub use files::{files_batch, register_files_function};
pub use formats::{CsvFileOptions, SourceFormat};
pub use handover::{Acked, CollectedTask, HandedTask, TaskAck, TaskName, TaskStream};
pub use lookup::read_lookup;
pub use report::{
    AtomReport, BytesReport, CommitReport, ErrorReport, Outcome, RequestReport, RowReport, RunReport, SecondsReport,
    TaskReport,
};
pub use rows::{KeyedTable, OnDuplicate, RowKeys, RowsSpec};
pub use scan::CheckpointedScanExec;
pub use seal::{Output, SealExec};
pub use table::CheckpointedTable;

/// What the README and the guide show compiles.
#[cfg(doctest)]
mod shown {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/guide/datafusion.md")]
    struct DataFusionGuide;
}
