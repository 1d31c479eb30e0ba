//! What a planner's task reads of one file, in terms that can be tracked.

use std::ops::Range;
use std::sync::Arc;

use crate::coverage::Coverage;
use crate::error::{Error, ErrorKind, Result};
use crate::identity::FileVersion;

/// A format whose files are not divided into row groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OtherFormat {
    /// Comma-separated values.
    Csv,
    /// One JSON document a line.
    Json,
    /// Any other, by name.
    Other(&'static str),
}

/// A part of one file version that a task reads.
///
/// Parts are whole files, row groups, or row ordinals inside a group. A byte range of a Parquet file cannot be made
/// into one: which groups it holds depends on the reader (R43). A planner that splits Parquet by bytes resolves its
/// ranges to row groups first.
///
/// ```compile_fail
/// # let file = lakemark::FileVersion::new("a", 100);
/// // There is no such format to name: a byte range of Parquet does not compile.
/// let part = lakemark::ScanPart::bytes("docs", file, lakemark::OtherFormat::Parquet, 0..100);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanPart {
    source: Arc<str>,
    file: FileVersion,
    coverage: Coverage,
}

impl ScanPart {
    /// A part of a Parquet file.
    pub fn parquet(source: impl Into<Arc<str>>, file: FileVersion, coverage: Coverage) -> Self {
        Self { source: source.into(), file, coverage }
    }

    /// A whole file of any format.
    pub fn whole(source: impl Into<Arc<str>>, file: FileVersion) -> Self {
        Self { source: source.into(), file, coverage: Coverage::Whole }
    }

    /// A byte range of a file that is not Parquet, which is a part only when it is the whole file.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`], naming `rows` mode.
    pub fn bytes(
        source: impl Into<Arc<str>>,
        file: FileVersion,
        format: OtherFormat,
        range: Range<u64>,
    ) -> Result<Self> {
        if range == (0..file.size) {
            return Ok(Self::whole(source, file));
        }
        let format = match format {
            OtherFormat::Csv => "CSV",
            OtherFormat::Json => "JSON",
            OtherFormat::Other(name) => name,
        };
        Err(Error::new(
            ErrorKind::Unsupported,
            format!("bytes {}..{} of a {format} file of {} bytes cannot be tracked", range.start, range.end, file.size),
        )
        .at(&file.path)
        .safe("nothing was planned")
        .way("do not split the files of this source: one task reads whole files")
        .way("track rows instead of files: mode = \"rows\" with on = [key columns]"))
    }

    /// The source's name.
    pub fn source(&self) -> &Arc<str> {
        &self.source
    }

    /// The file version.
    pub fn file(&self) -> &FileVersion {
        &self.file
    }

    /// Which part of it.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    pub(super) fn with_coverage(&self, coverage: Coverage) -> Self {
        Self { coverage, ..self.clone() }
    }
}
