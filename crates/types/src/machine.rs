//! A machine as its provider describes it, with the stamps of the Need that it serves.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::{
    ClusterId, MachineId, MachineState, NanoDollars, Need, Probability, Resources, StampedPenalty, keys,
};

/// How a machine is paid for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[repr(u8)]
pub enum CapacityType {
    /// Not said.
    #[default]
    Unspecified = 0,
    /// Owned; costs nothing more when used.
    BareMetal = 1,
    /// Paid for in advance.
    Reserved = 2,
    /// Paid by the hour.
    OnDemand = 3,
    /// Paid by the hour, may be taken away.
    Spot = 4,
}

impl CapacityType {
    /// The type of a wire number; `None` for unknown ones.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Unspecified,
            1 => Self::BareMetal,
            2 => Self::Reserved,
            3 => Self::OnDemand,
            4 => Self::Spot,
            _ => return None,
        })
    }

    /// The value of the capacity-type label; `None` when not said.
    #[must_use]
    pub fn label(self) -> Option<&'static str> {
        match self {
            Self::Unspecified => None,
            Self::BareMetal => Some("bare-metal"),
            Self::Reserved => Some("reserved"),
            Self::OnDemand => Some("on-demand"),
            Self::Spot => Some("spot"),
        }
    }

    /// The name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "Unspecified",
            Self::BareMetal => "BareMetal",
            Self::Reserved => "Reserved",
            Self::OnDemand => "OnDemand",
            Self::Spot => "Spot",
        }
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label().unwrap_or("unspecified"))
    }
}

/// The labels of a machine, sorted by key. Clones share them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Labels(Arc<[(Arc<str>, Arc<str>)]>);

impl Labels {
    /// The value of a label.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Arc<str>> {
        let at = self.0.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
        Some(&self.0[at].1)
    }

    /// Keys and values, by key.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(key, value)| (key, value))
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps only the labels for which `keep` holds.
    pub fn retain(&mut self, mut keep: impl FnMut(&Arc<str>, &Arc<str>) -> bool) {
        *self = self.0.iter().filter(|(key, value)| keep(key, value)).cloned().collect();
    }

    /// Sets a label. Costs a copy of all of them: collect many at once.
    pub fn insert(&mut self, key: Arc<str>, value: Arc<str>) {
        *self = self.0.iter().cloned().chain([(key, value)]).collect();
    }
}

impl FromIterator<(Arc<str>, Arc<str>)> for Labels {
    /// In any order; the last value of a key counts.
    fn from_iter<I: IntoIterator<Item = (Arc<str>, Arc<str>)>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels.into_iter().collect();
        if !labels.is_sorted_by(|(a, _), (b, _)| a < b) {
            labels.sort_by(|(a, _), (b, _)| a.cmp(b));
            labels.dedup_by(|(later, new), (kept, value)| {
                let same = later == kept;
                if same {
                    *value = new.clone();
                }
                same
            });
        }
        Self(labels.into())
    }
}

impl<const N: usize> From<[(Arc<str>, Arc<str>); N]> for Labels {
    fn from(labels: [(Arc<str>, Arc<str>); N]) -> Self {
        labels.into_iter().collect()
    }
}

impl From<BTreeMap<Arc<str>, Arc<str>>> for Labels {
    fn from(labels: BTreeMap<Arc<str>, Arc<str>>) -> Self {
        labels.into_iter().collect()
    }
}

/// What a provider calls a host of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Host {
    /// The provider's name.
    pub provider: Arc<str>,
    /// The provider's reference, such as an instance id.
    pub reference: Arc<str>,
}

/// For which Need a machine was bound. Each stamp stands for itself: after a restart some may be missing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attribution {
    /// The Need's priority.
    pub priority: Option<i32>,
    /// The Need's interruption penalty.
    pub interruption: Option<StampedPenalty>,
    /// The Need's reclamation penalty.
    pub reclamation: Option<StampedPenalty>,
    /// The profile's fingerprint, as text: another implementation's stamps name none of our profiles, but count.
    pub fingerprint: Option<Arc<str>>,
    /// The Need's group.
    pub group: Option<Arc<str>>,
}

impl Attribution {
    /// The stamps of a Need.
    #[must_use]
    pub fn of(need: &Need) -> Self {
        Self {
            priority: Some(need.profile.priority()),
            interruption: Some(need.profile.interruption().into()),
            reclamation: Some(need.profile.reclamation().into()),
            fingerprint: Some(need.profile.fingerprint().to_string().into()),
            group: Some(need.group.as_str().into()),
        }
    }

    /// Whether no stamp is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A machine or quota slot. Everything but the attribution is the provider's word.
///
/// A value that passed the gate is consistent: Configuring, Configured and Draining machines have a cluster;
/// Speculative, Creating, Idle and Deleting ones have none, and no attribution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its name for life.
    pub id: MachineId,
    /// What it is doing.
    pub state: MachineState,
    /// The host behind it, if one exists.
    pub host: Option<Host>,
    /// The cluster that it belongs to.
    pub cluster: Option<ClusterId>,
    /// Its type; empty when not said.
    pub instance_type: Arc<str>,
    /// Its zone; empty when not said.
    pub zone: Arc<str>,
    /// How it is paid for.
    pub capacity_type: CapacityType,
    /// Its price an hour.
    pub price: NanoDollars,
    /// The provider's estimate of being interrupted.
    pub interruption_probability: Probability,
    /// What the hardware has.
    pub resources: Resources,
    /// What pods may use; empty when not said.
    pub allocatable: Resources,
    /// The provider's labels.
    pub labels: Labels,
    /// Why it failed; empty unless it did.
    pub last_error: Arc<str>,
    /// For which Need it was bound.
    pub attribution: Attribution,
}

impl Machine {
    /// A machine with nothing but a name and a state; tests and seeds fill in the rest.
    #[must_use]
    pub fn new(id: MachineId, state: MachineState) -> Self {
        Self {
            id,
            state,
            host: None,
            cluster: None,
            instance_type: "".into(),
            zone: "".into(),
            capacity_type: CapacityType::Unspecified,
            price: NanoDollars::ZERO,
            interruption_probability: Probability::ZERO,
            resources: Resources::EMPTY,
            allocatable: Resources::EMPTY,
            labels: Labels::default(),
            last_error: "".into(),
            attribution: Attribution::default(),
        }
    }

    /// What it offers pods: `allocatable` where said, else `resources`.
    #[must_use]
    pub fn capacity(&self) -> &Resources {
        if self.allocatable.is_empty() { &self.resources } else { &self.allocatable }
    }

    /// The value that requirements on `key` see: the first-class field if it is not empty, else the label as
    /// written, else nothing. A machine without a hostname label is named by its id.
    #[must_use]
    pub fn attribute(&self, key: &str) -> Option<&str> {
        let field = match key {
            keys::INSTANCE_TYPE | keys::INSTANCE_TYPE_BETA => Some(&*self.instance_type),
            keys::ZONE | keys::ZONE_BETA => Some(&*self.zone),
            keys::CAPACITY_TYPE => self.capacity_type.label(),
            _ => None,
        };
        let label = || self.labels.get(key).map(|value| &**value);
        let hostname = || (key == keys::HOSTNAME).then(|| self.id.as_str());
        field.filter(|value| !value.is_empty()).or_else(label).or_else(hostname)
    }
}
