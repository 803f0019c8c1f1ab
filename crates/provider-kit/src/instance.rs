//! What a back end says it has, and the rules that this must keep.

use std::collections::BTreeMap;

use bigfleet_types::{CapacityType, IdError, MachineId, Quantity};

/// A host behind a machine. Both texts may not be empty at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The provider's name.
    pub provider: String,
    /// The provider's reference, such as an instance id.
    pub reference: String,
}

/// One machine or quota slot, as [`crate::Backend::describe`] reports it. With a host it is Idle, without one it is
/// Speculative; what happened to it since is the kit's to remember.
#[derive(Debug, Clone, PartialEq)]
pub struct Instance {
    /// The machine's id, for the life of the slot.
    pub id: String,
    /// The host, if one exists.
    pub host: Option<Host>,
    /// The type; never empty.
    pub instance_type: String,
    /// The zone; may be empty unless [`crate::Options::require_zone`].
    pub zone: String,
    /// How it is paid for; never `Unspecified`.
    pub capacity_type: CapacityType,
    /// Dollars an hour, not negative.
    pub price_per_hour: f64,
    /// Chance of being taken away within an hour, 0 to 1; above 0 for spot.
    pub interruption_probability: f64,
    /// What the hardware has: resource name to Kubernetes quantity.
    pub resources: BTreeMap<String, String>,
    /// What pods can use of it; empty means all of `resources`.
    pub allocatable: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// Why an instance is refused. The text names the field.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Invalid {
    /// The id cannot be one.
    #[error("id {id:?} {source}")]
    Id {
        /// The id as given.
        id: String,
        /// What is wrong with it.
        source: IdError,
    },
    /// A field that must be set is empty.
    #[error("{id}: {field} is empty; every machine needs one")]
    Empty {
        /// The machine.
        id: String,
        /// The field.
        field: &'static str,
    },
    /// A number is out of its range.
    #[error("{id}: {field} is {value}, must be {range}")]
    Number {
        /// The machine.
        id: String,
        /// The field.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What would be right.
        range: &'static str,
    },
    /// A quantity cannot be read.
    #[error("{id}: {field}[{name:?}] is {value:?}, not a quantity of at least 0")]
    Quantity {
        /// The machine.
        id: String,
        /// `resources` or `allocatable`.
        field: &'static str,
        /// The resource's name.
        name: String,
        /// Its value.
        value: String,
    },
    /// Two instances with one id.
    #[error("{id}: described twice; ids must be unique")]
    Duplicate {
        /// The id.
        id: String,
    },
}

impl Invalid {
    /// The field whose rule is broken.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Id { .. } | Self::Duplicate { .. } => "id",
            Self::Empty { field, .. } | Self::Number { field, .. } | Self::Quantity { field, .. } => field,
        }
    }
}

impl Instance {
    /// Checks every rule; gives the parsed id.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn validate(&self, require_zone: bool) -> Result<MachineId, Invalid> {
        let id = MachineId::parse(&self.id).map_err(|source| Invalid::Id { id: self.id.clone(), source })?;
        let empty = |field| Err(Invalid::Empty { id: self.id.clone(), field });
        if self.instance_type.is_empty() {
            return empty("instance_type");
        }
        if self.capacity_type == CapacityType::Unspecified {
            return empty("capacity_type");
        }
        if require_zone && self.zone.is_empty() {
            return empty("zone");
        }
        if self.host.as_ref().is_some_and(|h| h.provider.is_empty() && h.reference.is_empty()) {
            return empty("host");
        }
        let number = |field, value, range| Err(Invalid::Number { id: self.id.clone(), field, value, range });
        if !(self.price_per_hour.is_finite() && self.price_per_hour >= 0.0) {
            return number("price_per_hour", self.price_per_hour, "finite and at least 0");
        }
        let p = self.interruption_probability;
        if !(0.0..=1.0).contains(&p) {
            return number("interruption_probability", p, "from 0 to 1");
        }
        if self.capacity_type == CapacityType::Spot && p == 0.0 {
            return number("interruption_probability", p, "above 0 for spot");
        }
        for (field, amounts) in [("resources", &self.resources), ("allocatable", &self.allocatable)] {
            if let Some((name, value)) = amounts
                .iter()
                .find(|(_, value)| value.parse::<Quantity>().map_or(true, Quantity::is_negative))
            {
                let (id, name, value) = (self.id.clone(), name.clone(), value.clone());
                return Err(Invalid::Quantity { id, field, name, value });
            }
        }
        Ok(id)
    }
}

#[cfg(test)]
pub(crate) fn example(id: &str, host: bool) -> Instance {
    Instance {
        id: id.into(),
        host: host.then(|| Host { provider: "test".into(), reference: format!("i-{id}") }),
        instance_type: "m".into(),
        zone: "z".into(),
        capacity_type: CapacityType::OnDemand,
        price_per_hour: 1.0,
        interruption_probability: 0.05,
        resources: BTreeMap::from([("cpu".into(), "2".into())]),
        allocatable: BTreeMap::new(),
        labels: BTreeMap::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fr42_fr44_broken_instances_are_refused_by_field() {
        type Case = (&'static str, fn(&mut Instance));
        let cases: [Case; 12] = [
            ("id", |i| i.id.clear()),
            ("instance_type", |i| i.instance_type.clear()),
            ("capacity_type", |i| i.capacity_type = CapacityType::Unspecified),
            ("zone", |i| i.zone.clear()),
            ("host", |i| i.host = Some(Host { provider: String::new(), reference: String::new() })),
            ("price_per_hour", |i| i.price_per_hour = -1.0),
            ("price_per_hour", |i| i.price_per_hour = f64::NAN),
            ("price_per_hour", |i| i.price_per_hour = f64::INFINITY),
            ("interruption_probability", |i| i.interruption_probability = 1.7),
            ("interruption_probability", |i| i.interruption_probability = f64::NAN),
            ("interruption_probability", |i| {
                i.capacity_type = CapacityType::Spot;
                i.interruption_probability = 0.0;
            }),
            ("resources[\"cpu\"]", |i| {
                i.resources.insert("cpu".into(), "two".into());
            }),
        ];
        for (field, breaks) in cases {
            let mut instance = example("a", true);
            breaks(&mut instance);
            let error = instance.validate(true).unwrap_err().to_string();
            assert!(error.contains(field), "{field}: {error}");
        }
        assert!(example("a", true).validate(true).is_ok());
        let mut no_zone = example("a", false);
        no_zone.zone.clear();
        assert!(no_zone.validate(false).is_ok());
    }
}
