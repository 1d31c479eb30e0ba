//! The frame of every JSON object: what it is, the format version, a checksum over the body's exact bytes.

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, ErrorKind, Result};

/// The version of the store's format that this code writes, and the newest it reads.
pub const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Frame<'a> {
    lakemark: &'a str,
    format: u32,
    checksum: &'a str,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// The XXH3-128 of `bytes` as 32 hex digits.
pub fn digest(bytes: &[u8]) -> String {
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(bytes))
}

/// Frames `body` as an object of the kind `kind`.
pub fn encode<T: Serialize>(kind: &str, body: &T) -> Result<Bytes> {
    let fail = |e: serde_json::Error| Error::invalid(format!("a {kind} cannot be written as JSON")).caused_by(e);
    let body = serde_json::value::to_raw_value(body).map_err(fail)?;
    let checksum = digest(body.get().as_bytes());
    let frame = Frame { lakemark: kind, format: FORMAT, checksum: &checksum, body: &body };
    serde_json::to_vec(&frame).map(Bytes::from).map_err(fail)
}

/// Opens the frame of `bytes`, found at `place`.
///
/// # Errors
/// [`ErrorKind::Corrupt`] when it is torn, damaged or of another kind, [`ErrorKind::Incompatible`] when its format is
/// newer than this code knows (R124).
pub fn decode<T: DeserializeOwned>(kind: &str, place: &str, bytes: &[u8]) -> Result<T> {
    // The format is read first and leniently: a newer version may have changed everything else.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    if let Ok(Version { format }) = serde_json::from_slice(bytes)
        && format > FORMAT
    {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!("this {kind} has format {format}; this version of lakemark reads formats up to {FORMAT}"),
        )
        .at(place)
        .safe("nothing was changed")
        .way("use a version of lakemark at least as new as the one that wrote the store"));
    }
    let damaged = |why: String| Error::corrupt(place, format!("this {kind} is damaged: {why}"));
    if bytes.is_empty() {
        return Err(damaged("it is empty".into()));
    }
    let frame: Frame<'_> = serde_json::from_slice(bytes).map_err(|e| damaged(e.to_string()))?;
    if frame.format == 0 {
        return Err(damaged("it says format 0, which never was".into()));
    }
    if frame.lakemark != kind {
        return Err(damaged(format!("it is a {}", frame.lakemark)));
    }
    let checksum = digest(frame.body.get().as_bytes());
    if checksum != frame.checksum {
        return Err(damaged(format!("its checksum is {checksum}, recorded is {}", frame.checksum)));
    }
    serde_json::from_str(frame.body.get()).map_err(|e| damaged(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_or_missing_byte_is_noticed() {
        let bytes = encode("seal", &vec![1u32, 20, 300]).unwrap();
        assert_eq!(decode::<Vec<u32>>("seal", "x", &bytes).unwrap(), [1, 20, 300]);
        for i in 0..bytes.len() {
            let mut bad = bytes.to_vec();
            bad[i] ^= 1;
            assert!(decode::<Vec<u32>>("seal", "x", &bad).is_err(), "byte {i}");
            assert!(decode::<Vec<u32>>("seal", "x", &bytes[..i]).is_err(), "cut at {i}");
        }
        let error = decode::<Vec<u32>>("manifest", "here", &bytes).unwrap_err();
        assert_eq!((error.kind(), error.place()), (ErrorKind::Corrupt, Some("here")));
    }

    #[test]
    fn a_newer_format_is_refused_as_such() {
        let newer = br#"{"lakemark":"manifest","format":2,"other":1}"#;
        assert_eq!(decode::<u32>("manifest", "x", newer).unwrap_err().kind(), ErrorKind::Incompatible);
    }
}
