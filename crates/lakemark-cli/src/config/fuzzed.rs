//! The fuzz target of job files; `docs/fuzzing.md` tells how it is run.

use crate::args::JobFlags;
use crate::config::read;
use lakemark::ErrorKind;

/// A job file, then `--set` flags, with a NUL before each: whatever they say, reading and checking end, and what is
/// wrong is the job's fault.
///
/// # Panics
/// When it is said to be another's.
pub(crate) fn job_files(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut parts = text.split('\0').map(str::to_owned);
    let file = parts.next().unwrap_or_default();
    let flags = JobFlags { set: parts.collect(), ..JobFlags::default() };
    let env = |name: &str| (name == "BUCKET").then(|| "lake".to_owned());
    let checked = read(Some(("job.toml", &file)), &flags, &env).and_then(|job| {
        let _ = (job.store_url(), job.sql(), job.unsupported());
        job.check()
    });
    if let Err(error) = checked {
        assert!(matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported), "{error}");
    }
}
