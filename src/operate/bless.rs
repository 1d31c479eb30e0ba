//! `bless`: record current versions of files as done, without running.

use std::collections::BTreeMap;

use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::coverage::Coverage;
use crate::error::Result;
use crate::plan::{
    MaxReplaced, OnChange, OnDelete, OnMoved, PlannedFile, SourcePlan, SourcePolicy, TableReached, blessable,
    plan_source,
};
use crate::run::{Change, Run};
use crate::source::{FileRead, Lake, Listing, SourceTable, TableSnapshot, Unusable};
use crate::store::transition::Transition;
use crate::store::{Event, FileUpdate, Live, SealedFile};

/// Footers that are read at a time.
const FOOTERS: usize = 16;

/// What blessing one source would record.
#[derive(Debug, Clone, Serialize)]
pub struct Blessing {
    /// The source.
    pub source: String,
    /// What becomes done, ascending by path.
    pub files: Vec<SealedFile>,
    /// Known content under another token: the new token is taken.
    pub updates: Vec<FileUpdate>,
    /// Files that cannot be read: they are not recorded.
    pub unusable: Vec<Unusable>,
    /// How many files there are for each reason that a run would plan them for.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Of a table: up to where it is taken into account with it.
    #[serde(skip)]
    pub reached: Option<TableReached>,
}

impl Blessing {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.updates.is_empty()
    }
}

/// What blessing the files of `listing` that `chosen` takes would record: everything that a run would do, whatever its
/// policy. Their footers are read, so that the record is as good as that of finished work.
///
/// # Errors
/// As [`plan_source`]; [`Unavailable`](crate::ErrorKind::Unavailable) when a footer cannot be read.
pub async fn bless_plan(
    name: &str,
    lake: &Lake,
    listing: &Listing,
    live: &Live,
    chosen: impl Fn(&crate::identity::FileVersion) -> bool,
) -> Result<Blessing> {
    let policy = SourcePolicy {
        on_change: OnChange::Reprocess,
        on_moved: OnMoved::Accept,
        on_delete: OnDelete::Keep,
        max_replaced: MaxReplaced::Files(u64::MAX),
        verify: false,
    };
    let mut listing = listing.clone();
    listing.files.retain(|file| chosen(file));
    let SourcePlan { files, updates, report, .. } = plan_source(name, lake, &listing, live, policy).await?;
    let blessing = Blessing { unusable: report.unusable, updates, ..Blessing::of(name) };
    blessing.with(lake, &files).await
}

/// As [`bless_plan`], for the files of a table: also those whose rows are in doubt.
///
/// # Errors
/// As [`plan_table`](crate::plan_table), but for its policy; [`Unavailable`](crate::ErrorKind::Unavailable) when a footer
/// cannot be read.
pub async fn bless_table_plan(
    name: &str,
    table: &dyn SourceTable,
    snapshot: &TableSnapshot,
    live: &Live,
    chosen: impl Fn(&crate::identity::FileVersion) -> bool,
) -> Result<Blessing> {
    let (files, reached) = blessable(name, table, snapshot, live, chosen).await?;
    Blessing { reached, ..Blessing::of(name) }.with(table.lake(), &files).await
}

impl Blessing {
    fn of(source: &str) -> Self {
        let (files, updates, unusable) = (Vec::new(), Vec::new(), Vec::new());
        Self { source: source.to_owned(), files, updates, unusable, reasons: BTreeMap::new(), reached: None }
    }

    /// With the record of `planned`.
    async fn with(mut self, lake: &Lake, planned: &[PlannedFile]) -> Result<Self> {
        let reads: Vec<_> = planned.iter().map(|file| read(lake, file)).collect();
        let reads: Vec<_> = stream::iter(reads).buffered(FOOTERS).try_collect().await?;
        for (file, read) in planned.iter().zip(reads) {
            match read {
                Ok(sealed) => {
                    *self.reasons.entry(file.reason.as_str()).or_default() += 1;
                    self.files.push(sealed);
                }
                Err(why) => {
                    // What is recorded of it stays as it is, and of the past too.
                    self.updates.retain(|update| update.recorded.path != file.file.path);
                    self.unusable.push(Unusable { path: file.file.path.to_string(), why });
                    self.reached = None;
                }
            }
        }
        Ok(self)
    }
}

/// The record of one planned file, or why it has none.
async fn read(lake: &Lake, file: &PlannedFile) -> Result<Result<SealedFile, String>> {
    let evidence = match lake.evidence(&file.file).await? {
        FileRead::Read(evidence) => evidence,
        FileRead::Unusable(why) => return Ok(Err(why)),
        FileRead::Changed => return Ok(Err("it changed since it was listed".to_owned())),
        FileRead::Vanished => return Ok(Err("it is gone since it was listed".to_owned())),
    };
    let coverage = match &file.left {
        Coverage::Whole => Coverage::Whole,
        left => left.normalised(&evidence.group_rows()),
    };
    Ok(Ok(SealedFile {
        source: file.source.clone(),
        file: file.file.clone(),
        coverage,
        evidence,
        unsettled: file.unsettled,
    }))
}

impl Run {
    /// Records what `blessings` say, in one manifest.
    ///
    /// # Errors
    /// [`Invalid`](crate::ErrorKind::Invalid) when a part of a file was done by another run meanwhile.
    pub async fn bless(&self, blessings: Vec<Blessing>) -> Result<()> {
        self.operate(Transition::Bless, |_, _| {
            let mut changes = Vec::new();
            for Blessing { source, files, updates, reached, .. } in blessings {
                let what = format!("{} files of source `{source}` recorded as done", files.len());
                if !updates.is_empty() {
                    changes.push(Change::Event(Event::Updated { source: source.clone(), files: updates }));
                }
                if let Some(TableReached { position, steps }) = reached {
                    changes.push(Change::Event(Event::Table { source, position, steps }));
                }
                if !files.is_empty() {
                    changes.push(Change::Blessed(files));
                }
                changes.push(Change::Event(Event::Operated { verb: "bless".into(), what }));
            }
            Ok(changes)
        })
        .await
    }
}
