use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_compression::futures::bufread::{BzEncoder, GzipEncoder, XzEncoder, ZstdEncoder};
use lakemark::ErrorKind;
use rstest::rstest;

use super::*;

/// `content` as one stream of what `end` names.
async fn compressed(end: &str, content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = match end {
        ".gz" => GzipEncoder::new(content).read_to_end(&mut bytes).await,
        ".bz2" => BzEncoder::new(content).read_to_end(&mut bytes).await,
        ".xz" => XzEncoder::new(content).read_to_end(&mut bytes).await,
        _ => ZstdEncoder::new(content).read_to_end(&mut bytes).await,
    };
    read.unwrap();
    bytes
}

/// What a file of these bytes holds, read in parts of `part` bytes.
async fn content(end: &str, bytes: &[u8], part: usize) -> Result<Vec<u8>> {
    let parts: Vec<Result<Bytes>> = bytes.chunks(part).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    let parts = decompressed(compression_of(end), stream::iter(parts).boxed());
    Ok(parts.try_collect::<Vec<Bytes>>().await?.concat())
}

async fn damage(end: &str, bytes: &[u8], what: &str) -> String {
    for part in [1, 7, 1 << 20] {
        let error = content(end, bytes, part).await.err().unwrap_or_else(|| panic!("{end}: {what} was not noticed"));
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    }
    content(end, bytes, 1 << 20).await.unwrap_err().what().to_owned()
}

fn lines() -> Vec<u8> {
    (0..200).map(|i| format!("{i},{}\n", i * i)).collect::<String>().into_bytes()
}

#[rstest]
#[tokio::test]
async fn all_of_a_file_is_read(#[values(".gz", ".bz2", ".xz", ".zst")] end: &str) {
    let large: Vec<u8> = lines().repeat(200);
    let (one, two) = (compressed(end, &large).await, compressed(end, b"more\n").await);
    for part in [1_000, 1 << 20] {
        assert!(content(end, &one, part).await.unwrap() == large);
        // As parallel compressors write them, or `cat`.
        let several = [&one[..], &two, &compressed(end, b"").await, &two].concat();
        assert!(content(end, &several, part).await.unwrap() == [&large[..], b"more\n", b"more\n"].concat());
    }
    assert_eq!(content(end, &compressed(end, b"").await, 1).await.unwrap(), b"");
}

#[rstest]
#[tokio::test]
async fn a_file_that_was_cut_is_no_whole_one(#[values(".gz", ".bz2", ".xz", ".zst")] end: &str) {
    let one = compressed(end, &lines()).await;
    for cut in 0..one.len() {
        let why = damage(end, &one[..cut], &format!("a cut at {cut} of {}", one.len())).await;
        assert!(why.contains("its end is missing"), "{end}, cut at {cut}: {why}");
    }
    let two = [&one[..], &one].concat();
    for cut in one.len() + 1..two.len() {
        damage(end, &two[..cut], &format!("a cut at {cut} of two")).await;
    }
}

#[rstest]
#[tokio::test]
async fn what_is_no_compressed_data_is_an_error(#[values(".gz", ".bz2", ".xz", ".zst")] end: &str) {
    let one = compressed(end, &lines()).await;
    for behind in ["x", "id,n\n", "\0", "\0\0\0\0\0\0\0\0", "garbage of some length, longer than a header\n"] {
        // In xz zeros are padding.
        if end == ".xz" && behind.starts_with('\0') {
            assert_eq!(content(end, &[&one[..], behind.as_bytes()].concat(), 7).await.unwrap(), lines());
            continue;
        }
        damage(end, &[&one[..], behind.as_bytes()].concat(), &format!("{behind:?} behind it")).await;
    }
    damage(end, b"", "an empty file").await;
    damage(end, &lines(), "a text").await;
    for other in [".gz", ".bz2", ".xz", ".zst"].into_iter().filter(|other| *other != end) {
        damage(end, &compressed(other, &lines()).await, other).await;
    }
    // zstd has no checksum unless it is asked for one.
    if end != ".zst" {
        let mut flipped = one.clone();
        flipped[one.len() / 2] ^= 1;
        damage(end, &flipped, "a flipped bit").await;
    }
}

/// A small file can hold very much.
#[rstest]
#[tokio::test]
async fn little_is_held_at_once(#[values(".gz", ".bz2", ".xz", ".zst")] end: &str) {
    let bytes = compressed(end, &vec![0; 8 << 20]).await;
    let parts: Vec<Result<Bytes>> = bytes.chunks(16).map(|part| Ok(Bytes::copy_from_slice(part))).collect();
    let asked = Arc::new(AtomicUsize::new(0));
    let (counter, all) = (Arc::clone(&asked), parts.len());
    let parts = stream::iter(parts).inspect(move |_| {
        counter.fetch_add(1, Ordering::SeqCst);
    });
    let mut content = decompressed(compression_of(end), parts.boxed());
    let first = content.try_next().await.unwrap().unwrap();
    // A block of bzip2 is its unit, and holds all of these zeros.
    assert!(end == ".bz2" || asked.load(Ordering::SeqCst) < all / 2, "{asked:?} of {all}");
    let mut length = first.len();
    while let Some(chunk) = content.try_next().await.unwrap() {
        assert!(chunk.len() <= CHUNK);
        length += chunk.len();
    }
    assert_eq!(length, 8 << 20);
}

#[tokio::test]
async fn what_the_file_says_stays_what_it_is() {
    let gone = stream::iter([Err(Error::new(ErrorKind::ChangedSincePlanning, "another version"))]);
    let read: Result<Vec<Bytes>> = decompressed(FileCompressionType::ZSTD, gone.boxed()).try_collect().await;
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ChangedSincePlanning);
}

#[test]
fn names_tell_what_is_read() {
    assert_eq!(compression_of("a.csv.gz"), FileCompressionType::GZIP);
    assert_eq!(compression_of("ä.Bz2"), FileCompressionType::BZIP2);
    assert_eq!(compression_of("gz"), FileCompressionType::UNCOMPRESSED);
    assert_eq!(compression_of("a.gz.csv"), FileCompressionType::UNCOMPRESSED);
    assert_eq!(not_read("a.csv.gz"), None);
    assert_eq!(not_read("lz4ä"), None);
    assert_eq!(not_read("a.zip").as_deref(), Some(".zip"));
    assert_eq!(not_read("a.TAR.gz").as_deref(), Some(".tar.gz"));
    assert_eq!(not_read("a.csv.gz.zst").as_deref(), Some(".gz.zst"));
}
