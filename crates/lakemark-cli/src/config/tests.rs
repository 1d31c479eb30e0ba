use std::num::NonZeroUsize;
use std::time::Duration;

use lakemark::{Error, ErrorKind, Result};
use rstest::rstest;

use super::settings::{RunConfig, TransformConfig};
use super::values::{Bytes, OnError};
use super::*;
use crate::args::{Cli, Verb};

/// Every key of the contract's sample, at the value that it says is the default.
const SAMPLE: &str = r#"
store = "s3://lake/docs_upper.lakemark/store"

[[source]]
name = "docs"
url  = "s3://lake/docs/"
format = "parquet"
mode = "files"
on = []
on_change = "reprocess"
on_moved = "fail"
on_delete = "keep"
on_duplicate = "first"
on_null = "equal"
key_values = true
max_replaced = "10%"
role = "tracked"
table = ""
storage_options = {}

[transform]
sql = "SELECT * FROM \"docs\""
map = []
fingerprint = ""

[sink]
kind = "parquet"
url  = "s3://lake/docs_upper/"
partition_by = []
schema_mode = "fail"
compression = "zstd(3)"
max_row_group_size = 1048576
target_file_size = ""
catalog = {}
storage_options = {}

[run]
task_bytes = "128MiB"
task_rows = 0
max_tasks = 0
retries = 2
task_timeout = ""
on_error = "fail"
commit_every = "15m"
memory = ""
key_memory = "2GiB"
grace = "25s"
lease = "60s"
beat = "10s"
"#;

/// What must be given.
const SMALLEST: &str = r#"
[[source]]
name = "docs"
url = "s3://lake/docs/"

[sink]
kind = "parquet"
url = "s3://lake/docs_upper/"
"#;

/// The job of a file called `job.toml` and the flags of a command line; the environment holds `BUCKET` and `MONEY`.
fn job(text: &str, flags: &[&str]) -> Result<JobConfig> {
    let cli = Cli::read(["lakemark", "run"].iter().chain(flags)).expect("the flags are known");
    let Verb::Run(run) = cli.verb else { panic!("the verb is run") };
    let env = |name: &str| match name {
        "BUCKET" => Some("lake".to_owned()),
        "MONEY" => Some("$${BUCKET}".to_owned()),
        _ => None,
    };
    read((!text.is_empty()).then_some(("job.toml", text)), &run.job.flags, &env)
}

/// [`SMALLEST`] with `line` in the source.
fn with_source_line(line: &str) -> Result<JobConfig> {
    job(&SMALLEST.replace("\n[sink]", &format!("{line}\n\n[sink]")), &[])
}

fn message(result: Result<JobConfig>) -> String {
    result.and_then(|job| job.check()).expect_err("it is wrong").to_string()
}

#[test]
fn the_sample_shows_the_defaults() {
    let sample = job(SAMPLE, &[]).unwrap();
    let smallest = job(SMALLEST, &[]).unwrap();
    assert_eq!(sample.store_url(), smallest.store_url());
    assert_eq!(sample.sql(), smallest.sql());
    let mut shown = JobConfig { store: None, transform: TransformConfig::default(), ..sample.clone() };
    // It depends on the format: the sample says it for files.
    assert_eq!(shown.sources[0].on_change.take(), Some(smallest.sources[0].on_change()));
    assert_eq!(shown, smallest);
    sample.check().unwrap();
    smallest.check().unwrap();
}

