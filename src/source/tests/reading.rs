#![allow(clippy::single_range_in_vec_init, reason = "one range to read")]

use std::io::Write;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::TryStreamExt;
use parquet::arrow::ParquetRecordBatchStreamBuilder;
use parquet::arrow::arrow_reader::ArrowReaderOptions;
use parquet::arrow::async_reader::AsyncFileReader;
use parquet::file::metadata::PageIndexPolicy;

use super::store::Bad;
use super::*;
use crate::error::{Error, ErrorKind};
use crate::source::PinnedReader;

/// Longer than the steps of the clock of a file system.
fn tick() {
    std::thread::sleep(Duration::from_millis(30));
}

async fn fails(reader: &mut PinnedReader, kind: ErrorKind) -> String {
    let error = reader.get_bytes(0..4).await.unwrap_err();
    let error = Error::find(&error).expect("an error of ours inside parquet's");
    assert_eq!(error.kind(), kind, "{error}");
    error.to_string()
}

async fn numbers(lake: &Lake, file: &FileVersion) -> Vec<i64> {
    let options = ArrowReaderOptions::new().with_page_index_policy(PageIndexPolicy::Required);
    let stream =
        ParquetRecordBatchStreamBuilder::new_with_options(lake.reader(file), options).await.unwrap().build().unwrap();
    let batches: Vec<RecordBatch> = stream.try_collect().await.unwrap();
    batches.iter().flat_map(|b| b.column(0).as_any().downcast_ref::<Int64Array>().unwrap().values().to_vec()).collect()
}

#[tokio::test]
async fn a_file_is_read_with_one_footer_request_and_the_scan_uses_it_again() {
    let tree = Tree::new(&[]);
    tree.write("a.parquet", &parquet(10, 4));
    let lake = tree.open("a.parquet");
    let file = one(lake.list().await.unwrap());
    let read = footer(&lake, &file).await;
    assert_eq!(read.group_rows, [4, 4, 2]);
    assert_eq!((read.digest.len(), read.evidence().rows(), read.evidence().row_groups()), (32, 10, 3));
    assert_eq!(lake.counters().snapshot().get, 1);
    assert_eq!(lake.reader(&file).get_metadata(None).await.unwrap().num_row_groups(), 3);
    assert_eq!(lake.counters().snapshot().get, 1, "remembered");
    assert_eq!(numbers(&lake, &file).await, (0..10).collect::<Vec<_>>());
    lake.forget_footer(&file);
    footer(&lake, &file).await;
    lake.stat("a.parquet").await.unwrap();
    let requests = lake.counters().snapshot();
    assert_eq!((requests.list, requests.head), (1, 1));
    assert!(requests.bytes >= 2 * file.size);
}

#[tokio::test]
async fn a_footer_larger_than_the_tail_costs_one_more_request() {
    let bytes = parquet(3000, 1);
    let tree = Tree::new(&[]);
    tree.write("a.parquet", &bytes);
    let lake = tree.open("");
    let (_, objects) = bucket(&[("a.parquet", &bytes)], Bad::new).await;
    let mut digests = Vec::new();
    for lake in [lake, objects] {
        let file = one(lake.list().await.unwrap());
        let read = footer(&lake, &file).await;
        assert_eq!(read.group_rows, vec![1; 3000]);
        let requests = lake.counters().snapshot();
        assert_eq!(requests.get, 2);
        assert!(requests.bytes > 64 * 1024 && requests.bytes < file.size, "{requests:?}");
        assert_eq!(numbers(&lake, &file).await.len(), 3000);
        digests.push(read.digest.clone());
    }
    assert_eq!(digests[0], digests[1], "the digest is of the content");
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let thrift = &bytes[bytes.len() - 8 - length..bytes.len() - 8];
    assert_eq!(digests[0], format!("{:032x}", xxhash_rust::xxh3::xxh3_128(thrift)));
}

