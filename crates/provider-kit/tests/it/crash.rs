//! A disk that drops what was not synced and tears writes, failing at every step of a store's life: what was acknowledged
//! is there after each crash, and nothing else is but the one change that was under way.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use bigfleet_provider_kit::fakecloud::Profile;
use bigfleet_provider_kit::store::{Disk, FileStore, Store};
use bigfleet_provider_kit::table::{Call, Change, Command, Table, Token, Work};
use bigfleet_provider_kit::{Binding, Host, Instance, Kind, MachineId, Outcome};
use bigfleet_types::chance::{Chance as _, Seeded};

use crate::fixture::Anything;

/// What a file holds, and what of it is on the disk.
#[derive(Debug, Clone, Default)]
struct Bytes {
    seen: Vec<u8>,
    durable: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Fault {
    /// The power goes: the step may have happened in part, and nothing happens after it.
    Crash,
    /// The step fails, the system goes on.
    Error,
}

#[derive(Debug, Default)]
struct Inner {
    files: Vec<Bytes>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    /// Names as they were after each change since they were last synced.
    history: Vec<BTreeMap<String, usize>>,
    steps: u64,
    fault: Option<(u64, Fault)>,
    off: bool,
    chance: Option<Seeded>,
}

/// The double. Clones are the same disk.
#[derive(Debug, Clone, Default)]
struct Double(Arc<Mutex<Inner>>);

impl Inner {
    /// Counts a step; what is to happen to it.
    fn step(&mut self) -> io::Result<Option<Fault>> {
        if self.off {
            return Err(io::Error::other("the power is off"));
        }
        self.steps += 1;
        let fault = self.fault.filter(|(at, _)| *at == self.steps).map(|(_, fault)| fault);
        self.off |= fault == Some(Fault::Crash);
        Ok(fault)
    }

    fn below(&mut self, n: usize) -> usize {
        let chance = self.chance.get_or_insert_with(|| Seeded::new(1));
        usize::try_from(chance.below(u64::try_from(n.max(1)).unwrap())).unwrap()
    }

    fn file(&mut self, name: &str) -> io::Result<usize> {
        self.names.get(name).copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn named(&mut self) {
        self.history.push(self.names.clone());
    }

    /// The power comes back: of what was not synced, any part may be there.
    fn reboot(&mut self) {
        let which = self.below(self.history.len() + 1);
        let mut names = vec![self.durable_names.clone()];
        names.append(&mut self.history);
        self.names = names.swap_remove(which);
        self.durable_names = self.names.clone();
        for at in 0..self.files.len() {
            let Bytes { seen, durable } = self.files[at].clone();
            let (short, long) = (seen.len().min(durable.len()), seen.len().max(durable.len()));
            let len = short + self.below(long - short + 1);
            let source = if seen.len() >= durable.len() { &seen } else { &durable };
            let mut bytes = source[..len].to_vec();
            // Blocks that were given to the file but not written.
            if len > durable.len() && self.below(3) == 0 {
                let from = durable.len() + self.below(len - durable.len());
                bytes[from..].fill(0);
            }
            self.files[at] = Bytes { seen: bytes.clone(), durable: bytes };
        }
        (self.off, self.fault, self.steps) = (false, None, 0);
    }
}

fn failed() -> io::Error {
    io::Error::other("on purpose")
}

impl Disk for Double {
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let mut inner = self.0.lock().unwrap();
        if inner.step()?.is_some() {
            return Err(failed());
        }
        Ok(inner.names.get(name).map(|at| inner.files[*at].seen.clone()))
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fault = inner.step()?;
        let written = if fault.is_some() { inner.below(bytes.len() + 1) } else { bytes.len() };
        inner.files.push(Bytes { seen: bytes[..written].to_vec(), durable: Vec::new() });
        let at = inner.files.len() - 1;
        inner.names.insert(name.to_owned(), at);
        inner.named();
        fault.map_or(Ok(()), |_| Err(failed()))
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fault = inner.step()?;
        let written = match fault {
            // An error means that not everything was written.
            Some(Fault::Error) => inner.below(bytes.len()),
            Some(Fault::Crash) => inner.below(bytes.len() + 1),
            None => bytes.len(),
        };
        let at = inner.file(name)?;
        inner.files[at].seen.extend_from_slice(&bytes[..written]);
        fault.map_or(Ok(()), |_| Err(failed()))
    }

