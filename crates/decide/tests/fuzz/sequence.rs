//! Fuzz target: bytes that are a sequence of events. After every one the engine, which remembers what it found before,
//! answers as one that begins afresh, and as one made of a copy of its content: the same actions, claims, verdicts,
//! shortfalls and deadline.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_engine::{
    Action, ActionKind, Eligibility, Engine, Event, Facts, Policy, PreemptedFor, Purpose, fold_key,
};
use bigfleet_types::{
    Attribution, ClusterId, Fingerprint, Group, Machine, MachineId, MachineState, Need, Operator,
    PenaltyBucket, Profile, Requirement, ResourceName, Resources, UnixNanos, keys,
};

use super::bytes::{Bytes, CLUSTERS, machine, need};

/// How many machines there are at most.
const MACHINES: u8 = 28;

/// Runs the target on an input.
pub(crate) fn run(bytes: &[u8]) {
    let mut bytes = Bytes(bytes);
    let policy =
        Policy { reclaim_after: Duration::from_secs(bytes.pick(&[0, 0, 60, 600])), ..Policy::default() };
    let mut pair = Pair {
        remembers: Engine::new(policy.clone()),
        afresh: Engine::new(policy),
        demand: CLUSTERS.iter().map(|name| (ClusterId::trusted(*name), Vec::new())).collect(),
        pool: (0..10).map(|_| wish(&mut bytes)).collect(),
        fleet: BTreeMap::new(),
        actions: Vec::new(),
        now: UnixNanos(1),
        steps: 0,
    };
    // Some cluster speaks of a fold itself.
    if bytes.0.len() % 4 == 3
        && let Some((gang, (profile, group))) =
            pair.pool.iter().find_map(|need| Some((need, fold_key(need)?)))
    {
        let min_unit = gang.aggregate.clone();
        let aggregate = min_unit.scale(2);
        pair.pool[9] = Need { profile: profile.into(), group, aggregate, min_unit, arrival: gang.arrival };
    }
    // A shard begins with everything at once.
    for at in 0..CLUSTERS.len() {
        pair.replace(&mut bytes, at);
    }
    for number in 0..bytes.byte() % MACHINES {
        pair.machine(&mut bytes, number);
    }
    pair.compare();
    while !bytes.0.is_empty() && pair.steps < 64 {
        pair.step(&mut bytes);
        pair.compare();
    }
}

/// What most machines have.
const UNIT: i64 = 8;

fn cores(number: i64) -> Resources {
    Resources::from_amounts([(ResourceName::new("cpu"), number)])
}

/// A row of demand. Most can be served, by some machines together; half of these have to be in one zone.
fn wish(bytes: &mut Bytes<'_>) -> Need {
    let wild = need(bytes);
    if bytes.one_in(4) {
        return wild;
    }
    let same = Requirement { key: keys::ZONE.into(), operator: Operator::Same, values: Vec::new() };
    let gang = bytes.one_in(2).then_some(same);
    let (priority, penalty) = (bytes.pick(&[0, 0, 100, 900_001]), PenaltyBucket::ZERO);
    let profile = Profile::new(gang.into_iter().collect(), Vec::new(), priority, penalty, penalty);
    let units = bytes.pick(&[1, 2, 2, 3, 4]);
    Need {
        profile: Arc::new(profile),
        aggregate: cores(units * UNIT),
        min_unit: cores(bytes.pick(&[0, 1, UNIT])),
        ..wild
    }
}

/// One row per key, by the rules of a whole demand.
fn merged(rows: &[Need]) -> BTreeMap<(Fingerprint, Group), Need> {
    let mut merged: BTreeMap<(Fingerprint, Group), Need> = BTreeMap::new();
    for row in rows {
        let key = (row.profile.fingerprint(), row.group.clone());
        let sum = match merged.get(&key) {
            None => row.clone(),
            Some(first) => Need {
                aggregate: first.aggregate.add(&row.aggregate),
                min_unit: first.min_unit.max(&row.min_unit),
                arrival: match (first.arrival, row.arrival) {
                    (Some(UnixNanos(0)), other) | (other, Some(UnixNanos(0))) => other,
                    (a, b) => a.min(b),
                },
                ..first.clone()
            },
        };
        merged.insert(key, sum);
    }
    merged
}

