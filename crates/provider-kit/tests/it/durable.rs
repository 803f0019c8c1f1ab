//! Restarts over real files.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_provider_kit::fakecloud::{FakeCloud, Options};
use bigfleet_provider_kit::store::{Error, FileStore, Fsyncs, Store};
use bigfleet_provider_kit::table::{Change, Encoded};
use bigfleet_provider_kit::{Kind, MemStore, StartError};
use bigfleet_types::MachineState::{self, Configured, Failed, Idle, Speculative};
use tonic::Code;

use crate::fixture::{Client, Cloud, PATIENCE, code, eventually, metadata, number, options, serve};

async fn open(dir: &Path, options: Options) -> Cloud {
    serve(FakeCloud::new(options).unwrap().store(FileStore::open(dir).unwrap())).await
}

#[tokio::test]
async fn everything_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    let joined = cloud.client.configure("idle-0", "a").await.unwrap().operation_id;
    cloud.settled("idle-0", Configured).await;
    code(cloud.client.create("ghost").await);
    cloud.control().remove_machine("spot-1").await.unwrap();
    let before = cloud.client.list_since(b"", 0).await;
    cloud.stop().await;

    let mut fewer = options();
    fewer.seeds.spot = 1;
    let cloud = open(dir.path(), fewer).await;
    let after = cloud.client.list_since(b"", 0).await;
    assert_eq!(after, before, "machines, bindings, metadata, revision");
    assert_eq!(cloud.client.list_since(&before.revision, 0).await.machines.len(), 0);
    // The marks are there, for machines and for ghosts.
    for machine in ["idle-0", "ghost"] {
        let stale = pb::CreateRequest {
            machine_id: machine.into(),
            shard_id: "shard-0".into(),
            shard_epoch: 1,
            sequence_number: 1,
        };
        assert_eq!(code(cloud.client.raw().create(stale).await), Code::FailedPrecondition, "{machine}");
    }
    // So are the operation ids, and new ones are new.
    let successor = Client::connect(&cloud.handle.dial_addr().to_string(), "shard-0", 2);
    assert_eq!(successor.configure("idle-0", "a").await.unwrap().operation_id, joined);
    assert_ne!(successor.configure("idle-1", "a").await.unwrap().operation_id, joined);
    assert_eq!(cloud.control().actions("idle-0").configure, 0, "not configured twice");
    cloud.stop().await;
}

#[tokio::test]
async fn interrupted_work_is_taken_up_and_an_interrupted_configure_fails() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    cloud.client.configure("idle-1", "a").await.unwrap();
    cloud.settled("idle-1", Configured).await;
    for kind in Kind::ALL {
        cloud.control().stage(kind, true);
    }
    let created = cloud.client.create("spec-0").await.unwrap().operation_id;
    cloud.client.configure("idle-0", "a").await.unwrap();
    cloud.client.drain("idle-1", 3).await.unwrap();
    cloud.client.delete("idle-2").await.unwrap();
    cloud.stop().await;

    let cloud = open(dir.path(), options()).await;
    cloud.settled("spec-0", Idle).await;
    assert_eq!(cloud.settled("idle-1", Idle).await.cluster, "");
    cloud.settled("idle-2", Speculative).await;
    let failed = cloud.settled("idle-0", Failed).await;
    assert!(failed.last_error.contains("restart"), "{}", failed.last_error);
    assert_eq!((failed.cluster.as_str(), failed.shard_metadata), ("a", metadata()));
    let successor = Client::connect(&cloud.handle.dial_addr().to_string(), "shard-0", 2);
    assert_eq!(successor.create("spec-0").await.unwrap().operation_id, created, "the same operation");
    cloud.stop().await;

    // A double may also forget: then all of it fails.
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    cloud.control().stage(Kind::Create, true);
    cloud.client.create("spec-0").await.unwrap();
    cloud.stop().await;
    let cloud = open(dir.path(), Options { resume: false, ..options() }).await;
    cloud.settled("spec-0", Failed).await;
    cloud.stop().await;
}

#[tokio::test]
async fn one_process_uses_a_directory_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    let error = FileStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error}");
    cloud.stop().await;
    FileStore::open(dir.path()).unwrap();
}

