//! `lakemark status`: the store, or single paths.

use lakemark::store::{Decision, ObjectName};
use lakemark::{CheckpointId, Error, LiveVersion, ObjectCheckpointStore, View};
use serde::Serialize;

use crate::args::{JobArgs, OutputArgs, StatusArgs};
use crate::config;
use crate::render;
use crate::{Ended, Failure};
use lakemark_datafusion::Outcome;

/// Opens the store of a job or of `--store`, and reads it.
pub(crate) async fn open_view(args: &JobArgs) -> Result<(ObjectCheckpointStore, View), Failure> {
    let config = config::load(args).map_err(Failure::usage)?;
    let store = crate::job::store(&config)?;
    let view = store.read().await?;
    if view.head.is_none() {
        return Err(Error::invalid("there is no store here yet: nothing was run")
            .at(store.root())
            .way("run the job")
            .way("check the path of the store")
            .into());
    }
    Ok((store, view))
}

#[derive(Serialize)]
struct Status {
    store: String,
    store_id: String,
    version: u64,
    epoch: u64,
    holder: Option<String>,
    /// Whether its process has certainly ended.
    holder_is_gone: bool,
    files: u64,
    atoms: u64,
    /// Of sources in rows mode.
    keys: u64,
    checkpoints: Checkpoints,
    failed_tasks: u64,
    open_intent: Option<u64>,
    commits: Commits,
    segments: u64,
    segment_bytes: u64,
    unknown_objects: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    paths: Vec<PathStatus>,
}

#[derive(Serialize)]
struct Checkpoints {
    uncommitted: u64,
    committed: u64,
    rejected: u64,
    withdrawn: u64,
    blessed: u64,
    loose: u64,
}

#[derive(Serialize)]
struct Commits {
    last: u64,
    files: u64,
    rows: u64,
}

#[derive(Serialize)]
struct PathStatus {
    path: String,
    known: bool,
    versions: Vec<VersionStatus>,
}

#[derive(Serialize)]
struct VersionStatus {
    source: String,
    size: u64,
    etag: Option<String>,
    mtime: Option<i64>,
    state: &'static str,
    row_groups: u64,
    rows: u64,
    /// What is not done: nothing of a whole file.
    #[serde(skip_serializing_if = "Option::is_none")]
    left: Option<String>,
    parts: Vec<PartStatus>,
}

#[derive(Serialize)]
struct PartStatus {
    atoms: String,
    state: String,
    epoch: u64,
    checkpoint: String,
    sealed_at: String,
    commit: Option<u64>,
    outputs: Vec<String>,
}

pub(crate) async fn status(args: &StatusArgs, output: &OutputArgs) -> Ended {
    let (job, paths) = args.split();
    let (store, view) = open_view(&job).await?;
    let Some(head) = &view.head else { return Ok(Outcome::Nothing) };
    let manifest = &head.manifest;
    let count = |decision: Decision, committed: Option<bool>| {
        let matching = view.live.checkpoints().filter(|row| {
            row.decision == decision && committed.is_none_or(|committed| row.commit.is_some() == committed)
        });
        matching.count() as u64
    };
    let status = Status {
        store: store.root().to_string(),
        store_id: manifest.store.to_string(),
        version: manifest.version.0,
        epoch: manifest.epoch.0,
        holder: manifest.holder.as_ref().map(ToString::to_string),
        holder_is_gone: manifest.holder.as_ref().is_some_and(|holder| holder.is_provably_dead()),
        files: view.live.sources().map(|source| view.live.files(source).count() as u64).sum(),
        atoms: view.live.atoms(),
        keys: view.live.row_keys(),
        checkpoints: Checkpoints {
            uncommitted: count(Decision::Accepted, Some(false)),
            committed: count(Decision::Accepted, Some(true)),
            rejected: count(Decision::Rejected, None),
            withdrawn: count(Decision::Withdrawn, None),
            blessed: count(Decision::Blessed, None),
            loose: view.loose.checkpoints.len() as u64,
        },
        failed_tasks: 0,
        open_intent: manifest.commits.open.as_ref().map(|intent| intent.n),
        commits: Commits { last: manifest.commits.last, files: manifest.commits.files, rows: manifest.commits.rows },
        segments: manifest.segments.len() as u64,
        segment_bytes: manifest.segments.iter().map(|segment| segment.bytes).sum(),
        unknown_objects: store.unknown_objects().await?,
        paths: paths.iter().map(|path| path_status(&view, manifest, &path.to_string_lossy())).collect(),
    };
    if output.json {
        render::json(&status);
    } else if status.paths.is_empty() {
        print(&status);
    } else {
        status.paths.iter().for_each(print_path);
    }
    Ok(Outcome::Done)
}

