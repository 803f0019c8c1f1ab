//! Kill -9 of a provider under load: what it answered before is true after, however often it dies.
//!
//! `BIGFLEET_KILL9_POINTS` sets the number of kills (5), `BIGFLEET_KILL9_SEED` repeats a run's choices.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigfleet_net::channel;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_provider_kit::Kind;
use bigfleet_provider_kit::server::desk::{Reply, Wish, ask};
use bigfleet_types::MachineState;
use bigfleet_types::chance::{Chance as _, Seeded};
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::kill9::{from_environment, some_seed};
use crate::process::{PATIENCE, Program, lasting_port};

const POINTS: u64 = 5;
const MACHINES: usize = 16;
const SHARD: &str = "shard-0";

/// What one worker knows of its machine.
#[derive(Debug, Default)]
struct Known {
    /// The highest token that was answered, whatever the answer.
    mark: i64,
    /// The next token.
    sequence: i64,
    /// The latest operation that was acknowledged, and its id.
    acknowledged: Option<(Kind, String)>,
    /// An operation whose answer never came.
    doubtful: Option<Kind>,
}

/// Every operation id that was told, with the machine and kind that it was told for.
type Told = Arc<Mutex<BTreeMap<String, (usize, Kind)>>>;

fn client(addr: SocketAddr) -> CapacityProviderClient<Channel> {
    CapacityProviderClient::new(
        channel::connect_lazy(&addr.to_string(), &channel::Options::default()).unwrap(),
    )
}

fn id(machine: usize) -> String {
    format!("seed-{machine}")
}

async fn call(
    grpc: &mut CapacityProviderClient<Channel>,
    machine: usize,
    kind: Kind,
    sequence: i64,
) -> Result<pb::TransitionAck, Status> {
    let (machine_id, shard_id, shard_epoch, sequence_number) = (id(machine), SHARD.to_owned(), 1, sequence);
    let answer = match kind {
        Kind::Create => {
            grpc.create(pb::CreateRequest { machine_id, shard_id, shard_epoch, sequence_number }).await
        }
        Kind::Configure => {
            let (cluster_id, bootstrap_blob) = (format!("cluster-{machine}"), b"blob".to_vec().into());
            let shard_metadata = [("machine".to_owned(), machine.to_string())].into();
            grpc.configure(pb::ConfigureRequest {
                machine_id,
                cluster_id,
                bootstrap_blob,
                shard_id,
                shard_epoch,
                sequence_number,
                shard_metadata,
            })
            .await
        }
        Kind::Drain => {
            let grace_period_seconds = 1;
            grpc.drain(pb::DrainRequest {
                machine_id,
                grace_period_seconds,
                shard_id,
                shard_epoch,
                sequence_number,
            })
            .await
        }
        Kind::Delete => {
            grpc.delete(pb::DeleteRequest { machine_id, shard_id, shard_epoch, sequence_number }).await
        }
    };
    Ok(answer?.into_inner())
}

/// Moves a machine on and on until the provider is gone.
async fn work(addr: SocketAddr, machine: usize, mut known: Known, told: Told) -> Known {
    let mut grpc = client(addr);
    loop {
        let state = match grpc.get(pb::MachineRef { id: id(machine) }).await {
            Ok(found) => MachineState::from_number(found.into_inner().state).unwrap(),
            Err(_) => return known,
        };
        let drained = matches!(known.acknowledged, Some((Kind::Drain, _)));
        let kind = match state {
            MachineState::Speculative => Kind::Create,
            MachineState::Idle if drained => Kind::Delete,
            MachineState::Idle => Kind::Configure,
            MachineState::Configured => Kind::Drain,
            // In a transition, or waiting for its repair.
            _ => {
                tokio::time::sleep(Duration::from_millis(2)).await;
                continue;
            }
        };
        known.sequence += 1;
        match call(&mut grpc, machine, kind, known.sequence).await {
            Ok(ack) => {
                note(&told, machine, kind, &ack.operation_id);
                known.mark = known.sequence;
                known.acknowledged = Some((kind, ack.operation_id));
                known.doubtful = None;
            }
            // It lost a race with itself: the transition ended between the look and the call.
            Err(status) if status.code() == Code::Internal => known.mark = known.sequence,
            Err(_) => {
                known.doubtful = Some(kind);
                return known;
            }
        }
    }
}

/// An id is told for one machine and one kind only, ever.
fn note(told: &Told, machine: usize, kind: Kind, operation: &str) {
    let mut told = told.lock().unwrap();
    let first = *told.entry(operation.to_owned()).or_insert((machine, kind));
    assert_eq!(first, (machine, kind), "{operation} is told a second time for something else");
}

