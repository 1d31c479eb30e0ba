//! `lakemark log`: what happened to a store, newest first.

use std::collections::HashSet;

use lakemark::store::{Event, Manifest, TransitionKind};
use serde::Serialize;

use crate::Ended;
use crate::args::{JobArgs, OutputArgs};
use crate::render;
use crate::status::open_view;
use lakemark_datafusion::Outcome;

#[derive(Serialize)]
struct Entry {
    at: String,
    #[serde(skip)]
    ms: i64,
    epoch: u64,
    what: &'static str,
    detail: String,
}

impl Entry {
    fn new(ms: i64, epoch: u64, what: &'static str, detail: String) -> Self {
        Self { at: lakemark::time::text(ms), ms, epoch, what, detail }
    }
}

pub(crate) async fn log(args: &JobArgs, output: &OutputArgs) -> Ended {
    let (store, view) = open_view(args).await?;
    let mut entries = Vec::new();
    let mut told = HashSet::new();
    for row in view.live.events() {
        told.insert((row.version, what(&row.event)));
        entries.push(Entry::new(row.at, row.epoch.0, what(&row.event), detail(&row.event)));
    }
    // What a run did last is in the chain only, until a fold takes it up.
    for manifest in store.manifests().await? {
        let (what, detail) = of_manifest(&manifest);
        if !what.is_empty() && told.insert((manifest.version, what)) {
            entries.push(Entry::new(manifest.at, manifest.epoch.0, what, detail));
        }
    }
    for row in view.live.checkpoints() {
        let detail = format!(
            "{} {:?}: {} rows in, {} rows out, {} files",
            row.id,
            row.decision,
            row.counts.rows_in,
            row.counts.rows_out,
            row.outputs.len()
        );
        entries.push(Entry::new(row.sealed_at, row.id.epoch.0, "seal", detail));
    }
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.ms));
    if output.json {
        render::json(&serde_json::json!({ "store": store.root().to_string(), "entries": entries }));
    } else {
        for entry in entries {
            render::line(&format!("{}  epoch {:<4} {:<10} {}", entry.at, entry.epoch, entry.what, entry.detail));
        }
    }
    Ok(Outcome::Done)
}

fn what(event: &Event) -> &'static str {
    match event {
        Event::Intent { .. } => "intent",
        Event::Withdrawn { .. } => "withdrawn",
        Event::Updated { .. } => "updated",
        Event::Opened { .. } => "open",
        Event::Retract { .. } => "retract",
        Event::Done { .. } => "commit",
        Event::Void { .. } => "void",
        Event::Schema { .. } => "schema",
        Event::Table { .. } => "table",
        Event::Closed { .. } => "close",
        Event::Forgotten { .. } | Event::RowsForgotten { .. } => "forget",
        Event::Operated { .. } => "operator",
    }
}

fn detail(event: &Event) -> String {
    match event {
        Event::Intent { n, files, rows, .. } => format!("commit {n}: {files} files, {rows} rows decided"),
        Event::Withdrawn { checkpoints, why } => format!("{} checkpoints undone: {why}", checkpoints.len()),
        Event::Updated { source, files } => format!("{} records of source `{source}` changed", files.len()),
        Event::Opened { holder } => format!("by {holder}"),
        Event::Retract { n, files, rows, .. } => format!("commit {n}: {files} files, {rows} rows decided to leave"),
        Event::Done { n } => format!("commit {n} is visible"),
        Event::Void { n } => format!("commit {n} was given up"),
        Event::Schema { source, .. } => format!("of source `{source}` recorded"),
        Event::Table { source, position, steps } if steps.is_empty() => {
            format!("source `{source}` at version {}", position.at)
        }
        Event::Table { source, position, steps } => {
            format!(
                "source `{source}` at version {}: {} versions of others rewrote files with done rows, or took such rows out",
                position.at,
                steps.len()
            )
        }
        Event::Closed { sealed } => format!("{sealed} checkpoints sealed"),
        Event::RowsForgotten { source, checkpoints } => {
            format!("rows of {} checkpoints of source `{source}` made undone; their output stays", checkpoints.len())
        }
        Event::Forgotten { source, files } => format!("{} files of source `{source}` made undone", files.len()),
        Event::Operated { verb, what } => format!("{verb}: {what}"),
    }
}

fn of_manifest(manifest: &Manifest) -> (&'static str, String) {
    match manifest.transition {
        TransitionKind::Open => {
            ("open", manifest.holder.as_ref().map(|holder| format!("by {holder}")).unwrap_or_default())
        }
        TransitionKind::CommitDone => ("commit", format!("commit {} is visible", manifest.commits.last)),
        TransitionKind::Close => ("close", String::new()),
        _ => ("", String::new()),
    }
}
