//! Looking at a world: pictures of it, and a line for everything that changed between two looks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::memory::PodPhase;
use bigfleet_proto::v1alpha1::Machine;
use bigfleet_types::{CapacityType, MachineState};
use tokio::sync::watch;

use super::audit::{Entry, Tail};
use super::cluster::Cluster;
use super::picture::{ActionLine, ClassLine, ClusterLine, Picture, STATES, UnmetLine};
use super::world::{World, state};
use crate::command;
use crate::ctl::fleet;

/// How many actions a picture shows at most.
const ACTIONS: usize = 40;
/// How many told lines it shows at most.
const STORY: usize = 60;
/// How often the shard is asked about its Needs.
const ASK_EVERY: Duration = Duration::from_millis(1000);

/// What the shard said last about its Needs.
#[derive(Debug, Clone, Default, PartialEq)]
struct Answer {
    cycle: Option<i64>,
    unmet: Vec<UnmetLine>,
}

/// Looks at one world again and again.
pub(crate) struct Observer {
    world: Arc<World>,
    audit: Tail,
    answers: watch::Receiver<Answer>,
    asker: tokio::task::JoinHandle<()>,
    /// State and cluster of every machine at the last look.
    places: BTreeMap<String, (String, String)>,
    last: Picture,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.asker.abort();
    }
}

impl Observer {
    /// Begins; nothing has changed before the first look. Must run on a tokio runtime.
    pub(crate) fn new(world: Arc<World>, hints: Vec<String>) -> Self {
        let (answer, answers) = watch::channel(Answer::default());
        let asker = tokio::spawn({
            let world = Arc::clone(&world);
            async move {
                loop {
                    // An unanswered question shows as a missing cycle; the reason is in the log.
                    let told =
                        world.needs().await.inspect_err(|error| tracing::warn!("{}", command::told(error)));
                    answer.send_replace(told.map(|needs| understood(&needs)).unwrap_or_default());
                    tokio::time::sleep(ASK_EVERY).await;
                }
            }
        });
        let audit = world.tail();
        Self {
            world,
            audit,
            answers,
            asker,
            places: BTreeMap::new(),
            last: Picture { hints, ..Picture::default() },
        }
    }

    /// The picture of the last look.
    pub(crate) fn picture(&self) -> &Picture {
        &self.last
    }

    /// Adds a line to the story.
    pub(crate) fn tell(&mut self, line: String) {
        self.last.story.push(line);
        let surplus = self.last.story.len().saturating_sub(STORY);
        self.last.story.drain(..surplus);
    }

    /// Looks, and gives a line for each change since the last look.
    ///
    /// # Errors
    /// When the audit log cannot be read.
    pub(crate) fn look(&mut self) -> anyhow::Result<Vec<String>> {
        let mut lines = Vec::new();
        let machines = self.world.control().machines();
        self.note_demand(&mut lines);
        self.note_machines(&machines, &mut lines);
        for entry in self.audit.read()? {
            lines.push(format!("action {}: {} ({})", entry.headline(), entry.why(), outcome(&entry)));
            self.last.actions.push(action(&entry));
        }
        let surplus = self.last.actions.len().saturating_sub(ACTIONS);
        self.last.actions.drain(..surplus);
        self.last.uptime = self.world.uptime();
        self.last.classes = classes(&machines);
        self.note_dollars(fleet_price(&machines), &mut lines);
        self.note_answer(&mut lines);
        let (paused, broken) = (self.world.is_paused(), self.world.control().is_broken());
        if paused != self.last.paused {
            lines.push(
                if paused { "paused: actions are decided and not executed" } else { "no longer paused" }
                    .to_owned(),
            );
        }
        if broken != self.last.broken {
            lines.push(if broken { "the provider is broken" } else { "the provider is healed" }.to_owned());
        }
        (self.last.paused, self.last.broken) = (paused, broken);
        Ok(lines)
    }

    fn note_demand(&mut self, lines: &mut Vec<String>) {
        let now: Vec<ClusterLine> = self.world.clusters().iter().map(cluster_line).collect();
        for (at, cluster) in now.iter().enumerate() {
            let before = self.last.clusters.get(at);
            if before.is_none_or(|before| before.demand != cluster.demand) {
                let tiers: Vec<_> =
                    cluster.demand.iter().map(|(tier, level)| format!("{tier} {level}")).collect();
                lines.push(format!(
                    "demand {}: {} ({} pods)",
                    cluster.name,
                    tiers.join(", "),
                    cluster.wanted
                ));
            }
            let content = |c: &ClusterLine| c.running == c.wanted && c.pending == 0;
            if content(cluster) && before.is_some_and(|before| !content(before)) {
                lines.push(format!(
                    "pods {}: all {} run on {} nodes",
                    cluster.name, cluster.running, cluster.nodes
                ));
            }
        }
        self.last.clusters = now;
    }

