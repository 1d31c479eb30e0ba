//! Every backend keeps the contract: S3 by moto, Azure by Azurite, Google Cloud Storage by a stand-in, and memory.

use std::sync::{Arc, LazyLock};

use futures::TryStreamExt;
use lakemark::faults::{Act, CommitsBy, Failure, FaultStore, Op, When};
use lakemark::store::Patience;
use lakemark::store::contract::check;
use lakemark::{
    BeginOptions, Bucket, BucketSink, CheckpointStore, Counts, ErrorKind, FileRead, Lake, NewSink,
    ObjectCheckpointStore, OutputFile, OutputSink, Root, Run, Select, Sink, SinkContract, StorageOptions,
    check_sink_contract, output_name,
};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutMode, PutOptions};
use rstest::rstest;

use crate::commits::{Dies, publish};
use crate::gcs::Gcs;
use crate::harness::{IMPATIENT, names, next, seal, seen_done, takeover, whole};
use crate::lake::parquet;

/// Where objects are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Memory,
    S3,
    Azure,
    Gcs,
}

/// Azurite's own, published key.
const AZURITE_KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

static GCS: LazyLock<Gcs> = LazyLock::new(Gcs::start);

/// The server that `cargo xtask test` started.
fn server(variable: &str) -> String {
    std::env::var(variable)
        .unwrap_or_else(|_| panic!("{variable} is not set: run `cargo xtask test`, which starts the servers"))
}

impl Backend {
    /// A prefix that nobody used, without a slash at its end, and how to reach it.
    pub fn fresh(self) -> (String, StorageOptions) {
        let unique = uuid::Uuid::new_v4().simple();
        let of = |scheme: &str, options: &[(&str, &str)]| {
            (format!("{scheme}://lakemark/{unique}"), options.iter().copied().collect())
        };
        match self {
            Self::Memory => of("memory", &[]),
            Self::S3 => {
                let endpoint = server("LAKEMARK_TEST_S3");
                let keys = [("access_key_id", "test"), ("secret_access_key", "test"), ("region", "us-east-1")];
                of("s3", &[&keys[..], &[("endpoint", &endpoint), ("allow_http", "true")]].concat())
            }
            Self::Azure => {
                let endpoint = server("LAKEMARK_TEST_AZURE");
                let keys = [("account_name", "devstoreaccount1"), ("account_key", AZURITE_KEY), ("allow_http", "true")];
                of("az", &[&keys[..], &[("azure_storage_endpoint", &endpoint)]].concat())
            }
            Self::Gcs => {
                let account = r#"{"private_key":"","private_key_id":"","client_email":"","disable_oauth":true}"#;
                let keys = [("google_service_account_key", account), ("allow_http", "true")];
                of("gs", &[&keys[..], &[("google_base_url", &GCS.endpoint)]].concat())
            }
        }
    }
}

