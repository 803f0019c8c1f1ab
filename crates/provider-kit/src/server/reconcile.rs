//! Keeping the table in step with the back end, and changes that come from the provider's side.

use std::collections::BTreeSet;

use bigfleet_types::MachineId;
use tokio::time::timeout;

use super::{NotStored, Provider, StartError};
use crate::instance::{Instance, Invalid};
use crate::table::{Binding, Change, Table};

/// Machines whose changes are stored together.
const CHUNK: usize = 1024;

/// What one look at the back end brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reconciled {
    /// Machines that are new, changed, failed or gone.
    pub changed: usize,
    /// Instances that broke a rule and were left out.
    pub invalid: usize,
}

impl Provider {
    /// The first look: any invalid instance stops the start.
    pub(super) async fn seed(&self) -> Result<(), StartError> {
        let limit = self.shared.options.reconcile_timeout;
        let as_of = self.revision();
        let instances = timeout(limit, self.shared.backend.describe())
            .await
            .map_err(|_| StartError::DescribeTimeout(limit))??;
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
        let limit = self.shared.options.reconcile_timeout;
        let as_of = self.revision();
        let described = timeout(limit, self.shared.backend.describe())
            .await
            .map_err(|_| format!("the back end did not answer within {limit:?}"))?
            .map_err(|error| error.to_string())?;
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
        let as_of = self.shared.backend.is_authoritative().then_some(as_of);
        let mut changed = 0;
        for chunk in instances.chunks(CHUNK) {
            let ids: Vec<MachineId> = chunk.iter().map(|i| MachineId::trusted(i.id.as_str())).collect();
            let plan = |table: &mut Table, at: usize| table.plan_instance(&chunk[at], as_of);
            changed += self.change_all(&ids, plan).await?;
        }
        if let Some(as_of) = as_of {
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
        for at in 0..ids.len() {
            let (planned, durable) = self.shared.journal.plan(|table| {
                let change = plan(table, at);
                (change.is_some(), change)
            });
            if planned {
                waits.push(durable);
            }
        }
        let changed = waits.len();
        for wait in waits {
            wait.wait().await?;
        }
        Ok(changed)
    }

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
        let changed = self.change_one(id, |table| table.plan_failure(id, reason)).await?;
        if changed {
            self.cancel_work(&MachineId::trusted(id));
        }
        Ok(changed)
    }

    /// Forgets a machine: it leaves every list. False when it is unknown.
    ///
    /// # Errors
    /// When the store refuses; nothing has changed.
    pub async fn remove(&self, id: &str) -> Result<bool, NotStored> {
        let changed = self.change_one(id, |table| table.plan_removal(id)).await?;
        if changed {
            self.cancel_work(&MachineId::trusted(id));
        }
        Ok(changed)
    }

    /// Brings a Failed machine back as what the back end now says it is: Idle with a host, Speculative without.
    /// False when the machine is not Failed or the back end does not have it. This is a local act of the provider's
    /// owner: no call on the wire leads out of Failed.
    ///
    /// # Errors
    /// In words, when the back end does not answer, describes it wrongly, or the store refuses.
    pub async fn repair(&self, id: &str) -> Result<bool, String> {
        let limit = self.shared.options.reconcile_timeout;
        let described = timeout(limit, self.shared.backend.describe())
            .await
            .map_err(|_| format!("the back end did not answer within {limit:?}"))?
            .map_err(|error| error.to_string())?;
        let Some(instance) = described.into_iter().find(|instance| instance.id == id) else {
            return Ok(false);
        };
        instance.validate(self.shared.options.require_zone).map_err(|error| error.to_string())?;
        self.change_one(id, |table| table.plan_repair(&instance)).await.map_err(|error| error.to_string())
    }
}