fn log(dir: &Path) -> std::path::PathBuf {
    dir.join("machines.log")
}

#[tokio::test]
async fn a_torn_end_is_cut_and_the_rest_lives() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    cloud.client.create("spec-0").await.unwrap();
    cloud.settled("spec-0", Idle).await;
    cloud.stop().await;
    let whole = std::fs::read(log(dir.path())).unwrap();
    std::fs::write(log(dir.path()), [&whole[..], &whole[8..24]].concat()).unwrap();
    let store = FileStore::open(dir.path()).unwrap();
    assert_eq!(store.recovered().unwrap().bytes, 16);
    drop(store);
    assert_eq!(std::fs::read(log(dir.path())).unwrap(), whole);
    let cloud = open(dir.path(), options()).await;
    cloud.settled("spec-0", Idle).await;
    cloud.stop().await;
}

#[tokio::test]
async fn damage_in_the_middle_stops_the_start_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let cloud = open(dir.path(), options()).await;
    cloud.client.create("spec-0").await.unwrap();
    cloud.settled("spec-0", Idle).await;
    cloud.stop().await;
    let mut damaged = std::fs::read(log(dir.path())).unwrap();
    damaged[60] ^= 1;
    std::fs::write(log(dir.path()), &damaged).unwrap();
    let error = FileStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, Error::Corrupt { offset: 9..=60, .. }), "{error}");
    assert!(error.to_string().contains("Restore the file from a backup"), "{error}");
    assert_eq!(std::fs::read(log(dir.path())).unwrap(), damaged);

    std::fs::write(log(dir.path()), b"something else").unwrap();
    assert!(matches!(FileStore::open(dir.path()).unwrap_err(), Error::Foreign { .. }));
}

#[tokio::test]
async fn a_log_of_history_is_rewritten() {
    let live = async |compact_from: u64| {
        let dir = tempfile::tempdir().unwrap();
        let store = FileStore::open(dir.path()).unwrap().compact_from(compact_from);
        let cloud = serve(FakeCloud::new(Options { instant: true, ..options() }).unwrap().store(store)).await;
        for round in 0..60 {
            cloud.client.configure("idle-0", &format!("cluster-{round}")).await.unwrap();
            cloud.client.drain("idle-0", 0).await.unwrap();
        }
        let list = cloud.client.list_since(b"", 0).await;
        cloud.stop().await;
        (std::fs::metadata(log(dir.path())).unwrap().len(), list, dir)
    };
    let (whole, history, _dir) = live(u64::MAX).await;
    let (rewritten, before, dir) = live(4096).await;
    assert!(rewritten < whole / 3, "{rewritten} bytes of {whole}");
    assert_eq!(before.machines, history.machines, "the same machines in the same order");
    // What a crash in the middle of a rewrite leaves is removed.
    std::fs::write(dir.path().join("machines.log.new"), b"half").unwrap();
    let cloud = open(dir.path(), options()).await;
    assert!(!dir.path().join("machines.log.new").exists());
    assert_eq!(cloud.client.list_since(b"", 0).await, before);
    cloud.stop().await;
}

/// Lets appends through one by one.
struct Gated {
    inner: FileStore,
    closed: Arc<AtomicBool>,
    open: Arc<Mutex<Receiver<()>>>,
}

impl Store for Gated {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        self.inner.load()
    }

    fn append(&mut self, changes: &[Change]) -> Result<(), Error> {
        if self.closed.load(Ordering::SeqCst) {
            self.open.lock().unwrap().recv().unwrap();
        }
        self.inner.append(changes)
    }
}