    fn note_machines(&mut self, machines: &[Arc<Machine>], lines: &mut Vec<String>) {
        let first = self.places.is_empty();
        if first {
            let totals = classes(machines)
                .iter()
                .map(|c| format!("{} {}", c.counts.iter().sum::<usize>(), c.name))
                .collect::<Vec<_>>();
            lines.push(format!("machines: {}", totals.join(", ")));
        }
        let mut places = BTreeMap::new();
        for machine in machines {
            let place = (fleet::state(machine), machine.cluster.clone());
            let before = self.places.get(&machine.id);
            if !first && before != Some(&place) {
                let from = before.map_or("new", |(state, _)| state.as_str());
                let at = if place.1.is_empty() { String::new() } else { format!(" ({})", place.1) };
                let error = if machine.last_error.is_empty() {
                    String::new()
                } else {
                    format!(": {}", machine.last_error)
                };
                lines.push(format!("machine {}: {from} -> {}{at}{error}", machine.id, place.0));
            }
            places.insert(machine.id.clone(), place);
        }
        let gone = self.places.keys().filter(|id| !places.contains_key(*id));
        lines.extend(gone.map(|id| format!("machine {id}: gone")));
        self.places = places;
        let bound = |m: &Arc<Machine>| state(m) == Some(MachineState::Configured);
        if self.last.first_bound.is_none() && machines.iter().any(bound) {
            let after = self.world.uptime();
            self.last.first_bound = Some(after);
            lines.push(format!("first machine bound after {:.1} s", after.as_secs_f64()));
        }
    }

    fn note_dollars(&mut self, dollars: f64, lines: &mut Vec<String>) {
        if (dollars - self.last.dollars_per_hour).abs() > 1e-9 {
            lines.push(format!("dollars: ${dollars:.2} an hour"));
        }
        self.last.dollars_per_hour = dollars;
    }

    fn note_answer(&mut self, lines: &mut Vec<String>) {
        let Answer { cycle, unmet } = self.answers.borrow_and_update().clone();
        for line in unmet.iter().filter(|line| !self.last.unmet.contains(line)) {
            let UnmetLine { cluster, priority, missing, why } = line;
            lines.push(format!("unmet {cluster}, priority {priority}: lacks {missing}: {why}"));
        }
        if unmet.is_empty() && !self.last.unmet.is_empty() {
            lines.push("unmet: none any more".to_owned());
        }
        (self.last.cycle, self.last.unmet) = (cycle, unmet);
    }
}

/// `cluster-a 154 of 154, ...`: running pods by cluster.
pub(crate) fn pods(world: &World) -> String {
    let lines = world.clusters().iter().map(cluster_line);
    lines.map(|c| format!("{} {} of {}", c.name, c.running, c.wanted)).collect::<Vec<_>>().join(", ")
}

fn cluster_line(cluster: &Cluster) -> ClusterLine {
    let view = cluster.memory().view();
    ClusterLine {
        name: cluster.name().to_owned(),
        demand: cluster.demand(),
        wanted: cluster.pods_wanted(),
        running: view.pods_in(PodPhase::Running),
        pending: view.pods_in(PodPhase::Pending),
        nodes: view.nodes.iter().filter(|node| node.ready).count(),
        evicted: view.disruptions.evicted + view.disruptions.deleted,
        lost: view.disruptions.node_lost,
    }
}

fn fleet_price(machines: &[Arc<Machine>]) -> f64 {
    let exists = |m: &&Arc<Machine>| state(m) != Some(MachineState::Speculative);
    // An empty sum of floats is -0.
    machines.iter().filter(exists).fold(0.0, |sum, m| sum + m.price_per_hour)
}

/// Machine ids are made of the class and a number.
fn class_of(machine: &Machine) -> &str {
    machine.id.rsplit_once('-').map_or(machine.id.as_str(), |(class, _)| class)
}

fn classes(machines: &[Arc<Machine>]) -> Vec<ClassLine> {
    let mut classes: BTreeMap<&str, ClassLine> = BTreeMap::new();
    for machine in machines {
        let class = classes.entry(class_of(machine)).or_insert_with(|| ClassLine {
            name: class_of(machine).to_owned(),
            capacity_type: CapacityType::from_number(machine.capacity_type)
                .and_then(CapacityType::label)
                .unwrap_or("?"),
            price: machine.price_per_hour,
            counts: [0; 8],
        });
        if let Some(column) = STATES.iter().position(|column| state(machine) == Some(*column)) {
            class.counts[column] += 1;
        }
    }
    let mut classes: Vec<_> = classes.into_values().collect();
    classes.sort_by(|a, b| a.price.total_cmp(&b.price).then_with(|| b.name.cmp(&a.name)));
    classes
}

fn action(entry: &Entry) -> ActionLine {
    ActionLine {
        clock: entry.clock().to_owned(),
        headline: entry.headline(),
        why: entry.why().to_owned(),
        outcome: outcome(entry),
    }
}

fn outcome(entry: &Entry) -> String {
    match entry.detail.as_str() {
        "" => entry.outcome.clone(),
        detail => format!("{}: {detail}", entry.outcome),
    }
}

fn understood(needs: &fleet::Needs) -> Answer {
    let unmet = needs.views.iter().filter(|view| !view.satisfied);
    let unmet = unmet.map(|view| UnmetLine {
        cluster: view.cluster_id.clone(),
        priority: view.need.as_ref().map_or(0, |need| need.priority),
        missing: view.residual_deficit.as_ref().map(|r| fleet::vector(&r.resources)).unwrap_or_default(),
        why: fleet::explain(view),
    });
    Answer { cycle: Some(needs.header.cycle), unmet: unmet.collect() }
}
