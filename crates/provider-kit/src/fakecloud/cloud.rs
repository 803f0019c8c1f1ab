//! The back end that only pretends, and the faults on the way in and out.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineId;
use bigfleet_types::chance::{Chance as _, Seeded};
use tokio::sync::Notify;
use tonic::Status;

use super::NodeHook;
use super::control::{Actions, ClassKey};
use super::knobs::{Knobs, take_next};
use super::market::{Past, Throttle};
use super::options::{Dwell, Options};
use crate::backend::{Backend, Created, Error, Operation};
use crate::blob::Blob;
use crate::faults::{Faults, Method};
use crate::instance::Instance;
use crate::kind::Kind;
use crate::table::{Outcome, Work};

/// The fake cloud's inside, shared by the kit and the knobs.
pub(super) struct Cloud {
    hooks: Vec<Arc<dyn NodeHook>>,
    label: String,
    instant: bool,
    resumes: bool,
    dwell: Dwell,
    seed: u64,
    throttle: Option<Throttle>,
    past: Past,
    lags: bool,
    knobs: Mutex<Knobs>,
    /// Told whenever a knob was turned.
    turned: Notify,
    instances: Mutex<BTreeMap<String, Instance>>,
    actions: Mutex<BTreeMap<MachineId, Actions>>,
    calls: Mutex<BTreeMap<(String, Method), u64>>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cloud").field("knobs", &self.knobs).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cloud {
    pub(super) fn new(options: &Options, hook: Option<Arc<dyn NodeHook>>, instances: Vec<Instance>) -> Self {
        let boot = options.boot.clone().map(|boot| Arc::new(boot) as Arc<dyn NodeHook>);
        Self {
            hooks: hook.into_iter().chain(boot).collect(),
            label: options.label.clone(),
            instant: options.instant,
            resumes: options.resume,
            dwell: options.dwell,
            seed: options.random_seed,
            throttle: Throttle::new(options.calls_per_second, Instant::now()),
            past: Past::default(),
            lags: options.list_lag_ms > 0,
            knobs: Mutex::new(Knobs::new(options.can_delete, options.latency)),
            turned: Notify::new(),
            instances: Mutex::new(instances.into_iter().map(|i| (i.id.clone(), i)).collect()),
            actions: Mutex::default(),
            calls: Mutex::default(),
        }
    }

    /// Turns a knob and wakes whoever waits for it.
    pub(super) fn turn<R>(&self, turn: impl FnOnce(&mut Knobs) -> R) -> R {
        let result = turn(&mut lock(&self.knobs));
        self.turned.notify_waiters();
        result
    }

    pub(super) fn instances(&self) -> MutexGuard<'_, BTreeMap<String, Instance>> {
        lock(&self.instances)
    }

    pub(super) fn note_past(&self, now: Instant, lag: std::time::Duration, machines: Vec<Arc<pb::Machine>>) {
        self.past.note(now, lag, machines);
    }

    pub(super) fn actions(&self) -> BTreeMap<MachineId, Actions> {
        lock(&self.actions).clone()
    }

    pub(super) fn calls(&self) -> BTreeMap<(String, Method), u64> {
        lock(&self.calls).clone()
    }

    /// Waits until a look at the knobs gives something.
    async fn until<T>(&self, mut look: impl FnMut(&mut Knobs) -> Option<T>) -> T {
        loop {
            // Registered before the look, so that no turn between look and wait is missed.
            let mut turned = std::pin::pin!(self.turned.notified());
            turned.as_mut().enable();
            let found = look(&mut lock(&self.knobs));
            if let Some(found) = found {
                return found;
            }
            turned.await;
        }
    }

    /// What every piece of work goes through: its latency, its stage, its fault.
    async fn undergo(&self, kind: Kind, id: &MachineId) -> Result<(), Error> {
        if !self.instant {
            let latency = lock(&self.knobs).latency.of(kind);
            let done = lock(&self.actions).get(id).copied().unwrap_or_default().total();
            let drawn = Seeded::new(self.seed ^ share(id, kind).wrapping_mul(0x9e37_79b9) ^ done).below(1000);
            tokio::time::sleep(latency.at(self.dwell.place(share(id, kind), drawn))).await;
        }
        self.until(|knobs| (!knobs.holds(kind, id.as_str())).then_some(())).await;
        let fault = take_next(&mut lock(&self.knobs).fail_work, (id.to_string(), kind));
        fault.map_or(Ok(()), |reason| Err(Error::new(reason)))
    }

    fn count(&self, kind: Kind, id: &MachineId) {
        lock(&self.actions).entry(id.clone()).or_default().add(kind);
    }

    async fn leave(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.undergo(Kind::Drain, operation.id).await?;
        for hook in &self.hooks {
            hook.drain(operation).await?;
        }
        Ok(())
    }

    async fn make(&self, id: &MachineId) -> Result<Created, Error> {
        self.undergo(Kind::Create, id).await?;
        Ok(Created::host(self.label.clone(), format!("host-{id}")))
    }
}

