//! The one public error type. Its [kind](ErrorKind) tells a caller what to do next; its text tells a person
//! what was found, where, what is safe, and the command or call for each way on.

use std::error::Error as StdError;
use std::fmt;

/// A result with lakemark's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the caller can do about an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A newer epoch owns the store. Stop: nothing this holder does counts any more. Never retry.
    Fenced,
    /// Another holder is live. Wait, or take over.
    Busy,
    /// A file is not the version that was planned. Plan it again.
    ChangedSincePlanning,
    /// A store or source did not answer. Retry later; nothing was lost.
    Unavailable,
    /// An operation may or may not have happened. Open again: recovery decides by reading.
    Indeterminate,
    /// An object of the store is damaged. Do not go on; the message names the object.
    Corrupt,
    /// The object was written by a newer version of lakemark, or is of another kind.
    Incompatible,
    /// The operation cannot be done here (a backend without create-if-absent, a format, a plan shape).
    Unsupported,
    /// The operation could be done but would probably lose or double something. Each way on is named.
    Refused,
    /// Whether a commit landed cannot be told. A person answers `accept` or `reopen`.
    CannotDecide,
    /// The input makes no sense: a setting, a URL, a query.
    Invalid,
}

impl ErrorKind {
    /// The stable name, as in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fenced => "Fenced",
            Self::Busy => "Busy",
            Self::ChangedSincePlanning => "ChangedSincePlanning",
            Self::Unavailable => "Unavailable",
            Self::Indeterminate => "Indeterminate",
            Self::Corrupt => "Corrupt",
            Self::Incompatible => "Incompatible",
            Self::Unsupported => "Unsupported",
            Self::Refused => "Refused",
            Self::CannotDecide => "CannotDecide",
            Self::Invalid => "Invalid",
        }
    }

    /// Whether doing the same again, unchanged, can succeed.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::ChangedSincePlanning)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What went wrong. Built with [`Error::new`] and the methods that add the place, what is safe and the ways on.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    what: String,
    place: Option<String>,
    safe: Option<String>,
    ways: Vec<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of `kind`; `what` was found.
    pub fn new(kind: ErrorKind, what: impl Into<String>) -> Self {
        Self(Box::new(Inner { kind, what: what.into(), place: None, safe: None, ways: Vec::new(), source: None }))
    }

    /// Shorthand for [`ErrorKind::Invalid`].
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, what)
    }

    /// Shorthand for [`ErrorKind::Corrupt`] at `place`.
    pub fn corrupt(place: impl fmt::Display, what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Corrupt, what)
            .at(place)
            .safe("nothing was read from it and nothing was changed")
            .way("restore the object from a copy of the store")
            .way("see what can be made good without one: lakemark repair JOB --dry-run")
    }

    /// Shorthand for [`ErrorKind::Refused`].
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(ErrorKind::Refused, what)
    }

    /// Adds where it was found: an object, file or setting.
    #[must_use]
    pub fn at(mut self, place: impl fmt::Display) -> Self {
        self.0.place = Some(place.to_string());
        self
    }

    /// Adds what is safe.
    #[must_use]
    pub fn safe(mut self, safe: impl Into<String>) -> Self {
        self.0.safe = Some(safe.into());
        self
    }

    /// Adds one way on: a command, a call or a setting.
    #[must_use]
    pub fn way(mut self, way: impl Into<String>) -> Self {
        self.0.ways.push(way.into());
        self
    }

    /// Adds the underlying error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// What the caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// What was found, without place, cause and ways on.
    pub fn what(&self) -> &str {
        &self.0.what
    }

    /// Where it was found.
    pub fn place(&self) -> Option<&str> {
        self.0.place.as_deref()
    }

    /// The ways on.
    pub fn ways(&self) -> &[String] {
        &self.0.ways
    }

    /// The first lakemark error in the chain of causes of `error`, looking through wrappers of other crates.
    pub fn find<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(found) = error.downcast_ref::<Error>() {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = &*self.0;
        f.write_str(&inner.what)?;
        if let Some(place) = &inner.place {
            write!(f, "\n  at: {place}")?;
        }
        let mut cause: Option<&(dyn StdError + 'static)> = inner.source.as_deref().map(|e| e as _);
        while let Some(error) = cause {
            write!(f, "\n  cause: {error}")?;
            // A wrapped error of ours has printed its own causes.
            cause = if error.is::<Error>() { None } else { error.source() };
        }
        if let Some(safe) = &inner.safe {
            write!(f, "\n  safe: {safe}")?;
        }
        for way in &inner.ways {
            write!(f, "\n  way on: {way}")?;
        }
        Ok(())
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

/// The first three of `paths`, and how many more there are, as errors name them.
pub(crate) fn first_few(paths: impl ExactSizeIterator<Item: fmt::Display>) -> String {
    let more = paths.len().saturating_sub(3);
    let shown: Vec<_> = paths.take(3).map(|path| format!("`{path}`")).collect();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(", "))
}
