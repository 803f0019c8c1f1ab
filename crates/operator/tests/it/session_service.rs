//! A whole operator over the cluster in memory, against a scripted shard on real gRPC.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::clock::SystemClock;
use bigfleet_operator::io::Phase;
use bigfleet_operator::memory::{Budget, Config, Deployment, MemoryCluster, PodSpec, View, blob};
use bigfleet_operator::service::{self, Handle, Options};
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{
    BootstrapBlobResponse, BootstrapRequest, ClusterCapacityNeeds, MachineState, NodeStateUpdate, ReclaimAck,
    ReclaimInstruction, shard_message,
};
use bigfleet_types::{ClusterId, MachineId};
use tokio_util::sync::CancellationToken;

use crate::fake_shard::{FakeShard, PATIENCE, Peer};

struct World {
    shard: FakeShard,
    cluster: MemoryCluster,
    operator: Handle,
    _stop: tokio_util::sync::DropGuard,
}

fn quantities(cpu: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("cpu".to_owned(), cpu.to_owned())])
}

fn web(replicas: u32) -> Deployment {
    Deployment {
        namespace: "apps".to_owned(),
        name: "web".to_owned(),
        replicas,
        pod: PodSpec { requests: quantities("1"), ..PodSpec::default() },
        daemon_set: false,
    }
}

impl World {
    /// A cluster with `replicas` pods that wait, and its operator.
    async fn start(config: Config, template: &str, replicas: u32) -> Self {
        let shard = FakeShard::start().await;
        let stop = CancellationToken::new();
        let clock = Arc::new(SystemClock::start());
        let id = ClusterId::trusted("c1");
        let cluster = MemoryCluster::start(id.clone(), config, clock.clone(), stop.clone());
        cluster.apply_deployment(web(replicas)).unwrap();
        let wanted = usize::try_from(replicas).unwrap();
        waits(&cluster, |view| view.requests == wanted).await;

        let template = Some(Template::parse(template).unwrap());
        let render = Bootstrap::new(id.clone(), template, Statics::default(), Duration::from_secs(600));
        let mut options = Options::new(id, shard.addr.clone());
        options.core.rollup_interval = Duration::from_secs(1);
        options.session.initial_backoff = Duration::from_millis(5);
        options.session.max_backoff = Duration::from_millis(50);
        let shell = Arc::new(cluster.clone());
        let operator = service::start(options, Arc::new(render), shell, clock, &stop).unwrap();
        Self { shard, cluster, operator, _stop: stop.drop_guard() }
    }

    async fn accept(&mut self) -> Peer {
        let (peer, cluster) = self.shard.accept().await;
        assert_eq!(cluster, "c1");
        peer.ack("hello", 0).await;
        peer.ack("resync", 0).await;
        peer
    }

    /// What a provider does at Configure: fetch a blob, boot with it, wait for Ready; then the shard tells.
    async fn configure(&self, peer: &mut Peer, machine: &str) {
        peer.send(shard_message::Payload::BootstrapRequest(BootstrapRequest {
            request_id: format!("r-{machine}"),
            cluster_id: "c1".to_owned(),
            machine_id: machine.to_owned(),
            labels: [("pool".to_owned(), "p".to_owned())].into(),
            ..BootstrapRequest::default()
        }))
        .await;
        let answer = bootstrap_answer(peer).await;
        assert_eq!((answer.request_id, answer.error.as_str()), (format!("r-{machine}"), ""));
        assert_eq!(answer.ttl_seconds, 600);
        let labels = [("node.kubernetes.io/instance-type".to_owned(), "m".to_owned())].into();
        let machine_id = MachineId::trusted(machine);
        let allocatable = quantities("4");
        let join = self.cluster.join(&machine_id, &answer.user_data, labels, &allocatable);
        tokio::time::timeout(PATIENCE, join).await.unwrap().unwrap();
        state(peer, machine, MachineState::Configured).await;
    }

    async fn waits(&self, wanted: impl FnMut(&View) -> bool) -> View {
        waits(&self.cluster, wanted).await
    }
}

async fn waits(cluster: &MemoryCluster, wanted: impl FnMut(&View) -> bool) -> View {
    match tokio::time::timeout(PATIENCE, cluster.wait_for(wanted)).await {
        Ok(view) => view,
        Err(_) => panic!("the cluster stays as {:#?}", cluster.view()),
    }
}

async fn state(peer: &Peer, machine: &str, state: MachineState) {
    peer.send(shard_message::Payload::NodeStateUpdate(NodeStateUpdate {
        supersedes_key: format!("node/{machine}"),
        machine_id: machine.to_owned(),
        cluster_id: "c1".to_owned(),
        state: state.into(),
        ..NodeStateUpdate::default()
    }))
    .await;
}