/// What must be true of a machine after a restart.
async fn check(addr: SocketAddr, machine: usize, known: &mut Known, told: &Told) {
    let mut grpc = client(addr);
    let found = grpc.get(pb::MachineRef { id: id(machine) }).await.unwrap().into_inner();
    if known.mark > 0 {
        // No mark was lowered: the highest token that was answered is stale.
        let stale = call(&mut grpc, machine, Kind::Create, known.mark).await.unwrap_err();
        assert_eq!(stale.code(), Code::FailedPrecondition, "{machine}: {known:?}: {stale}");
    }
    if known.doubtful.take().is_some() {
        // It may have happened or not, and whatever was acknowledged before it may be history.
        known.acknowledged = None;
    }
    let Some((kind, operation)) = known.acknowledged.clone() else { return };
    let state = MachineState::from_number(found.state).unwrap();
    if state == MachineState::Failed {
        // A Configure that the kill interrupted; its binding is still there.
        assert_eq!(kind, Kind::Configure, "{machine}: {found:?}");
        assert_eq!(found.cluster, format!("cluster-{machine}"));
        return;
    }
    // What was acknowledged is under way or done, and a repeat is told the same id.
    assert!(state == kind.transitional() || state == kind.target(), "{machine}: {known:?}, but {state}");
    known.sequence += 1;
    let repeat = call(&mut grpc, machine, kind, known.sequence).await.unwrap();
    assert_eq!(repeat.operation_id, operation, "{machine}: {known:?}");
    known.mark = known.sequence;
    note(told, machine, kind, &operation);
    if kind == Kind::Configure {
        assert_eq!(found.shard_metadata["machine"], machine.to_string());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn kill9_of_a_loaded_provider() {
    let points = from_environment("BIGFLEET_KILL9_POINTS").unwrap_or(POINTS);
    let seed = from_environment("BIGFLEET_KILL9_SEED").unwrap_or_else(some_seed);
    println!("provider kill9: {points} points, BIGFLEET_KILL9_SEED={seed}");
    let mut chance = Seeded::new(seed);
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let told = Told::default();
    let mut known: Vec<Known> = (0..MACHINES).map(|_| Known::default()).collect();
    for point in 1..=points {
        let (mut program, addr) = start(folder.path(), &state);
        program.ready("provider");
        for (machine, known) in known.iter_mut().enumerate() {
            check(addr, machine, known, &told).await;
            repair(addr, &state, machine, known).await;
        }
        let workers: Vec<_> = known
            .drain(..)
            .enumerate()
            .map(|(machine, known)| tokio::spawn(work(addr, machine, known, Arc::clone(&told))))
            .collect();
        tokio::time::sleep(Duration::from_millis(20 + chance.below(400))).await;
        program.kill();
        for worker in workers {
            known.push(worker.await.unwrap());
        }
        if point % 20 == 0 || point == points {
            println!("provider kill9: point {point} of {points}, {} operations", told.lock().unwrap().len());
        }
    }
    let (mut program, addr) = start(folder.path(), &state);
    program.ready("provider");
    for (machine, known) in known.iter_mut().enumerate() {
        check(addr, machine, known, &told).await;
    }
    let operations = told.lock().unwrap().len();
    assert!(operations >= MACHINES, "{operations} operations: no load to speak of");
}

fn start(folder: &Path, state: &Path) -> (Program, SocketAddr) {
    let addr = SocketAddr::from(([127, 0, 0, 1], lasting_port()));
    let (flag, listen) = (format!("--state={}", state.display()), format!("--addr={addr}"));
    let seeds = format!("--seed-count={MACHINES}");
    let args = [
        "provider",
        "fakecloud",
        &listen,
        "--metrics-addr=0",
        &flag,
        &seeds,
        "--create-latency=5ms",
        "--configure-latency=5ms",
        "--drain-latency=5ms",
        "--delete-latency=5ms",
    ];
    (Program::start(&args, &folder.join("log")), addr)
}

/// A machine whose Configure was interrupted is brought back by its owner.
async fn repair(addr: SocketAddr, state: &Path, machine: usize, known: &mut Known) {
    let found = client(addr).get(pb::MachineRef { id: id(machine) }).await.unwrap().into_inner();
    if MachineState::from_number(found.state) != Some(MachineState::Failed) {
        return;
    }
    let (socket, wish) = (state.join("admin.sock"), Wish { repair: id(machine) });
    let reply = tokio::time::timeout(PATIENCE, ask(&socket, &wish)).await.unwrap().unwrap();
    assert_eq!(reply, Reply::Repaired("Speculative".into()));
    known.acknowledged = None;
}