#[test]
fn every_type_of_value_is_read() {
    let job = job(
        "
        [[source]]
        name = 'a'
        url = 's3://${BUCKET}/a'
        on = ['x', 'y']
        max_replaced = 25
        storage_options = { timeout = 30, 'aws.key' = '${BUCKET}' }
        [sink]
        kind = 'iceberg'
        url = '/out'
        compression = 'snappy'
        target_file_size = '1GB'
        max_row_group_size = 1_000
        catalog = { type = 'rest' }
        [run]
        concurrency = 3
        task_bytes = 1000
        on_error = 'set-aside'
        task_timeout = '1h 30m'
        memory = '8GiB'
        ",
        &[],
    )
    .unwrap();
    let [source] = job.sources.as_slice() else { panic!("one source") };
    assert_eq!(source.url, "s3://lake/a");
    assert_eq!(source.on, ["x", "y"]);
    assert_eq!(source.max_replaced, MaxReplaced::Files(25));
    let options: Vec<_> = source.storage_options.iter().collect();
    assert_eq!(options, [("aws.key", "lake"), ("timeout", "30")]);
    assert_eq!(format!("{:?}", source.storage_options), r#"{"aws.key", "timeout"}"#);
    assert_eq!((job.sink.kind, job.sink.compression), (SinkKind::Iceberg, Compression::Snappy));
    assert_eq!(job.sink.target_file_size, Some(Bytes(1_000_000_000)));
    assert_eq!(job.sink.max_row_group_size.get(), 1000);
    assert_eq!(job.sink.catalog.kind.as_deref(), Some("rest"));
    assert_eq!(job.run.concurrency.get(), 3);
    assert_eq!((job.run.task_bytes, job.run.memory), (Bytes(1000), Some(Bytes(8 << 30))));
    assert_eq!((job.run.on_error, job.run.task_timeout), (OnError::SetAside, Some(Duration::from_secs(5400))));
}

#[rstest]
#[case::unknown_key(
    "on_chnage = \"fail\"",
    "unknown key `source.docs.on_chnage`\n  at: job.toml:5\n  way on: did you mean `source.docs.on_change`?"
)]
#[case::far_from_any_key(
    "[run]\nspeed = 3",
    "unknown key `run.speed`\n  at: job.toml:6\n  way on: the keys of run are concurrency, task_bytes, task_rows, max_tasks, \
     retries, task_timeout, on_error, commit_every, memory, key_memory, grace, lease, beat"
)]
#[case::not_a_choice(
    "on_moved = \"acept\"",
    "`source.docs.on_moved` is \"acept\"; it takes one of fail, accept, reprocess\n  at: job.toml:5\n  \
     way on: did you mean \"accept\"?"
)]
#[case::not_a_share(
    "max_replaced = 0.1",
    "`source.docs.max_replaced` is 0.1; it takes a share such as \"10%\" (0% to 100%) or a number of files\n  \
     at: job.toml:5"
)]
#[case::zero("[run]\nconcurrency = 0", "`run.concurrency` is 0; it takes a whole number, 1 or more\n  at: job.toml:6")]
#[case::wrong_type_in_a_list(
    "on = [\"a\", 1]",
    "`source.docs.on[1]` is 1; it takes a text in quotes\n  at: job.toml:5"
)]
#[case::unset_variable(
    "storage_options.secret = \"x${TOKEN}\"",
    "`source.docs.storage_options.secret` needs the environment variable `TOKEN`, which is not set\n  at: job.toml:5\n  \
     way on: set TOKEN, or write `$${TOKEN}` if the text is meant as it stands"
)]
#[case::credential_of_a_wrong_type(
    "storage_options = \"hunter2\"",
    "`source.docs.storage_options` is not usable; it takes a table of texts\n  at: job.toml:5"
)]
#[case::credential_that_is_not_toml(
    "storage_options.secret = hunter2",
    "the job file is not TOML: string values must be quoted, expected literal string\n  at: job.toml:5"
)]
#[case::name_is_missing("[[source]]\nurl = \"/x\"", "`source[1].name` is missing\n  at: job.toml:5")]
#[case::misspelt_and_so_missing(
    "[[source]]\nnme = \"x\"",
    "unknown key `source[1].nme`\n  at: job.toml:6\n  way on: did you mean `source[1].name`?"
)]
#[case::not_in_this_version(
    "[transform]\nmap = [\"cat\"]",
    "not in this version: `transform.map` (the transform is SQL)\n  \
     safe: nothing was read and nothing was changed\n  way on: remove what is named"
)]
#[case::no_effect(
    "[[source]]\nname = \"l\"\nurl = \"/l\"\nrole = \"lookup\"\non_change = \"ignore\"",
    "`source.l.on_change` has no effect: work on a lookup is not recorded\n  way on: remove `source.l.on_change`"
)]
#[case::two_of_a_name(
    "[[source]]\nname = \"docs\"\nurl = \"/x\"",
    "two sources are named `docs`\n  at: source[1].name"
)]
fn messages_of_a_file(#[case] line: &str, #[case] expected: &str) {
    assert_eq!(message(with_source_line(line)), expected);
}