/// Two engines that hear the same.
struct Pair {
    remembers: Engine,
    afresh: Engine,
    demand: Vec<(ClusterId, Vec<Need>)>,
    /// What clusters may want.
    pool: Vec<Need>,
    fleet: BTreeMap<MachineId, (Machine, Facts)>,
    actions: Vec<Action>,
    now: UnixNanos,
    steps: usize,
}

impl Pair {
    fn apply(&mut self, event: Event) {
        self.remembers.apply(event.clone());
        self.afresh.apply(event);
    }

    fn compare(&mut self) {
        self.steps += 1;
        let content = self.remembers.content();
        let (ours, theirs) = (self.remembers.decide(self.now), self.afresh.decide_afresh(self.now));
        assert_eq!(ours, theirs, "step {}: remembering (left) and afresh", self.steps);
        assert!(self.remembers.claimed().eq(self.afresh.claimed()), "claims of step {}", self.steps);
        assert_eq!(self.remembers.next_deadline(self.now), self.afresh.next_deadline(self.now));
        let (copied, marks) = content.decide(self.now);
        assert_eq!(ours, copied, "step {}: remembering (left) and an engine made of its content", self.steps);
        assert_eq!(content.marked(&self.remembers.marks()), marks, "marks of step {}", self.steps);
        self.actions = ours.actions.to_vec();
    }

    fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() % 16 {
            0..4 => {
                let number = bytes.byte() % MACHINES;
                self.machine(bytes, number);
            }
            4 => {
                let id = MachineId::trusted(format!("m-{}", bytes.byte() % MACHINES));
                self.fleet.remove(&id);
                self.apply(Event::Removed(id));
            }
            5 | 6 => {
                let at = usize::from(bytes.byte()) % CLUSTERS.len();
                self.replace(bytes, at);
            }
            7 => self.reword(bytes),
            8 => {
                let name = bytes.pick(&CLUSTERS);
                self.apply(Event::Heard(ClusterId::trusted(name)));
            }
            9 => {
                let seconds = bytes.pick(&[0, 1, 59, 60, 61, 600, 3600]);
                self.now = self.now.after(Duration::from_secs(seconds));
            }
            10 => self.flip(bytes),
            11 => {
                let new = wish(bytes);
                let at = usize::from(bytes.byte()) % self.pool.len();
                self.pool[at] = new;
                self.replace(bytes, 0);
            }
            12 => {
                // A record that says nothing new.
                let at = usize::from(bytes.byte()) % self.fleet.len().max(1);
                if let Some((machine, facts)) = self.fleet.values().nth(at).cloned() {
                    self.set(machine, facts);
                }
            }
            _ => {
                // Some, or all, of what was decided happens.
                let most = bytes.pick(&[1, 3, 255]);
                for action in std::mem::take(&mut self.actions).into_iter().take(most) {
                    self.carry_out(bytes, &action);
                }
            }
        }
    }

    /// A cluster wants something else.
    fn replace(&mut self, bytes: &mut Bytes<'_>, at: usize) {
        let mut wanted = usize::from(bytes.byte()) | usize::from(bytes.byte()) << 8;
        let mut rows: Vec<Need> = Vec::new();
        for need in &self.pool {
            if wanted & 1 == 1 {
                rows.push(need.clone());
            }
            wanted >>= 1;
        }
        if bytes.one_in(2) {
            rows.reverse();
        }
        self.want(at, rows);
    }

    /// A cluster wants another amount, or the same in another order.
    fn reword(&mut self, bytes: &mut Bytes<'_>) {
        let at = usize::from(bytes.byte()) % CLUSTERS.len();
        let mut rows = self.demand[at].1.clone();
        let turned = usize::from(bytes.byte()).checked_rem(rows.len()).unwrap_or(0);
        rows.rotate_left(turned);
        let other = need(bytes);
        if let Some(row) = rows.first_mut() {
            match bytes.byte() % 4 {
                0 => {}
                1 => row.aggregate = other.aggregate,
                2 => row.min_unit = other.min_unit,
                _ => row.arrival = other.arrival,
            }
        }
        self.want(at, rows);
    }

    fn want(&mut self, at: usize, rows: Vec<Need>) {
        let before = merged(&self.demand[at].1);
        self.demand[at].1.clone_from(&rows);
        let (cluster, at) = (self.demand[at].0.clone(), self.now);
        // The one that remembers hears only of what is not as it was.
        let after = merged(&rows);
        let changed: Vec<_> = after
            .iter()
            .filter(|(key, need)| before.get(*key) != Some(*need))
            .map(|(_, need)| Arc::new(need.clone()))
            .collect();
        let removed = before.into_keys().filter(|key| !after.contains_key(key)).collect();
        self.remembers.apply(Event::DemandChanged { cluster: cluster.clone(), changed, removed, at });
        self.afresh.apply(Event::Demand { cluster, rows, at });
    }

    fn machine(&mut self, bytes: &mut Bytes<'_>, number: u8) {
        let (mut machine, facts) = machine(bytes, number, &self.demand);
        if !bytes.one_in(4) {
            machine.resources = cores(UNIT);
            machine.zone = bytes.pick(&["z0", "z1", "z2"]).into();
        }
        self.set(machine, facts);
    }

    fn set(&mut self, machine: Machine, facts: Facts) {
        self.fleet.insert(machine.id.clone(), (machine.clone(), facts.clone()));
        self.apply(Event::Machine { machine: Arc::new(machine), facts });
    }

    /// Others judge a machine anew.
    fn flip(&mut self, bytes: &mut Bytes<'_>) {
        let at = usize::from(bytes.byte()) % self.fleet.len().max(1);
        let Some((machine, mut facts)) = self.fleet.values().nth(at).cloned() else { return };
        let bits = bytes.byte();
        facts.eligibility = Eligibility {
            acquirable: bits & 1 == 0,
            creditable: bits & 2 == 0,
            preemptible: bits & 4 == 0,
            releasable: bits & 8 == 0,
        };
        self.set(machine, facts);
    }

    fn carry_out(&mut self, bytes: &mut Bytes<'_>, action: &Action) {
        let Some((mut machine, mut facts)) = self.fleet.get(&action.machine).cloned() else { return };
        facts = Facts { eligibility: facts.eligibility, ..Facts::default() };
        match (action.kind, &action.need, &action.need_key) {
            (ActionKind::Provision, _, Some(key)) if bytes.one_in(2) => {
                machine.state = MachineState::Creating;
                facts.created_for = Some(key.clone());
            }
            (ActionKind::Bootstrap | ActionKind::Provision, Some(need), _) => {
                let in_flight = bytes.one_in(3);
                machine.state = if in_flight { MachineState::Configuring } else { MachineState::Configured };
                machine.cluster = action.cluster.clone();
                machine.attribution = Attribution::of(need);
            }
            (ActionKind::Preempt, _, Some(key)) => {
                machine.state = MachineState::Draining;
                facts.preempted_for = Purpose::Preemption(PreemptedFor {
                    need: key.clone(),
                    priority: action.preemptor_priority,
                });
            }
            (ActionKind::Delete, ..) => machine.state = MachineState::Speculative,
            _ => {
                machine.state = MachineState::Idle;
                machine.cluster = None;
                machine.attribution = Attribution::default();
                facts.idle_since = Some(self.now);
            }
        }
        self.set(machine, facts);
    }
}
