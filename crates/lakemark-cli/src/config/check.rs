//! What a job must fulfil beyond the types of its keys, and which settings this version cannot honour.

use std::time::Duration;

use lakemark::{Error, ErrorKind, Result, Root};

use super::settings::{CatalogConfig, CsvConfig, JobConfig, Settings, SourceConfig};
use super::tree::join;
use super::values::{Format, Mode, OnChange, OnDelete, Role, SchemaMode, SinkKind};

/// Longer names do not fit the names of objects on every store.
const LONGEST_NAME: usize = 128;

impl JobConfig {
    /// Checks that the job can be planned and run, and that no setting would be without effect (R121).
    pub(crate) fn check(&self) -> Result<()> {
        self.check_sources()?;
        self.check_sink()?;
        self.check_run()?;
        let idle = self.idle();
        if let Some((key, why)) = idle.first() {
            return Err(Error::invalid(format!("`{key}` has no effect: {why}")).way(format!("remove `{key}`")));
        }
        let unsupported = self.unsupported();
        if unsupported.is_empty() {
            return Ok(());
        }
        let list: Vec<_> = unsupported.iter().map(|(key, why)| format!("`{key}` ({why})")).collect();
        Err(Error::new(ErrorKind::Unsupported, format!("not in this version: {}", list.join(", ")))
            .safe("nothing was read and nothing was changed")
            .way("remove what is named"))
    }

    /// The settings that this version cannot honour: dotted key, and what works.
    pub(crate) fn unsupported(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        let mut add = |path: &str, key: &str, why: &str| found.push((join(path, key), why.to_owned()));
        for source in &self.sources {
            for key in source.changed() {
                let why = match key {
                    "format" if source.format.is_database() && source.role == Role::Lookup => {
                        "a lookup is of files, or a Delta or Iceberg table"
                    }
                    "on_change" | "on_delete" if source.mode == Mode::Rows => continue,
                    "on_change" | "on_delete" if self.sink.kind == SinkKind::Iceberg && takes_out(source) => {
                        "no file is taken out of an Iceberg table: its library only appends"
                    }
                    "on_change" | "on_delete" if source.format.is_table() && takes_out(source) => {
                        "the output of a table's files is not taken out"
                    }
                    "table" if source.format.is_database() => continue,
                    "table" => "of a catalog it is `catalog.table`, and files have none",
                    _ => continue,
                };
                add(&path(source), key, why);
            }
        }
        for key in self.transform.changed() {
            match key {
                "map" => add("transform", key, "the transform is SQL"),
                "fingerprint" => add("transform", key, "a changed transform is not detected"),
                _ => {}
            }
        }
        for key in self.run.changed() {
            match key {
                "on_error" => add("run", key, "a task that fails for good stops the run"),
                "commit_every" if !self.sink.kind.is_table() => add("run", key, "directories commit at the end"),
                _ => {}
            }
        }
        found
    }

    /// The settings that are given where they mean nothing.
    fn idle(&self) -> Vec<(String, &'static str)> {
        let mut idle = Vec::new();
        for source in self.sources.iter().filter(|source| source.role == Role::Lookup) {
            let keys = source.changed().into_iter();
            let keys = keys.filter(|key| key.starts_with("on") || matches!(*key, "mode" | "max_replaced"));
            idle.extend(keys.map(|key| (join(&path(source), key), "work on a lookup is not recorded")));
        }
        for source in self.tracked() {
            let (rows, why) = match source.mode {
                Mode::Files => {
                    (&["on", "on_duplicate", "on_null", "key_values"][..], "only rows mode has it: mode = \"rows\"")
                }
                Mode::Rows => (
                    &["on_change", "on_moved", "on_delete", "max_replaced"][..],
                    "in rows mode what is done is told by row, and not by file",
                ),
            };
            let keys = source.changed().into_iter().filter(|key| rows.contains(key));
            idle.extend(keys.map(|key| (join(&path(source), key), why)));
        }
        if self.run.changed().contains(&"key_memory") && self.tracked().all(|source| source.mode == Mode::Files) {
            idle.push((join("run", "key_memory"), "no source is in rows mode"));
        }
        for source in self.sources.iter().filter(|source| source.format != Format::Csv) {
            if source.csv != CsvConfig::default() {
                idle.push((join(&path(source), "csv"), "the source is not CSV"));
            }
        }
        for source in self.sources.iter().filter(|source| source.format != Format::Iceberg) {
            if source.catalog != CatalogConfig::default() {
                idle.push((join(&path(source), "catalog"), "only Iceberg tables are in a catalog"));
            }
        }
        for source in self.tracked().filter(|source| source.format.is_table()) {
            if source.changed().contains(&"on_moved") {
                idle.push((join(&path(source), "on_moved"), "files of tables are never moved"));
            }
        }
        let local = |url: &str| Root::parse(url).is_ok_and(|root| root.is_local());
        for source in self.sources.iter().filter(|source| local(&source.url)) {
            // Without a sink the first source's options are those of the store.
            let stores = std::ptr::eq(self.store_options(), &source.storage_options) && !local(&self.store_url());
            if !source.storage_options.is_empty() && !stores && source.format != Format::Postgres {
                idle.push((join(&path(source), "storage_options"), "the source is on a local disk"));
            }
        }
        let sink = self.sink.url.as_deref();
        if !self.sink.storage_options.is_empty() && sink.is_some_and(local) && local(&self.store_url()) {
            idle.push((join("sink", "storage_options"), "the sink and the store are on a local disk"));
        }
        if matches!(self.sink.kind, SinkKind::Csv | SinkKind::Json) {
            let keys =
                self.sink.changed().into_iter().filter(|key| matches!(*key, "compression" | "max_row_group_size"));
            idle.extend(keys.map(|key| (join("sink", key), "only Parquet has it")));
        }
        if !self.sink.kind.is_table() && self.sink.kind != SinkKind::None && self.sink.schema_mode != SchemaMode::Fail {
            idle.push((join("sink", "schema_mode"), "only tables have columns of their own"));
        }
        if self.sink.kind != SinkKind::Iceberg && self.sink.catalog != CatalogConfig::default() {
            idle.push((join("sink", "catalog"), "only Iceberg tables are in a catalog"));
        }
        if self.sink.kind == SinkKind::None {
            for source in self.sources.iter().filter(|source| takes_out(source)) {
                let key = if source.on_change() == OnChange::Replace { "on_change" } else { "on_delete" };
                idle.push((join(&path(source), key), "the sink is none: there is no old output to take out"));
            }
            let keys = self.sink.changed().into_iter().filter(|key| *key != "kind");
            idle.extend(keys.map(|key| (join("sink", key), "the sink is none")));
        }
        idle
    }