#[rstest]
#[case::same_as_of_a_file(
    &["--on-moved", "acept"],
    "`source.docs.on_moved` is \"acept\"; it takes one of fail, accept, reprocess\n  at: flag --on-moved\n  \
     way on: did you mean \"accept\"?"
)]
#[case::unknown_key(
    &["--set", "run.task_row=5"],
    "unknown key `run.task_row`\n  at: flag --set run.task_row\n  way on: did you mean `run.task_rows`?"
)]
#[case::unknown_source(
    &["--set", "source.dosc.on_change=fail"],
    "no source is named `dosc`\n  at: flag --set source.dosc.on_change\n  way on: did you mean `source.docs`?"
)]
#[case::several_sources(
    &["--source", "more=/more", "--on-change", "fail"],
    "there are several sources: docs, more\n  at: flag --on-change\n  \
     way on: say which one: --set source.NAME.on_change=VALUE"
)]
#[case::source_without_name(
    &["--source", "/data"],
    "\"/data\" has no name\n  at: flag --source\n  way on: write --source NAME=URL, e.g. --source docs=/data"
)]
#[case::nowhere_for_the_store(
    &["--sink", "none"],
    "no store is named, and there is none by default\n  at: sink.kind = \"none\": there is no sink to put it beside\n  \
     way on: set `store`, or give --store URL"
)]
#[case::cluster(
    &["--cluster", "http://c:1"],
    "a run on a cluster is not in this version\n  at: flag --cluster\n  \
     way on: run without --cluster, in this process"
)]
#[case::beat_too_slow(
    &["--set", "run.lease=10s"],
    "`run.beat` is 10s, which is not less than `run.lease`, 10s\n  \
     way on: a holder that beats more slowly than its lease looks dead: leave room for several beats"
)]
fn messages_of_flags(#[case] flags: &[&str], #[case] expected: &str) {
    assert_eq!(message(job(SMALLEST, flags)), expected);
}

#[test]
fn flags_win_over_the_file() {
    let flags = [
        "--store",
        "/store",
        "--source",
        "docs=/docs",
        "--on-change",
        "ignore",
        "--on-moved",
        "accept",
        "--sql",
        "q",
        "--sink",
        "parquet:/out",
        "--partition-by",
        "a,b",
        "--concurrency",
        "3",
        "--task-bytes",
        "1MiB",
        "--task-rows",
        "7",
        "--max-tasks",
        "8",
        "--retries",
        "9",
    ];
    let job = job(SAMPLE, &flags).unwrap();
    let [source] = job.sources.as_slice() else { panic!("one source") };
    assert_eq!((job.store_url().as_str(), source.url.as_str(), job.sql().as_str()), ("/store", "/docs", "q"));
    assert_eq!((source.on_change(), source.on_moved), (OnChange::Ignore, OnMoved::Accept));
    assert_eq!(
        (job.sink.url.as_deref(), job.sink.partition_by.as_slice()),
        (Some("/out"), &["a".into(), "b".into()][..])
    );
    let run = RunConfig {
        concurrency: NonZeroUsize::new(3).unwrap(),
        task_bytes: Bytes(1 << 20),
        task_rows: 7,
        max_tasks: 8,
        retries: 9,
        ..RunConfig::default()
    };
    assert_eq!(job.run, run);
    job.check().unwrap();
}

#[test]
fn a_job_of_flags_alone() {
    let job = job("", &["--source", "my docs=/docs", "--sink", "none", "--store", "/s"]).unwrap();
    assert_eq!(job.sql(), "SELECT * FROM \"my docs\"");
    assert_eq!(job.store_url(), "/s");
    job.check().unwrap();
}

#[test]
fn a_store_alone_can_be_looked_at_but_not_run() {
    let job = job("", &["--store", "/s"]).unwrap();
    assert_eq!(job.store_url(), "/s");
    assert_eq!(job.check().unwrap_err().what(), "no source is tracked");
}

#[test]
fn no_job_at_all_is_an_error() {
    assert_eq!(message(job("", &[])).lines().next(), Some("no job is given"));
}