#[tokio::test]
async fn changes_that_wait_share_one_fsync() {
    let dir = tempfile::tempdir().unwrap();
    let (open, gate): (SyncSender<()>, _) = sync_channel(10);
    let closed = Arc::new(AtomicBool::new(false));
    let inner = FileStore::open(dir.path()).unwrap();
    let fsyncs: Fsyncs = inner.fsyncs();
    let store = Gated { inner, closed: Arc::clone(&closed), open: Arc::new(Mutex::new(gate)) };
    let mut seeds = options();
    seeds.seeds.speculative = 200;
    let cloud = serve(FakeCloud::new(seeds).unwrap().store(store)).await;
    cloud.control().stage(Kind::Create, true);
    let before = fsyncs.count();
    closed.store(true, Ordering::SeqCst);
    // One connection takes 64 calls at one time.
    let addr = cloud.handle.dial_addr().to_string();
    let clients: Vec<_> = (0..4).map(|n| Client::connect(&addr, &format!("shard-{n}"), 1)).collect();
    let calls: Vec<_> = (0..200)
        .map(|n| {
            let client = clients[n % clients.len()].clone();
            tokio::spawn(async move { client.create(&format!("spec-{n}")).await })
        })
        .collect();
    eventually("all calls wait for the disk", async || {
        (cloud.control().provider().waiting_writes() == 200).then_some(())
    })
    .await;
    // Nobody sees what is not durable yet.
    assert!(cloud.control().machines().iter().all(|m| m.state != number(MachineState::Creating)));
    closed.store(false, Ordering::SeqCst);
    open.send(()).unwrap();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let used = fsyncs.count() - before;
    assert!(used <= 2, "{used} fsyncs for 200 changes");
    cloud.stop().await;
}

/// Fails when told to.
struct Failing {
    fails: Arc<AtomicBool>,
}

