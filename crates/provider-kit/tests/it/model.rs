//! Random calls, completions and faults against the table alone: its rules hold after every step.

use std::collections::BTreeMap;

use bigfleet_provider_kit::fakecloud::Profile;
use bigfleet_provider_kit::table::{Call, Change, Command, MAX_GHOSTS, Mark, Refusal, Table, Token, Work};
use bigfleet_provider_kit::{Binding, Host, Instance, Kind, Outcome};
use bigfleet_types::{MachineId, MachineState};
use proptest::prelude::*;

use crate::fixture::Anything;

#[derive(Debug, Clone)]
enum Step {
    Call { machine: usize, kind: Kind, cluster: usize, shard: usize, epoch: i64, sequence: i64, stored: bool },
    End { which: usize, good: bool },
    Fail { machine: usize },
    Remove { machine: usize },
    Describe { machine: usize, host: bool },
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let kind = prop::sample::select(Kind::ALL.to_vec());
    prop_oneof![
        8 => (0..4usize, kind, 0..2usize, 0..3usize, -1..3i64, -1..6i64, prop::bool::weighted(0.9)).prop_map(
            |(machine, kind, cluster, shard, epoch, sequence, stored)| Step::Call {
                machine, kind, cluster, shard, epoch, sequence, stored
            }
        ),
        6 => (0..8usize, prop::bool::weighted(0.8)).prop_map(|(which, good)| Step::End { which, good }),
        1 => (0..4usize).prop_map(|machine| Step::Fail { machine }),
        1 => (0..4usize).prop_map(|machine| Step::Remove { machine }),
        1 => (0..4usize, any::<bool>()).prop_map(|(machine, host)| Step::Describe { machine, host }),
        1 => Just(Step::Restart),
    ]
}

const MACHINES: [&str; 4] = ["a", "b", "c", "d"];
const SHARDS: [&str; 3] = ["", "s1", "s2"];

fn instance(machine: usize, host: bool) -> Instance {
    let template = Profile::Dev.instances().remove(0);
    Instance { id: MACHINES[machine].into(), host: template.host.clone().filter(|_| host), ..template }
}

fn outcome(kind: Kind) -> Outcome {
    let host = Host { provider: "test".into(), reference: "host".into() };
    match kind {
        Kind::Create => Outcome::Created { host, resources: None, allocatable: None },
        Kind::Configure => Outcome::Configured,
        Kind::Drain => Outcome::Drained,
        Kind::Delete => Outcome::Deleted,
    }
}

/// The table, and what must be true of it, kept apart.
struct World {
    table: Table,
    marks: BTreeMap<(String, String), (i64, i64)>,
    running: Vec<Work>,
    operations: Vec<String>,
}

impl World {
    fn states(&self) -> BTreeMap<String, MachineState> {
        self.table.records().map(|(id, r)| (id.to_string(), r.state())).collect()
    }

    fn call(&mut self, call: &Call, stored: bool) {
        let (token, id) = (&call.token, call.machine.as_str());
        let key = (token.shard_id.clone(), id.to_owned());
        let pair = (token.epoch, token.sequence);
        let before = self.states();
        let stale = !token.is_unfenced() && self.marks.get(&key).is_some_and(|mark| pair <= *mark);
        let malformed = pair.0.min(pair.1) < 0 && !self.marks.contains_key(&key);
        let repeat = self.table.record(id).and_then(|r| r.operation(call.command.kind()).map(str::to_owned));
        let plan = self.table.plan(call, &Anything);
        assert_eq!(matches!(plan.answer, Err(Refusal::Fenced { .. })), stale, "fencing comes first");
        assert_eq!(matches!(plan.answer, Err(Refusal::Token(_))), malformed, "a first token is checked");
        if stale || malformed {
            assert!(plan.change.is_none() && plan.work.is_none());
            return;
        }
        if !stored {
            assert_eq!(self.states(), before, "a plan that is not stored changes nothing");
            return;
        }
        if !token.is_unfenced() {
            assert!(plan.change.is_some(), "the mark is stored before the answer");
            self.marks.insert(key, pair);
        }
        if let Some(change) = plan.change {
            self.table.apply(change).unwrap();
        }
        match (&plan.answer, plan.work) {
            (Ok(ack), Some(work)) => {
                assert!(!self.operations.contains(&ack.operation_id), "operation ids are never used twice");
                assert_eq!(before.get(id), Some(&work.kind.origin()));
                self.operations.push(ack.operation_id.clone());
                self.running.push(work);
            }
            (Ok(ack), None) => assert_eq!(Some(&ack.operation_id), repeat.as_ref(), "a repeat"),
            (Err(_), work) => {
                assert!(work.is_none());
                assert_eq!(self.states(), before);
            }
        }
    }