#[rstest]
#[tokio::test]
async fn every_backend_keeps_the_contract(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let store = ObjectCheckpointStore::connect(&url, &options).unwrap();
    let run = store.begin(takeover()).await.unwrap();
    check(&run).await;
    let sealed = run.list_checkpoints().await.unwrap();
    run.close().await.unwrap();
    // Another process, which knows nothing but the URL, finds it all.
    let again = ObjectCheckpointStore::connect(&url, &options).unwrap();
    assert_eq!(
        again.read().await.unwrap().live.checkpoints().map(lakemark::Checkpoint::from).collect::<Vec<_>>(),
        sealed
    );
    assert!(again.unknown_objects().await.unwrap().is_empty());
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_backend_keeps_the_contract_of_all_destinations(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let fresh = move || {
        let (url, options) = backend.fresh();
        let url = format!("{url}/out");
        let root = Root::parse(&url).unwrap();
        let bucket = Bucket::connect(&root, &options).unwrap();
        let below = bucket.below(&root).unwrap();
        // Of a bucket in memory, another connection would be another one.
        let open =
            move || Arc::new(BucketSink::on("parquet", root.clone(), bucket.clone()).unwrap()) as Arc<dyn OutputSink>;
        let seen = move || {
            let below = Arc::clone(&below);
            Box::pin(async move {
                let listed: Vec<_> = below.list(None).try_collect().await.unwrap();
                listed.iter().map(|object| object.location.filename().unwrap().to_owned()).collect()
            }) as _
        };
        NewSink { open: Box::new(open), seen: Box::new(seen) }
    };
    let write = |file: &mut dyn std::io::Write| file.write_all(b"three rows").unwrap();
    // Azure keeps the blocks of an upload that was given up; moto answers 500 where S3 says NoSuchUpload.
    let loses = !matches!(backend, Backend::Azure | Backend::S3);
    check_sink_contract(&SinkContract {
        fresh: Box::new(fresh),
        schema: std::sync::Arc::new(arrow_schema::Schema::empty()),
        write,
        loses,
    })
    .await;
}

#[rstest]
#[tokio::test]
async fn every_backend_keeps_the_contract_while_it_fails_now_and_then(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let root = Root::parse(&url).unwrap();
    let faults = FaultStore::new(Bucket::connect(&root, &options).unwrap().below(&root).unwrap());
    let store =
        ObjectCheckpointStore::on(root, Arc::new(faults.clone())).with_patience(Patience { tries: 10, ..IMPATIENT });
    let run = store.begin(takeover()).await.unwrap();
    let _put = faults.plant(Op::Put, |_| true, When::Every(3), Act::Fail(Failure::Overloaded));
    let _echo = faults.plant(Op::Put, |_| true, When::Every(4), Act::DoneThenFail(Failure::Unanswered));
    let _get = faults.plant(Op::Get, |_| true, When::Every(3), Act::Cut(5));
    let _torn = faults.plant(Op::Get, |_| true, When::Every(4), Act::Torn(5));
    let _list = faults.plant(Op::List, |_| true, When::Every(7), Act::Fail(Failure::Throttled));
    check(&run).await;
    run.close().await.unwrap();
}

/// R91: what decides who is the holder.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r91_of_sixteen_drivers_one_wins_each_epoch(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let drivers = (0..16).map(|_| {
        let store = ObjectCheckpointStore::connect(&url, &options).unwrap();
        tokio::spawn(async move {
            let run = store.begin(takeover()).await.unwrap();
            (run.worker().epoch().0, run)
        })
    });
    let mut epochs = Vec::new();
    let mut runs = Vec::new();
    for driver in futures::future::join_all(drivers).await {
        let (epoch, run) = driver.unwrap();
        epochs.push(epoch);
        runs.push(run);
    }
    // One that was overtaken before it saw that it had won decides again: an epoch can be skipped, never shared.
    epochs.sort_unstable();
    epochs.dedup();
    assert_eq!(epochs.len(), 16, "{epochs:?}");
    runs.sort_by_key(|run| run.worker().epoch());
    let newest = runs.pop().unwrap();
    for old in runs {
        assert_eq!(seal(&old, vec![whole("a")]).await.unwrap_err().kind(), ErrorKind::Fenced);
    }
    let _ = seal(&newest, vec![whole("a")]).await.unwrap();
    newest.close().await.unwrap();
    let store = ObjectCheckpointStore::connect(&url, &options).unwrap();
    assert_eq!(seen_done(&store).await, ["a"]);
}

const ODD: [&str; 8] = [
    "a b.parquet",
    "d=1/x#1.parquet",
    "d=1/%20.parquet",
    "d=2/ü&<>.parquet",
    "d=2/+.parquet",
    "p/q/r/[1].parquet",
    "p/q/s.parquet",
    "z.parquet",
];