/// Setting each line of the sample by `--set` is the same as writing it.
#[test]
fn set_writes_what_the_file_would() {
    let mut sets = Vec::new();
    let mut table = String::new();
    for line in SAMPLE.lines() {
        match line.split_once('=') {
            Some((key, value)) => sets.push(format!("{table}{}={}", key.trim(), value.trim())),
            None if line == "[[source]]" => table = "source.docs.".into(),
            None => table = line.trim_matches(['[', ']']).to_owned() + ".",
        }
    }
    sets.iter_mut().for_each(|set| *set = set.trim_start_matches('.').to_owned());
    let mut flags = vec!["--source", "docs=/other"];
    flags.extend(sets.iter().flat_map(|set| ["--set", set]));
    assert_eq!(job("", &flags).unwrap(), job(SAMPLE, &[]).unwrap());
}

#[rstest]
#[case("source.docs.name=7", |job: &JobConfig| job.sources[0].name == "7")]
#[case("source.docs.on=[\"a\"]", |job: &JobConfig| job.sources[0].on == ["a"])]
#[case("source.docs.max_replaced=5%", |job: &JobConfig| job.sources[0].max_replaced == MaxReplaced::Percent(5.0))]
#[case("source.\"docs\".storage_options.\"a.b\"=0x1F", |job: &JobConfig| job.sources[0].storage_options.iter().eq([("a.b", "0x1F")]))]
#[case("transform.sql='a' || 'b'", |job: &JobConfig| job.sql() == "'a' || 'b'")]
#[case("transform.sql=a = b", |job: &JobConfig| job.sql() == "a = b")]
#[case("run={ task_rows = 5 }", |job: &JobConfig| job.run.task_rows == 5)]
#[case("run.grace=1m", |job: &JobConfig| job.run.grace == Duration::from_secs(60))]
fn set_takes_toml_or_text(#[case] set: &str, #[case] holds: fn(&JobConfig) -> bool) {
    assert!(holds(&job(SMALLEST, &["--set", set]).unwrap()));
}

#[rstest]
#[case("${BUCKET}/${BUCKET}x", Some("lake/lakex"))]
#[case("^a$|$1|$", Some("^a$|$1|$"))]
#[case("$${BUCKET} $$$$", Some("${BUCKET} $$"))]
#[case("${MONEY}", Some("$${BUCKET}"))]
#[case("${UNSET}", None)]
#[case("${BUCKET", None)]
#[case("${}", None)]
fn variables(#[case] text: &str, #[case] expected: Option<&str>) {
    assert_eq!(job(SMALLEST, &["--sql", text]).ok().map(|job| job.sql()).as_deref(), expected);
}

#[rstest]
#[case("128MiB", Some(128 << 20))]
#[case("1GB", Some(1_000_000_000))]
#[case("1 kb", Some(1000))]
#[case("2TiB", Some(2 << 40))]
#[case("12", Some(12))]
#[case("1_000B", Some(1000))]
#[case("0", None)]
#[case("", None)]
#[case("MiB", None)]
#[case("1M", None)]
#[case("-1", None)]
#[case("1.5GiB", None)]
#[case("99999999TiB", None)]
fn sizes(#[case] text: &str, #[case] expected: Option<u64>) {
    let set = format!("run.task_bytes={text}");
    assert_eq!(job(SMALLEST, &["--set", &set]).ok().map(|job| job.run.task_bytes), expected.map(Bytes));
}

#[rstest]
#[case("zstd", Some(Compression::Zstd(3)))]
#[case("zstd(22)", Some(Compression::Zstd(22)))]
#[case("zstd(23)", None)]
#[case("zstd()", None)]
#[case("none", Some(Compression::None))]
#[case("lz4", Some(Compression::Lz4))]
fn compressions(#[case] text: &str, #[case] expected: Option<Compression>) {
    let set = format!("sink.compression={text}");
    assert_eq!(job(SMALLEST, &["--set", &set]).ok().map(|job| job.sink.compression), expected);
}