    fn check(&self) {
        self.table.audit().unwrap();
        for (id, record) in self.table.records() {
            let machine = record.machine();
            assert_eq!(machine.state, i32::from(record.state().number()));
            assert_eq!(machine.id, id.as_str());
            let bound = !machine.cluster.is_empty();
            assert!(
                record.state() == MachineState::Failed || bound == record.state().is_bound(),
                "{machine:?}"
            );
            assert!(bound || machine.shard_metadata.is_empty());
        }
        // A list from the beginning and the machines are the same set.
        let page = self.table.list(&std::collections::BTreeSet::new(), 0, b"", 0);
        let mut listed: Vec<String> = page.machines.iter().map(|m| m.decode().id).collect();
        listed.sort_unstable();
        let ids: Vec<&str> = self.table.records().map(|(id, _)| id.as_str()).collect();
        assert_eq!(listed, ids);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn the_rules_hold_after_every_step(steps in prop::collection::vec(step(), 1..80)) {
        let mut table = Table::new("op");
        for machine in 0..4 {
            let change = table.plan_instance(&instance(machine, machine % 2 == 0), None).unwrap();
            table.apply(change).unwrap();
        }
        let mut world =
            World { table, marks: BTreeMap::new(), running: Vec::new(), operations: Vec::new() };
        let mut cursor = world.table.list(&Default::default(), 0, b"", 0).cursor;
        let mut seen: BTreeMap<String, i32> =
            world.table.records().map(|(id, r)| (id.to_string(), r.machine().state)).collect();
        for step in steps {
            match step {
                Step::Call { machine, kind, cluster, shard, epoch, sequence, stored } => {
                    let command = match kind {
                        Kind::Create => Command::Create,
                        Kind::Configure => Command::Configure(Binding {
                            cluster: format!("cluster-{cluster}"),
                            metadata: [("key".to_owned(), "value".to_owned())].into(),
                        }),
                        Kind::Drain => Command::Drain { grace_seconds: 1 },
                        Kind::Delete => Command::Delete,
                    };
                    let token = Token { shard_id: SHARDS[shard].into(), epoch, sequence };
                    let call = Call { machine: MachineId::trusted(MACHINES[machine]), token, command };
                    world.call(&call, stored);
                }
                Step::End { which, good } if !world.running.is_empty() => {
                    let work = world.running.remove(which % world.running.len());
                    let result = if good { Ok(outcome(work.kind)) } else { Err("broke".to_owned()) };
                    let before = world.states().get(work.machine_id.as_str()).copied();
                    if let Some(change) = world.table.plan_end(&work, result.map_err(Into::into)) {
                        world.table.apply(change).unwrap();
                        prop_assert_eq!(before, Some(work.kind.transitional()));
                        let after = world.states()[work.machine_id.as_str()];
                        prop_assert_eq!(after, if good { work.kind.target() } else { MachineState::Failed });
                    }
                }
                Step::End { .. } => {}
                Step::Fail { machine } => {
                    if let Some(change) = world.table.plan_failure(MACHINES[machine], "broke") {
                        world.table.apply(change).unwrap();
                    }
                }
                Step::Remove { machine } => {
                    if let Some(change) = world.table.plan_removal(MACHINES[machine]) {
                        world.table.apply(change).unwrap();
                    }
                }
                Step::Describe { machine, host } => {
                    if let Some(change) = world.table.plan_instance(&instance(machine, host), None) {
                        world.table.apply(change).unwrap();
                    }
                }
                Step::Restart => {
                    let mut again = Table::new("op");
                    let snapshot: Vec<_> = world.table.snapshot().collect();
                    for change in snapshot {
                        again.apply(change).unwrap();
                    }
                    prop_assert_eq!(again.list(&Default::default(), 0, b"", 0), world.table.list(&Default::default(), 0, b"", 0));
                    world.running = again.interrupted();
                    world.table = again;
                }
            }
            world.check();
            // Following the deltas gives what is there.
            let delta = world.table.list(&Default::default(), 0, &cursor, 0);
            cursor = delta.cursor;
            for id in delta.removed {
                seen.remove(&id);
            }
            for machine in delta.machines {
                let machine = machine.decode();
                seen.insert(machine.id, machine.state);
            }
            let there: BTreeMap<String, i32> =
                world.table.records().map(|(id, r)| (id.to_string(), r.machine().state)).collect();
            prop_assert_eq!(&seen, &there);
        }
    }
}

/// A provider that comes and goes with its machines must not remember each of them for ever.
#[test]
fn marks_of_removed_machines_become_bounded_ghosts() {
    let mut table = Table::new("op");
    let known = table.plan_instance(&instance(0, true), None).unwrap();
    table.apply(known).unwrap();
    let mark = |machine: &str| Change {
        mark: Some(Mark { shard_id: "s1".into(), machine_id: machine.into(), epoch: 1, sequence: 1 }),
        ..Change::default()
    };
    table.apply(mark(MACHINES[0])).unwrap();
    let removed = table.plan_removal(MACHINES[0]).unwrap();
    table.apply(removed).unwrap();
    let marked = |table: &Table, machine: &str| {
        table.snapshot().filter_map(|change| change.mark).any(|mark| mark.machine_id == machine)
    };
    assert!(marked(&table, MACHINES[0]), "a stale call about it is still fenced");
    for n in 0..MAX_GHOSTS {
        table.apply(mark(&format!("ghost-{n}"))).unwrap();
    }
    assert!(!marked(&table, MACHINES[0]), "the least recently used one went");
    assert_eq!(table.snapshot().filter(|change| change.mark.is_some()).count(), MAX_GHOSTS);
}
