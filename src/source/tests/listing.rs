use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use rstest::rstest;

use super::store::Bad;
use super::*;
use crate::error::ErrorKind;

/// Names that other systems trip over: R35, R36, R113, R117.
const ODD: [&str; 12] = [
    "100%.parquet",
    "a b/my file.parquet",
    "a%20b.parquet",
    "a+b.parquet",
    "a\\b.parquet",
    "batch#12",
    "c\u{1}\n.parquet",
    "cafe\u{301}.parquet",
    "caf\u{e9}.parquet",
    "q?*.parquet",
    "x[1].parquet",
    "{a,b}.parquet",
];

/// Beyond what nanoseconds in 64 bits can tell: two such times must not be taken for one.
#[tokio::test]
async fn an_mtime_out_of_range_is_no_token() {
    let tree = Tree::new(&["a"]);
    let far = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(9_300_000_000);
    let file = std::fs::File::options().write(true).open(tree.0.path().join("a")).unwrap();
    file.set_modified(far).unwrap();
    let kept = file.metadata().unwrap().modified().unwrap() == far;
    let file = one(tree.list().await);
    assert_eq!(file.has_token(), !kept, "{file}");
}

#[tokio::test]
async fn r35_r36_r113_r117_every_name_is_listed_and_read_as_it_is() {
    let tree = Tree::new(&[]);
    let bytes = parquet(3, 3);
    ODD.iter().for_each(|name| tree.write(name, &bytes));
    let lake = tree.open("");
    let listing = lake.list().await.unwrap();
    assert_eq!(paths(&listing), ODD);
    for file in &listing.files {
        assert_eq!(footer(&lake, file).await.group_rows, [3]);
        assert_eq!(lake.stat(&file.path).await.unwrap().as_ref(), Some(file));
        // R35: alone, too, a listed name is never a pattern.
        let alone = tree.open(&file.path);
        assert_eq!(alone.list().await.unwrap().files.len(), 1);
        assert!(matches!(alone.select(), Select::File(_)));
    }
    assert!(listing.unusable.is_empty() && listing.hidden == 0);
    assert!(matches!(&listing.warnings[..], [one] if one.contains("look alike")), "R16: {:?}", listing.warnings);
}

#[tokio::test]
async fn raw_keys_of_an_object_store_are_never_encoded_again() {
    let odd: Vec<_> = ODD.into_iter().filter(|name| !name.chars().any(char::is_control)).collect();
    let bytes = parquet(3, 3);
    let files: Vec<(&str, &[u8])> = odd.iter().map(|name| (*name, bytes.as_slice())).collect();
    let (_, lake) = bucket(&files, Bad::new).await;
    let listing = lake.list().await.unwrap();
    assert_eq!(paths(&listing), odd);
    for file in &listing.files {
        assert_eq!(footer(&lake, file).await.group_rows, [3]);
        assert_eq!(lake.stat(&file.path).await.unwrap().as_ref(), Some(file));
    }
}

#[tokio::test]
async fn r14_files_are_known_by_their_full_path() {
    let files = ["d=1/part-0.parquet", "d=2/part-0.parquet", "part-0.parquet"];
    assert_eq!(paths(&Tree::new(&files).list().await), files);
}

#[tokio::test]
async fn r13_a_source_opened_by_url_and_by_path_is_the_same() {
    let tree = Tree::new(&["chk %@#x/a.parquet"]);
    let by_path = tree.open("chk %@#x/");
    let by_url = Lake::open(&by_path.root().to_string()).unwrap();
    assert_eq!(by_url.root(), by_path.root());
    assert_eq!(by_url.list().await.unwrap().files, by_path.list().await.unwrap().files);
}

const HIDDEN: [&str; 7] = [
    "_SUCCESS",
    ".part.crc",
    "_temporary/0/a.parquet",
    "_temporary/1/a.parquet",
    "_d=1/_x.parquet",
    "_d=1/a.parquet",
    "d=1/b.csv",
];

#[rstest]
#[case::disk(true)]
#[case::objects(false)]
#[tokio::test]
async fn r33_hidden_names_are_counted_and_everything_else_is_listed(#[case] disk: bool) {
    let lake_and_tree;
    let lake = if disk {
        lake_and_tree = Tree::new(&HIDDEN);
        lake_and_tree.open("")
    } else {
        bucket(&HIDDEN.map(|f| (f, &b"x"[..])), Bad::new).await.1
    };
    let listing = lake.list().await.unwrap();
    assert_eq!(paths(&listing), ["_d=1/a.parquet", "d=1/b.csv"]);
    assert_eq!(listing.hidden, 4, "two files, one directory, one file below a hive key");
}

