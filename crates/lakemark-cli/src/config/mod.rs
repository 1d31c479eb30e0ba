//! The configuration of a job: a TOML file with flags over it, read into [`JobConfig`].
//!
//! `tree` holds what was written, each value with its place; `section` and `values` turn it into the structs of
//! `settings`; `check` judges the whole. A file and flags go the same way, so their messages are the same.

mod check;
mod env;
mod flags;
mod section;
mod settings;
mod tree;
mod values;

#[cfg(test)]
mod fuzzed;
#[cfg(test)]
mod tests;

use lakemark::{Error, ErrorKind, Result};

pub(crate) use settings::{JobConfig, SinkConfig, SourceConfig};
pub(crate) use values::{
    Compression, CsvTypes, Format, MaxReplaced, Mode, OnChange, OnDelete, OnDuplicate, OnMoved, OnNull, Role,
    SchemaMode, SinkKind,
};

use crate::args::{JobArgs, JobFlags};
use tree::Item;
use values::Setting;

/// Reads the job of a command line. The result names a store; [`JobConfig::check`] tells whether it can be run.
pub(crate) fn load(args: &JobArgs) -> Result<JobConfig> {
    let env = |name: &str| std::env::var(name).ok();
    let Some(file) = &args.job else {
        return read(None, &args.flags, &env);
    };
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::invalid("the job file cannot be read")
            .at(file.display())
            .way("give the path of a job file")
            .caused_by(error)
    })?;
    read(Some((&file.display().to_string(), &text)), &args.flags, &env)
}

/// Reads a job from the name and text of a file, and flags.
pub(crate) fn read(file: Option<(&str, &str)>, flags: &JobFlags, env: env::Env<'_>) -> Result<JobConfig> {
    if flags.cluster.is_some() {
        return Err(Error::new(ErrorKind::Unsupported, "a run on a cluster is not in this version")
            .at("flag --cluster")
            .way("run without --cluster, in this process"));
    }
    let mut job = match file {
        Some((name, text)) => tree::parse_file(name, text, env)?,
        None if flags.store.is_none() && flags.source.is_empty() && flags.sink.is_none() && flags.set.is_empty() => {
            return Err(Error::invalid("no job is given")
                .way("name a job file, e.g. `lakemark run job.toml`")
                .way("or give the job as flags: --source NAME=URL --sink KIND:URL")
                .way("or name a store, for verbs that only look: --store URL"));
        }
        None => Item::table("flags"),
    };
    flags::apply(&mut job, flags, env)?;
    let job = JobConfig::read(job, "")?;
    job.check_store()?;
    Ok(job)
}