/// A path as given may be relative to a source's root, or begin with it.
fn path_status(view: &View, manifest: &lakemark::store::Manifest, path: &str) -> PathStatus {
    let mut versions = Vec::new();
    for source in view.live.sources() {
        let relative = manifest.sources.get(source).and_then(|settings| relative_to(&settings.root, path));
        let mut found = view.live.versions(source, path);
        if found.is_empty()
            && let Some(relative) = &relative
        {
            found = view.live.versions(source, relative);
        }
        versions.extend(found.iter().map(|version| version_status(view, source, version)));
    }
    PathStatus { path: path.to_owned(), known: !versions.is_empty(), versions }
}

/// `path` relative to `root`, if it lies below it.
pub(crate) fn relative_to(root: &lakemark::Root, path: &str) -> Option<String> {
    let full = lakemark::Root::parse(path).ok()?;
    let (root, full) = (root.to_string(), full);
    let prefix = lakemark::Root::parse(&root).ok()?;
    let inside = prefix.contains(&full).then(|| full.prefix().strip_prefix(prefix.prefix()).map(str::to_owned))??;
    Some(inside.trim_start_matches('/').to_owned())
}

fn version_status(view: &View, source: &str, version: &LiveVersion) -> VersionStatus {
    VersionStatus {
        source: source.to_owned(),
        size: version.file.size,
        etag: version.file.etag.as_ref().map(ToString::to_string),
        mtime: version.file.mtime,
        state: if version.is_complete() { "done" } else { "partly done" },
        row_groups: version.evidence.row_groups(),
        rows: version.evidence.rows(),
        left: (!version.is_complete()).then(|| version.coverage.missing(&version.evidence).to_string()),
        parts: version.parts.iter().map(|(id, coverage)| part_status(view, *id, &coverage.to_string())).collect(),
    }
}

fn part_status(view: &View, id: CheckpointId, atoms: &str) -> PartStatus {
    let row = view.live.checkpoint(id);
    let commit = row.and_then(|row| row.commit);
    let blessed = row.is_some_and(|row| row.decision == Decision::Blessed);
    PartStatus {
        atoms: atoms.to_owned(),
        state: match (blessed, commit) {
            (true, _) => "blessed",
            (false, Some(_)) => "committed",
            (false, None) => "checkpointed",
        }
        .into(),
        epoch: id.epoch.0,
        checkpoint: id.to_string(),
        sealed_at: row.map(|row| lakemark::time::text(row.sealed_at)).unwrap_or_default(),
        commit,
        outputs: row.map(|row| row.outputs.iter().map(|output| output.path()).collect()).unwrap_or_default(),
    }
}

fn print(status: &Status) {
    let mut holder = status.holder.clone().unwrap_or_else(|| "nobody: the epoch is closed".to_owned());
    if status.holder_is_gone {
        holder.push_str(", whose process is gone: the next run takes over");
    }
    render::line(&format!("store        {} ({})", status.store, status.store_id));
    render::line(&format!("manifest     {}", ObjectName::Manifest(lakemark::ManifestVersion(status.version))));
    render::line(&format!("epoch        {}, held by {holder}", status.epoch));
    if status.keys == 0 || status.files > 0 {
        render::line(&format!("done         {} row groups in {} files", status.atoms, status.files));
    }
    if status.keys > 0 {
        render::line(&format!("done         {} rows, by key", status.keys));
    }
    let c = &status.checkpoints;
    render::line(&format!(
        "checkpoints  {} committed, {} uncommitted ({} not folded), {} rejected, {} withdrawn, {} blessed",
        c.committed, c.uncommitted, c.loose, c.rejected, c.withdrawn, c.blessed
    ));
    render::line(&format!(
        "commits      {} made, {} files and {} rows visible",
        status.commits.last - u64::from(status.open_intent.is_some()),
        status.commits.files,
        status.commits.rows
    ));
    if let Some(n) = status.open_intent {
        render::line(&format!("open intent  commit {n}: the next run finishes it"));
    }
    render::line(&format!("segments     {} with {} bytes", status.segments, status.segment_bytes));
    for name in &status.unknown_objects {
        render::line(&format!("unknown      {name}"));
    }
}

fn print_path(path: &PathStatus) {
    if !path.known {
        render::line(&format!("{}: nothing of it is done", path.path));
        return;
    }
    for version in &path.versions {
        let token = match (&version.etag, version.mtime) {
            (Some(etag), _) => format!("etag {etag}"),
            (None, Some(mtime)) => format!("mtime {mtime} ns"),
            (None, None) => "no token".into(),
        };
        render::line(&format!(
            "{}: {} ({} bytes, {token}, {} row groups, {} rows, source {})",
            path.path, version.state, version.size, version.row_groups, version.rows, version.source
        ));
        if let Some(left) = &version.left {
            render::line(&format!("  atoms {left}: not done"));
        }
        for part in &version.parts {
            let commit = part.commit.map(|n| format!(" in commit {n}")).unwrap_or_default();
            render::line(&format!(
                "  atoms {}: {}{commit}, checkpoint {}, epoch {}, {}",
                part.atoms, part.state, part.checkpoint, part.epoch, part.sealed_at
            ));
            for output in &part.outputs {
                render::line(&format!("    output {output}"));
            }
        }
    }
}
