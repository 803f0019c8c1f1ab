//! The loop: what a cycle does, in order.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use bigfleet_decide::Allowance;
use bigfleet_engine::{Action, ActionKind, Engine, Event, PreemptedFor, Shortfall};
use bigfleet_types::{ClusterId, Need, NeedKey, Resources, UnixNanos};

use super::expect::Tally;
use super::steps::{Fault, Step};
use super::trace::{Done, Kind, Trace};
use super::world::{Now, State, World};
use super::{Refused, Scenario};

impl Scenario {
    /// Plays the scenario and writes its trace. The answer is what it expected and did not get, by the path of the
    /// expectation; the trace is complete all the same.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn run(&self, out: &mut dyn Write) -> io::Result<Vec<Refused>> {
        let mut run = Run::new(self, out);
        run.notes.extend((!self.name.is_empty()).then(|| self.name.clone()));
        run.line(Kind::Start)?;
        run.steps(&self.steps)?;
        let shortfalls = run.shortfall_notes();
        run.notes.extend(shortfalls);
        run.line(Kind::End)?;
        let state = if run.seen { run.world.state() } else { &State::default() };
        let shortfalls = u64::try_from(run.ledger.len()).unwrap_or(u64::MAX);
        let mut failures = Vec::new();
        for (place, expectation) in self.expect.iter().enumerate() {
            let failed = expectation.failures(&run.tally, state, shortfalls).into_iter();
            failures.extend(failed.map(|failure| failure.within_element(place).within("expect")));
        }
        Ok(failures)
    }

    fn engine(&self) -> Engine {
        Engine::new(self.policy.engine.clone())
    }
}

struct Run<'s> {
    scenario: &'s Scenario,
    trace: Trace<'s>,
    world: World,
    engine: Engine,
    /// The process has not run a cycle yet.
    fresh: bool,
    /// Some process has loaded the inventory.
    seen: bool,
    cycle: u64,
    /// The roll-ups that the engine has not seen yet.
    arrived: BTreeMap<ClusterId, Arc<Vec<Need>>>,
    ledger: BTreeMap<NeedKey, Entry>,
    notes: Vec<String>,
    tally: Tally,
}

/// A shortfall that is there since `age` cycles.
#[derive(Debug)]
struct Entry {
    age: u64,
    priority: i32,
    deficit: Resources,
}

