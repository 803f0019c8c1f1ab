//! Keeping the table in step with the back end, and changes that come from the provider's side.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use bigfleet_types::MachineId;
use futures::FutureExt as _;
use tokio::time::timeout;

use super::{NotStored, Provider, StartError};
use crate::backend;
use crate::instance::{Instance, Invalid};
use crate::table::{Binding, Change, Table};

/// Machines whose changes are stored together.
const CHUNK: usize = 1024;

/// Why the back end's machines are not known.
#[derive(Debug, thiserror::Error)]
pub enum DescribeError {
    /// It says so itself.
    #[error("the back end cannot describe its machines: {0}")]
    Refused(#[from] backend::Error),
    /// It took too long.
    #[error("the back end did not describe its machines within {0:?}")]
    Timeout(Duration),
    /// It panicked.
    #[error("the back end panicked while it described its machines; its log says where")]
    Panic,
}

/// What one look at the back end brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Machines that are new, changed, failed or gone.
    pub changed: usize,
    /// Instances that broke a rule and were left out.
    pub invalid: usize,
}

impl Provider {
    /// What the back end has. A panic in it is an answer like any other: the next look comes.
    async fn described(&self) -> Result<Vec<Instance>, DescribeError> {
        let limit = self.shared.options.reconcile_timeout;
        let describe = AssertUnwindSafe(async { self.shared.backend.describe().await }).catch_unwind();
        match timeout(limit, describe).await {
            Ok(Ok(described)) => Ok(described?),
            Ok(Err(_panic)) => {
                self.shared.metrics.panics.inc();
                Err(DescribeError::Panic)
            }
            Err(_elapsed) => Err(DescribeError::Timeout(limit)),
        }
    }

    /// The first look: any invalid instance stops the start.
    pub(super) async fn seed(&self) -> Result<(), StartError> {
        let as_of = self.revision();
        let instances = self.described().await?;
        let mut ids = BTreeSet::new();
        for instance in &instances {
            let id = instance.validate(self.shared.options.require_zone)?;
            if !ids.insert(id) {
                return Err(Invalid::Duplicate { id: instance.id.clone() }.into());
            }
        }
        self.absorb(&instances, &ids, as_of).await.map_err(StartError::NotStored)?;
        Ok(())
    }

    /// Looks at the back end's own list: adds what is new, refreshes facts, fails what vanished. Invalid instances
    /// are left out with a warning and never count as vanished.
    ///
    /// # Errors
    /// In words, when the back end does not answer or the store refuses; nothing or only a part was taken over.
    pub async fn reconcile(&self) -> Result<Reconciled, String> {
        let result = self.look().await;
        match &result {
            Ok(Reconciled { invalid: 0, .. }) => self.shared.metrics.reconciled("ok"),
            Ok(_) => self.shared.metrics.reconciled("partial"),
            Err(reason) => {
                self.shared.metrics.reconciled("error");
                tracing::warn!(%reason, "cannot look at the back end's machines; what is known stays");
            }
        }
        result
    }

    async fn look(&self) -> Result<Reconciled, String> {
        let _one_at_a_time = self.shared.reconciling.lock().await;
        let as_of = self.revision();
        let described = self.described().await.map_err(|error| error.to_string())?;
        let (mut named, mut seen, mut valid) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
        let mut invalid = 0;
        for instance in described {
            named.insert(MachineId::trusted(instance.id.as_str()));
            match instance.validate(self.shared.options.require_zone) {
                Ok(id) if seen.insert(id.clone()) => valid.push(instance),
                Ok(_) => {
                    invalid += 1;
                    tracing::warn!(id = instance.id, "described twice; the first one counts");
                }
                Err(error) => {
                    invalid += 1;
                    tracing::warn!(%error, "instance left out");
                }
            }
        }
        let changed = self.absorb(&valid, &named, as_of).await.map_err(|error| error.to_string())?;
        Ok(Reconciled { changed, invalid })
    }

