//! The members of `bigfleet.decide/v1`, as they are written. Empty ones are left out.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Machine, Need, NeedKey, PenaltyBucket, wire};

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_zero(value: &i32) -> bool {
    *value == 0
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PolicyView {
    pub(super) idle_hold_seconds: HoldsView,
    pub(super) reclaim_cap_fraction: f64,
    pub(super) reclaim_grace_seconds: i64,
    pub(super) reclaim_after_seconds: i64,
    pub(super) drain_estimate_seconds: i64,
    pub(super) victim_weights: WeightsView,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct HoldsView {
    pub(super) on_demand: i64,
    pub(super) spot: i64,
}

#[derive(Serialize, Default)]
pub(super) struct WeightsView {
    pub(super) priority: f64,
    pub(super) drain: f64,
    pub(super) interruption: f64,
    pub(super) reclamation: f64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DemandView<'a> {
    pub(super) rollup: RollupView<'a>,
    pub(super) arrival_unix_nanos: Vec<i64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RollupView<'a> {
    pub(super) cluster_id: &'a str,
    pub(super) needs: Vec<NeedView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NeedView<'a> {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    requirements: Vec<RequirementView<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    spread: Vec<SpreadView<'a>>,
    aggregate_resources: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    min_unit: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "is_zero")]
    priority: i32,
    interruption_penalty_bucket: &'static str,
    reclamation_penalty_bucket: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'a str,
}

#[derive(Serialize)]
struct RequirementView<'a> {
    key: &'a str,
    operator: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    values: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpreadView<'a> {
    topology_key: &'a str,
    max_skew: i32,
    when_unsatisfiable: &'static str,
}

pub(super) fn need(need: &Need) -> NeedView<'_> {
    let profile = &need.profile;
    let bucket = |bucket: PenaltyBucket| {
        wire::PenaltyBucket::try_from(i32::from(bucket.number())).unwrap_or_default().as_str_name()
    };
    let requirement = |requirement: &'_ bigfleet_types::Requirement| {
        let number = i32::from(requirement.operator.number());
        wire::node_selector_requirement::Operator::try_from(number).unwrap_or_default().as_str_name()
    };
    let enforced = |term: &bigfleet_types::SpreadTerm| {
        let number = i32::from(term.when_unsatisfiable as u8);
        wire::topology_spread::WhenUnsatisfiable::try_from(number).unwrap_or_default().as_str_name()
    };
    let requirements = profile.requirements().iter().map(|r| RequirementView {
        key: &r.key,
        operator: requirement(r),
        values: r.values.iter().map(|value| &**value).collect(),
    });
    let spread = profile.spread().iter().map(|term| SpreadView {
        topology_key: &term.topology_key,
        max_skew: term.max_skew,
        when_unsatisfiable: enforced(term),
    });
    NeedView {
        requirements: requirements.collect(),
        spread: spread.collect(),
        aggregate_resources: need.aggregate.to_strings(),
        min_unit: need.min_unit.to_strings(),
        priority: profile.priority(),
        interruption_penalty_bucket: bucket(profile.interruption()),
        reclamation_penalty_bucket: bucket(profile.reclamation()),
        group: need.group.as_str(),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EntryView<'a> {
    pub(super) machine: MachineView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) idle_since_unix_nanos: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) created_for: Option<KeyView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) excess_since_unix_nanos: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) preempted_for: Option<PreemptedForView<'a>>,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) preempted_for_unknown: bool,
    #[serde(skip_serializing_if = "is_false")]
    pub(super) withheld: bool,
}

#[derive(Serialize)]
pub(super) struct KeyView<'a> {
    cluster: &'a str,
    fingerprint: String,
    group: &'a str,
}

pub(super) fn key(key: &NeedKey) -> KeyView<'_> {
    KeyView {
        cluster: key.cluster.as_str(),
        fingerprint: key.fingerprint.to_string(),
        group: key.group.as_str(),
    }
}

#[derive(Serialize)]
pub(super) struct PreemptedForView<'a> {
    #[serde(flatten)]
    pub(super) key: KeyView<'a>,
    pub(super) priority: i32,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineView<'a> {
    id: &'a str,
    state: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    cluster: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    instance_type: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    zone: &'a str,
    capacity_type: &'static str,
    price_per_hour: f64,
    interruption_probability: f64,
    resources: VectorView,
    #[serde(skip_serializing_if = "VectorView::is_empty")]
    allocatable: VectorView,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    shard_metadata: BTreeMap<String, String>,
}

#[derive(Serialize)]
struct VectorView {
    resources: BTreeMap<String, String>,
}

impl VectorView {
    fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }
}

pub(super) fn machine(machine: &Machine, shard_metadata: BTreeMap<String, String>) -> MachineView<'_> {
    let state = wire::MachineState::try_from(i32::from(machine.state.number())).unwrap_or_default();
    let capacity_type = wire::CapacityType::try_from(machine.capacity_type as i32).unwrap_or_default();
    // A Failed machine may have a cluster; a machine that is nobody's has none, whatever is remembered of it.
    let has_cluster = machine.state.is_bound() || machine.state == bigfleet_types::MachineState::Failed;
    MachineView {
        id: machine.id.as_str(),
        state: state.as_str_name(),
        cluster: machine.cluster.as_ref().filter(|_| has_cluster).map_or("", |cluster| cluster.as_str()),
        instance_type: &machine.instance_type,
        zone: &machine.zone,
        capacity_type: capacity_type.as_str_name(),
        price_per_hour: machine.price.dollars(),
        interruption_probability: machine.interruption_probability.value(),
        resources: VectorView { resources: machine.resources.to_strings() },
        allocatable: VectorView { resources: machine.allocatable.to_strings() },
        labels: machine.labels.iter().map(|(key, value)| (&**key, &**value)).collect(),
        shard_metadata,
    }
}