#[tokio::test]
async fn a_pattern_selects_and_its_literal_part_is_the_root() {
    let tree = Tree::new(&[
        "lake[1]/d=1/x1.parquet",
        "lake[1]/d=1/x22.parquet",
        "lake[1]/d=1/y/x1.parquet",
        "lake[1]/d=2/x2.parquet",
        "lake[1]/e/x1.parquet",
    ]);
    let lake = tree.open("lake[1]/d=*/x?.parquet");
    assert_eq!(lake.root(), tree.open("lake[1]").root());
    assert_eq!(paths(&lake.list().await.unwrap()), ["d=1/x1.parquet", "d=2/x2.parquet"]);
    assert_eq!(lake.counters().snapshot().list, 3, "what cannot match is not read");
    tree.write("x*.parquet", b"x");
    tree.write("xy.parquet", b"x");
    assert_eq!(paths(&tree.open("x*.parquet").list().await.unwrap()), ["x*.parquet"], "R35");
}

#[tokio::test]
async fn what_is_not_there_is_an_error_and_never_empty() {
    let tree = Tree::new(&["gone/a.parquet"]);
    for missing in ["no", "no/*.parquet", "no/x.parquet"] {
        let error = Lake::open(tree.at(missing).to_str().unwrap()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.place().unwrap().contains("/no") && !error.ways().is_empty(), "{error}");
    }
    assert_eq!(Lake::open("s3://b/x").unwrap_err().kind(), ErrorKind::Unsupported);
    let (directory, file) = (tree.open("gone"), tree.open("gone/a.parquet"));
    std::fs::remove_dir_all(tree.at("gone")).unwrap();
    assert_eq!(directory.list().await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(file.list().await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_fails_the_whole_listing() {
    let tree = Tree::new(&["a/x.parquet", "locked/x.parquet"]);
    let lake = tree.open("");
    std::fs::set_permissions(tree.at("locked"), std::fs::Permissions::from_mode(0o000)).unwrap();
    let listed = lake.list().await;
    let superuser = std::fs::read_dir(tree.at("locked")).is_ok();
    std::fs::set_permissions(tree.at("locked"), std::fs::Permissions::from_mode(0o700)).unwrap();
    if !superuser {
        let error = listed.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.place().unwrap().ends_with("/locked"), "{error}");
    }
    // A link that cannot be resolved is an error for every user.
    tree.link("long.parquet", "n".repeat(300));
    let error = lake.list().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.place().unwrap().ends_with("/long.parquet"), "{error}");
}

#[tokio::test]
async fn a_prefix_that_cannot_be_listed_fails_the_whole_listing() {
    let (_, lake) = bucket(&[("a.parquet", b"x"), ("d/e/x.parquet", b"x"), ("d/f/x.parquet", b"x")], |m| Bad {
        no_deep_list: true,
        ..Bad::new(m)
    })
    .await;
    assert_eq!(lake.list().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

#[rstest]
#[case::single(&["a.parquet", "d/e/f/x.parquet", "d/y.parquet", "d/z/_h/x.parquet"], 1, 4)]
#[case::many(&["a.parquet", "d/x.parquet", "e/f/x.parquet", "g/x.parquet"], 0, 4)]
#[case::flat(&["a.parquet", "b.parquet"], 0, 1)]
#[case::empty(&[], 0, 1)]
#[tokio::test]
async fn r39_a_shuffled_listing_gives_the_same_plan(
    #[case] files: &[&str],
    #[case] hidden: u64,
    #[case] requests: u64,
) {
    let files: Vec<(&str, &[u8])> = files.iter().map(|f| (*f, &b"x"[..])).collect();
    let (memory, shuffled) = bucket(&files, |m| Bad { shuffled: true, ..Bad::new(m) }).await;
    let plain = Lake::on(shuffled.root().clone(), Select::All, memory);
    let (a, b) = (shuffled.list().await.unwrap(), plain.list().await.unwrap());
    assert_eq!((&a.files, a.hidden, &a.warnings), (&b.files, b.hidden, &b.warnings));
    assert_eq!((a.files.len() as u64 + hidden, a.hidden), (files.len() as u64, hidden));
    assert_eq!(plain.counters().snapshot().list, requests);
}

#[tokio::test]
async fn r40_a_loop_hides_nothing_and_multiplies_nothing() {
    let tree = Tree::new(&["d/sub/z.parquet", "e/x.parquet"]);
    tree.link("d/sub/loop", tree.at("d"));
    tree.link("up", tree.at("").parent().unwrap());
    tree.link("self", tree.at("self"));
    let listing = tree.list().await;
    assert_eq!(paths(&listing), ["d/sub/z.parquet", "e/x.parquet"]);
    assert_eq!(listing.warnings.len(), 2, "{:?}", listing.warnings);
    assert_eq!(
        listing.unusable,
        [Unusable { path: "self".into(), why: "symbolic link that leads back to itself".into() }]
    );
}

#[tokio::test]
async fn r40_a_linked_file_is_processed_once() {
    let tree = Tree::new(&["d/sub/z.parquet", "d/_hidden/h.parquet"]);
    tree.link("d/link.parquet", "sub/z.parquet");
    tree.link("d/h.parquet", tree.at("d/_hidden/h.parquet"));
    let lake = tree.open("d");
    let listing = lake.list().await.unwrap();
    assert_eq!(paths(&listing), ["h.parquet", "sub/z.parquet"], "a target that is not listed is read through its link");
    assert_eq!(listing.warnings.len(), 1);
    assert!(listing.warnings[0].contains("`link.parquet`") && listing.warnings[0].contains("`sub/z.parquet`"));
}

#[tokio::test]
async fn r40_a_dangling_link_is_reported() {
    let tree = Tree::new(&["a.parquet"]);
    tree.link("dangling.parquet", "nowhere");
    let listing = tree.list().await;
    assert_eq!(paths(&listing), ["a.parquet"]);
    assert_eq!(listing.unusable, [Unusable { path: "dangling.parquet".into(), why: "dangling symbolic link".into() }]);
}

#[tokio::test]
async fn r40_links_to_elsewhere_are_followed_under_their_own_names() {
    let elsewhere = Tree::new(&["f.parquet", "g/x.parquet"]);
    elsewhere.link("g/again.parquet", elsewhere.at("g/x.parquet"));
    elsewhere.link("g/back", elsewhere.at("g"));
    let tree = Tree::new(&["a.parquet"]);
    tree.link("f1.parquet", elsewhere.at("f.parquet"));
    tree.link("f2.parquet", elsewhere.at("f.parquet"));
    tree.link("g", elsewhere.at("g"));
    tree.link("through.parquet", elsewhere.at("g/x.parquet"));
    let listing = tree.list().await;
    assert_eq!(paths(&listing), ["a.parquet", "f1.parquet", "f2.parquet", "g/x.parquet"]);
    assert_eq!(listing.warnings.len(), 4, "{:?}", listing.warnings);
}

#[tokio::test]
async fn names_that_are_not_utf8_and_things_that_are_no_files_are_unusable() {
    let tree = Tree::new(&["a.parquet"]);
    std::fs::write(tree.0.path().join(OsStr::from_bytes(b"b\xff.parquet")), b"x").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(tree.at("s.parquet")).unwrap();
    let listing = tree.list().await;
    assert_eq!(paths(&listing), ["a.parquet"]);
    let names: Vec<_> = listing.unusable.iter().map(|u| (u.path.as_str(), u.why.as_str())).collect();
    assert_eq!(names, [("b\u{fffd}.parquet", "its name is not UTF-8"), ("s.parquet", "it is not a regular file")]);
}

#[tokio::test]
async fn r10_the_token_on_a_disk_is_the_full_mtime_and_survives_chmod_and_copy() {
    let tree = Tree::new(&["a.parquet"]);
    let before = one(tree.list().await);
    assert!(before.etag.is_none());
    let time = std::fs::metadata(tree.at("a.parquet")).unwrap().modified().unwrap();
    assert_eq!(before.mtime, Some(time.duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos() as i64));
    std::fs::copy(tree.at("a.parquet"), tree.at("b")).unwrap();
    std::fs::File::options().write(true).open(tree.at("b")).unwrap().set_modified(time).unwrap();
    std::fs::rename(tree.at("b"), tree.at("a.parquet")).unwrap();
    std::fs::set_permissions(tree.at("a.parquet"), std::fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(one(tree.list().await), before);
}

#[tokio::test]
async fn r32_a_listing_is_never_remembered_and_its_time_is_before_it() {
    let tree = Tree::new(&["a.parquet"]);
    let lake = tree.open("");
    let first = lake.list().await.unwrap();
    tree.write("b.parquet", b"x");
    let second = lake.list().await.unwrap();
    assert_eq!(second.files.len(), 2);
    assert!(first.taken_at < second.taken_at);
    let fresh = second.files[1].clone();
    assert!(crate::source::unsettled(&fresh, fresh.mtime.unwrap() + 1, true), "R04");
    assert_eq!(lake.clone().counters().snapshot().list, 2, "clones count together");
}

#[tokio::test]
async fn a_wide_tree_is_listed_completely() {
    let files: BTreeSet<String> =
        (0..40).flat_map(|d| (0..50).map(move |f| format!("d={d}/e={}/{f}.parquet", f % 5))).collect();
    let tree = Tree::new(&files.iter().map(String::as_str).collect::<Vec<_>>());
    let lake = tree.open("");
    let listing = lake.list().await.unwrap();
    assert!(listing.files.iter().map(|f| &*f.path).eq(files.iter().map(String::as_str)));
    assert_eq!(lake.counters().snapshot().list, 1 + 40 + 200);
}