    fn cut(&mut self, name: &str, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        if inner.step()?.is_some() {
            return Err(failed());
        }
        let at = inner.file(name)?;
        inner.files[at].seen.truncate(usize::try_from(len).unwrap());
        Ok(())
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fault = inner.step()?;
        let at = inner.file(name)?;
        if fault.is_some() {
            return Err(failed());
        }
        inner.files[at].durable = inner.files[at].seen.clone();
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let fault = inner.step()?;
        if fault.is_none() || inner.below(2) == 0 {
            let at = inner.file(from)?;
            inner.names.remove(from);
            inner.names.insert(to.to_owned(), at);
            inner.named();
        }
        fault.map_or(Ok(()), |_| Err(failed()))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        if inner.step()?.is_some() {
            return Err(failed());
        }
        if inner.names.remove(name).is_some() {
            inner.named();
        }
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        if inner.step()?.is_some() {
            return Err(failed());
        }
        inner.durable_names = inner.names.clone();
        inner.history.clear();
        Ok(())
    }
}

/// A provider's table and store, driven as its journal drives them.
struct Life {
    disk: Double,
    store: Option<FileStore>,
    /// What was acknowledged.
    table: Table,
    /// The change whose append failed and that may be there all the same.
    doubtful: Option<Change>,
    running: Vec<Work>,
    told: BTreeSet<String>,
    sequence: i64,
}

const MACHINES: u64 = 3;

impl Life {
    fn begin() -> Self {
        let mut life = Self {
            disk: Double::default(),
            store: None,
            table: Table::new("op"),
            doubtful: None,
            running: Vec::new(),
            told: BTreeSet::new(),
            sequence: 0,
        };
        life.open();
        for n in 0..MACHINES {
            let slot = Instance { id: format!("m-{n}"), host: None, ..Profile::Dev.instances().remove(0) };
            let change = life.table.plan_instance(&slot, None).unwrap();
            assert!(life.keep(change));
        }
        life
    }

    /// Opens the store and replaces the table by what it holds; false when the disk does not let it.
    fn open(&mut self) -> bool {
        let opened = FileStore::open_on(Box::new(self.disk.clone()), PathBuf::from("double"));
        let Ok(store) = opened else { return false };
        let mut store = store.compact_from(600);
        let mut table = Table::new("op");
        for change in store.load().unwrap() {
            table.apply(change).unwrap();
        }
        table.audit().unwrap();
        self.running = table.interrupted();
        (self.table, self.store) = (table, Some(store));
        true
    }

    /// Stores a change and makes it true, or neither.
    fn keep(&mut self, change: Change) -> bool {
        let store = self.store.as_mut().unwrap();
        if store.append(std::slice::from_ref(&change)).is_err() {
            self.doubtful = Some(change);
            return false;
        }
        self.doubtful = None;
        self.table.apply(change).unwrap();
        if store.wants_compaction() {
            let snapshot: Vec<Change> = self.table.snapshot().collect();
            // The old log is in force where it fails.
            let _ = store.compact(&mut snapshot.into_iter());
        }
        true
    }

