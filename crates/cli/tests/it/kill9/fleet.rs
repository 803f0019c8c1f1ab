//! The programs and the world around them together, and what the fleet has to come to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bigfleet_operator::core::Order;
use bigfleet_operator::memory::{Disruption, DisruptionReason, PodPhase, PodView, View};
use bigfleet_proto::v1alpha1::{Machine, MachineState, NeedView};
use tempfile::TempDir;
use tokio::task::block_in_place;

use super::demand::{Demand, Moving, Workload, YIELDING_PRIORITY};
use super::ledger::Ledger;
use super::programs::{catalogue, contested, local, start_provider, start_shard};
use super::world::{Cluster, World};
use crate::peers::{machines, needs};
use crate::process::{Program, lasting_port};

/// How long a fleet may take to come to rest. Never what decides the test.
const REST_WITHIN: Duration = Duration::from_secs(240);
/// How often a fleet that does not come to rest is talked about.
const SAY_EVERY: Duration = Duration::from_secs(15);
/// What the provider says of a machine whose Configure it did not live to see end.
const INTERRUPTED: &str = "Configure was interrupted by a restart of the provider";

/// Who is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Victim {
    Shard,
    Provider,
    Both,
}

impl Victim {
    fn hits_shard(self) -> bool {
        self != Self::Provider
    }

    fn hits_provider(self) -> bool {
        self != Self::Shard
    }
}

/// A fleet at rest, as far as a kill may not change it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Standing {
    /// Machine, state and cluster of everything that is bound or broken.
    bound: BTreeSet<(String, &'static str, String)>,
    bought: BTreeSet<String>,
    /// How many bound pods have ended, by cluster.
    ended: BTreeMap<String, usize>,
}

/// All of it.
pub(super) struct Fleet {
    folder: TempDir,
    seed: u64,
    ports: (u16, u16),
    shard: Program,
    provider: Program,
    provider_kills: usize,
    world: World,
    demand: Demand,
    ledger: Ledger,
}

