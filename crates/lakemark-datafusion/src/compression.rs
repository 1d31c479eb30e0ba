//! Compressed files: told by the ends of their names, decompressed as their bytes pass.
//!
//! Not by DataFusion's own streams: of several streams in one bzip2, xz or zstd file, as parallel compressors and
//! concatenation make them, those read the first and call it the end (datafusion-datasource 55.2,
//! `FileCompressionType::convert_stream`). Here all are read, and what follows the last is an error.

use std::io;

use async_compression::futures::bufread::{BzDecoder, GzipDecoder, XzDecoder, ZstdDecoder};
use bytes::Bytes;
use datafusion::common::GetExt;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use futures::io::{AsyncRead, AsyncReadExt};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use lakemark::{Error, Result};

/// What is decompressed at once.
const CHUNK: usize = 256 << 10;
/// What the dictionary of an xz file may take. zstd has a limit of its own: a window of 128 MiB.
const XZ_MEMORY: u64 = 256 << 20;
const READ: [FileCompressionType; 4] =
    [FileCompressionType::GZIP, FileCompressionType::BZIP2, FileCompressionType::XZ, FileCompressionType::ZSTD];
/// What the names of other compressed files and of archives end with.
const NOT_READ: [&str; 16] = [
    ".zip", ".tar", ".tgz", ".tbz2", ".txz", ".7z", ".rar", ".z", ".lz", ".lz4", ".lzma", ".lzo", ".br", ".sz",
    ".snappy", ".deflate",
];

/// What the file at `path` is compressed with, by the end of its name.
pub(crate) fn compression_of(path: &str) -> FileCompressionType {
    READ.into_iter().find(|read| ends_with(path, &read.get_ext())).unwrap_or(FileCompressionType::UNCOMPRESSED)
}

/// The end of the name of a file that is not read: of an archive, of another compression, or of one more inside.
pub(crate) fn not_read(path: &str) -> Option<String> {
    let outer = compression_of(path).get_ext();
    let inner = &path[..path.len() - outer.len()];
    let mut ends = NOT_READ.into_iter().map(str::to_owned).chain(READ.iter().map(GetExt::get_ext));
    ends.find(|end| ends_with(inner, end)).map(|end| end + &outer)
}

fn ends_with(path: &str, end: &str) -> bool {
    let at = path.len().checked_sub(end.len());
    at.and_then(|at| path.get(at..)).is_some_and(|found| found.eq_ignore_ascii_case(end))
}

/// The content of a file from its `stored` bytes. It ends well only where the compressed data does: after a file that was cut,
/// damaged, or has more behind it, comes an error of the kind `Invalid`.
pub(crate) fn decompressed(
    compression: FileCompressionType,
    stored: BoxStream<'static, Result<Bytes>>,
) -> BoxStream<'static, Result<Bytes>> {
    let name = match compression.get_variant() {
        CompressionTypeVariant::GZIP => "gzip",
        CompressionTypeVariant::BZIP2 => "bzip2",
        CompressionTypeVariant::XZ => "xz",
        CompressionTypeVariant::ZSTD => "zstd",
        CompressionTypeVariant::UNCOMPRESSED => return stored,
    };
    let stored = stored.map_err(io::Error::other).into_async_read();
    macro_rules! all_of {
        ($decoder:expr) => {{
            let mut decoder = $decoder;
            decoder.multiple_members(true);
            Box::new(decoder)
        }};
    }
    let content: Box<dyn AsyncRead + Send + Unpin> = match compression.get_variant() {
        CompressionTypeVariant::GZIP => all_of!(GzipDecoder::new(stored)),
        CompressionTypeVariant::BZIP2 => all_of!(BzDecoder::new(stored)),
        CompressionTypeVariant::XZ => all_of!(XzDecoder::with_mem_limit(stored, XZ_MEMORY)),
        CompressionTypeVariant::ZSTD => all_of!(ZstdDecoder::new(stored)),
        CompressionTypeVariant::UNCOMPRESSED => Box::new(stored),
    };
    let chunks = stream::try_unfold(content, move |mut content| async move {
        let mut chunk = vec![0; CHUNK];
        let read = content.read(&mut chunk).await.map_err(|error| from_io(error, name))?;
        chunk.truncate(read);
        Ok((read > 0).then(|| (Bytes::from(chunk), content)))
    });
    chunks.boxed()
}

/// What reading the file said, else what its decoder did.
fn from_io(error: io::Error, name: &str) -> Error {
    match error.downcast::<Error>() {
        Ok(ours) => ours,
        Err(error) => {
            let why = match error.kind() {
                // Decoders that wait for more have no better word for it.
                io::ErrorKind::UnexpectedEof | io::ErrorKind::OutOfMemory => "its end is missing".to_owned(),
                _ => error.to_string(),
            };
            Error::invalid(format!("it cannot be decompressed as {name}: {why}"))
        }
    }
}

#[cfg(test)]
mod tests;
