//! Examples that need several cycles (22, 36, 49, the story of 61, 53 and the second half of 70), on a small closed
//! loop: transitions take their time, stamps and side facts are kept as a shard keeps them.

use std::collections::BTreeMap;

use bigfleet_engine::{ActionKind, Facts, PreemptedFor, Purpose};
use bigfleet_oracle::{Action, Outcome, World};
use bigfleet_types::{Attribution, ClusterId, Machine, MachineId, MachineState, Operator, UnixNanos};

use crate::fleet::*;

/// Cycles that a transition takes.
type Dwell = fn(&MachineId, MachineState) -> u32;

struct Loop {
    world: World,
    dwell: Dwell,
    /// Machines under way and how many cycles they still need.
    timers: BTreeMap<MachineId, u32>,
    /// The reclaim cap in parts per million; 0: none.
    cap: usize,
    counts: BTreeMap<ActionKind, usize>,
}

impl Loop {
    fn new(world: World, dwell: Dwell) -> Self {
        Self { world, dwell, timers: BTreeMap::new(), cap: 0, counts: BTreeMap::new() }
    }

    fn count(&self, kind: ActionKind) -> usize {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// One cycle of 10 s: what is due completes, the oracle decides, the actions begin.
    fn step(&mut self) -> Vec<String> {
        self.world.now.0 += 10_000_000_000;
        let now = self.world.now;
        for (machine, facts) in &mut self.world.machines {
            if let Some(left) = self.timers.get_mut(&machine.id) {
                *left -= 1;
                if *left == 0 {
                    self.timers.remove(&machine.id);
                    complete(machine, facts, now);
                }
            }
        }
        let out = run(&self.world);
        for (machine, facts) in &mut self.world.machines {
            let excess = machine.state == MachineState::Configured && !out.claimed.contains(&machine.id);
            facts.excess_since = excess.then(|| facts.excess_since.unwrap_or(now));
        }
        let passed = self.capped(&out);
        for action in &passed {
            *self.counts.entry(action.kind).or_default() += 1;
            self.begin(action, &out);
        }
        passed.iter().map(|action| format!("{} {}", action.kind, action.machine)).collect()
    }

    /// The actuation rail: of each cluster's Reclaims the first.
    fn capped(&self, out: &Outcome) -> Vec<Action> {
        let mut passed: BTreeMap<ClusterId, usize> = BTreeMap::new();
        let within = |action: &&Action| {
            let Some(cluster) = action.cluster.as_ref().filter(|_| action.kind == ActionKind::Reclaim) else {
                return true;
            };
            let bound = |m: &&(Machine, Facts)| {
                m.0.state == MachineState::Configured && m.0.cluster.as_ref() == Some(cluster)
            };
            let configured = self.world.machines.iter().filter(bound).count();
            let so_far = passed.entry(cluster.clone()).or_default();
            *so_far += 1;
            self.cap == 0 || *so_far <= (self.cap * configured / 1_000_000).max(1)
        };
        out.actions.iter().filter(within).cloned().collect()
    }

    fn begin(&mut self, action: &Action, out: &Outcome) {
        let now = self.world.now;
        let (machine, facts) =
            self.world.machines.iter_mut().find(|(machine, _)| machine.id == action.machine).unwrap();
        match action.kind {
            ActionKind::Bootstrap => {
                let verdict = out.verdicts.iter().find(|v| Some(&v.key) == action.need.as_ref()).unwrap();
                machine.state = MachineState::Configuring;
                machine.cluster = action.cluster.clone();
                machine.attribution = Attribution {
                    priority: Some(verdict.priority),
                    fingerprint: Some(verdict.key.fingerprint.to_string().into()),
                    group: Some(verdict.key.group.as_str().into()),
                    ..Attribution::default()
                };
            }
            ActionKind::Provision => {
                machine.state = MachineState::Creating;
                facts.created_for = action.need.clone();
            }
            ActionKind::Preempt => {
                machine.state = MachineState::Draining;
                let need = action.need.clone().unwrap();
                let priority = action.preemptor_priority;
                facts.preempted_for = Purpose::Preemption(PreemptedFor { need, priority });
            }
            ActionKind::Reclaim => machine.state = MachineState::Draining,
            ActionKind::Delete => machine.state = MachineState::Deleting,
        }
        match (self.dwell)(&machine.id, machine.state) {
            0 => complete(machine, facts, now),
            cycles => drop(self.timers.insert(machine.id.clone(), cycles)),
        }
    }
}

fn complete(machine: &mut Machine, facts: &mut Facts, now: UnixNanos) {
    *facts = Facts::default();
    machine.state = match machine.state {
        MachineState::Configuring => MachineState::Configured,
        MachineState::Deleting => MachineState::Speculative,
        _ => MachineState::Idle,
    };
    if machine.state == MachineState::Idle {
        facts.idle_since = Some(now);
        machine.cluster = None;
        machine.attribution = Attribution::default();
    }
}

#[test]
fn ex22_one_lost_machine_is_bought_once() {
    let want = need("a", 0, 3);
    let mut fleet = many(3, "c", |id| configured(id, "a").stamped(&want));
    fleet[1].0.state = MachineState::Failed;
    fleet.extend(many(10, "s", speculative));
    let mut sim = Loop::new(world(fleet, &[want]), |_, state| match state {
        MachineState::Creating => 5,
        _ => 1,
    });
    let acts: Vec<String> = (1..=8).flat_map(|_| sim.step()).collect();
    assert_eq!(acts, ["Provision s0", "Bootstrap s0"]);
}

#[test]
fn ex36_an_unsatisfiable_gang_is_quiet() {
    let want = gang("x", 0, 5, bigfleet_types::keys::ZONE, "g");
    let fleet = many(2, "a", |id| configured(id, "x").zone("zone-a"))
        .into_iter()
        .chain(many(3, "b", |id| idle(id).zone("zone-b")));
    let mut sim = Loop::new(world(fleet, std::slice::from_ref(&want)), |_, _| 2);
    assert_eq!(sim.step(), ["Bootstrap b0", "Bootstrap b1", "Bootstrap b2", "Reclaim a1", "Reclaim a0"]);
    for _ in 0..10 {
        assert_eq!(sim.step(), Vec::<String>::new());
    }
    assert_eq!(residual(&run(&sim.world), &want), "gpu 16");
}

/// The smaller of two racks that served it won a gang over; the siblings that it robbed there bought machines in the rack
/// that it left, until that was the smaller one, and so on for ever.
#[test]
fn a_gang_at_its_siblings_machines_comes_to_rest() {
    for [small, large] in [["a", "b"], ["b", "a"]] {
        let of = |priority, types: &[&str]| {
            any("c", priority).requires(TYPE, Operator::In, types).wants(&[("gpu", "32")], &[("gpu", "8")])
        };
        let (few, one) = (of(0, &["a3"]), of(0, &["big"]));
        let want = of(10, &["a3", "big"]).requires(RACK, Operator::Same, &[]).group("g");
        let mut fleet = many(4, "m", |id| configured(id, "c").stamped(&few).rack(small));
        fleet.extend(many(8, "s", |id| speculative(id).rack(small)));
        let big = |id: &str| configured(id, "c").kind("big").cap(&[("gpu", "16")]).stamped(&one);
        fleet.extend(many(2, "big", |id| big(id).rack(large)));
        for dwell in [|_: &MachineId, _| 0, |_: &MachineId, _| 2] {
            let mut sim = Loop::new(world(fleet.clone(), &[want.clone(), few.clone(), one.clone()]), dwell);
            (0..20).for_each(|_| drop(sim.step()));
            for _ in 0..20 {
                assert_eq!(sim.step(), Vec::<String>::new());
            }
            assert!(verdict(&run(&sim.world), &want).satisfied);
        }
    }
}

#[test]
fn ex49_slow_drains_are_counted() {
    let batch = need("batch", 0, 10);
    let fleet = many(10, "v", |id| configured(id, "batch").stamped(&batch));
    let mut sim = Loop::new(world(fleet, &[need("x", 1_000_000, 2), batch]), |_, state| match state {
        MachineState::Draining => 30,
        _ => 1,
    });
    (0..40).for_each(|_| drop(sim.step()));
    assert_eq!((sim.count(ActionKind::Preempt), sim.count(ActionKind::Reclaim)), (2, 0));
    assert_eq!(sim.count(ActionKind::Bootstrap), 2);
}

#[test]
fn ex61_the_whole_story_at_any_latency() {
    let latencies: [Dwell; 4] = [
        |_, _| 0,
        |_, _| 1,
        |_, state| if state == MachineState::Draining { 9 } else { 1 },
        // Every machine its own.
        |id, _| u32::from(id.as_str().as_bytes()[1] - b'0') * 2 + 1,
    ];
    for dwell in latencies {
        let want = gang("c", 1_000_000, 4, RACK, "g");
        let batch = need("batch", 0, 4);
        let mut fleet = vec![configured("x0", "c").stamped(&want).rack("x")];
        fleet.extend(many(4, "y", |id| configured(id, "batch").stamped(&batch).rack("y")));
        let mut sim = Loop::new(world(fleet, &[want.clone(), batch]), dwell);
        (0..40).for_each(|_| drop(sim.step()));
        assert_eq!(sim.count(ActionKind::Preempt), 4);
        assert!(verdict(&run(&sim.world), &want).satisfied);
    }
}

#[test]
fn ex53_the_cap() {
    let reclaims = |n: usize, cycles: usize| -> Vec<usize> {
        let mut fleet = world((0..n).map(|i| configured(&format!("c{i:03}"), "a")), &[]);
        fleet.heard.insert(cluster("a"));
        let mut sim = Loop::new(fleet, |_, _| 1000);
        sim.cap = 50_000;
        (0..cycles).map(|_| sim.step().len()).collect()
    };
    assert_eq!(reclaims(100, 3), [5, 4, 4]);
    assert_eq!(reclaims(5, 6), [1, 1, 1, 1, 1, 0]);
}

#[test]
fn ex70_a_claim_starts_the_clock_again() {
    let mut fleet = world([configured("c", "a")], &[]);
    fleet.heard.insert(cluster("a"));
    fleet.policy.reclaim_after = seconds(60);
    let wanted = world([], &[need("a", 0, 1)]).demand;
    let cycles_until_reclaim = |claimed_in: Option<usize>| {
        let mut sim = Loop::new(fleet.clone(), |_, _| 1);
        for cycle in 0..20 {
            sim.world.demand = if claimed_in == Some(cycle) { wanted.clone() } else { BTreeMap::new() };
            if sim.step() == ["Reclaim c"] {
                return cycle;
            }
        }
        panic!("never reclaimed");
    };
    // Unclaimed since cycle 0; 60 s later is cycle 6. Claimed in cycle 4: unclaimed since 5.
    assert_eq!(cycles_until_reclaim(None), 6);
    assert_eq!(cycles_until_reclaim(Some(4)), 11);
}