#[tokio::test]
async fn r33_r34_what_is_no_complete_file_is_unusable_and_the_others_are_not() {
    let whole = parquet(10, 4);
    let end = whole.len();
    let with = |at: usize, bytes: &[u8]| {
        let mut file = whole.clone();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        file
    };
    let cut_front = [&whole[..4], &whole[40..]].concat();
    let broken: [(&str, Vec<u8>); 8] = [
        ("empty", Vec::new()),
        ("few bytes", whole[..7].to_vec()),
        ("truncated", whole[..end - 20].to_vec()),
        ("bad magic", with(end - 4, b"PAR2")),
        ("encrypted", with(end - 4, b"PARE")),
        ("footer too long", with(end - 8, &u32::MAX.to_le_bytes())),
        ("undecodable", with(end - 8, &9u32.to_le_bytes())),
        ("data cut out", cut_front),
    ];
    let tree = Tree::new(&[]);
    let files: Vec<(&str, &[u8])> = broken.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    files.iter().for_each(|(name, bytes)| tree.write(name, bytes));
    let (_, objects) = bucket(&files, Bad::new).await;
    for lake in [tree.open(""), objects] {
        for file in &lake.list().await.unwrap().files {
            let why = unusable(&lake, file).await;
            assert!(!why.is_empty(), "{file}");
            lake.reader(file).get_metadata(None).await.unwrap_err();
        }
    }
    // R34: completed later under the same name.
    tree.write("truncated", &whole);
    let lake = tree.open("truncated");
    let file = one(lake.list().await.unwrap());
    assert_eq!(footer(&lake, &file).await.group_rows, [4, 4, 2]);
    // R33: a valid file without row groups.
    tree.write("no rows", &parquet(0, 1));
    let lake = tree.open("no rows");
    let file = one(lake.list().await.unwrap());
    assert_eq!(footer(&lake, &file).await.group_rows, [0u64; 0]);
}

#[tokio::test]
async fn a_damaged_footer_never_stops_the_program() {
    let whole = parquet(10, 4);
    let length = u32::from_le_bytes(whole[whole.len() - 8..][..4].try_into().unwrap()) as usize;
    let start = whole.len() - 8 - length;
    let tree = Tree::new(&[]);
    for i in 0..length {
        let mut bytes = whole.clone();
        bytes[start + i] ^= 1 << (i % 8);
        tree.write(&format!("{i}"), &bytes);
    }
    let lake = tree.open("");
    let mut unusable = 0;
    for file in &lake.list().await.unwrap().files {
        match lake.footer(file).await.unwrap() {
            FooterRead::Read(_) => {}
            FooterRead::Unusable(_) => unusable += 1,
            other => panic!("{file}: {other:?}"),
        }
    }
    assert!(unusable > 20, "{unusable}");
}

#[tokio::test]
async fn r20_an_overwrite_in_place_during_a_read_is_noticed() {
    let tree = Tree::new(&[]);
    tree.write("a.parquet", &parquet(1000, 100));
    tick();
    let lake = tree.open("");
    let file = one(lake.list().await.unwrap());
    footer(&lake, &file).await;
    let mut reader = lake.reader(&file);
    reader.read(&[0..4, 10..20]).await.unwrap();
    // Same size, same inode; R19: the footer is not used again either.
    std::fs::File::options().write(true).open(tree.at("a.parquet")).unwrap().write_all(b"XXXX").unwrap();
    fails(&mut reader, ErrorKind::ChangedSincePlanning).await;
    assert!(matches!(lake.footer(&file).await.unwrap(), FooterRead::Changed));
    // Cut short.
    let file = one(lake.list().await.unwrap());
    let mut reader = lake.reader(&file);
    reader.read(&[0..4]).await.unwrap();
    std::fs::write(tree.at("a.parquet"), b"short").unwrap();
    fails(&mut reader, ErrorKind::ChangedSincePlanning).await;
}

