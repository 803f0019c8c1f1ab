//! One gate per machine: whoever plans a change of it holds the gate until the change is durable.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use bigfleet_types::MachineId;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// The gates that are held or waited for.
#[derive(Debug, Default)]
pub(super) struct Gates(Mutex<HashMap<MachineId, Arc<AsyncMutex<()>>>>);

/// A machine's gate, held until dropped.
#[derive(Debug)]
pub(super) struct Gate {
    gates: Arc<Gates>,
    id: MachineId,
    held: Option<OwnedMutexGuard<()>>,
}

impl Gates {
    /// Waits for the gate of `id`.
    pub(super) async fn hold(self: &Arc<Self>, id: &MachineId) -> Gate {
        let gate = {
            let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(map.entry(id.clone()).or_default())
        };
        Gate { gates: Arc::clone(self), id: id.clone(), held: Some(gate.lock_owned().await) }
    }

    /// Lets nobody come to a gate, or leave one for good, while it lives.
    #[cfg(test)]
    pub(super) fn pause(&self) -> impl Drop + '_ {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.held = None;
        let mut map = self.gates.0.lock().unwrap_or_else(PoisonError::into_inner);
        // The map's own reference is the last one: nobody waits, and nobody can begin to while the map is locked.
        if map.get(&self.id).is_some_and(|gate| Arc::strong_count(gate) == 1) {
            map.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_gate_lets_one_in_at_a_time_and_leaves_nothing_behind() {
        let gates = Arc::new(Gates::default());
        let (a, b) = (MachineId::trusted("a"), MachineId::trusted("b"));
        let first = gates.hold(&a).await;
        let other = gates.hold(&b).await;
        let waiting = tokio::spawn({
            let (gates, a) = (Arc::clone(&gates), a.clone());
            async move { drop(gates.hold(&a).await) }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(first);
        waiting.await.unwrap();
        drop(other);
        assert_eq!(gates.len(), 0);
    }
}