impl Store for Failing {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        MemStore.load()
    }

    fn append(&mut self, _changes: &[Change]) -> Result<(), Error> {
        if self.fails.load(Ordering::SeqCst) {
            let source = std::io::Error::from(std::io::ErrorKind::StorageFull);
            return Err(Error::Io { what: "append to", path: "machines.log".into(), source });
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_failing_store_refuses_calls_before_anything_is_done() {
    let fails = Arc::new(AtomicBool::new(false));
    let cloud = serve(FakeCloud::new(options()).unwrap().store(Failing { fails: Arc::clone(&fails) })).await;
    let revision = cloud.client.list_since(b"", 0).await.revision;
    fails.store(true, Ordering::SeqCst);
    let status = cloud.client.create("spec-0").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("machines.log"), "{}", status.message());
    assert_eq!(cloud.control().state("spec-0"), Some(Speculative));
    assert_eq!(cloud.control().actions("spec-0").create, 0);
    assert_eq!(cloud.client.list_since(b"", 0).await.revision, revision);
    fails.store(false, Ordering::SeqCst);
    cloud.client.create("spec-0").await.unwrap();
    cloud.settled("spec-0", Idle).await;
    // A result that could not be stored is offered again.
    cloud.control().stage(Kind::Create, true);
    cloud.client.create("spec-1").await.unwrap();
    eventually("spec-1 waits", async || (cloud.control().staged(Kind::Create) == ["spec-1"]).then_some(()))
        .await;
    fails.store(true, Ordering::SeqCst);
    cloud.control().complete(Kind::Create, "spec-1");
    eventually("the result was refused once", async || {
        let mut text = String::new();
        let registry = &cloud.handle.pages().registry;
        prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
        text.lines()
            .find_map(|l| l.strip_prefix("bigfleet_fakecloud_store_errors_total "))
            .filter(|n| n.parse::<u64>().unwrap() >= 2)
            .map(|_| ())
    })
    .await;
    fails.store(false, Ordering::SeqCst);
    cloud.settled("spec-1", Idle).await;
    cloud.stop().await;
}

/// Breaks for good when told to.
struct Breaking {
    breaks: Arc<AtomicBool>,
    broken: Option<String>,
}

impl Store for Breaking {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        MemStore.load()
    }

    fn append(&mut self, _changes: &[Change]) -> Result<(), Error> {
        if self.breaks.load(Ordering::SeqCst) {
            let reason = self.broken.get_or_insert_with(|| "cannot sync machines.log".to_owned());
            return Err(Error::Broken { reason: reason.clone() });
        }
        Ok(())
    }

    fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

#[tokio::test]
async fn a_provider_whose_store_is_broken_is_unready_and_says_why() {
    let breaks = Arc::new(AtomicBool::new(false));
    let store = Breaking { breaks: Arc::clone(&breaks), broken: None };
    let cloud = serve(FakeCloud::new(options()).unwrap().store(store)).await;
    cloud.control().stage(Kind::Create, true);
    cloud.client.create("spec-1").await.unwrap();
    eventually("spec-1 waits", async || (cloud.control().staged(Kind::Create) == ["spec-1"]).then_some(()))
        .await;
    let readiness = cloud.handle.pages().readiness.clone();
    assert!(readiness.is_ready());
    breaks.store(true, Ordering::SeqCst);
    // Work that ends now finds no store.
    cloud.control().complete(Kind::Create, "spec-1");
    let reason = eventually("unready", async || readiness.reason()).await;
    assert!(reason.contains("cannot sync machines.log") && reason.contains("restart"), "{reason}");
    assert_eq!(code(cloud.client.create("spec-0").await), Code::Unavailable);
    assert_eq!(
        cloud.client.get("spec-1").await.unwrap().state,
        number(MachineState::Creating),
        "reads go on"
    );
    cloud.stop().await;
}

/// Takes long over its first rewrite.
struct SlowRewrite {
    wanted: Arc<AtomicBool>,
    /// After the next write, not before: a rewrite that is due already would hold up the write that the test waits for.
    due: AtomicBool,
    begun: SyncSender<()>,
    go_on: Receiver<()>,
}

impl Store for SlowRewrite {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        MemStore.load()
    }

    fn append(&mut self, _changes: &[Change]) -> Result<(), Error> {
        self.due.store(self.wanted.swap(false, Ordering::SeqCst), Ordering::SeqCst);
        Ok(())
    }

    fn wants_compaction(&self) -> bool {
        self.due.swap(false, Ordering::SeqCst)
    }

    fn compact(&mut self, snapshot: &mut dyn Iterator<Item = Change>) -> Result<(), Error> {
        assert!(snapshot.count() > 0);
        self.begun.send(()).unwrap();
        // The test that fails goes away.
        let _ = self.go_on.recv();
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn reads_do_not_wait_for_a_rewrite_of_the_log() {
    let (begun, begins) = sync_channel(1);
    let (go, go_on) = sync_channel(1);
    let wanted = Arc::new(AtomicBool::new(false));
    let store = SlowRewrite { wanted: Arc::clone(&wanted), due: AtomicBool::new(false), begun, go_on };
    let cloud = serve(FakeCloud::new(options()).unwrap().store(store)).await;
    cloud.control().stage(Kind::Create, true);
    wanted.store(true, Ordering::SeqCst);
    cloud.client.create("spec-0").await.unwrap();
    eventually("the rewrite begins", async || begins.try_recv().ok()).await;
    let (says, read) = sync_channel(1);
    let provider = cloud.control().provider().clone();
    let reader = std::thread::spawn(move || says.send(provider.machine("spec-0").map(|m| m.state)));
    let read = tokio::task::block_in_place(|| read.recv_timeout(PATIENCE));
    go.send(()).unwrap();
    assert_eq!(read, Ok(Some(number(MachineState::Creating))));
    reader.join().unwrap().unwrap();
    cloud.stop().await;
}

#[tokio::test]
async fn a_store_with_nonsense_stops_the_start() {
    struct Nonsense;
    impl Store for Nonsense {
        fn load(&mut self) -> Result<Vec<Change>, Error> {
            let machine = pb::Machine { id: "m".into(), state: 99, ..pb::Machine::default() };
            let stored = bigfleet_provider_kit::table::StoredMachine {
                machine: Encoded::of(&machine).bytes().clone(),
                revision: 1,
                ..Default::default()
            };
            Ok(vec![Change { machine: Some(stored), revision: 1, ..Change::default() }])
        }
        fn append(&mut self, _changes: &[Change]) -> Result<(), Error> {
            Ok(())
        }
    }
    let listener = bigfleet_net::listen::bind("127.0.0.1:0").await.unwrap();
    let error = FakeCloud::new(options()).unwrap().store(Nonsense).start(listener).await.unwrap_err();
    assert!(matches!(error, StartError::Unreadable(_)), "{error}");
    assert!(error.to_string().contains("state 99"), "{error}");
}