#[tokio::test]
async fn r20_no_read_that_races_with_an_overwrite_gives_other_bytes() {
    const SIZE: usize = 4 << 20;
    let tree = Tree::new(&[]);
    let mut noticed = 0;
    for round in 0..20u8 {
        tree.write("a.parquet", &vec![round; SIZE]);
        tick();
        let lake = tree.open("a.parquet");
        let file = one(lake.list().await.unwrap());
        let mut reader = lake.reader(&file);
        let mut writable = std::fs::File::options().write(true).open(tree.at("a.parquet")).unwrap();
        let writer = std::thread::spawn(move || writable.write_all(&vec![!round; SIZE]).unwrap());
        loop {
            match reader.read(&[0..SIZE as u64]).await {
                Ok(read) => assert!(read[0].iter().all(|&byte| byte == round), "round {round}"),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::ChangedSincePlanning);
                    noticed += 1;
                    break;
                }
            }
        }
        writer.join().unwrap();
    }
    assert_eq!(noticed, 20);
}

#[tokio::test]
async fn r20_a_replacement_by_rename_during_a_read_gives_the_planned_bytes() {
    let (old, new) = (parquet(10, 4), parquet(900, 4));
    let tree = Tree::new(&[]);
    tree.write("a.parquet", &old);
    tick();
    let lake = tree.open("a.parquet");
    let file = one(lake.list().await.unwrap());
    let mut reader = lake.reader(&file);
    assert_eq!(reader.get_bytes(0..4).await.unwrap(), old[..4]);
    tree.write("new", &new);
    std::fs::rename(tree.at("new"), tree.at("a.parquet")).unwrap();
    let ranges = vec![4..50, 60..file.size, 0..0];
    let read = reader.get_byte_ranges(ranges.clone()).await.unwrap();
    for (range, bytes) in ranges.iter().zip(read) {
        assert_eq!(bytes, old[range.start as usize..range.end as usize]);
    }
    fails(&mut lake.reader(&file), ErrorKind::ChangedSincePlanning).await;
    std::fs::remove_file(tree.at("a.parquet")).unwrap();
    assert!(fails(&mut lake.reader(&file), ErrorKind::ChangedSincePlanning).await.contains("vanished"));
    assert!(matches!(lake.footer(&file).await.unwrap(), FooterRead::Vanished));
    assert_eq!(lake.stat("a.parquet").await.unwrap(), None);
}

#[tokio::test]
async fn r19_r20_reads_of_an_object_store_are_pinned_and_a_failed_pin_drops_the_footer() {
    for (bad, same_size) in [("strict", true), ("unconditional", true), ("no etag", false), ("no etag", true)] {
        let wrap = |m| Bad {
            strict: bad == "strict",
            unconditional: bad == "unconditional",
            no_etag: bad == "no etag",
            ..Bad::new(m)
        };
        let (memory, lake) = bucket(&[("a.parquet", &parquet(1000, 100))], wrap).await;
        let file = one(lake.list().await.unwrap());
        assert_eq!(file.etag.is_none(), bad == "no etag");
        footer(&lake, &file).await;
        assert_eq!(numbers(&lake, &file).await.len(), 1000);
        tick();
        put(&memory, "a.parquet", &if same_size { parquet(1000, 100) } else { parquet(2, 1) }).await;
        let mut reader = lake.reader(&file);
        let error = reader.get_bytes(file.size - 4..file.size).await.unwrap_err();
        assert_eq!(Error::find(&error).unwrap().kind(), ErrorKind::ChangedSincePlanning, "{bad}");
        assert!(matches!(lake.footer(&file).await.unwrap(), FooterRead::Changed), "{bad}");
        memory.delete(&"lake/a.parquet".into()).await.unwrap();
        assert!(fails(&mut reader, ErrorKind::ChangedSincePlanning).await.contains("vanished"), "{bad}");
        assert!(matches!(lake.footer(&file).await.unwrap(), FooterRead::Vanished), "{bad}");
    }
}