impl<'s> Run<'s> {
    fn new(scenario: &'s Scenario, out: &'s mut dyn Write) -> Self {
        Self {
            scenario,
            trace: Trace::new(out),
            world: World::new(&scenario.fleet, scenario.seed, scenario.dwell),
            engine: scenario.engine(),
            fresh: true,
            seen: false,
            cycle: 0,
            arrived: BTreeMap::new(),
            ledger: BTreeMap::new(),
            notes: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Writes a line, with the notes that have come together.
    fn line(&mut self, kind: Kind<'_>) -> io::Result<()> {
        let notes = std::mem::take(&mut self.notes);
        let state = if self.seen { self.world.state() } else { &State::default() };
        self.trace.line(kind, state, &notes)
    }

    fn steps(&mut self, steps: &[Step]) -> io::Result<()> {
        for step in steps {
            match step {
                Step::Rollup { cluster, rows } => {
                    self.arrived.insert(cluster.clone(), rows.clone());
                    self.line(Kind::Rollup(cluster))?;
                }
                Step::Cycles(cycles) => {
                    for _ in 0..*cycles {
                        self.cycle()?;
                    }
                }
                Step::Fault(fault) => self.strike(fault),
                Step::Repeat { times, steps } => {
                    for _ in 0..*times {
                        self.steps(steps)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn now(&self) -> Now {
        let cycle = i64::try_from(self.cycle).unwrap_or(i64::MAX);
        let seconds = cycle.saturating_mul(self.scenario.cycle_seconds);
        Now { cycle: self.cycle, time: UnixNanos(seconds.saturating_mul(1_000_000_000)) }
    }

    fn cycle(&mut self) -> io::Result<()> {
        self.cycle += 1;
        let now = self.now();
        self.world.complete_due(now);
        if std::mem::take(&mut self.fresh) {
            self.world.load(now);
            self.seen = true;
        }
        for event in self.world.changes() {
            self.engine.apply(event);
        }
        let at = UnixNanos(now.time.0.saturating_add(1));
        for (cluster, rows) in std::mem::take(&mut self.arrived) {
            self.engine.apply(Event::Demand { cluster: cluster.clone(), rows: rows.to_vec(), at });
            self.engine.apply(Event::Heard(cluster));
        }
        let decisions = self.engine.decide(now.time);
        self.age(&decisions.shortfalls);
        let mut allowance = Allowance::new(self.scenario.policy.reclaim_cap, || self.world.configured());
        let mut done = Vec::new();
        for action in &decisions.actions {
            if allowance.lets(action.kind, action.cluster.as_ref()) {
                self.execute(action, now);
                let (machine, cluster) = (action.machine.clone(), action.cluster.clone());
                done.push(Done { kind: action.kind, machine, cluster });
            }
        }
        self.tally.cycle(done.iter().map(|done| done.kind));
        self.line(Kind::Cycle(&done))
    }

    fn execute(&mut self, action: &Action, now: Now) {
        let id = &action.machine;
        match (action.kind, &action.need, &action.need_key) {
            (ActionKind::Bootstrap, Some(need), Some(key)) => {
                self.world.bootstrap(id, &key.cluster, need, now);
            }
            (ActionKind::Provision, Some(need), Some(key)) => self.world.provision(id, key, need, now),
            (ActionKind::Preempt, _, Some(key)) => {
                let priority = action.preemptor_priority;
                self.world.drain(id, Some(PreemptedFor { need: key.clone(), priority }), now);
            }
            (ActionKind::Reclaim, ..) => self.world.drain(id, None, now),
            (ActionKind::Delete, ..) => self.world.delete(id, now),
            // An engine that acquires or preempts for nobody has lost its way: better no trace than a wrong one.
            (ActionKind::Bootstrap | ActionKind::Provision | ActionKind::Preempt, ..) => {
                unreachable!("an action for a Need names the Need: {action:?}")
            }
        }
    }

    fn strike(&mut self, fault: &Fault) {
        let note = |kind: &str, machines: &[bigfleet_types::MachineId]| {
            machines.iter().fold(kind.to_owned(), |note, id| note + " " + id.as_str())
        };
        let text = match fault {
            Fault::Restart => {
                self.engine = self.scenario.engine();
                self.world.forget();
                self.arrived.clear();
                self.ledger.clear();
                self.fresh = true;
                "restart".to_owned()
            }
            Fault::Ends(transition, id) => {
                self.world.let_fail(id, *transition);
                note(transition.failure(), std::slice::from_ref(id))
            }
            Fault::Fail(target) => {
                let machines = self.world.targets(target);
                let time = self.now().time;
                machines.iter().for_each(|id| self.world.fail(id, time));
                note("fail", &machines)
            }
            Fault::Remove(target) => {
                let machines = self.world.targets(target);
                machines.iter().for_each(|id| self.world.remove(id));
                note("remove", &machines)
            }
        };
        self.notes.push(text);
    }

    /// A shortfall is one cycle older if it was there before; what is no shortfall any more is dropped.
    fn age(&mut self, shortfalls: &[Shortfall]) {
        let before = std::mem::take(&mut self.ledger);
        self.ledger = shortfalls
            .iter()
            .map(|shortfall| {
                let age = before.get(&shortfall.key).map_or(1, |entry| entry.age + 1);
                let priority = shortfall.need.profile.priority();
                (shortfall.key.clone(), Entry { age, priority, deficit: shortfall.deficit.clone() })
            })
            .collect();
    }

    fn shortfall_notes(&self) -> Vec<String> {
        let mut entries: Vec<_> = self.ledger.iter().collect();
        entries.sort_by_key(|(key, entry)| {
            (Reverse(entry.priority), Reverse(entry.age), key.fingerprint, &key.cluster, &key.group)
        });
        let note = |(key, entry): (&NeedKey, &Entry)| {
            let group = if key.group.is_none() { "-" } else { key.group.as_str() };
            let deficit: Vec<_> = entry
                .deficit
                .to_strings()
                .into_iter()
                .map(|(name, amount)| format!("{name}={amount}"))
                .collect();
            let (cluster, age) = (&key.cluster, entry.age);
            format!("shortfall {cluster} {} {group} age {age} {}", key.fingerprint, deficit.join(","))
        };
        entries.into_iter().map(note).collect()
    }
}
