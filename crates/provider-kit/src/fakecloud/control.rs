//! The hand on the knobs.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::{CapacityType, MachineId, MachineState};
use tonic::Status;

use super::catalogue::{host, seeded_binding};
use super::cloud::Cloud;
use super::knobs::{Corruption, ListFault};
use super::options::Latency;
use crate::faults::Method;
use crate::instance::Instance;
use crate::kind::Kind;
use crate::server::{NotStored, Provider};
use crate::table::wire_state;

/// Machines that are in or out of stock together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassKey {
    /// The type.
    pub instance_type: String,
    /// The zone.
    pub zone: String,
    /// How it is paid for.
    pub capacity_type: CapacityType,
}

impl ClassKey {
    /// The class of a machine.
    #[must_use]
    pub fn of(machine: &pb::Machine) -> Self {
        Self {
            instance_type: machine.instance_type.clone(),
            zone: machine.zone.clone(),
            capacity_type: CapacityType::from_number(machine.capacity_type).unwrap_or_default(),
        }
    }
}

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} in {}", self.capacity_type, self.instance_type, self.zone)
    }
}

/// Pieces of work that were begun on one machine since the start. Repeats and what a restart takes up again do not
/// count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Actions {
    /// Creates.
    pub create: u64,
    /// Configures.
    pub configure: u64,
    /// Drains.
    pub drain: u64,
    /// Deletes.
    pub delete: u64,
}

impl Actions {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.create + self.configure + self.drain + self.delete
    }

    pub(super) fn add(&mut self, kind: Kind) {
        *match kind {
            Kind::Create => &mut self.create,
            Kind::Configure => &mut self.configure,
            Kind::Drain => &mut self.drain,
            Kind::Delete => &mut self.delete,
        } += 1;
    }
}

/// Turns the knobs of a running fake cloud. Clones turn the same ones.
#[derive(Debug, Clone)]
pub struct Control {
    cloud: Arc<Cloud>,
    provider: Provider,
}

impl Control {
    pub(super) fn new(cloud: Arc<Cloud>, provider: Provider) -> Self {
        Self { cloud, provider }
    }

    /// The provider from the inside: what it holds, before any fault.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// All machines in id order, before any fault.
    #[must_use]
    pub fn machines(&self) -> Vec<Arc<pb::Machine>> {
        self.provider.machines()
    }

    /// The state of a machine; `None` when there is no such machine.
    #[must_use]
    pub fn state(&self, id: &str) -> Option<MachineState> {
        MachineState::from_number(self.provider.machine(id)?.state)
    }

    /// Work begun on one machine.
    #[must_use]
    pub fn actions(&self, id: &str) -> Actions {
        self.cloud.actions().get(id).copied().unwrap_or_default()
    }

    /// Work begun, by machine.
    #[must_use]
    pub fn all_actions(&self) -> BTreeMap<MachineId, Actions> {
        self.cloud.actions()
    }

    /// Calls of `method` that arrived for one machine (empty for List), however they were answered.
    #[must_use]
    pub fn calls(&self, method: Method, id: &str) -> u64 {
        self.cloud.calls().get(&(id.to_owned(), method)).copied().unwrap_or(0)
    }

    /// Calls of `method` that arrived for any machine.
    #[must_use]
    pub fn total_calls(&self, method: Method) -> u64 {
        self.cloud.calls().iter().filter(|((_, m), _)| *m == method).map(|(_, n)| n).sum()
    }

    pub(super) fn note_past(&self, now: std::time::Instant, lag: std::time::Duration) {
        self.cloud.note_past(now, lag, self.machines());
    }

    // Machines that come, go and break.

