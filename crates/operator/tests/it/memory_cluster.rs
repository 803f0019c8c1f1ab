//! The cluster in memory behind a clock: joining, leaving, watching.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::clock::SystemClock;
use bigfleet_operator::io::Input;
use bigfleet_operator::memory::{Config, Deployment, JoinError, MemoryCluster, PodSpec};
use bigfleet_operator::service::ClusterShell;
use bigfleet_types::{ClusterId, MachineId};
use tokio_util::sync::CancellationToken;

const PATIENCE: Duration = Duration::from_secs(60);

fn cluster(stop: &CancellationToken) -> MemoryCluster {
    let clock = Arc::new(SystemClock::start());
    MemoryCluster::start(ClusterId::trusted("c1"), Config::default(), clock, stop.clone())
}

fn cpu(amount: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("cpu".to_owned(), amount.to_owned())])
}

fn labels() -> BTreeMap<String, String> {
    BTreeMap::from([("node.kubernetes.io/instance-type".to_owned(), "m".to_owned())])
}

#[tokio::test]
async fn joining_waits_for_ready_and_checks_the_blob() {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let cluster = cluster(&stop);
    let machine = MachineId::trusted("m-1");
    let blob = b"cluster-id: c1\nmachine-id: m-1\nlabel: pool=x\n";
    let node = cluster.join(&machine, blob, labels(), &cpu("4")).await.unwrap();
    let view = cluster.view();
    assert_eq!((view.nodes[0].name.as_str(), view.nodes[0].ready), (node.as_str(), true));
    assert_eq!(
        cluster.join(&machine, blob, labels(), &cpu("4")).await.unwrap(),
        node,
        "joining again is harmless"
    );

    let other = cluster.join(&machine, b"cluster-id: c2\nmachine-id: m-1", labels(), &cpu("4")).await;
    assert!(matches!(other, Err(JoinError::Cluster { .. })));
    let other = cluster.join(&MachineId::trusted("m-2"), blob, labels(), &cpu("4")).await;
    assert!(matches!(other, Err(JoinError::Machine { .. })));
    assert!(matches!(cluster.join(&machine, b"x", labels(), &cpu("4")).await, Err(JoinError::Blob(_))));

    cluster
        .apply_deployment(Deployment {
            namespace: "apps".to_owned(),
            name: "web".to_owned(),
            replicas: 3,
            pod: PodSpec { requests: cpu("1"), ..PodSpec::default() },
            daemon_set: false,
        })
        .unwrap();
    let view = tokio::time::timeout(PATIENCE, cluster.wait_for(|view| view.all_running())).await.unwrap();
    assert_eq!(view.nodes[0].pods, 3);
    assert!(cluster.remove_node(&machine));
    let gone = tokio::time::timeout(PATIENCE, cluster.wait_for(|view| view.nodes.is_empty())).await.unwrap();
    assert_eq!(gone.disruptions.node_lost, 3);
    assert_eq!(cluster.evictions().len(), 3);
}

#[tokio::test]
async fn a_machine_that_leaves_before_it_is_ready_never_joins() {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let clock = Arc::new(SystemClock::start());
    let config = Config { node_ready: Duration::from_secs(3600), ..Config::default() };
    let cluster = MemoryCluster::start(ClusterId::trusted("c1"), config, clock, stop.clone());
    let machine = MachineId::trusted("m-1");
    let joining = {
        let (cluster, machine) = (cluster.clone(), machine.clone());
        tokio::spawn(async move { cluster.join_node(&machine, labels(), &cpu("4")).await })
    };
    tokio::time::timeout(PATIENCE, cluster.wait_for(|view| view.nodes.len() == 1)).await.unwrap();
    cluster.remove_node(&machine);
    let result = tokio::time::timeout(PATIENCE, joining).await.unwrap().unwrap();
    assert!(matches!(result, Err(JoinError::Lost { .. })), "{result:?}");
}

#[tokio::test]
async fn a_second_watch_ends_the_first_and_starts_from_nothing() {
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let cluster = cluster(&stop);
    cluster.join_node(&MachineId::trusted("m-1"), labels(), &cpu("4")).await.unwrap();
    for _ in 0..2 {
        let mut inputs = cluster.inputs();
        let mut nodes = 0;
        loop {
            match tokio::time::timeout(PATIENCE, inputs.recv()).await.unwrap().unwrap() {
                Input::Node(_) => nodes += 1,
                Input::Synced => break,
                _ => {}
            }
        }
        assert_eq!(nodes, 1);
    }
    let mut first = cluster.inputs();
    let _second = cluster.inputs();
    tokio::time::timeout(PATIENCE, async { while first.recv().await.is_some() {} }).await.unwrap();
}