    fn check_sources(&self) -> Result<()> {
        for (index, source) in self.sources.iter().enumerate() {
            let name = &source.name;
            if let Some(fault) = fault_of_name(name) {
                return Err(Error::invalid(format!("{name:?} cannot be the name of a source: it {fault}"))
                    .at(format!("source[{index}].name"))
                    .way("use a word such as `docs`: it is the table name in SQL"));
            }
            if self.sources[..index].iter().any(|other| other.name == *name) {
                return Err(
                    Error::invalid(format!("two sources are named `{name}`")).at(format!("source[{index}].name"))
                );
            }
            if source.format == Format::Iceberg {
                source.catalog.parse(&path(source))?;
            }
            if source.role == Role::Tracked && source.mode == Mode::Rows && source.on.is_empty() {
                return Err(Error::invalid(format!(
                    "`{}` is missing: rows mode tells rows apart by it",
                    join(&path(source), "on")
                ))
                .way("name the key columns: on = [\"id\"]"));
            }
            if source.role == Role::Tracked && source.mode == Mode::Files && source.format.is_database() {
                return Err(Error::invalid(format!("source `{name}` is a table of a database, which has no files"))
                    .at(join(&path(source), "mode"))
                    .way("tell its rows apart by key columns: mode = \"rows\", on = [\"id\"]"));
            }
            if source.format.is_database() && source.table.is_none() {
                return Err(Error::invalid(format!(
                    "`{}` is missing: which table of the database",
                    join(&path(source), "table")
                ))
                .way("name it: table = \"public.docs\""));
            }
            if source.url.is_empty() {
                return Err(Error::invalid(format!("`{}` is empty", join(&path(source), "url"))));
            }
        }
        match self.tracked().count() {
            0 => Err(Error::invalid("no source is tracked")
                .way("add a [[source]] with `name` and `url`, or --source NAME=URL")),
            1 => Ok(()),
            _ if self.transform.sql.is_some() => Ok(()),
            _ => Err(Error::invalid("`transform.sql` is missing: there is more than one tracked source")
                .way("write a query over all of them, or give --sql Q")
                .way("set `role = \"lookup\"` for the ones to join with")),
        }
    }

    fn check_sink(&self) -> Result<()> {
        match (&self.sink.url, self.sink.kind) {
            (None, kind) if kind != SinkKind::None => Err(Error::invalid("`sink.url` is missing")
                .way("add [sink] with `kind` and `url`, or --sink KIND:URL")
                .way("or discard the output: --sink none")),
            (_, SinkKind::Iceberg) => self.sink.catalog.parse("sink").and_then(|_| self.check_store()),
            _ => self.check_store(),
        }
    }

    fn check_run(&self) -> Result<()> {
        let run = &self.run;
        if run.task_timeout == Some(Duration::ZERO) || run.beat.is_zero() {
            let key = if run.beat.is_zero() { "run.beat" } else { "run.task_timeout" };
            return Err(Error::invalid(format!("`{key}` is 0; it must be longer")).way(format!("remove `{key}`")));
        }
        if run.beat >= run.lease {
            let (beat, lease) = (humantime::format_duration(run.beat), humantime::format_duration(run.lease));
            return Err(Error::invalid(format!("`run.beat` is {beat}, which is not less than `run.lease`, {lease}"))
                .way("a holder that beats more slowly than its lease looks dead: leave room for several beats"));
        }
        Ok(())
    }
}

/// Whether output of the source may have to leave the sink.
fn takes_out(source: &SourceConfig) -> bool {
    source.on_change() == OnChange::Replace || source.on_delete == OnDelete::Retract
}

fn path(source: &SourceConfig) -> String {
    source.section()
}

/// What is wrong with a name that becomes part of object names and of SQL (R116).
fn fault_of_name(name: &str) -> Option<&'static str> {
    match name {
        "" => Some("is empty"),
        "." | ".." => Some("means a folder"),
        _ if name.len() > LONGEST_NAME => Some("is longer than 128 bytes"),
        _ if name.contains(['/', '\\']) => Some("contains a slash"),
        _ if name.chars().any(char::is_control) => Some("contains a control character"),
        _ => None,
    }
}