    /// One call or one end of work, by chance.
    fn act(&mut self, chance: &mut Seeded) {
        if !self.running.is_empty() && chance.below(2) == 0 {
            let work = self.running.remove(0);
            let outcome = match work.kind {
                Kind::Create => Outcome::Created {
                    host: Host { provider: "p".into(), reference: "r".into() },
                    resources: None,
                    allocatable: None,
                },
                Kind::Configure => Outcome::Configured,
                Kind::Drain => Outcome::Drained,
                Kind::Delete => Outcome::Deleted,
            };
            if let Some(change) = self.table.plan_end(&work, Ok(outcome))
                && !self.keep(change)
            {
                self.running.insert(0, work);
            }
            return;
        }
        self.sequence += 1;
        let kind = Kind::ALL[usize::try_from(chance.below(4)).unwrap()];
        let call = Call {
            machine: MachineId::parse(&format!("m-{}", chance.below(MACHINES))).unwrap(),
            token: Token { shard_id: "s".into(), epoch: 1, sequence: self.sequence },
            command: match kind {
                Kind::Create => Command::Create,
                Kind::Configure => {
                    Command::Configure(Binding { cluster: "c".into(), metadata: BTreeMap::new() })
                }
                Kind::Drain => Command::Drain { grace_seconds: 1 },
                Kind::Delete => Command::Delete,
            },
        };
        let plan = self.table.plan(&call, &Anything);
        let Some(change) = plan.change else { return };
        if self.keep(change)
            && let Some(work) = plan.work
        {
            assert!(self.told.insert(work.operation_id.clone()), "{} was given twice", work.operation_id);
            self.running.push(work);
        }
    }

    /// Everything that was acknowledged is there, and nothing else is but the change in doubt.
    fn check_after(&mut self, acknowledged: &Table, doubtful: Option<Change>, what: &str) {
        // The count of operation ids also has those of calls that were refused; what was told is checked apart.
        let facts = |table: &Table| -> Vec<Change> {
            table.snapshot().map(|change| Change { operations: 0, ..change }).collect()
        };
        let (there, expected) = (facts(&self.table), facts(acknowledged));
        if there == expected {
            return;
        }
        let mut with_doubtful = Table::new("op");
        for change in expected.into_iter().chain(doubtful) {
            with_doubtful.apply(change).unwrap();
        }
        assert_eq!(there, facts(&with_doubtful), "{what}");
    }
}

/// One life: `acts` steps of work with a fault at one step of the disk, then a reboot, and work again.
fn live(fault: Option<(u64, Fault)>, seed: u64) -> u64 {
    let mut life = Life::begin();
    let mut chance = Seeded::new(seed);
    {
        let mut inner = life.disk.0.lock().unwrap();
        inner.chance = Some(Seeded::new(seed ^ 99));
        inner.steps = 0;
        inner.fault = fault;
    }
    for _ in 0..60 {
        life.act(&mut chance);
    }
    let steps = life.disk.0.lock().unwrap().steps;
    let what = format!("fault {fault:?}, seed {seed}");
    life.store = None;
    let (acknowledged, doubtful) =
        (std::mem::replace(&mut life.table, Table::new("op")), life.doubtful.take());
    life.disk.0.lock().unwrap().reboot();
    assert!(life.open(), "{what}: the store does not open");
    life.check_after(&acknowledged, doubtful, &what);
    // The next life goes on from there: marks hold, and no operation id that was told is told again.
    for work in &life.running {
        life.told.insert(work.operation_id.clone());
    }
    for _ in 0..20 {
        life.act(&mut chance);
    }
    assert!(life.store.as_ref().unwrap().broken().is_none(), "{what}");
    // Nothing is lost by a second crash in which the disk had synced all that was acknowledged.
    life.store = None;
    let acknowledged = std::mem::replace(&mut life.table, Table::new("op"));
    life.disk.0.lock().unwrap().reboot();
    assert!(life.open(), "{what}: the store does not open a second time");
    life.check_after(&acknowledged, None, &what);
    steps
}

#[test]
fn no_acknowledged_change_is_lost_at_any_step_of_the_disk() {
    for seed in 0..12 {
        let steps = live(None, seed);
        assert!(steps > 80, "{steps} steps: too short a life to tell");
        for at in 1..=steps {
            live(Some((at, Fault::Crash)), seed);
            live(Some((at, Fault::Error)), seed);
        }
    }
}

#[test]
fn lives_are_long_enough_to_rewrite_the_log() {
    let mut life = Life::begin();
    let mut chance = Seeded::new(3);
    let before = life.disk.0.lock().unwrap().files.len();
    for _ in 0..60 {
        life.act(&mut chance);
    }
    let rewritten = life.disk.0.lock().unwrap().files.len() - before;
    assert!(rewritten >= 2, "{rewritten} rewrites");
}
