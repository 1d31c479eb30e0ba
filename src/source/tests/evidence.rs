use futures::TryStreamExt;
use xxhash_rust::xxh3::xxh3_128;

use super::*;
use crate::error::ErrorKind;
use crate::source::{ContentDigest, FileRead};

#[tokio::test]
async fn whole_files_are_known_by_the_digest_of_all_their_bytes() {
    let tree = Tree::new(&[]);
    let long: Vec<u8> = (0..10_000_000u32).map(|i| (i % 251) as u8).collect();
    for bytes in [&b""[..], b"x", b"a,b\n1,2\n", &long] {
        tree.write("f", bytes);
        let lake = tree.open("f").with_whole_files();
        let file = one(lake.list().await.unwrap());
        let FileRead::Read(evidence) = lake.evidence(&file).await.unwrap() else { panic!("{file}") };
        assert_eq!(evidence.digest, format!("{:032x}", xxh3_128(bytes)));
        assert_eq!((evidence.row_groups(), lake.counters().snapshot().bytes), (0, bytes.len() as u64));
        let chunks: Vec<_> = lake.reader(&file).chunks().try_collect().await.unwrap();
        assert_eq!(chunks.concat(), bytes);
        let mut digest = ContentDigest::default();
        chunks.iter().for_each(|chunk| digest.update(chunk));
        assert_eq!(digest.evidence(), evidence, "as it passes, and all at once");
    }
}

#[tokio::test]
async fn evidence_is_of_the_planned_version_or_of_none() {
    for text in ["", "x"] {
        let tree = Tree::new(&[]);
        tree.write("f", text.as_bytes());
        let lake = tree.open("").with_whole_files();
        let file = one(lake.list().await.unwrap());
        std::thread::sleep(std::time::Duration::from_millis(30));
        tree.write("f", text.to_uppercase().as_bytes());
        assert!(matches!(lake.evidence(&file).await.unwrap(), FileRead::Changed), "{text:?}");
        let read: crate::Result<Vec<_>> = lake.reader(&file).chunks().try_collect().await;
        assert_eq!(read.unwrap_err().kind(), ErrorKind::ChangedSincePlanning, "{text:?}");
        std::fs::remove_file(tree.0.path().join("f")).unwrap();
        assert!(matches!(lake.evidence(&file).await.unwrap(), FileRead::Vanished), "{text:?}");
    }
}