#[rstest]
#[tokio::test]
async fn lakes_are_listed_and_read_by_the_version_that_was_listed(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let bucket = Bucket::connect(&Root::parse(&url).unwrap(), &options).unwrap();
    let prefix = Root::parse(&url).unwrap().prefix().to_owned();
    let key = |path: &str| Path::parse(format!("{prefix}/lake/{path}")).unwrap();
    assert_eq!(Lake::connect(&format!("{url}/lake"), &options).await.unwrap_err().kind(), ErrorKind::Invalid);
    for (i, path) in ODD.iter().enumerate() {
        bucket.objects.put(&key(path), parquet(i as i64 * 10, &[2, 3]).into()).await.unwrap();
    }
    bucket.objects.put(&key("_SUCCESS"), "".into()).await.unwrap();
    bucket.objects.put(&Path::parse(format!("{prefix}/lake2/x.parquet")).unwrap(), "".into()).await.unwrap();
    let lake = Lake::connect(&format!("{url}/lake/"), &options).await.unwrap();
    let listing = lake.list().await.unwrap();
    let mut odd = ODD.to_vec();
    odd.sort_unstable();
    assert_eq!(listing.files.iter().map(|file| &*file.path).collect::<Vec<_>>(), odd);
    assert_eq!(listing.hidden, 1);
    for file in &listing.files {
        assert!(file.etag.is_some(), "{file}");
        let FileRead::Read(footer) = lake.footer(file).await.unwrap() else { panic!("{file}") };
        assert_eq!(footer.group_rows, [2, 3], "{file}");
        assert!(lake.stat(&file.path).await.unwrap().unwrap().is_same(file), "a listing and a head agree: {file}");
        let bytes: Vec<_> = lake.reader(file).chunks().try_collect().await.unwrap();
        assert_eq!(bytes.concat().len() as u64, file.size);
    }
    let file = &listing.files[0];
    bucket.objects.put(&key(&file.path), parquet(500, &[2, 3]).into()).await.unwrap();
    let fresh = Lake::connect(&format!("{url}/lake"), &options).await.unwrap();
    let now = fresh.footer(file).await;
    assert!(matches!(now, Ok(FileRead::Changed)), "{backend:?}: {now:?}, {:?}", fresh.stat(&file.path).await);
    assert!(!fresh.list().await.unwrap().files[0].is_same(file));
    bucket.objects.delete(&key(&file.path)).await.unwrap();
    // A condition on what is not there is 404 or 412; a 412 is planned again, and found gone.
    let now = fresh.footer(file).await.unwrap();
    assert!(matches!(now, FileRead::Vanished | FileRead::Changed), "{backend:?}: {now:?}");
    assert_eq!(fresh.stat(&file.path).await.unwrap(), None);
    // One object, and a pattern.
    let one = Lake::connect(&format!("{url}/lake/d=1/x%231.parquet"), &options).await.unwrap();
    assert!(matches!(one.select(), Select::File(_)));
    assert_eq!(one.list().await.unwrap().files.len(), 1);
    let some = Lake::connect(&format!("{url}/lake/d=*/*.parquet"), &options).await.unwrap();
    assert_eq!(some.list().await.unwrap().files.len(), 4);
    assert_eq!(some.root().prefix(), format!("{prefix}/lake"));
}

