//! Lakes and stores on object stores: the real process against real servers.

use lakemark::{Bucket, Root, StorageOptions, run_python};
use object_store::ObjectStoreExt;
use object_store::path::Path;
use rstest::rstest;

use super::output::files_below;
use super::scene::Scene;

/// A prefix of a test server that nobody used, and how it is reached.
fn fresh(server: &str) -> (String, Vec<(&'static str, String)>) {
    let unique = uuid::Uuid::new_v4().simple();
    let endpoint = std::env::var(server)
        .unwrap_or_else(|_| panic!("{server} is not set: run `cargo xtask test`, which starts the servers"));
    let (scheme, keys) = match server {
        "LAKEMARK_TEST_S3" => {
            ("s3", vec![("access_key_id", "test"), ("secret_access_key", "test"), ("region", "us-east-1")])
        }
        _ => {
            // Azurite's own, published key.
            const KEY: &str =
                "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
            ("az", vec![("account_name", "devstoreaccount1"), ("account_key", KEY)])
        }
    };
    let mut options: Vec<_> = keys.into_iter().map(|(key, value)| (key, value.to_owned())).collect();
    options.extend([("allow_http", "true".to_owned()), ("endpoint", endpoint)]);
    (format!("{scheme}://lakemark/{unique}"), options)
}

/// A small scene whose lake is below `url`; and `options` as the job writes them.
fn remote(url: &str, options: &[(&'static str, String)]) -> (Scene, String) {
    let mut scene = Scene::small();
    upload(&scene, &format!("{url}/lake"), options, None);
    let toml: Vec<String> = options.iter().map(|(key, value)| format!("{key} = {value:?}")).collect();
    let toml = format!("{{ {} }}", toml.join(", "));
    scene.set("source.url", format!("\"{url}/lake\"")).set("source.storage_options", toml.clone());
    (scene, toml)
}

/// Puts the files of the scene's lake below `url`.
fn upload(scene: &Scene, url: &str, options: &[(&'static str, String)], only: Option<&str>) {
    let root = Root::parse(url).unwrap();
    let options: StorageOptions = options.iter().cloned().collect();
    let objects = Bucket::connect(&root, &options).unwrap().objects;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for path in scene.lake.files.keys().filter(|path| only.is_none_or(|only| only == *path)) {
            let bytes = std::fs::read(scene.lake.dir.join(path)).unwrap();
            let key = Path::parse(format!("{}/{path}", root.prefix())).unwrap();
            objects.put(&key, bytes.into()).await.unwrap();
        }
    });
}

#[rstest]
fn a_lake_and_a_store_on_an_object_store_are_exact_over_crashes(
    #[values("LAKEMARK_TEST_S3", "LAKEMARK_TEST_AZURE")] server: &str,
) {
    let (url, options) = fresh(server);
    let (mut scene, toml) = remote(&url, &options);
    scene.set("store", format!("\"{url}/store\"")).set("sink.storage_options", toml);
    scene.run(&["--max-tasks", "4"]).expect(3, "partial");
    scene.assert_part();
    for step in ["seal.after", "intent.after_manifest", "rename.after"] {
        scene.crash_at(step, 1);
        scene.assert_part();
    }
    let last = scene.run(&["--takeover"]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    scene.assert_exact_for_all();
    let idle = scene.run(&[]).nothing();
    let requests = ["list", "get"].map(|kind| idle.count(&format!("requests/store/{kind}")));
    assert!(requests.iter().sum::<u64>() <= 10, "{requests:?}");

    // Another version of one object, which only its etag tells.
    let groups = scene.lake.groups(1, 1, 40);
    let before = scene.lake.expected_of("day=1/a0001.parquet");
    scene.lake.put("day=1/a0001.parquet", groups);
    upload(&scene, &format!("{url}/lake"), &options, Some("day=1/a0001.parquet"));
    let again = scene.run(&[]).done();
    assert_eq!((again.files("replaced"), again.count("tasks/sealed")), (1, 1));
    let mut expected = scene.lake.expected();
    for (row, count) in before {
        *expected.entry(row).or_default() += count;
    }
    scene.assert_is(&expected);
    assert!(!scene.path("out.lakemark/store").exists(), "the store is where the job says");
}

/// Copies the objects below `url` into the folder where the scene's checks look.
fn download(scene: &Scene, url: &str, options: &[(&'static str, String)]) {
    use futures::TryStreamExt;
    let root = Root::parse(url).unwrap();
    let options: StorageOptions = options.iter().cloned().collect();
    let objects = Bucket::connect(&root, &options).unwrap().below(&root).unwrap();
    let _ = std::fs::remove_dir_all(scene.out());
    std::fs::create_dir_all(scene.out()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let listed: Vec<_> = objects.list(None).try_collect().await.unwrap();
        for object in listed {
            // The prefix store gives keys in a form that it takes back.
            let bytes = objects.get(&object.location).await.unwrap().bytes().await.unwrap();
            let file = scene.out().join(object.location.as_ref());
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, bytes).unwrap();
        }
    });
}

#[rstest]
fn everything_on_an_object_store_is_exact_over_crashes(
    #[values("LAKEMARK_TEST_S3", "LAKEMARK_TEST_AZURE")] server: &str,
) {
    let (url, options) = fresh(server);
    let (mut scene, toml) = remote(&url, &options);
    scene.set("sink.url", format!("\"{url}/out\"")).set("sink.storage_options", toml);
    let out = format!("{url}/out");
    scene.run(&["--max-tasks", "3"]).expect(3, "partial");
    for (step, nth) in [
        ("run.output", 1),
        ("seal.before", 1),
        ("seal.after", 2),
        ("intent.after_manifest", 1),
        ("rename.before", 2),
        ("rename.after", 1),
        ("done.before_manifest", 1),
    ] {
        // After a crash within a commit there may be nothing left to do but to finish it.
        let ended = scene.start(&[], &[("LAKEMARK_KILL_AT", &format!("{step}:{nth}"))]).wait();
        assert!(ended.was_killed() || ended.code() == 0, "{step}: {}", ended.stderr);
        download(&scene, &out, &options);
        scene.assert_part();
    }
    let last = scene.run(&[]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    download(&scene, &out, &options);
    scene.assert_exact_for_all();
    scene.run(&[]).nothing();
    assert!(!scene.path("out.lakemark").exists(), "nothing is on the disk");

    // Of new files only the new rows are written, and a destination whose objects are gone is refused.
    scene.lake.put_singles("new", 2, 20);
    upload(&scene, &format!("{url}/lake"), &options, Some("new0000.parquet"));
    upload(&scene, &format!("{url}/lake"), &options, Some("new0001.parquet"));
    assert_eq!(scene.run(&[]).done().count("rows/in"), 2);
    download(&scene, &out, &options);
    scene.assert_exact_for_all();
}

/// Reads a table on S3 with its own tools, into a Parquet file; none when there is no table.
const FETCH: &str = "
import sys, pyarrow.parquet as pq
url, endpoint, into, database = sys.argv[1:]
if database:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
    s3 = {'s3.endpoint': endpoint, 's3.access-key-id': 'test', 's3.secret-access-key': 'test', 's3.region': 'us-east-1'}
    try:
        rows = SqlCatalog('default', uri='sqlite:///' + database, **s3).load_table('lake.docs').scan().to_arrow()
        columns = [rows[name].cast('string') if name == 'text' else rows[name] for name in rows.column_names]
        import pyarrow as pa
        rows = pa.table(dict(zip(rows.column_names, columns)))
    except (NoSuchNamespaceError, NoSuchTableError): rows = None
else:
    import deltalake
    s3 = {'endpoint': endpoint, 'access_key_id': 'test', 'secret_access_key': 'test', 'region': 'us-east-1', 'allow_http': 'true'}
    there = deltalake.DeltaTable.is_deltatable(url, storage_options=s3)
    rows = deltalake.DeltaTable(url, storage_options=s3).to_pyarrow_table() if there else None
if rows is not None: pq.write_table(rows, into)
";

#[rstest]
fn a_table_on_an_object_store_is_exact_over_crashes(#[values("delta", "iceberg")] kind: &str) {
    let (url, options) = fresh("LAKEMARK_TEST_S3");
    let (mut scene, toml) = remote(&url, &options);
    let out = format!("{url}/out");
    scene.set("sink.kind", format!("{kind:?}")).set("sink.url", format!("{out:?}")).set("sink.storage_options", toml);
    let database = if kind == "iceberg" { scene.path("catalog of s3.db") } else { Default::default() };
    if kind == "iceberg" {
        let uri = format!("sqlite:{}", database.display());
        scene.set("sink.catalog", format!("{{ type = \"sql\", uri = {uri:?}, table = \"lake.docs\" }}"));
    }
    let fetch = |scene: &Scene| {
        let _ = std::fs::remove_dir_all(scene.out());
        std::fs::create_dir_all(scene.out()).unwrap();
        let endpoint = std::env::var("LAKEMARK_TEST_S3").unwrap();
        let into = scene.out().join("lm-fetched.parquet");
        run_python(FETCH, &[out.as_ref(), endpoint.as_ref(), &into, &database]).unwrap();
    };
    scene.run(&["--max-tasks", "3"]).expect(3, "partial");
    for (step, nth) in [
        ("run.output", 1),
        ("seal.after", 2),
        ("intent.after_manifest", 1),
        ("table.before", 1),
        ("table.after", 1),
        ("done.before_manifest", 1),
    ] {
        let ended = scene.start(&[], &[("LAKEMARK_KILL_AT", &format!("{step}:{nth}"))]).wait();
        assert!(ended.was_killed() || ended.code() == 0, "{step}: {}", ended.stderr);
        fetch(&scene);
        scene.assert_part();
    }
    let last = scene.run(&[]);
    assert!(matches!(last.outcome(), "done" | "nothing"), "{last}");
    fetch(&scene);
    scene.assert_exact();
    let idle = scene.run(&[]).nothing();
    let requests = ["list", "get"].map(|kind| idle.count(&format!("requests/store/{kind}")));
    assert!(requests.iter().sum::<u64>() <= 10, "{requests:?}");
    assert!(!scene.path("out.lakemark").exists(), "nothing is on the disk");

    // The table as the source of another job, whose output is on the disk.
    let _ = std::fs::remove_dir_all(scene.out());
    scene.set("source.url", format!("{out:?}")).set("source.format", format!("{kind:?}"));
    if kind == "iceberg" {
        let uri = format!("sqlite:{}", database.display());
        scene.set("source.catalog", format!("{{ type = \"sql\", uri = {uri:?}, table = \"lake.docs\" }}"));
    }
    for key in ["sink.storage_options", "sink.catalog"] {
        scene.settings_without(key);
    }
    let into = format!("{:?}", scene.out());
    scene.set("sink.kind", "\"parquet\"").set("sink.url", into).set("transform.sql", "\"SELECT * FROM docs\"");
    scene.run(&["--max-tasks", "2"]).expect(3, "partial");
    let ran = scene.run(&[]).done();
    assert_eq!(ran.count("requests/source/head"), 0, "{ran}");
    scene.assert_exact();
    scene.run(&[]).nothing();
}

#[test]
fn credentials_are_never_shown_nor_stored() {
    let (url, mut options) = fresh("LAKEMARK_TEST_S3");
    options.retain(|(key, _)| *key != "secret_access_key");
    options.push(("secret_access_key", "hunter2".to_owned()));
    let (mut scene, _) = remote(&url, &options);
    let ran = scene.run(&["-vv"]).done();
    assert!(!ran.to_string().contains("hunter2"), "{ran}");
    scene.set("source.url", format!("\"{url}/nothing\""));
    let failed = scene.run(&[]);
    assert_ne!(failed.code, 0);
    assert!(!failed.to_string().contains("hunter2"), "{failed}");
    for (file, _) in files_below(&scene.path("out.lakemark")) {
        let bytes = std::fs::read(&file).unwrap();
        assert!(!bytes.windows(7).any(|w| w == b"hunter2"), "{}", file.display());
    }
}