/// Where in a latency's range a machine lies, in thousandths: always the same for one machine and kind.
fn share(id: &MachineId, kind: Kind) -> u64 {
    let seed = id
        .as_str()
        .bytes()
        .fold(u64::from(kind.number()), |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
    Seeded::new(seed).below(1000)
}

#[async_trait]
impl Backend for Cloud {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        Ok(self.instances().values().cloned().collect())
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        self.count(Kind::Create, operation.id);
        self.make(operation.id).await
    }

    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        self.count(Kind::Configure, operation.id);
        self.undergo(Kind::Configure, operation.id).await?;
        for hook in &self.hooks {
            hook.configure(operation, blob).await?;
        }
        Ok(())
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.count(Kind::Drain, operation.id);
        self.leave(operation).await
    }

    fn can_delete(&self, _machine: &pb::Machine) -> bool {
        lock(&self.knobs).can_delete
    }

    async fn delete(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.count(Kind::Delete, operation.id);
        self.undergo(Kind::Delete, operation.id).await
    }

    fn in_stock(&self, machine: &pb::Machine) -> Result<(), String> {
        let class = ClassKey::of(machine);
        if lock(&self.knobs).out_of_stock.contains(&class) { Err(format!("no {class} left")) } else { Ok(()) }
    }

    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        if !self.resumes {
            return Err(Error::new(format!("{} was interrupted by a restart of the provider", work.kind)));
        }
        let id = &work.machine_id;
        let operation = work.operation();
        match work.kind {
            Kind::Create => Ok(self.make(id).await?.into()),
            Kind::Drain => self.leave(operation).await.map(|()| Outcome::Drained),
            Kind::Delete => self.undergo(Kind::Delete, id).await.map(|()| Outcome::Deleted),
            Kind::Configure => Err(Error::new("a Configure cannot be resumed")),
        }
    }

    /// Its hosts are as lasting as the kit's own memory of them.
    fn is_authoritative(&self) -> bool {
        false
    }
}

#[async_trait]
impl Faults for Cloud {
    async fn before(&self, method: Method, machine: &str) -> Result<(), Status> {
        *lock(&self.calls).entry((machine.to_owned(), method)).or_default() += 1;
        let latency = lock(&self.knobs).rpc_latency.get(&method).copied();
        if let Some(latency) = latency {
            tokio::time::sleep(latency.at(share(&MachineId::trusted(machine), Kind::Create))).await;
        }
        self.until(|knobs| (!knobs.hanging.contains(&method)).then_some(())).await;
        let mutates = !matches!(method, Method::Get | Method::List);
        if mutates && self.throttle.as_ref().is_some_and(|throttle| !throttle.passes(Instant::now())) {
            return Err(Status::unavailable("throttled: too many calls a second; try again later"));
        }
        lock(&self.knobs).refusal(method, machine).map_or(Ok(()), Err)
    }

    async fn after(&self, method: Method, machine: &str) -> Result<(), Status> {
        if lock(&self.knobs).loses_answer(method, machine) {
            return Err(Status::unavailable("fakecloud lost the answer on purpose"));
        }
        Ok(())
    }

    fn alters(&self) -> bool {
        lock(&self.knobs).alters()
    }

    fn machine(&self, machine: &mut pb::Machine) {
        lock(&self.knobs).corrupt(machine);
    }

    fn past(&self) -> Option<Arc<Vec<Arc<pb::Machine>>>> {
        if self.lags { self.past.shown() } else { None }
    }

    fn list(&self, list: pb::MachineList) -> pb::MachineList {
        lock(&self.knobs).spoil(list)
    }
}
