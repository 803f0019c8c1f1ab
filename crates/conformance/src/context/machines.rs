//! Machines to try things on, and putting them back.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use futures::future::join_all;
use pb::MachineState as S;

use super::{Context, held, metadata};
use crate::check::{Check, Stop, ok};

/// The label of machines whose Create fails on purpose.
pub(crate) const CREATE_FAULT: (&str, &str) = ("conformance.fault/create", "error");

fn doomed(machine: &pb::Machine) -> bool {
    machine.labels.get(CREATE_FAULT.0).is_some_and(|value| value == CREATE_FAULT.1)
}

impl Context {
    /// A Speculative machine that this behaviour has not picked yet; one that the run has not used, if there is one.
    pub(crate) async fn speculative(&self) -> Check<String> {
        Ok(self.speculatives(1).await?.remove(0))
    }

    /// Several of them.
    pub(crate) async fn speculatives(&self, wanted: usize) -> Check<Vec<String>> {
        // A few are listed first: a large fleet's List for every machine would take most of the time.
        let few = held(&self.picked).len().saturating_add(wanted).saturating_add(16);
        let mut free = self.free_slots(i32::try_from(few).unwrap_or(0)).await?;
        if free.len() < wanted {
            free = self.free_slots(0).await?;
        }
        {
            let used = held(&self.run.used);
            free.sort_by_key(|id| used.contains(id));
        }
        if free.len() < wanted {
            return Err(Stop::Unseen(format!(
                "needs {wanted} Speculative machines, {} are left; give the provider at least 100 slots (--seed-count)",
                free.len()
            )));
        }
        free.truncate(wanted);
        free.iter().for_each(|id| self.note(id));
        Ok(free)
    }

    /// Ids of at most `most` (0: all) Speculative machines, without those that were picked.
    async fn free_slots(&self, most: i32) -> Check<Vec<String>> {
        let states = vec![i32::from(S::Speculative)];
        let filter = pb::ListFilter { states, max_results: most, ..pb::ListFilter::default() };
        let listed = ok("List of Speculative machines", self.list(filter).await)?.machines;
        let picked = held(&self.picked);
        Ok(listed
            .into_iter()
            .filter(|m| !doomed(m))
            .map(|m| m.id)
            .filter(|id| !picked.contains(id))
            .collect())
    }

    /// A machine whose Create fails on purpose.
    pub(crate) async fn doomed(&self) -> Check<String> {
        let found = self.listed(&[S::Speculative]).await?.into_iter().find(doomed);
        let Some(machine) = found else {
            let (key, value) = CREATE_FAULT;
            return Err(Stop::Unseen(format!("no Speculative machine has the label {key}={value}")));
        };
        self.note(&machine.id);
        Ok(machine.id)
    }

    fn note(&self, id: &str) {
        held(&self.picked).insert(id.to_owned());
        held(&self.run.used).insert(id.to_owned());
    }

    /// An Idle machine: one left over by an earlier behaviour, or a new one.
    pub(crate) async fn idle(&self) -> Check<String> {
        let spare = held(&self.run.spare).pop();
        if let Some(id) = spare {
            self.note(&id);
            return Ok(id);
        }
        let id = self.speculative().await?;
        ok(&format!("Create of {id}"), self.create(&id).await)?;
        self.reach(&id, S::Idle).await?;
        Ok(id)
    }

    /// Several Idle machines, created side by side.
    pub(crate) async fn idles(&self, wanted: usize) -> Check<Vec<String>> {
        let ids = self.speculatives(wanted).await?;
        let made = ids.iter().map(async |id| {
            ok(&format!("Create of {id}"), self.create(id).await)?;
            self.reach(id, S::Idle).await
        });
        for machine in join_all(made).await {
            machine?;
        }
        Ok(ids)
    }

    /// A machine that serves `cluster`.
    pub(crate) async fn configured(&self, cluster: &str) -> Check<String> {
        self.configured_with(cluster, &metadata()).await
    }

    /// The same with metadata of its own.
    pub(crate) async fn configured_with(
        &self,
        cluster: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Check<String> {
        let id = self.idle().await?;
        self.bind(&id, cluster, metadata).await?;
        Ok(id)
    }

    /// Configures an Idle machine and waits.
    pub(crate) async fn bind(
        &self,
        id: &str,
        cluster: &str,
        metadata: &BTreeMap<String, String>,
    ) -> Check<pb::Machine> {
        ok(&format!("Configure of {id}"), self.configure(id, cluster, metadata).await)?;
        self.reach(id, S::Configured).await
    }

    /// Configures Idle machines side by side.
    pub(crate) async fn bind_all(&self, ids: &[String], cluster: &str) -> Check {
        let notes = metadata();
        for bound in join_all(ids.iter().map(|id| self.bind(id, cluster, &notes))).await {
            bound?;
        }
        Ok(())
    }

    /// Drains a Configured machine and waits.
    pub(crate) async fn free(&self, id: &str) -> Check<pb::Machine> {
        ok(&format!("Drain of {id}"), self.drain(id, 0).await)?;
        self.reach(id, S::Idle).await
    }

    /// Puts back what was picked: drained, and deleted where that works. Gives the ids of machines that are not
    /// where they were found.
    pub(crate) async fn tidy(&self) -> Vec<String> {
        let picked: Vec<String> = std::mem::take(&mut *held(&self.picked)).into_iter().collect();
        let left = join_all(picked.iter().map(|id| self.put_back(id))).await;
        picked.into_iter().zip(left).filter(|(_, back)| !back).map(|(id, _)| id).collect()
    }

    async fn put_back(&self, id: &str) -> bool {
        let Ok(machine) = self.settled(id).await else { return false };
        let state = match machine.state() {
            S::Configured => match self.free(id).await {
                Ok(machine) => machine.state(),
                Err(_) => return false,
            },
            other => other,
        };
        match state {
            S::Speculative => true,
            S::Idle if self.features.delete => {
                self.delete(id).await.is_ok() && self.reach(id, S::Speculative).await.is_ok()
            }
            S::Idle => {
                held(&self.run.spare).push(id.to_owned());
                true
            }
            _ => false,
        }
    }
}