#[rstest]
#[tokio::test]
async fn a_server_that_is_not_there_is_unavailable_and_says_where(
    #[values(Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let here = |(key, value): (&str, &str)| {
        let value =
            if value.starts_with("http") { format!("http://{closed}/devstoreaccount1") } else { value.to_owned() };
        (key.to_owned(), value)
    };
    let options: StorageOptions = options.iter().map(here).chain([("timeout".into(), "2s".into())]).collect();
    let store = ObjectCheckpointStore::connect(&url, &options).unwrap().with_patience(IMPATIENT);
    let error = store.read().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains(&url), "{error}");
    let error = Lake::connect(&url, &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[rstest]
#[tokio::test]
async fn objects_of_a_store_lie_below_its_prefix_and_nowhere_else(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let (url, options) = backend.fresh();
    let root = Root::parse(&url).unwrap();
    let bucket = Bucket::connect(&root, &options).unwrap();
    let beside = Path::parse(format!("{}2/foreign", root.prefix())).unwrap();
    let create = PutOptions::from(PutMode::Create);
    bucket.objects.put_opts(&beside, "x".into(), create).await.unwrap();
    let store = ObjectCheckpointStore::connect(&url, &options).unwrap();
    let run = store.begin(takeover()).await.unwrap();
    let _ = seal(&run, vec![whole("a")]).await.unwrap();
    assert_eq!(run.list_checkpoints().await.unwrap().len(), 1);
    run.close().await.unwrap();
    let below = names(&*bucket.below(&root).unwrap()).await;
    assert!(
        below.iter().all(|name| ["manifests/", "epochs/", "segments/"].iter().any(|f| name.starts_with(f))),
        "{below:?}"
    );
    assert!(store.unknown_objects().await.unwrap().is_empty());
}

/// A destination on a backend, and the run that writes to it.
struct Place {
    url: String,
    options: StorageOptions,
    sink: BucketSink,
    bucket: Bucket,
}

impl Place {
    fn new(backend: Backend) -> Self {
        let (url, options) = backend.fresh();
        let sink = BucketSink::connect("parquet", &format!("{url}/out"), &options).unwrap();
        let bucket = Bucket::connect(&Root::parse(&url).unwrap(), &options).unwrap();
        Self { url, options, sink, bucket }
    }

    fn store(&self) -> ObjectCheckpointStore {
        ObjectCheckpointStore::connect(&format!("{}/out.lakemark/store", self.url), &self.options).unwrap()
    }

    async fn begin(&self) -> Run {
        let view = self.store().read().await.unwrap();
        self.sink.check(view.expected().as_ref()).await.unwrap();
        let options = BeginOptions { sink: Some(self.sink.binding()), ..takeover() };
        let run = self.store().begin(options).await.unwrap();
        self.sink.bind(run.worker().store_id()).await.unwrap();
        run
    }

    /// Does the file `path`: one output file of `bytes` bytes, and its seal.
    async fn work(&self, run: &Run, path: &str, bytes: usize) -> OutputFile {
        let id = next(run);
        let name = output_name(&run.worker().store_id().short(), id, run.attempt(id), 0, "txt");
        let mut file = self.sink.stage(&name, "d=a%2Fb ü").await.unwrap();
        for chunk in vec![path.as_bytes()[0]; bytes].chunks(1 << 20) {
            file.write_all(chunk).unwrap();
            file.settle().await.unwrap();
        }
        let (size, upload) = file.finish().await.unwrap();
        let output = OutputFile { name, folder: "d=a%2Fb ü".into(), size, rows: 1, upload };
        let staged = output.clone();
        run.stage_keys(id, vec![whole(path)]).unwrap();
        run.stage_files(id, Box::pin(async move { Ok(vec![staged]) })).unwrap();
        let _ = run.checkpoint(id, Counts { rows_in: 20, rows_out: 1, rows_failed: 0 }).await.unwrap();
        output
    }

    /// The first letter and the size of each object below the destination.
    async fn visible(&self) -> Vec<(char, usize)> {
        let root = Root::parse(&format!("{}/out", self.url)).unwrap();
        let below = self.bucket.below(&root).unwrap();
        let mut seen = Vec::new();
        for name in names(&*below).await {
            let bytes = below.get(&Path::parse(&name).unwrap()).await.unwrap().bytes().await.unwrap();
            seen.push((char::from(bytes[0]), bytes.len()));
        }
        seen.sort_unstable();
        seen
    }

    fn key(&self, file: &OutputFile) -> Path {
        Path::parse(format!("{}/out/{}", Root::parse(&self.url).unwrap().prefix(), file.path())).unwrap()
    }
}

#[rstest]
#[tokio::test]
async fn output_becomes_visible_with_its_commit_and_not_before(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
) {
    let place = Place::new(backend);
    let run = place.begin().await;
    place.work(&run, "a", 10).await;
    place.work(&run, "b", 20 << 20).await;
    // An attempt that never sealed.
    let mut lost = place.sink.stage("lost", "").await.unwrap();
    lost.write_all(b"x").unwrap();
    drop(lost);
    run.fold().await.unwrap();
    assert!(place.visible().await.is_empty(), "nothing but committed output is under the root");
    let committed = run.commit(Some(&place.sink)).await.unwrap();
    assert_eq!((committed[0].files, committed[0].missing.len()), (2, 0));
    assert_eq!(place.visible().await, [('a', 10), ('b', 20 << 20)]);
    run.close().await.unwrap();

    // The next run goes on; another store is refused, and so is a destination whose files are gone.
    let run = place.begin().await;
    let c = place.work(&run, "c", 5).await;
    run.commit(Some(&place.sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.visible().await.len(), 3);
    let expected = place.store().read().await.unwrap().expected();
    place.sink.check(expected.as_ref()).await.unwrap();
    assert_eq!(place.sink.check(None).await.unwrap_err().kind(), ErrorKind::Refused);
    let inner = BucketSink::connect("parquet", &format!("{}/out/inner", place.url), &place.options).unwrap();
    assert!(inner.check(None).await.unwrap_err().what().contains("lies inside"));
    place.bucket.objects.delete(&place.key(&c)).await.unwrap();
    let gone = place.sink.check(expected.as_ref()).await.unwrap_err();
    assert!(gone.what().contains("1 of the 3 committed files"), "{gone}");
}

/// A driver that died within its commit, or still stalls there; uploads that expired.
#[rstest]
#[tokio::test]
async fn an_open_intent_is_rolled_forward_and_lost_uploads_are_withdrawn(
    #[values(Backend::Memory, Backend::S3, Backend::Azure, Backend::Gcs)] backend: Backend,
    #[values(false, true)] expired: bool,
) {
    let place = Place::new(backend);
    let run = place.begin().await;
    let (a, b) = (place.work(&run, "a", 10).await, place.work(&run, "b", 12).await);
    {
        // The intent is durable, one of its files is visible, and the driver is gone.
        let dying = CommitsBy(&place.sink, Dies::BeforePublish);
        assert!(run.commit(Some(&dying)).await.is_err());
        drop(run);
    }
    assert!(publish(&place.sink, std::slice::from_ref(&a)).await.is_empty());
    if expired {
        let upload = b.upload.clone().unwrap();
        place.bucket.uploads.abort_multipart(&place.key(&b), &upload.id).await.unwrap();
    }
    // Azure keeps the blocks of an upload that was given up, for a week: there it can still be completed.
    let lost = expired && backend != Backend::Azure;
    let run = place.begin().await;
    if expired && backend == Backend::S3 {
        // moto answers 500 where S3 says NoSuchUpload: nothing is decided on an unknown outcome.
        let error = run.recover(Some(&place.sink)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert_eq!(place.visible().await, [('a', 10)]);
        assert!(place.store().newest().await.unwrap().unwrap().manifest.commits.open.is_some());
        return;
    }
    let recovered = run.recover(Some(&place.sink)).await.unwrap();
    let committed = recovered.committed.unwrap();
    assert_eq!((committed.files, recovered.undone), (if lost { 1 } else { 2 }, lost), "{committed:?}");
    assert_eq!(place.visible().await.len(), if lost { 1 } else { 2 });
    // The stalled driver wakes up after its successor finished: the same, once.
    for outcome in futures::future::join_all((0..3).map(|_| publish(&place.sink, std::slice::from_ref(&a)))).await {
        assert!(outcome.is_empty());
    }
    if lost {
        let missing = publish(&place.sink, std::slice::from_ref(&b)).await;
        assert_eq!(missing, std::slice::from_ref(&b.name));
        place.work(&run, "b", 12).await;
    }
    run.commit(Some(&place.sink)).await.unwrap();
    run.close().await.unwrap();
    assert_eq!(place.visible().await, [('a', 10), ('b', 12)]);
    assert_eq!(seen_done(&place.store()).await, ["a", "b"]);
    place.sink.check(place.store().read().await.unwrap().expected().as_ref()).await.unwrap();
}