impl Fleet {
    /// Starts everything; nothing is wanted yet but all contested machines, by whom gives way.
    pub(super) async fn start(points: u64, seed: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("catalogue.yaml"), catalogue(points)).unwrap();
        let ports = (lasting_port(), lasting_port());
        let world = World::start(folder.path(), ports.0, seed).await;
        let provider = start_provider(&folder, ports, &world);
        let shard = start_shard(&folder, ports);
        let demand = Demand::default();
        let east = world.clusters.iter().find(|c| Some(c.memory.id().as_str()) == Workload::Yielding.home());
        let pods = u32::try_from(contested(points)).unwrap();
        demand.set(&east.unwrap().memory, Workload::Yielding, pods);
        let ledger = Ledger::start(local(ports.1), demand.clone());
        Self { folder, seed, ports, shard, provider, provider_kills: 0, world, demand, ledger }
    }

    pub(super) fn move_demand(&self, seed: u64) -> Moving {
        let clusters = self.world.clusters.iter().map(|cluster| cluster.memory.clone()).collect();
        Moving::start(clusters, self.demand.clone(), seed)
    }

    /// One more pod is wanted urgently; no machine is free for it.
    pub(super) fn urge(&self) {
        let west =
            self.world.clusters.iter().find(|c| Some(c.memory.id().as_str()) == Workload::Urgent.home());
        self.demand.set(&west.unwrap().memory, Workload::Urgent, self.demand.total(Workload::Urgent) + 1);
    }

    pub(super) fn kill(&mut self, victim: Victim) {
        block_in_place(|| {
            if victim.hits_shard() {
                assert!(self.shard.runs(), "the shard ended by itself: {}", self.story());
                self.shard.kill();
            }
            if victim.hits_provider() {
                assert!(self.provider.runs(), "the provider ended by itself: {}", self.story());
                self.provider.kill();
                self.provider_kills += 1;
            }
        });
    }

    pub(super) fn restart(&mut self, victim: Victim) {
        if victim.hits_shard() {
            self.shard = start_shard(&self.folder, self.ports);
        }
        if victim.hits_provider() {
            self.provider = start_provider(&self.folder, self.ports, &self.world);
        }
    }

    /// One line about the fleet.
    pub(super) fn summary(&self) -> String {
        let pods = |workload| self.demand.total(workload);
        format!(
            "pods wanted: {} moving, {} growing, {} bursting, {} urgent; machines {}",
            pods(Workload::Moving),
            pods(Workload::Growing),
            pods(Workload::Bursting),
            pods(Workload::Urgent),
            self.ledger.latest()
        )
    }

    /// Waits until the fleet is what the demand asks for, three looks in a row.
    pub(super) async fn settle(&mut self, when: &str) {
        let deadline = Instant::now() + REST_WITHIN;
        let (mut good, mut said) = (0, Instant::now());
        while good < 3 {
            let differences = self.differences().await;
            good = if differences.is_empty() { good + 1 } else { 0 };
            if said.elapsed() > SAY_EVERY {
                said = Instant::now();
                println!("kill9: {when}, not at rest yet: {}", differences.join("; "));
            }
            if Instant::now() > deadline && good == 0 {
                let differences = differences.join("\n  ");
                panic!("{when}, the fleet never came to rest:\n  {differences}\n{}", self.story());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    }

    /// What still differs from what the demand asks for; empty for a fleet at rest.
    async fn differences(&mut self) -> Vec<String> {
        for (name, runs) in [("shard", self.shard.runs()), ("provider", self.provider.runs())] {
            assert!(runs, "the {name} ended by itself: {}", self.story());
        }
        let Some(machines) = machines(local(self.ports.1)).await else {
            return vec!["the provider does not answer".into()];
        };
        let mut found = Vec::new();
        for machine in &machines {
            let state = machine.state();
            if !matches!(
                state,
                MachineState::Speculative
                    | MachineState::Idle
                    | MachineState::Configured
                    | MachineState::Failed
            ) {
                found.push(format!("{} is {} for {:?}", machine.id, state.as_str_name(), machine.cluster));
            }
        }
        let mut rows = 0;
        for cluster in &self.world.clusters {
            rows += self.cluster_differences(cluster, &machines, &mut found);
        }
        match needs(local(self.ports.0)).await {
            None => found.push("the shard does not answer".into()),
            Some((cycle, views)) => {
                if views.len() != rows {
                    found.push(format!(
                        "the shard knows {} Needs, {rows} are stated (cycle {cycle})",
                        views.len()
                    ));
                }
                // Whoever gives way goes short, and that is all right.
                let yields = |view: &NeedView| {
                    view.need.as_ref().is_some_and(|need| need.priority == YIELDING_PRIORITY)
                };
                for view in views.iter().filter(|view| !view.satisfied && !yields(view)) {
                    found.push(format!("a Need of {} is not satisfied: {view:?}", view.cluster_id));
                }
            }
        }
        found
    }

    /// Adds what differs in one cluster; gives how many Needs it states.
    fn cluster_differences(&self, cluster: &Cluster, machines: &[Machine], found: &mut Vec<String>) -> usize {
        let id = cluster.memory.id().as_str();
        let view = cluster.memory.view();
        let mut rows = 0;
        for workload in Workload::of(id) {
            let mut wanted = self.demand.get(id, workload);
            rows += usize::from(wanted > 0);
            let mut may_run = wanted;
            let runs = |pod: &&PodView| pod.deployment == workload.name() && pod.phase == PodPhase::Running;
            if workload == Workload::Yielding {
                let left = self.left_for_yielding(machines);
                // A host that broke while it joined may have a node all the same, and a pod on it.
                let broken = view.pods.iter().filter(runs).filter(|pod| on_failed(pod, &view, machines));
                may_run = wanted.min(left + u32::try_from(broken.count()).unwrap());
                wanted = wanted.min(left);
            }
            let running = view.pods.iter().filter(runs).count();
            if u32::try_from(running) != Ok(may_run) {
                found.push(format!("{id}: {running} of {may_run} {} pods run", workload.name()));
            }
            let bound: Vec<&str> = machines
                .iter()
                .filter(|m| m.cluster == id && m.instance_type == workload.instance_type())
                .filter(|m| m.state() == MachineState::Configured)
                .map(|m| m.id.as_str())
                .collect();
            if u32::try_from(bound.len()) != Ok(workload.machines(wanted)) {
                let needed = workload.machines(wanted);
                found.push(format!(
                    "{id}: {wanted} {} pods need {needed} machines, bound are {bound:?}",
                    workload.name()
                ));
            }
        }
        let waits = |pod: &PodView| pod.deployment == Workload::Yielding.name() && pod.node.is_none();
        for pod in view.pods.iter().filter(|pod| pod.phase != PodPhase::Running && !waits(pod)) {
            found.push(format!("{id}: pod {} is {:?} on {:?}", pod.name, pod.phase, pod.node));
        }
        for node in &view.nodes {
            let machine = machines.iter().find(|m| m.id == node.machine.as_str());
            let state = machine.map(Machine::state);
            let ours = machine.is_some_and(|m| m.cluster == id);
            let serves = ours && state == Some(MachineState::Configured) && node.ready && !node.cordoned;
            if !(serves || state == Some(MachineState::Failed)) {
                found.push(format!(
                    "{id}: node {} (ready: {}, cordoned: {}, {} pods) of a machine that is {state:?} for {:?}",
                    node.name,
                    node.ready,
                    node.cordoned,
                    node.pods,
                    machine.map(|m| m.cluster.as_str()),
                ));
            }
        }
        rows
    }

    /// How many contested machines nobody wants more urgently.
    fn left_for_yielding(&self, machines: &[Machine]) -> u32 {
        let sound = |m: &&Machine| {
            m.instance_type == Workload::Yielding.instance_type() && m.state() != MachineState::Failed
        };
        let sound = u32::try_from(machines.iter().filter(sound).count()).unwrap();
        sound.saturating_sub(self.demand.total(Workload::Urgent))
    }

    /// What may not have happened on the way here. Panics with everything that did.
    pub(super) async fn check_history(&self) {
        let machines = machines(local(self.ports.1)).await.expect("a provider at rest answers");
        let mut wrongs: Vec<String> = self.ledger.wrongs().into_iter().collect();
        let failed: Vec<&Machine> = machines.iter().filter(|m| m.state() == MachineState::Failed).collect();
        for machine in &failed {
            if !machine.last_error.contains(INTERRUPTED) || self.provider_kills == 0 {
                wrongs.push(format!(
                    "{} is Failed, but not by a kill in its Configure: {}",
                    machine.id, machine.last_error
                ));
            }
        }
        let bought = self.ledger.bought();
        let broken = failed.iter().filter(|m| m.instance_type == Workload::Growing.instance_type()).count();
        let wanted = usize::try_from(self.demand.total(Workload::Growing)).unwrap();
        if bought.len() != wanted + broken {
            wrongs.push(format!(
                "{} machines were bought for {wanted} pods and {broken} machines that a kill broke: {bought:?}",
                bought.len()
            ));
        }
        for cluster in &self.world.clusters {
            let ordered = self.ordered_drains(cluster);
            for end in cluster.memory.evictions() {
                if let Some(why) = wrongful(&end, &ordered) {
                    wrongs.push(format!("{}: pod {} on {} {why}", cluster.memory.id(), end.name, end.node));
                }
            }
        }
        assert!(wrongs.is_empty(), "{}\n{}", wrongs.join("\n"), self.story());
    }

    /// Nodes of a cluster that the shard ordered to be drained: by the operator's events, or by the shard's audit log.
    fn ordered_drains(&self, cluster: &Cluster) -> BTreeSet<String> {
        let events = cluster.memory.view().events.into_iter();
        let mut nodes: BTreeSet<String> =
            events.filter(|event| event.reason == "BigFleetReclaim").map(|event| event.about.1).collect();
        let audit = std::fs::read_to_string(self.folder.path().join("audit.jsonl")).unwrap_or_default();
        for line in audit.lines() {
            // The kill may have cut a line short.
            let record: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            let drains = record["kind"] == "Reclaim" || record["kind"] == "Preempt";
            if drains && record["cluster"] == cluster.memory.id().as_str() {
                nodes.insert(format!("node-{}", record["machine"].as_str().unwrap_or_default()));
            }
        }
        nodes
    }

    /// Takes away the nodes of Failed machines, with whatever runs there.
    pub(super) async fn clear_failed_hosts(&self) {
        let machines = machines(local(self.ports.1)).await.expect("a provider at rest answers");
        let failed: BTreeSet<&str> =
            machines.iter().filter(|m| m.state() == MachineState::Failed).map(|m| m.id.as_str()).collect();
        for cluster in &self.world.clusters {
            for node in cluster.memory.view().nodes {
                if failed.contains(node.machine.as_str()) {
                    cluster.memory.remove_node(&node.machine);
                }
            }
        }
    }

    /// What a kill may not change.
    pub(super) async fn standing(&self) -> Standing {
        let machines = machines(local(self.ports.1)).await.expect("a provider at rest answers");
        let bound = machines
            .into_iter()
            .filter(|m| !m.cluster.is_empty() || m.state() == MachineState::Failed)
            .map(|m| (m.id.clone(), m.state().as_str_name(), m.cluster))
            .collect();
        let ended = self
            .world
            .clusters
            .iter()
            .map(|cluster| (cluster.memory.id().to_string(), cluster.memory.evictions().len()))
            .collect();
        Standing { bound, bought: self.ledger.bought(), ended }
    }

    /// Waits until the shard has decided a few more times, with every operator connected.
    pub(super) async fn some_cycles(&self) {
        let deadline = Instant::now() + REST_WITHIN;
        let mut first = None;
        loop {
            let connected = self.world.clusters.iter().all(|c| c.operator.session_stats().connected);
            if let Some((cycle, _)) = needs(local(self.ports.0)).await
                && connected
                && cycle >= *first.get_or_insert(cycle) + 5
            {
                return;
            }
            assert!(Instant::now() < deadline, "the shard decides no more: {}", self.story());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// What one needs to look into a failure.
    pub(super) fn story(&self) -> String {
        let tail = |name: &str, log: String| {
            let lines: Vec<&str> = log.lines().collect();
            format!(
                "--- the end of the {name}'s log\n{}\n",
                lines[lines.len().saturating_sub(60)..].join("\n")
            )
        };
        format!(
            "repeat with BIGFLEET_KILL9_SEED={}; {}\n{}{}",
            self.seed,
            self.summary(),
            tail("shard", self.shard.logged()),
            tail("provider", self.provider.logged())
        )
    }

    /// Ends everything as people would.
    pub(super) async fn stop(self) {
        let Self { shard, provider, world, .. } = self;
        for cluster in world.clusters {
            cluster.operator.stop().await;
        }
        for program in [shard, provider] {
            let (status, _) = block_in_place(|| program.terminate());
            assert_eq!(status.code(), Some(0));
        }
    }
}

/// Whether a pod is on the node of a host that failed.
fn on_failed(pod: &PodView, view: &View, machines: &[Machine]) -> bool {
    let node = view.nodes.iter().find(|node| Some(&node.name) == pod.node.as_ref());
    let machine = node.and_then(|node| machines.iter().find(|m| m.id == node.machine.as_str()));
    machine.is_some_and(|m| m.state() == MachineState::Failed)
}

/// Why a pod should not have ended as it did.
fn wrongful(end: &Disruption, ordered: &BTreeSet<String>) -> Option<&'static str> {
    if end.name.starts_with(&format!("default/{}-", Workload::Growing.name())) {
        return Some("was ended although its workload only ever grew");
    }
    match (end.reason, &end.order) {
        (DisruptionReason::ScaledDown, _) => None,
        // A node notes the instruction that its drain follows, and no Node object outlives a machine's life.
        (DisruptionReason::Evicted, Order::Instruction(_)) if ordered.contains(&end.node) => None,
        (DisruptionReason::Evicted, Order::Instruction(_)) => {
            Some("was evicted although no instruction asked for it")
        }
        // A Preempt does not wait for an operator that is away; it hears of the drain by the machine's state.
        (DisruptionReason::Evicted, Order::Unasked)
            if end.name.starts_with(&format!("default/{}-", Workload::Yielding.name())) =>
        {
            None
        }
        (DisruptionReason::Evicted, Order::Unasked) => Some("was evicted in a drain without an instruction"),
        (DisruptionReason::Evicted, Order::None) => Some("was evicted although its node was not drained"),
        (DisruptionReason::Deleted, _) => Some("was deleted without grace"),
        (DisruptionReason::NodeLost, _) => Some("was lost with its node"),
    }
}
