//! A record of a provider before the gate, its texts still where they came from.

use bigfleet_types::{Labels, Resources};

use crate::gate::{Error, Texts, amounts};
use crate::v1alpha1 as wire;

/// The fields of `Machine`. Vectors and labels are read already: few of them differ, so whoever reads many records reads
/// each only once.
#[derive(Debug, Default)]
pub(super) struct View<'a> {
    pub(super) id: &'a str,
    pub(super) state: i32,
    /// Provider and reference.
    pub(super) host: Option<(&'a str, &'a str)>,
    pub(super) instance_type: &'a str,
    pub(super) zone: &'a str,
    pub(super) capacity_type: i32,
    pub(super) price_per_hour: f64,
    pub(super) interruption_probability: f64,
    pub(super) resources: Option<Result<Resources, Error>>,
    pub(super) labels: Labels,
    pub(super) last_error: &'a str,
    pub(super) allocatable: Option<Result<Resources, Error>>,
    pub(super) cluster: &'a str,
    /// Sorted by key, each once.
    pub(super) shard_metadata: Vec<(&'a str, &'a str)>,
}

impl<'a> View<'a> {
    /// Of a decoded record.
    pub(super) fn of(machine: &'a wire::Machine, texts: &mut Texts) -> Self {
        // A field that is added has to be entered here and in the walk, or this does not compile.
        let wire::Machine {
            id,
            state,
            host,
            instance_type,
            zone,
            capacity_type,
            price_per_hour,
            interruption_probability,
            resources,
            labels,
            last_error,
            allocatable,
            cluster,
            shard_metadata,
        } = machine;
        let mut vector = |vector: &Option<wire::Resources>| {
            let entries = vector.as_ref()?.resources.iter();
            Some(amounts::supply(entries.map(|(name, text)| (name.as_str(), text.as_str())), texts))
        };
        let (resources, allocatable) = (vector(resources), vector(allocatable));
        Self {
            id,
            state: *state,
            host: host.as_ref().map(|host| (host.provider.as_str(), host.r#ref.as_str())),
            instance_type,
            zone,
            capacity_type: *capacity_type,
            price_per_hour: *price_per_hour,
            interruption_probability: *interruption_probability,
            resources,
            labels: labels.iter().map(|(key, value)| (texts.text(key), texts.text(value))).collect(),
            last_error,
            allocatable,
            cluster,
            shard_metadata: shard_metadata
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect(),
        }
    }
}
