//! Flags put over the job file: each becomes the value of a dotted key, placed at the flag.

use lakemark::{Error, Result};

use super::env::Env;
use super::tree::{Item, Value, flag_list, flag_text, flag_value, put, remove, sources, steps};
use crate::args::JobFlags;

/// Puts `flags` over `job`. `--set` comes last: it wins over the flags that have a name.
pub(super) fn apply(job: &mut Item, flags: &JobFlags, env: Env<'_>) -> Result<()> {
    add_sources(job, &flags.source, env)?;
    set_the_source(job, flags, env)?;
    if let Some(sink) = &flags.sink {
        set_sink(job, sink, env)?;
    }
    let texts = [
        ("--store", "store", &flags.store),
        ("--sql", "transform.sql", &flags.sql),
        ("--concurrency", "run.concurrency", &flags.concurrency),
        ("--task-bytes", "run.task_bytes", &flags.task_bytes),
        ("--task-rows", "run.task_rows", &flags.task_rows),
        ("--max-tasks", "run.max_tasks", &flags.max_tasks),
        ("--retries", "run.retries", &flags.retries),
        ("--on-error", "run.on_error", &flags.on_error),
        ("--commit-every", "run.commit_every", &flags.commit_every),
    ];
    for (flag, key, text) in texts {
        if let Some(text) = text {
            put_at(job, key, flag_text(&place(flag), key, text, env)?)?;
        }
    }
    if let Some(command) = &flags.map {
        let words: Vec<_> = command.split_whitespace().map(str::to_owned).collect();
        put_at(job, "transform.map", flag_list(&place("--map"), "transform.map", &words, env)?)?;
    }
    if let Some(columns) = &flags.partition_by {
        put_at(job, "sink.partition_by", flag_list(&place("--partition-by"), "sink.partition_by", columns, env)?)?;
    }
    flags.set.iter().try_for_each(|setting| set(job, setting, env))
}

fn add_sources(job: &mut Item, given: &[String], env: Env<'_>) -> Result<()> {
    let place = place("--source");
    let mut names = Vec::new();
    for source in given {
        let Some((name, url)) = source.split_once('=') else {
            return Err(Error::invalid(format!("{source:?} has no name"))
                .at(place)
                .way(format!("write --source NAME=URL, e.g. --source docs={source}")));
        };
        if names.contains(&name) {
            return Err(Error::invalid(format!("source `{name}` is given twice")).at(place));
        }
        names.push(name);
        let sources = sources(job)?;
        if !sources.iter().any(|source| source.name() == Some(name)) {
            let mut source = Item::table(&place);
            put_at(&mut source, "name", flag_text(&place, "source", name, env)?)?;
            sources.push(source);
        }
        let steps = ["source", name, "url"].map(str::to_owned);
        put(job, &steps, flag_text(&place, &format!("source.{name}.url"), url, env)?)?;
    }
    Ok(())
}

/// The flags that are about a source, without saying which.
fn set_the_source(job: &mut Item, flags: &JobFlags, env: Env<'_>) -> Result<()> {
    let texts = [
        ("--format", "format", &flags.format),
        ("--mode", "mode", &flags.mode),
        ("--on-change", "on_change", &flags.on_change),
        ("--on-moved", "on_moved", &flags.on_moved),
        ("--on-delete", "on_delete", &flags.on_delete),
    ];
    for (flag, key, text) in texts {
        if let Some(text) = text {
            let item = flag_text(&place(flag), key, text, env)?;
            put_at(the_source(job, flag, key)?, key, item)?;
        }
    }
    if let Some(columns) = &flags.on {
        let item = flag_list(&place("--on"), "on", columns, env)?;
        put_at(the_source(job, "--on", "on")?, "on", item)?;
    }
    Ok(())
}

fn is_lookup(source: &Item) -> bool {
    let Value::Table(table) = &source.value else { return false };
    matches!(table.get("role").map(|role| &role.value), Some(Value::Text(role)) if role == "lookup")
}

fn the_source<'a>(job: &'a mut Item, flag: &str, key: &str) -> Result<&'a mut Item> {
    // A lookup cannot have these keys: only the tracked ones compete.
    let mut tracked: Vec<&mut Item> = sources(job)?.iter_mut().filter(|source| !is_lookup(source)).collect();
    match tracked.as_mut_slice() {
        [_] => tracked.pop().ok_or_else(|| Error::invalid("there is no source to apply it to")),
        [] => Err(Error::invalid("there is no source to apply it to").at(place(flag)).way("add --source NAME=URL")),
        several => {
            let names: Vec<_> = several.iter().filter_map(|source| source.name()).collect();
            Err(Error::invalid(format!("there are several sources: {}", names.join(", ")))
                .at(place(flag))
                .way(format!("say which one: --set source.NAME.{key}=VALUE")))
        }
    }
}

fn set_sink(job: &mut Item, sink: &str, env: Env<'_>) -> Result<()> {
    let place = place("--sink");
    let (kind, url) = sink.split_once(':').map_or((sink, None), |(kind, url)| (kind, Some(url)));
    if kind == "none" {
        // What the file says about its sink is about another one.
        remove(job, "sink")?;
    }
    put_at(job, "sink.kind", flag_text(&place, "sink.kind", kind, env)?)?;
    match url {
        Some(url) => put_at(job, "sink.url", flag_text(&place, "sink.url", url, env)?),
        None => Ok(()),
    }
}

fn set(job: &mut Item, setting: &str, env: Env<'_>) -> Result<()> {
    let Some((key, value)) = setting.split_once('=') else {
        return Err(Error::invalid(format!("{setting:?} has no value"))
            .at(place("--set"))
            .way("write --set KEY=VALUE"));
    };
    let place = place(&format!("--set {key}"));
    let Some(steps) = steps(key) else {
        return Err(Error::invalid(format!("{key:?} is not a dotted key")).at(place).way(
            "write e.g. --set run.task_rows=1000, or --set 'source.\"a b\".on_change=fail' for other characters",
        ));
    };
    put(job, &steps, flag_value(&place, key, value, env)?)
}

/// Puts `item` at a key of ours, whose parts need no quotes.
fn put_at(root: &mut Item, key: &str, item: Item) -> Result<()> {
    let steps: Vec<_> = key.split('.').map(str::to_owned).collect();
    put(root, &steps, item)
}

fn place(flag: &str) -> String {
    format!("flag {flag}")
}