#[rstest]
#[case("/out//", Some("/out.lakemark/store"))]
#[case("out", Some("out.lakemark/store"))]
#[case("s3://b/out/", Some("s3://b/out.lakemark/store"))]
#[case("file:///out", Some("file:///out.lakemark/store"))]
#[case::another_bucket("s3://b/", None)]
#[case::the_root("/", None)]
#[case::the_root("file:///", None)]
#[case::inside_the_sink(".", None)]
#[case::inside_the_sink("a/../..", None)]
fn the_store_is_beside_the_sink(#[case] sink: &str, #[case] expected: Option<&str>) {
    let sink = format!("sink.url={sink}");
    assert_eq!(job(SMALLEST, &["--set", &sink]).ok().map(|job| job.store_url()).as_deref(), expected);
}

#[rstest]
#[case("docs", true)]
#[case("my docs.v2:ü", true)]
#[case("", false)]
#[case("..", false)]
#[case("a/b", false)]
#[case("a\\b", false)]
#[case("a\nb", false)]
#[case(&"x".repeat(129), false)]
fn names(#[case] name: &str, #[case] fits: bool) {
    let mut job = job(SMALLEST, &[]).unwrap();
    job.sources[0].name = name.into();
    assert_eq!(job.check().is_ok(), fits);
}

#[rstest]
#[case("source.docs.table=t")]
#[case("transform.map=[\"cat\"]")]
#[case("transform.fingerprint=v1")]
#[case("run.on_error=set-aside")]
#[case("run.commit_every=1m")]
fn what_is_not_in_this_version_is_refused(#[case] set: &str) {
    let job = job(SMALLEST, &["--set", set]).unwrap();
    let (key, _) = set.split_once('=').unwrap();
    let [(named, _)] = job.unsupported().try_into().unwrap();
    assert!(key.starts_with(&named), "{named}");
    assert_eq!(job.check().as_ref().map_err(Error::kind), Err(ErrorKind::Unsupported));
}

#[rstest]
#[case(&["mode=rows"], "`source.docs.on` is missing")]
#[case(&["on=[\"id\"]"], "`source.docs.on` has no effect: only rows mode has it")]
#[case(&["on_duplicate=fail"], "only rows mode has it")]
#[case(&["on_null=refuse"], "only rows mode has it")]
#[case(&["key_values=false"], "only rows mode has it")]
#[case(&["mode=rows", "on=[\"id\"]", "on_change=fail"], "what is done is told by row, and not by file")]
#[case(&["format=postgres"], "which has no files")]
fn keys_are_of_rows_mode_and_files_of_files_mode(#[case] sets: &[&str], #[case] said: &str) {
    let sets: Vec<String> = sets.iter().map(|set| format!("source.docs.{set}")).collect();
    let args: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let told = message(job(SMALLEST, &args).and_then(|job| job.check().map(|()| job)));
    assert!(told.contains(said), "{told}");
    let told = message(job(SMALLEST, &["--set", "run.key_memory=1GiB"]).and_then(|job| job.check().map(|()| job)));
    assert!(told.contains("no source is in rows mode"), "{told}");
    job(SMALLEST, &["--mode", "rows", "--on", "a,b", "--set", "run.key_memory=1GiB"]).unwrap().check().unwrap();
}

#[rstest]
#[case("source.docs.storage_options.a=b", "the source is on a local disk")]
#[case("sink.storage_options.a=b", "the sink and the store are on a local disk")]
fn options_of_object_stores_on_a_disk_are_without_effect(#[case] set: &str, #[case] why: &str) {
    let local = ["--set", "source.docs.url=/lake", "--set", "sink.url=/out", "--set", set];
    let message = message(job(SMALLEST, &local));
    assert!(message.contains("has no effect") && message.contains(why), "{message}");
    job(SMALLEST, &["--set", "store=s3://b/store", "--set", "sink.storage_options.a=b"]).unwrap().check().unwrap();
}

#[test]
fn only_parquet_has_row_groups() {
    for kind in ["csv", "json"] {
        let kind = format!("sink.kind={kind}");
        job(SMALLEST, &["--set", &kind]).unwrap().check().unwrap();
        for set in ["sink.compression=snappy", "sink.max_row_group_size=10"] {
            let told =
                message(job(SMALLEST, &["--set", &kind, "--set", set]).and_then(|job| job.check().map(|()| job)));
            assert!(told.contains("only Parquet has it"), "{told}");
        }
    }
}

