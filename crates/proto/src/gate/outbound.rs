//! From domain to wire. Nothing can fail on this way.

use bigfleet_types::{
    CapacityType, Host, Machine, MachineState, Need, Operator, PenaltyBucket, Requirement, Resources,
    SpreadTerm, WhenUnsatisfiable,
};

use super::metadata;
use crate::v1alpha1 as wire;

/// A count for a 32-bit field; more than fit is the most that fits.
#[must_use]
pub fn saturating_count(count: impl TryInto<i32>) -> i32 {
    count.try_into().unwrap_or(i32::MAX)
}

impl From<&Resources> for wire::Resources {
    /// Canonical quantity strings by name.
    fn from(resources: &Resources) -> Self {
        Self { resources: resources.to_strings() }
    }
}

impl From<&Requirement> for wire::NodeSelectorRequirement {
    fn from(requirement: &Requirement) -> Self {
        Self {
            key: requirement.key.to_string(),
            operator: wire::node_selector_requirement::Operator::from(requirement.operator).into(),
            values: requirement.values.iter().map(ToString::to_string).collect(),
        }
    }
}

impl From<&SpreadTerm> for wire::TopologySpread {
    fn from(term: &SpreadTerm) -> Self {
        Self {
            topology_key: term.topology_key.to_string(),
            max_skew: term.max_skew,
            when_unsatisfiable: wire::topology_spread::WhenUnsatisfiable::from(term.when_unsatisfiable)
                .into(),
        }
    }
}

impl From<&Need> for wire::CapacityNeed {
    fn from(need: &Need) -> Self {
        let profile = &need.profile;
        Self {
            requirements: profile.requirements().iter().map(Into::into).collect(),
            aggregate_resources: need.aggregate.to_strings(),
            priority: profile.priority(),
            spread: profile.spread().iter().map(Into::into).collect(),
            interruption_penalty_bucket: wire::PenaltyBucket::from(profile.interruption()).into(),
            reclamation_penalty_bucket: wire::PenaltyBucket::from(profile.reclamation()).into(),
            min_unit: need.min_unit.to_strings(),
            group: need.group.as_str().to_owned(),
        }
    }
}

impl From<&Machine> for wire::Machine {
    /// The record as a provider would list it; vectors that are empty and hosts that do not exist are left out.
    fn from(machine: &Machine) -> Self {
        let vector = |resources: &Resources| (!resources.is_empty()).then(|| resources.into());
        Self {
            id: machine.id.to_string(),
            state: wire::MachineState::from(machine.state).into(),
            host: machine.host.as_ref().map(Into::into),
            instance_type: machine.instance_type.to_string(),
            zone: machine.zone.to_string(),
            capacity_type: wire::CapacityType::from(machine.capacity_type).into(),
            price_per_hour: machine.price.dollars(),
            interruption_probability: machine.interruption_probability.value(),
            resources: vector(&machine.resources),
            labels: machine.labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
            last_error: machine.last_error.to_string(),
            allocatable: vector(&machine.allocatable),
            cluster: machine.cluster.as_ref().map(ToString::to_string).unwrap_or_default(),
            shard_metadata: metadata::encode(&machine.attribution),
        }
    }
}

impl From<&Host> for wire::HostRef {
    fn from(host: &Host) -> Self {
        Self { provider: host.provider.to_string(), r#ref: host.reference.to_string() }
    }
}

impl From<MachineState> for wire::MachineState {
    fn from(state: MachineState) -> Self {
        match state {
            MachineState::Speculative => Self::Speculative,
            MachineState::Creating => Self::Creating,
            MachineState::Idle => Self::Idle,
            MachineState::Configuring => Self::Configuring,
            MachineState::Configured => Self::Configured,
            MachineState::Draining => Self::Draining,
            MachineState::Deleting => Self::Deleting,
            MachineState::Failed => Self::Failed,
        }
    }
}

impl From<CapacityType> for wire::CapacityType {
    fn from(capacity_type: CapacityType) -> Self {
        match capacity_type {
            CapacityType::Unspecified => Self::Unspecified,
            CapacityType::BareMetal => Self::BareMetal,
            CapacityType::Reserved => Self::Reserved,
            CapacityType::OnDemand => Self::OnDemand,
            CapacityType::Spot => Self::Spot,
        }
    }
}

impl From<Operator> for wire::node_selector_requirement::Operator {
    fn from(operator: Operator) -> Self {
        match operator {
            Operator::In => Self::In,
            Operator::NotIn => Self::NotIn,
            Operator::Exists => Self::Exists,
            Operator::DoesNotExist => Self::DoesNotExist,
            Operator::Same => Self::Same,
        }
    }
}

impl From<WhenUnsatisfiable> for wire::topology_spread::WhenUnsatisfiable {
    fn from(when: WhenUnsatisfiable) -> Self {
        match when {
            WhenUnsatisfiable::Unspecified => Self::Unspecified,
            WhenUnsatisfiable::DoNotSchedule => Self::DoNotSchedule,
            WhenUnsatisfiable::ScheduleAnyway => Self::ScheduleAnyway,
        }
    }
}

impl From<PenaltyBucket> for wire::PenaltyBucket {
    fn from(bucket: PenaltyBucket) -> Self {
        // Every bucket has a number of the enum; a test goes through all of them.
        Self::try_from(i32::from(bucket.number())).unwrap_or(Self::Unspecified)
    }
}