async fn reclaim(peer: &Peer, id: &str, machines: &[&str], seconds: i64) {
    let machines: Vec<String> = machines.iter().map(|m| (*m).to_owned()).collect();
    peer.send(shard_message::Payload::ReclaimInstruction(ReclaimInstruction {
        instruction_id: id.to_owned(),
        nodes: machines.clone(),
        grace_period_seconds: seconds,
        preemptor_priority: 0,
        machine_ids: machines,
    }))
    .await;
}

/// The next answer of a kind; roll-ups that come before it are confirmed on the way.
async fn bootstrap_answer(peer: &mut Peer) -> BootstrapBlobResponse {
    loop {
        match peer.next().await {
            Payload::BootstrapResponse(answer) => return answer,
            Payload::Rollup(rollup) => peer.ack("rollup", rollup.timestamp_unix_nanos).await,
            other => panic!("unexpected {other:?}"),
        }
    }
}

async fn reclaim_ack(peer: &mut Peer) -> ReclaimAck {
    loop {
        match peer.next().await {
            Payload::ReclaimAck(ack) => return ack,
            Payload::Rollup(rollup) => peer.ack("rollup", rollup.timestamp_unix_nanos).await,
            Payload::NodeObservation(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
}

/// The next roll-up that looks as wanted; all are confirmed.
async fn rollup(peer: &mut Peer, wanted: impl Fn(&ClusterCapacityNeeds) -> bool) -> ClusterCapacityNeeds {
    let find = async {
        loop {
            if let Payload::Rollup(rollup) = peer.next().await {
                peer.ack("rollup", rollup.timestamp_unix_nanos).await;
                if wanted(&rollup) {
                    return rollup;
                }
            }
        }
    };
    tokio::time::timeout(PATIENCE, find).await.expect("no such roll-up came")
}

fn cpu(rollup: &ClusterCapacityNeeds) -> Vec<&str> {
    rollup.needs.iter().map(|need| need.aggregate_resources["cpu"].as_str()).collect()
}

fn pods_on(view: &View, machine: &str) -> usize {
    view.nodes.iter().filter(|node| node.machine.as_str() == machine).map(|node| node.pods).sum()
}

fn phase(view: &View, machine: &str) -> Option<Phase> {
    view.upcoming
        .iter()
        .find(|upcoming| upcoming.machine.as_ref().is_some_and(|m| m.as_str() == machine))
        .map(|upcoming| upcoming.phase)
}

/// From hello to a node that is empty and gone, on a cluster with the given manners.
async fn the_whole_line(config: Config) {
    let mut world = World::start(config, blob::TEMPLATE, 3).await;
    let mut peer = world.accept().await;
    let first = rollup(&mut peer, |_| true).await;
    assert_eq!((first.cluster_id.as_str(), cpu(&first)), ("c1", vec!["3"]), "the first roll-up is complete");
    world.waits(|view| view.acknowledged == 3).await;

    world.configure(&mut peer, "m-1").await;
    let view = world.waits(|view| view.all_running() && phase(view, "m-1") == Some(Phase::Ready)).await;
    assert_eq!(pods_on(&view, "m-1"), 3);
    world.configure(&mut peer, "m-2").await;
    world.waits(|view| phase(view, "m-2") == Some(Phase::Ready)).await;

    reclaim(&peer, "i-1", &["m-1"], 60).await;
    let ack = reclaim_ack(&mut peer).await;
    assert_eq!((ack.instruction_id.as_str(), ack.nodes_started), ("i-1", 1));
    let node = |view: &View| view.nodes.iter().find(|n| n.machine.as_str() == "m-1").cloned();
    assert!(node(&world.cluster.view()).unwrap().cordoned, "the cordon is the contract of the ack");
    let view = world.waits(|view| phase(view, "m-1") == Some(Phase::Drained) && view.all_running()).await;
    assert_eq!((pods_on(&view, "m-1"), pods_on(&view, "m-2")), (0, 3));
    assert_eq!((view.disruptions.evicted, view.disruptions.node_lost), (3, 0));

    state(&peer, "m-1", MachineState::Idle).await;
    world.cluster.remove_node(&MachineId::trusted("m-1"));
    let view = world.waits(|view| phase(view, "m-1").is_none()).await;
    assert_eq!((view.disruptions.node_lost, view.nodes.len()), (0, 1));
    // The demand never changed.
    let last = rollup(&mut peer, |_| true).await;
    assert_eq!(cpu(&last), ["3"]);
    world.operator.stop().await;
    assert!(peer.ended().await);
}

#[tokio::test]
async fn from_hello_to_an_empty_node() {
    the_whole_line(Config::default()).await;
}

#[tokio::test]
async fn from_hello_to_an_empty_node_on_a_slow_and_rude_cluster() {
    the_whole_line(Config {
        watch_latency: Duration::from_millis(50),
        watch_jitter: Duration::from_millis(300),
        write_latency: Duration::from_millis(20),
        conflict_every: 3,
        ..Config::default()
    })
    .await;
}

#[tokio::test]
async fn demand_that_changes_is_told_and_a_broken_watch_shows_no_dip() {
    let mut world = World::start(Config::default(), blob::TEMPLATE, 4).await;
    let mut peer = world.accept().await;
    rollup(&mut peer, |r| cpu(r) == ["4"]).await;
    world.cluster.scale("web", 9).unwrap();
    rollup(&mut peer, |r| cpu(r) == ["9"]).await;
    world.cluster.break_watch(Duration::from_millis(300));
    world.cluster.scale("web", 7).unwrap();
    let next = rollup(&mut peer, |r| cpu(r) != ["9"]).await;
    assert_eq!(cpu(&next), ["7"], "nothing between what was and what is");
    world.cluster.scale("web", 0).unwrap();
    rollup(&mut peer, |r| r.needs.is_empty()).await;
}

#[tokio::test]
async fn nothing_is_done_while_the_shard_is_away_and_all_is_told_when_it_is_back() {
    let mut world = World::start(Config::default(), blob::TEMPLATE, 2).await;
    let mut peer = world.accept().await;
    rollup(&mut peer, |r| cpu(r) == ["2"]).await;
    world.configure(&mut peer, "m-1").await;
    world.waits(|view| view.all_running() && view.acknowledged == 2 && phase(view, "m-1").is_some()).await;
    drop(peer);
    let (mut peer, _) = world.shard.accept().await;
    // No hello ack, no resync: the operator may not conclude anything. Demand grows all the same.
    world.cluster.scale("web", 3).unwrap();
    rollup(&mut peer, |r| cpu(r) == ["3"]).await;
    drop(peer);
    let mut peer = world.accept().await;
    rollup(&mut peer, |r| cpu(r) == ["3"]).await;
    let view = world.waits(View::all_running).await;
    assert!(view.nodes.iter().all(|node| node.ready && !node.cordoned));
    assert_eq!((view.disruptions.evicted, view.disruptions.node_lost), (0, 0));
    assert!(world.operator.session_stats().reconnects >= 2);
    assert!(world.operator.counters().rollups >= 3);
}

#[tokio::test]
async fn drill08_a_budget_blocks_past_the_deadline() {
    let mut world = World::start(Config::default(), blob::TEMPLATE, 2).await;
    world.cluster.apply_budget(Budget {
        namespace: "apps".to_owned(),
        name: "all".to_owned(),
        deployment: "web".to_owned(),
        min_available: 2,
    });
    let mut peer = world.accept().await;
    rollup(&mut peer, |_| true).await;
    world.configure(&mut peer, "m-1").await;
    world.waits(|view| view.all_running() && phase(view, "m-1") == Some(Phase::Ready)).await;
    reclaim(&peer, "i-1", &["m-1"], 3).await;
    assert_eq!(reclaim_ack(&mut peer).await.nodes_started, 1);
    let view = world.waits(|view| phase(view, "m-1") == Some(Phase::Failed)).await;
    let error = &view.upcoming[0].last_error;
    assert!(error.starts_with("drain deadline exceeded after 3s: 2 pods remain"), "{error}");
    assert!(error.contains("PDB apps/all"), "{error}");
    assert_eq!((view.disruptions.evicted, pods_on(&view, "m-1")), (0, 2));
    assert!(view.disruptions.refused > 0);
    assert!(view.nodes[0].cordoned);
    assert!(world.operator.session_stats().connected);
}

#[tokio::test]
async fn drill09_what_cannot_be_resolved_is_acknowledged_and_not_started() {
    let mut world = World::start(Config::default(), blob::TEMPLATE, 1).await;
    let mut peer = world.accept().await;
    reclaim(&peer, "i-1", &["nobody"], 30).await;
    let ack = reclaim_ack(&mut peer).await;
    assert_eq!((ack.instruction_id.as_str(), ack.nodes_started), ("i-1", 0));
}

#[tokio::test]
async fn drill14_a_template_that_fails_answers_every_request_with_an_error() {
    let mut world = World::start(Config::default(), "{{ .MachineID }}{{ .Token }}", 1).await;
    let mut peer = world.accept().await;
    for round in 0..3 {
        peer.send(shard_message::Payload::BootstrapRequest(BootstrapRequest {
            request_id: format!("r-{round}"),
            cluster_id: "c1".to_owned(),
            machine_id: "m-1".to_owned(),
            ..BootstrapRequest::default()
        }))
        .await;
        let answer = bootstrap_answer(&mut peer).await;
        assert_eq!(answer.request_id, format!("r-{round}"));
        assert!(
            answer.error.starts_with("render: line 1, column 20: .Token has no value"),
            "{}",
            answer.error
        );
        assert!(answer.user_data.is_empty());
    }
    rollup(&mut peer, |_| true).await;
}