#[test]
fn only_tables_get_columns() {
    let with = |kind: &str| {
        let kind = format!("sink.kind={kind}");
        let set = ["--set", &kind, "--set", "sink.schema_mode=merge"];
        job(SMALLEST, &set).and_then(|job| job.check().map(|()| job))
    };
    assert_eq!(with("delta").unwrap().sink.schema_mode, SchemaMode::Merge);
    for kind in ["parquet", "csv", "json"] {
        let told = message(with(kind));
        assert!(told.contains("`sink.schema_mode`") && told.contains("only tables have columns"), "{told}");
    }
    assert!(message(with("none")).contains("the sink is none"));
    let told = message(job(SMALLEST, &["--set", "sink.schema_mode=overwrite"]));
    assert!(told.contains("one of fail, merge"), "{told}");
}

#[test]
fn csv_has_options_of_its_own() {
    let csv = ["--set", "source.docs.format=csv"];
    let with =
        |more: &[&'static str]| job(SMALLEST, &[&csv[..], more].concat()).and_then(|job| job.check().map(|()| job));
    let read =
        with(&["--set", "source.docs.csv={ header = false, delimiter = \"\\t\", quote = \"'\", types = \"text\" }"]);
    let csv = &read.unwrap().sources[0].csv;
    assert_eq!((csv.header, csv.delimiter.0, csv.quote.0, csv.types), (false, b'\t', b'\'', CsvTypes::Text));
    for (set, what) in [
        ("source.docs.csv.delimiter=é", "one character of ASCII"),
        ("source.docs.csv.header=yes", "one of true, false"),
        ("source.docs.csv.types=int", "one of infer, text"),
        ("source.docs.csv.headers=true", "did you mean `source.docs.csv.header`"),
    ] {
        let told = message(with(&["--set", set]));
        assert!(told.contains(what), "{set}: {told}");
    }
    let idle = ["--set", "source.docs.format=json", "--set", "source.docs.csv.header=false"];
    let told = message(job(SMALLEST, &idle).and_then(|job| job.check().map(|()| job)));
    assert!(told.contains("the source is not CSV"), "{told}");
}

#[rstest]
#[case("source.docs.on_change=replace")]
#[case("source.docs.on_delete=retract")]
fn old_output_leaves_where_it_can(#[case] set: &str) {
    job(SMALLEST, &["--set", set]).unwrap().check().unwrap();
    let with = |more: &[&str]| job(SMALLEST, &[&["--set", set][..], more].concat()).unwrap().check().unwrap_err();
    let catalog = r#"sink.catalog={ type = "sql", uri = "sqlite:////c.db", table = "a.b" }"#;
    let iceberg = with(&["--set", "sink.kind=iceberg", "--set", catalog]);
    assert!(iceberg.to_string().contains("Iceberg") && iceberg.kind() == ErrorKind::Unsupported, "{iceberg}");
    let none = with(&["--set", "sink.kind=none"]);
    assert!(none.to_string().contains("has no effect"), "{none}");
}

#[test]
fn a_catalog_is_of_iceberg_tables() {
    let set = ["--set", "sink.catalog.type=rest"];
    let message = message(job(SMALLEST, &set).and_then(|job| job.check().map(|()| job)));
    assert!(message.contains("only Iceberg tables are in a catalog"), "{message}");
    let iceberg = |more: &[&str]| {
        let set: Vec<String> = more.iter().map(|more| format!("sink.catalog.{more}")).collect();
        let set = set.iter().flat_map(|set| ["--set", set.as_str()]);
        let args: Vec<&str> = ["--set", "sink.kind=iceberg"].into_iter().chain(set).collect();
        job(SMALLEST, &args).unwrap().check().map_err(|error| error.to_string()).err().unwrap_or_default()
    };
    let sql = ["type=sql", "table=a.b"];
    for (uri, what) in [
        ("uri=sqlite:////lake/catalog.db", ""),
        ("uri=sqlite:/lake/a b%20c.db", ""),
        ("uri=sqlite:///lake/catalog.db", "relative path to some tools"),
        ("uri=sqlite:catalog.db", "no absolute path"),
        ("uri=sqlite::memory:", "no absolute path"),
        ("uri=sqlite:////lake/catalog.db?mode=ro", "query"),
        ("uri=postgres://user:hunter2@host/db", "SQLite databases only"),
        ("warehouse=/lake", "no `uri`"),
    ] {
        let told = iceberg(&[sql[0], sql[1], uri]);
        assert!(told.contains(what) && told.is_empty() == what.is_empty(), "{uri}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    let rest = ["type=rest", "table=a.b", "uri=http://host/"];
    for (set, what) in [
        (&["properties.token=\"hunter2\\n\""][..], "properties.token has a line break"),
        (&["properties.token=hunter2"], ""),
        (&["uri=http://host/?token=hunter2"], "has a query"),
        (&["type=memory"], "ends with the process"),
        (&["type=hive"], "one of sql, rest"),
        (&["type=sql", "uri=sqlite:////c.db", "properties.pool=ten"], "takes none"),
        (&["table=a"], "namespace.table"),
    ] {
        let told = iceberg(&[&rest[..], set].concat());
        assert!(told.contains(what) && told.is_empty() == what.is_empty(), "{set:?}: {told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
    assert!(iceberg(&[]).contains("`sink.catalog` is missing"));
}

#[test]
fn tables_as_sources_have_settings_of_their_own() {
    let table = |more: &[&str]| {
        let set = more.iter().flat_map(|set| ["--set", set]);
        let args: Vec<&str> = ["--format", "delta"].into_iter().chain(set).collect();
        job(SMALLEST, &args).unwrap()
    };
    assert_eq!(table(&[]).sources[0].on_change(), OnChange::Fail);
    table(&[]).check().unwrap();
    let told = |more: &[&str]| table(more).check().unwrap_err().to_string();
    assert!(told(&["source.docs.on_change=replace"]).contains("is not taken out"));
    assert!(told(&["source.docs.on_delete=retract"]).contains("is not taken out"));
    assert!(told(&["source.docs.on_moved=accept"]).contains("never moved"));
    assert!(told(&["source.docs.catalog.type=sql"]).contains("only Iceberg tables are in a catalog"));
    assert!(told(&["source.docs.format=iceberg"]).contains("`source.docs.catalog` is missing"));
}

#[test]
fn flags_of_the_one_source_pass_lookups_by() {
    let file = format!("{SMALLEST}\n[[source]]\nname = \"dim\"\nurl = \"/dim\"\nrole = \"lookup\"\n");
    let job = job(&file, &["--on-moved", "accept"]).unwrap();
    assert_eq!((job.sources[0].on_moved, job.sources[1].on_moved), (OnMoved::Accept, OnMoved::Fail));
}

#[test]
fn several_tracked_sources_need_a_query() {
    let more = ["--source", "more=/more"];
    assert!(message(job(SMALLEST, &more)).starts_with("`transform.sql` is missing"));
    job(SMALLEST, &[&more[..], &["--sql", "q"]].concat()).unwrap().check().unwrap();
    job(SMALLEST, &[&more[..], &["--set", "source.more.role=lookup"]].concat()).unwrap().check().unwrap();
}

#[rstest]
#[case(&["status", "job.toml", "a", "b"], Some("job.toml"), &["a", "b"])]
#[case(&["status", "a", "job.toml"], Some("job.toml"), &["a"])]
#[case(&["status", "--store", "/s", "a"], None, &["a"])]
fn status_tells_the_job_from_paths(#[case] args: &[&str], #[case] job: Option<&str>, #[case] paths: &[&str]) {
    let Verb::Status(status) = Cli::read(["lakemark"].iter().chain(args)).unwrap().verb else { panic!("status") };
    let (args, rest) = status.split();
    assert_eq!(args.job.as_deref(), job.map(std::path::Path::new));
    assert_eq!(rest, paths.iter().map(std::path::PathBuf::from).collect::<Vec<_>>());
}

#[rstest]
#[case(&["report", "--html", "x"], "error: `report` is not in this version\n")]
#[case(&["lag"], "error: unrecognized subcommand 'lag'\n")]
fn verbs_that_are_not_there(#[case] args: &[&str], #[case] expected: &str) {
    let error = Cli::read(["lakemark"].iter().chain(args)).unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().starts_with(expected), "{error}");
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn the_fuzz_corpus_of_job_files_replays() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/job_files");
    let files: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        let replayed = std::panic::catch_unwind(|| super::fuzzed::job_files(&bytes));
        assert!(replayed.is_ok(), "{}", file.display());
    }
}