#[tokio::test]
async fn an_empty_object_is_unusable_only_while_it_is_the_planned_one() {
    let (memory, lake) = bucket(&[("a.parquet", b"")], Bad::new).await;
    let file = one(lake.list().await.unwrap());
    unusable(&lake, &file).await;
    put(&memory, "a.parquet", &parquet(1, 1)).await;
    assert!(matches!(lake.footer(&file).await.unwrap(), FooterRead::Changed));
    assert_eq!(lake.counters().snapshot().head, 2, "there are no bytes to get");
}

#[tokio::test]
async fn r56_a_failed_read_is_an_error_and_says_nothing_about_the_file() {
    let mut failing = Default::default();
    let (_, lake) = bucket(&[("a.parquet", &parquet(3000, 1))], |m| {
        let bad = Bad::new(m);
        failing = Arc::clone(&bad.failing);
        bad
    })
    .await;
    let file = one(lake.list().await.unwrap());
    failing.store(1, Ordering::SeqCst);
    let error = lake.footer(&file).await.unwrap_err();
    assert_eq!((error.kind(), error.place()), (ErrorKind::Unavailable, Some("s3://b/lake/a.parquet")));
    assert_eq!(failing.load(Ordering::SeqCst), 0, "the fault fired");
    assert_eq!(footer(&lake, &file).await.group_rows.len(), 3000);
    failing.store(1, Ordering::SeqCst);
    fails(&mut lake.reader(&file), ErrorKind::Unavailable).await;
    assert_eq!(lake.reader(&file).read(&[0..4]).await.unwrap()[0], "PAR1");
    let far = lake.reader(&file).read(&[0..file.size + 1]).await.unwrap_err();
    assert_eq!(far.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_damaged_path_never_leads_out_of_the_root() {
    let tree = Tree::new(&["lake/a.parquet", "secret"]);
    let lake = tree.open("lake");
    for path in ["../secret", "/etc/passwd", "", "a/./b", "a\0b"] {
        assert_eq!(lake.stat(path).await.unwrap_err().kind(), ErrorKind::Invalid, "{path}");
    }
    let (_, objects) = bucket(&[("a", b"x")], Bad::new).await;
    for path in ["../secret", "a//b", "a/"] {
        assert_eq!(objects.stat(path).await.unwrap_err().kind(), ErrorKind::Invalid, "{path}");
    }
}

#[test]
fn remembered_footers_are_bounded_by_number_and_by_bytes() {
    use crate::source::cache::FooterCache;
    use crate::source::footer::decode;
    let bytes = parquet(10, 4);
    let length = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().unwrap()) as usize;
    let thrift = bytes[bytes.len() - 8 - length..bytes.len() - 8].to_vec().into();
    let footer = Arc::new(decode(&thrift, bytes.len() as u64).unwrap());
    let file = |i: i64| FileVersion::new("a", 1).with_mtime(i);
    let kept = |cache: &FooterCache| (0..10).filter(|&i| cache.get(&file(i)).is_some()).collect::<Vec<_>>();

    let few = FooterCache::new(3, usize::MAX);
    (0..10).for_each(|i| few.put(&file(i), Arc::clone(&footer)));
    assert_eq!(kept(&few), [7, 8, 9]);
    few.forget(&file(8));
    assert_eq!(kept(&few), [7, 9], "R19: by version, not by path");

    let small = FooterCache::new(100, 2 * footer.memory_size() + 1);
    (0..10).for_each(|i| small.put(&file(i), Arc::clone(&footer)));
    assert_eq!(kept(&small), [8, 9]);
    small.put(&FileVersion::new("a", 1), Arc::clone(&footer));
    assert!(small.get(&FileVersion::new("a", 1)).is_none(), "absent never equals absent");
}