    /// Fails a machine in any state, as a broken host or a spot reclaim would. False when unknown or Failed.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn fail_machine(&self, id: &str, reason: &str) -> Result<bool, NotStored> {
        self.provider.fail(id, reason).await
    }

    /// Makes a machine vanish from List. False when unknown.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn remove_machine(&self, id: &str) -> Result<bool, NotStored> {
        self.cloud.instances().remove(id);
        self.provider.remove(id).await
    }

    /// Adds a machine: Idle with a host, Speculative without. The instance must be valid.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn add(&self, instance: Instance) -> Result<bool, NotStored> {
        self.cloud.instances().insert(instance.id.clone(), instance.clone());
        self.provider.add(&instance).await
    }

    /// Adds a machine that already serves `cluster`, stamped for a Need of high priority. False when its id is known.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn add_configured(&self, mut instance: Instance, cluster: &str) -> Result<bool, NotStored> {
        instance.host.get_or_insert_with(|| host(&instance.id));
        self.cloud.instances().insert(instance.id.clone(), instance.clone());
        self.provider.add_bound(&instance, &seeded_binding(cluster.to_owned())).await
    }

    /// Changes the facts of a seeded machine: price, probability, resources, allocatable, labels. False when it is
    /// unknown or nothing changed.
    ///
    /// # Errors
    /// When the store refuses.
    pub async fn edit(&self, id: &str, change: impl FnOnce(&mut Instance)) -> Result<bool, NotStored> {
        let edited = self.cloud.instances().get_mut(id).map(|instance| {
            change(instance);
            instance.clone()
        });
        match edited {
            Some(instance) => self.provider.add(&instance).await,
            None => Ok(false),
        }
    }

    /// Removes the first `fraction` (0 to 1) of the Speculative slots in id order; gives how many.
    ///
    /// # Errors
    /// When the store refuses; some may be gone by then.
    pub async fn shed_speculative(&self, fraction: f64) -> Result<usize, NotStored> {
        let speculative = wire_state(MachineState::Speculative);
        let slots: Vec<_> = self.machines().into_iter().filter(|m| m.state == speculative).collect();
        let count = floor_share(slots.len(), fraction);
        for slot in &slots[..count] {
            self.remove_machine(&slot.id).await?;
        }
        Ok(count)
    }

    // Work.

    /// Makes all work of a kind wait in its transitional state, or lets it go again.
    pub fn stage(&self, kind: Kind, staged: bool) {
        self.cloud.turn(|knobs| {
            if staged {
                knobs.staged.insert(kind)
            } else {
                knobs.staged.remove(&kind)
            };
        });
    }

    /// Lets one machine's work of a kind go, now or when it comes to wait.
    pub fn complete(&self, kind: Kind, id: &str) {
        self.cloud.turn(|knobs| knobs.released.insert((kind, id.to_owned())));
    }

    /// Lets all work of a kind go that waits now; gives how much.
    pub fn complete_all(&self, kind: Kind) -> usize {
        self.cloud.turn(|knobs| {
            let held: Vec<_> = knobs.held.iter().filter(|(k, _)| *k == kind).cloned().collect();
            let count = held.len();
            knobs.released.extend(held);
            count
        })
    }

    /// Machines whose work of a kind waits in its stage, in id order.
    #[must_use]
    pub fn staged(&self, kind: Kind) -> Vec<String> {
        self.cloud
            .turn(|knobs| knobs.held.iter().filter(|(k, _)| *k == kind).map(|(_, id)| id.clone()).collect())
    }

    /// How long work of a kind takes from now on.
    pub fn set_latency(&self, kind: Kind, latency: Latency) {
        self.cloud.turn(|knobs| knobs.latency.set(kind, latency));
    }

    /// The next work of a kind on a machine fails, and the machine with it.
    pub fn fail_next_work(&self, id: &str, kind: Kind, reason: &str) {
        self.cloud.turn(|knobs| {
            knobs.fail_work.entry((id.to_owned(), kind)).or_default().push_back(reason.to_owned());
        });
    }

    /// Puts a class out of stock, or back.
    pub fn stock_out(&self, class: ClassKey, out: bool) {
        self.cloud.turn(|knobs| {
            if out {
                knobs.out_of_stock.insert(class)
            } else {
                knobs.out_of_stock.remove(&class)
            };
        });
    }

    /// Whether Delete works or answers `UNIMPLEMENTED`.
    pub fn can_delete(&self, can: bool) {
        self.cloud.turn(|knobs| knobs.can_delete = can);
    }

    // Calls and answers.

    /// Answers every call with `UNAVAILABLE`, until [`Control::heal`].
    pub fn break_provider(&self) {
        self.cloud.turn(|knobs| knobs.broken = true);
    }

    /// Ends [`Control::break_provider`].
    pub fn heal(&self) {
        self.cloud.turn(|knobs| knobs.broken = false);
    }

    /// Whether the provider is broken on purpose.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.cloud.turn(|knobs| knobs.broken)
    }

    /// Leaves calls of a method unanswered, or goes on with them.
    pub fn hang(&self, method: Method, hang: bool) {
        self.cloud.turn(|knobs| {
            if hang {
                knobs.hanging.insert(method)
            } else {
                knobs.hanging.remove(&method)
            };
        });
    }

    /// Delays every call of a method; `None` ends it.
    pub fn set_rpc_latency(&self, method: Method, latency: Option<Latency>) {
        self.cloud.turn(|knobs| match latency {
            Some(latency) => knobs.rpc_latency.insert(method, latency),
            None => knobs.rpc_latency.remove(&method),
        });
    }

    /// Answers the next call of `method` for a machine with `status`, without any effect.
    pub fn fail_next(&self, id: &str, method: Method, status: Status) {
        self.cloud.turn(|knobs| {
            knobs.fail_calls.entry((id.to_owned(), method)).or_default().push_back(status);
        });
    }

    /// The next call of `method` for a machine has its effect, but its answer is lost.
    pub fn drop_next_answer(&self, id: &str, method: Method) {
        self.cloud.turn(|knobs| *knobs.drop_answers.entry((id.to_owned(), method)).or_default() += 1);
    }

    /// Answers every mutating call for a machine with `FAILED_PRECONDITION`, as many providers wrongly do, or stops.
    pub fn misuse_failed_precondition(&self, id: &str, misuse: bool) {
        self.cloud.turn(|knobs| {
            if misuse {
                knobs.misused.insert(id.to_owned())
            } else {
                knobs.misused.remove(id)
            };
        });
    }

    /// Spoils a machine in every answer; `None` ends it.
    pub fn corrupt(&self, id: &str, corruption: Option<Corruption>) {
        self.cloud.turn(|knobs| match corruption {
            Some(corruption) => knobs.corrupted.insert(id.to_owned(), corruption),
            None => knobs.corrupted.remove(id),
        });
    }

    /// Reports Configuring machines as Configured already, or stops.
    pub fn early_configured(&self, early: bool) {
        self.cloud.turn(|knobs| knobs.early_configured = early);
    }

    /// Spoils List; `None` ends it.
    pub fn spoil_list(&self, fault: Option<ListFault>) {
        self.cloud.turn(|knobs| {
            knobs.list = fault;
            knobs.frozen = None;
        });
    }
}

/// The whole number not above `count * fraction`.
fn floor_share(count: usize, fraction: f64) -> usize {
    let whole = u32::try_from(count).unwrap_or(u32::MAX);
    let wanted = f64::from(whole) * fraction;
    // Counting keeps the rounding of the conversion out; the product of a count and 0.1 may lie just below a number.
    (0..whole).take_while(|n| f64::from(n + 1) <= wanted + 1e-9).count()
}

#[cfg(test)]
mod tests {
    use super::floor_share;

    #[test]
    fn shares_round_down() {
        for (count, fraction, share) in
            [(10, 0.3, 3), (10, 0.39, 3), (7, 1.0, 7), (7, 0.0, 0), (0, 0.5, 0), (10, 0.1, 1)]
        {
            assert_eq!(floor_share(count, fraction), share, "{count} x {fraction}");
        }
    }
}
