//! The closed loop: clusters whose pods come and go, the production shard, and a provider that takes its time.
//!
//! Each cycle goes the same way: transitions age; the scenario scales and breaks things; the shard looks at its
//! machines; roll-ups arrive; the shard decides once and carries it out; clusters see what became of their machines
//! and evict; controllers make new pods, and the scheduler binds what it can.

mod cluster;
mod draw;
pub mod fleet;
pub mod history;
mod knobs;
mod provider;
mod shard;
mod workload;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bigfleet_engine::matches;
use bigfleet_shard::control::Control;
use bigfleet_shard::io::Published;
use bigfleet_shard::step::{FleetState, StepAction};
use bigfleet_types::chance::{Chance, shuffle};
use bigfleet_types::{ClusterId, Machine, MachineState, UnixNanos};

pub use cluster::Cluster;
pub use history::{Cycle, History};
pub use knobs::{Knobs, Requests, STEP, Through};
pub use provider::Provider;
pub use workload::{RACK, Workload, rack_of};

/// How long before each cycle the shard looks at its machines.
const LOOK_AHEAD: Duration = Duration::from_secs(1);

/// A whole world in virtual time.
pub struct ClosedLoop {
    knobs: Knobs,
    now: UnixNanos,
    cycle: u32,
    provider: Provider,
    shard: shard::Shard,
    clusters: BTreeMap<ClusterId, Cluster>,
    /// Clusters whose last roll-up got lost.
    unheard: BTreeSet<ClusterId>,
    history: History,
}

impl ClosedLoop {
    /// A world before its first cycle: the shard has seen the machines, and no cluster has spoken.
    #[must_use]
    pub fn new(
        knobs: Knobs,
        machines: impl IntoIterator<Item = Machine>,
        clusters: impl IntoIterator<Item = Cluster>,
    ) -> Self {
        let mut world = Self {
            now: UnixNanos(0).after(Duration::from_secs(1_000_000)),
            cycle: 0,
            provider: Provider::new(knobs.clone(), machines),
            shard: shard::Shard::new(&knobs),
            clusters: clusters.into_iter().map(|cluster| (cluster.id().clone(), cluster)).collect(),
            unheard: BTreeSet::new(),
            history: History::default(),
            knobs,
        };
        // Before the operators come: nothing is decided yet, and no sentence of theirs is lost.
        world.shard.settle(world.now, &mut world.provider);
        for cluster in world.in_order() {
            world.shard.connect(world.now, &cluster);
        }
        world.shard.settle(world.now, &mut world.provider);
        world.look();
        world
    }

    /// Runs so many cycles; `events` scales and breaks things at the beginning of each, and is told its number.
    ///
    /// # Errors
    /// A row that the shard's gate refuses, or an audit that fails.
    pub fn run(&mut self, cycles: u32, mut events: impl FnMut(&mut Self, u32)) -> Result<(), String> {
        for _ in 0..cycles {
            self.cycle += 1;
            self.now = self.now.after(STEP);
            self.provider.age();
            events(self, self.cycle);
            let ahead = UnixNanos(self.now.0.saturating_sub(UnixNanos(0).after(LOOK_AHEAD).0));
            self.shard.settle(ahead, &mut self.provider);
            self.roll_up()?;
            let audit = self.knobs.audit_every;
            let expected =
                (audit > 0 && self.cycle.is_multiple_of(audit)).then(|| self.shard.decide_anew(self.now));
            self.shard.settle(self.now, &mut self.provider);
            if expected
                .is_some_and(|expected| self.published().is_none_or(|found| found.decisions != expected))
            {
                return Err(format!(
                    "cycle {}: an engine that was told everything anew decides otherwise",
                    self.cycle
                ));
            }
            self.look();
            self.record();
        }
        Ok(())
    }

    /// The same without events.
    ///
    /// # Errors
    /// As [`ClosedLoop::run`].
    pub fn idle(&mut self, cycles: u32) -> Result<(), String> {
        self.run(cycles, |_, _| {})
    }

