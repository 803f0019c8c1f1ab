//! A Need after merging and folding, a machine as the rules see it, and what they have to do with each other.

use std::cmp::Reverse;

use bigfleet_engine::{Facts, Purpose};
use bigfleet_types::{
    ClusterId, Fingerprint, Group, Machine, MachineState, NeedKey, Operator, Precedence, Profile,
    StampedPenalty, is_extended,
};

use crate::amounts::Amounts;

/// A Need of the pass.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) cluster: ClusterId,
    pub(crate) profile: Profile,
    pub(crate) group: Group,
    pub(crate) aggregate: Amounts,
    pub(crate) min_unit: Amounts,
    /// 0: unknown.
    pub(crate) arrival: i64,
    /// The gangs of a folded Need by (arrival, fingerprint, group); empty for any other.
    pub(crate) members: Vec<(i64, Fingerprint, Group)>,
}

impl Row {
    pub(crate) fn key(&self) -> NeedKey {
        NeedKey {
            cluster: self.cluster.clone(),
            fingerprint: self.profile.fingerprint(),
            group: self.group.clone(),
        }
    }

    /// Priority and both buckets, the highest first (engine.md 3.4).
    pub(crate) fn precedence(&self) -> Precedence {
        let profile = &self.profile;
        (Reverse(profile.priority()), Reverse(profile.interruption()), Reverse(profile.reclamation()))
    }

    /// The key of the label whose value all machines of a gang share; `None` for a plain Need. A folded gang is plain.
    pub(crate) fn same_key(&self) -> Option<&str> {
        self.profile.same().map(|requirement| &*requirement.key)
    }

    /// engine.md 7: a machine meets a folded Need in whole gangs, any other with all that it has.
    pub(crate) fn contribution(&self, unit: &Unit<'_>) -> Amounts {
        if self.members.is_empty() {
            return unit.capacity.clone();
        }
        self.min_unit.times(unit.capacity.times_that_fits(&self.min_unit))
    }

    /// engine.md 5, the operator table.
    pub(crate) fn matches(&self, unit: &Unit<'_>) -> bool {
        self.profile.requirements().iter().all(|requirement| {
            let value = unit.machine.attribute(&requirement.key);
            let listed = |value: &str| requirement.values.iter().any(|listed| &**listed == value);
            match requirement.operator {
                Operator::In => value.is_some_and(listed),
                Operator::NotIn => !value.is_some_and(listed),
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::Same => unit
                    .domain(&requirement.key)
                    .is_some_and(|value| requirement.values.is_empty() || listed(value)),
            }
        })
    }

    /// engine.md 6.1: the machine's stamps, or what it is created for, name this Need.
    pub(crate) fn owns(&self, unit: &Unit<'_>) -> bool {
        if unit.is_bound_to(&self.cluster) {
            return unit.stamp()
                == Some((self.profile.fingerprint().to_string(), self.group.as_str().into()));
        }
        unit.state() == MachineState::Creating && unit.facts.created_for.as_ref() == Some(&self.key())
    }

    /// engine.md 6.3: kinds of extended resources that the machine has and neither vector asks for.
    pub(crate) fn unrequested_kinds(&self, unit: &Unit<'_>) -> usize {
        let asked = |name: &str| self.aggregate.get(name) > 0 || self.min_unit.get(name) > 0;
        unit.capacity.iter().filter(|(name, _)| is_extended(name) && !asked(name)).count()
    }

    /// engine.md 6.2 and decide-format.md 3.3: (infinite, half nano-dollars).
    pub(crate) fn effective_cost(&self, unit: &Unit<'_>) -> (bool, i128) {
        let price = 2 * i128::from(unit.machine.price.nano());
        let probability = i128::from(unit.machine.interruption_probability.nano());
        match self.profile.interruption().half_dollars() {
            Some(halves) => (false, price + probability * i128::from(halves)),
            None => (probability > 0, price),
        }
    }
}

/// A machine that is not withheld.
#[derive(Debug, Clone)]
pub(crate) struct Unit<'w> {
    pub(crate) machine: &'w Machine,
    pub(crate) facts: &'w Facts,
    /// engine.md 6.1: allocatable where said, else resources.
    pub(crate) capacity: Amounts,
}

impl<'w> Unit<'w> {
    pub(crate) fn new(machine: &'w Machine, facts: &'w Facts) -> Self {
        let offered = if machine.allocatable.is_empty() { &machine.resources } else { &machine.allocatable };
        Self { machine, facts, capacity: Amounts::of(offered) }
    }

    pub(crate) fn state(&self) -> MachineState {
        self.machine.state
    }

    pub(crate) fn is_bound_to(&self, cluster: &ClusterId) -> bool {
        matches!(self.state(), MachineState::Configured | MachineState::Configuring)
            && self.machine.cluster.as_ref() == Some(cluster)
    }

    pub(crate) fn is_acquirable(&self) -> bool {
        matches!(self.state(), MachineState::Idle | MachineState::Speculative)
            && self.facts.eligibility.acquirable
    }

    /// The value of a label as a domain: an empty one is none (engine.md 5).
    pub(crate) fn domain(&self, key: &str) -> Option<&str> {
        self.machine.attribute(key).filter(|value| !value.is_empty())
    }

    /// Fingerprint and group of the Need that it was bound for. A group that was not kept is the empty one.
    pub(crate) fn stamp(&self) -> Option<(String, String)> {
        let stamps = &self.machine.attribution;
        let group = stamps.group.as_deref().unwrap_or("");
        stamps.fingerprint.as_deref().map(|fingerprint| (fingerprint.to_owned(), group.to_owned()))
    }

    /// The stamped interruption and reclamation penalties.
    pub(crate) fn penalties(&self) -> [StampedPenalty; 2] {
        let stamps = &self.machine.attribution;
        [stamps.interruption, stamps.reclamation]
            .map(|stamp| stamp.unwrap_or(StampedPenalty::Finite(Default::default())))
    }

    /// The Need and its priority that it drains for, where that is known.
    pub(crate) fn drains_for(&self) -> Option<(&NeedKey, i32)> {
        let Purpose::Preemption(by) = &self.facts.preempted_for else { return None };
        (self.state() == MachineState::Draining).then_some((&by.need, by.priority))
    }

    /// It drains, and why was lost in a restart.
    pub(crate) fn drains_for_somebody(&self) -> bool {
        self.state() == MachineState::Draining && self.facts.preempted_for == Purpose::Unknown
    }
}