    /// Takes over instances; whatever is known but not in `named` has vanished, if the back end's word counts.
    async fn absorb(
        &self,
        instances: &[Instance],
        named: &BTreeSet<MachineId>,
        as_of: u64,
    ) -> Result<usize, NotStored> {
        let backend = &self.shared.backend;
        let hosts_as_of = backend.knows_hosts().then_some(as_of);
        let mut changed = 0;
        for chunk in instances.chunks(CHUNK) {
            let ids: Vec<MachineId> = chunk.iter().map(|i| MachineId::trusted(i.id.as_str())).collect();
            let plan = |table: &mut Table, at: usize| table.plan_instance(&chunk[at], hosts_as_of);
            changed += self.change_all(&ids, plan).await?;
        }
        if backend.is_authoritative() {
            let gone: Vec<MachineId> = {
                let table = self.shared.journal.read();
                table.records().map(|(id, _)| id).filter(|id| !named.contains(*id)).cloned().collect()
            };
            for ids in gone.chunks(CHUNK) {
                changed += self.change_all(ids, |table, at| table.plan_vanished(&ids[at], as_of)).await?;
            }
        }
        Ok(changed)
    }

    /// Plans a change for each of `ids` and waits for all of them together. Work of machines that changed their
    /// state is stopped.
    async fn change_all(
        &self,
        ids: &[MachineId],
        mut plan: impl FnMut(&mut Table, usize) -> Option<Change>,
    ) -> Result<usize, NotStored> {
        // In id order, so that two of these cannot wait for each other.
        let mut order: Vec<usize> = (0..ids.len()).collect();
        order.sort_by(|a, b| ids[*a].cmp(&ids[*b]));
        let mut gates = Vec::with_capacity(ids.len());
        for at in order {
            gates.push(self.shared.gates.hold(&ids[at]).await);
        }
        let mut waits = Vec::new();
        for (at, id) in ids.iter().enumerate() {
            let (planned, durable) = self.shared.journal.plan(|table| {
                let change = plan(table, at);
                (change.is_some(), change)
            });
            if planned {
                waits.push((id, durable));
            }
        }
        let changed = waits.len();
        let mut failure = None;
        for (id, wait) in waits {
            match wait.wait().await {
                Ok(()) => self.stop_stale_work(id),
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(changed), Err)
    }

    /// Plans a change of one machine and waits for it. Its work is stopped if it changed its state.
    async fn change_one(
        &self,
        id: &str,
        plan: impl FnOnce(&mut Table) -> Option<Change>,
    ) -> Result<bool, NotStored> {
        let id = MachineId::trusted(id);
        let _gate = self.shared.gates.hold(&id).await;
        let (planned, durable) = self.shared.journal.plan(|table| {
            let change = plan(table);
            (change.is_some(), change)
        });
        durable.wait().await?;
        if planned {
            self.stop_stale_work(&id);
        }
        Ok(planned)
    }

    /// Adds a machine that the back end came to have, or refreshes a known one. Gives whether anything changed.
    /// The instance must be valid.
    ///
    /// # Errors
    /// When the store refuses; nothing has changed.
    pub async fn add(&self, instance: &Instance) -> Result<bool, NotStored> {
        self.change_one(&instance.id, |table| table.plan_instance(instance, None)).await
    }

    /// Adds a machine that already serves a cluster. False when its id is known or it has no host.
    ///
    /// # Errors
    /// When the store refuses; nothing has changed.
    pub async fn add_bound(&self, instance: &Instance, binding: &Binding) -> Result<bool, NotStored> {
        self.change_one(&instance.id, |table| table.plan_bound(instance, binding)).await
    }

    /// Adds many bound machines before anything is served; known ids are left as they are.
    pub(super) async fn add_all_bound(&self, bound: &[(Instance, Binding)]) -> Result<(), StartError> {
        for chunk in bound.chunks(CHUNK) {
            let ids: Vec<MachineId> = chunk.iter().map(|(i, _)| MachineId::trusted(i.id.as_str())).collect();
            let plan = |table: &mut Table, at: usize| table.plan_bound(&chunk[at].0, &chunk[at].1);
            self.change_all(&ids, plan).await.map_err(StartError::NotStored)?;
        }
        Ok(())
    }

    /// Fails a machine, as when its host was taken away, and stops its work. False when it is unknown or Failed.
    ///
    /// # Errors
    /// When the store refuses; nothing has changed.
    pub async fn fail(&self, id: &str, reason: &str) -> Result<bool, NotStored> {
        self.change_one(id, |table| table.plan_failure(id, reason)).await
    }

    /// Forgets a machine: it leaves every list. False when it is unknown.
    ///
    /// # Errors
    /// When the store refuses; nothing has changed.
    pub async fn remove(&self, id: &str) -> Result<bool, NotStored> {
        self.change_one(id, |table| table.plan_removal(id)).await
    }

    /// Brings a Failed machine back as what the back end now says it is: Idle with a host, Speculative without.
    /// False when the machine is not Failed or the back end does not have it. This is a local act of the provider's
    /// owner: no call on the wire leads out of Failed.
    ///
    /// # Errors
    /// In words, when the back end does not answer, describes it wrongly, or the store refuses.
    pub async fn repair(&self, id: &str) -> Result<bool, String> {
        let described = self.described().await.map_err(|error| error.to_string())?;
        let Some(instance) = described.into_iter().find(|instance| instance.id == id) else {
            return Ok(false);
        };
        instance.validate(self.shared.options.require_zone).map_err(|error| error.to_string())?;
        self.change_one(id, |table| table.plan_repair(&instance)).await.map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use async_trait::async_trait;
    use futures::poll;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::backend::{Backend, Created, Error, Operation};
    use crate::fakecloud::Profile;
    use crate::table::{Call, Command, Token};
    use crate::{Blob, MemStore, NoFaults, Options};

    /// Has one host, `m`, and takes for ever.
    struct Endless;

    #[async_trait]
    impl Backend for Endless {
        async fn describe(&self) -> Result<Vec<Instance>, Error> {
            Ok(vec![Instance { id: "m".into(), ..Profile::Dev.instances().remove(0) }])
        }

        async fn create(&self, _operation: Operation<'_>) -> Result<Created, Error> {
            std::future::pending().await
        }

        async fn configure(&self, _operation: Operation<'_>, _blob: &Blob) -> Result<(), Error> {
            std::future::pending().await
        }

        async fn drain(&self, _operation: Operation<'_>) -> Result<(), Error> {
            std::future::pending().await
        }
    }

    /// A machine fails, is repaired and taken into use again, all before the failure's call has come to its end.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_failure_does_not_stop_the_work_that_came_after_it() {
        let options = Options { reconcile_interval: None, ..Options::default() };
        let (backend, faults, store) = (Arc::new(Endless), Arc::new(NoFaults), Box::new(MemStore));
        let provider =
            Provider::open(backend, faults, options, store, &mut Registry::default()).await.unwrap();
        let id = MachineId::trusted("m");
        let gate = provider.shared.gates.hold(&id).await;
        let call = Call {
            machine: id.clone(),
            token: Token::default(),
            command: Command::Configure(Binding { cluster: "a".into(), ..Binding::default() }),
        };
        let each = || provider.clone();
        let (p, q, r) = (each(), each(), each());
        let mut fail = Box::pin(async move { p.fail("m", "its disk died").await });
        let mut repair = Box::pin(async move { q.repair("m").await });
        let mut configure = Box::pin(async move { r.dispatch(call, Some(Blob::default())).await });
        // They wait at the gate, in this order.
        assert!(poll!(&mut fail).is_pending() && poll!(&mut repair).is_pending());
        assert!(poll!(&mut configure).is_pending());
        // On threads of their own, because each comes to stand still in the middle.
        let handle = tokio::runtime::Handle::current();
        let (f, r, c) = (handle.clone(), handle.clone(), handle);
        let fail = std::thread::spawn(move || f.block_on(fail));
        let repair = std::thread::spawn(move || r.block_on(repair));
        let configure = std::thread::spawn(move || c.block_on(configure));
        tokio::task::block_in_place(|| {
            let pause = provider.shared.gates.pause();
            let opened = std::thread::spawn(move || drop(gate));
            let begun = Instant::now();
            while provider.shared.running().is_empty() {
                assert!(begun.elapsed() < Duration::from_secs(60), "never configured");
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(pause);
            opened.join().unwrap();
            assert!(fail.join().unwrap().unwrap() && repair.join().unwrap().unwrap());
            configure.join().unwrap().unwrap();
        });
        assert!(provider.shared.running().get(&id).is_some_and(|work| !work.is_cancelled()));
        provider.close().await;
    }
}