    /// The knobs.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The provider, to break things.
    pub fn provider(&mut self) -> &mut Provider {
        &mut self.provider
    }

    /// All machines as they truly are, by id.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        self.provider.machines()
    }

    /// One cluster, to scale things.
    pub fn cluster_mut(&mut self, name: &str) -> Option<&mut Cluster> {
        self.clusters.get_mut(&ClusterId::trusted(name))
    }

    /// All clusters, by id.
    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    /// The shard's core.
    #[must_use]
    pub fn shard(&self) -> &Control {
        &self.shard.core
    }

    /// What the shard's last cycle found.
    #[must_use]
    pub fn published(&self) -> Option<&Published> {
        self.shard.published.as_deref()
    }

    /// When the last cycle was.
    #[must_use]
    pub fn now(&self) -> UnixNanos {
        self.now
    }

    /// What happened.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Forgets all but the last cycles.
    pub fn forget(&mut self, keep: usize) {
        let old = self.history.0.len().saturating_sub(keep);
        self.history.0.drain(..old);
    }

    fn in_order(&self) -> Vec<ClusterId> {
        let mut clusters: Vec<ClusterId> = self.clusters.keys().cloned().collect();
        shuffle(&mut clusters, &mut draw::about(self.knobs.order, "clusters", u64::from(self.cycle)));
        clusters
    }

    fn roll_up(&mut self) -> Result<(), String> {
        for id in self.in_order() {
            let Some(cluster) = self.clusters.get_mut(&id) else { continue };
            let rows = cluster.rows(&self.knobs, self.cycle)?;
            let mut chance = draw::about(self.knobs.seed, id.as_str(), u64::from(self.cycle));
            let lost = chance.below(100) < self.knobs.lost_rollups;
            let doubled = chance.below(100) < self.knobs.doubled_rollups;
            if lost && self.unheard.insert(id.clone()) {
                continue;
            }
            self.unheard.remove(&id);
            if doubled {
                self.shard.rollup(self.now, &id, rows.clone());
            }
            self.shard.rollup(self.now, &id, rows);
        }
        Ok(())
    }

    /// Clusters see what became of their machines, evict, make new pods and bind them.
    fn look(&mut self) {
        for id in self.provider.take_changed() {
            let machine = self.provider.shared(&id).cloned();
            let joined = machine.filter(|machine| machine.state == MachineState::Configured);
            let home = joined.as_ref().and_then(|machine| machine.cluster.clone());
            for (name, cluster) in &mut self.clusters {
                if home.as_ref() == Some(name) {
                    cluster.look(&id, joined.as_ref(), self.knobs.managed);
                } else if cluster.has(&id) {
                    cluster.look(&id, None, self.knobs.managed);
                }
            }
        }
        self.clusters.values_mut().for_each(Cluster::bind);
    }

    fn record(&mut self) {
        let mut actions: Vec<StepAction> = self.shard.core.posted().iter().map(StepAction::from).collect();
        actions.sort();
        let found = self.shard.published.as_ref().map(|published| &published.decisions.shortfalls);
        let shortfalls = found.into_iter().flatten();
        let wanting = |machine: &Machine| {
            let mut shortfalls = found.into_iter().flatten();
            shortfalls.any(|short| {
                matches(&short.need.profile, machine) && machine.capacity().covers(&short.need.min_unit)
            })
        };
        let foolish = actions.iter().filter(|action| action.kind == "Reclaim");
        let foolish =
            foolish.filter(|action| self.provider.machine(&action.machine).is_some_and(wanting)).count();
        let fleet = FleetState::of(self.provider.machines());
        let (mut bound, mut pods) = (0, 0);
        for (here, all) in self.clusters.values().map(Cluster::pods) {
            bound += here;
            pods += all;
        }
        self.history.0.push(Cycle {
            number: self.cycle,
            shortfalls: shortfalls.map(|short| (short.key.clone(), short.deficit.clone())).collect(),
            fleet,
            bound,
            pods,
            destroyed: self.clusters.values().map(Cluster::destroyed).sum(),
            foolish_reclaims: foolish,
            actions,
        });
    }
}
