//! What the fake cloud has on its shelves.

use std::collections::BTreeMap;

use bigfleet_types::CapacityType;
use serde::{Deserialize, Serialize};

use crate::instance::{Host, Instance};
use crate::table::Binding;

/// The provider's name in every host.
pub(super) const PROVIDER: &str = "fakecloud";
const RACK: &str = "topology.bigfleet/rack";
const RACKS: u32 = 10;

/// The default shapes, taken in turn.
const SHAPES: [(&str, &[(&str, &str)]); 5] = [
    ("a3-highgpu-8g", &[("nvidia.com/gpu", "8")]),
    ("m6i.large", &[("cpu", "2"), ("memory", "8Gi")]),
    ("c6i.4xlarge", &[("cpu", "16"), ("memory", "32Gi")]),
    ("n2-standard-32", &[("cpu", "32"), ("memory", "128Gi")]),
    ("r6i.xlarge", &[("cpu", "4"), ("memory", "32Gi")]),
];
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// A named catalogue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Nothing.
    #[default]
    None,
    /// 8 GPU machines and 8 small ones, all idle.
    Dev,
    /// On-premises, two clouds, all capacity types: 48 idle machines and 72 slots.
    Demo,
}

impl Profile {
    /// The catalogue that `--seed-profile` means by `dev` or `demo`; any other name is that of the empty one.
    #[must_use]
    pub fn named(name: &str) -> Self {
        match name {
            "dev" => Self::Dev,
            "demo" => Self::Demo,
            _ => Self::None,
        }
    }
}

/// Machines of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Class {
    /// What ids begin with: `<name>-0`, `<name>-1` and so on.
    pub name: String,
    /// How many.
    pub count: u32,
    /// Whether they have hosts from the beginning; otherwise they are slots.
    pub idle: bool,
    /// The type.
    pub instance_type: String,
    /// The zones, taken in turn; empty for none.
    pub zones: Vec<String>,
    /// `bare-metal`, `reserved`, `on-demand` or `spot`.
    #[serde(with = "capacity_type")]
    pub capacity_type: CapacityType,
    /// Dollars an hour.
    pub price_per_hour: f64,
    /// Chance of being taken away within an hour, 0 to 1.
    pub interruption_probability: f64,
    /// What the hardware has.
    pub resources: BTreeMap<String, String>,
    /// What pods can use; empty for all of it.
    pub allocatable: BTreeMap<String, String>,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

impl Default for Class {
    fn default() -> Self {
        Self {
            name: String::new(),
            count: 0,
            idle: false,
            instance_type: String::new(),
            zones: Vec::new(),
            capacity_type: CapacityType::OnDemand,
            price_per_hour: 0.0,
            interruption_probability: 0.0,
            resources: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            labels: BTreeMap::new(),
        }
    }
}

impl Class {
    pub(super) fn instances(&self, density: u64) -> impl Iterator<Item = Instance> + '_ {
        (0..self.count).map(move |n| {
            let id = format!("{}-{n}", self.name);
            let zone =
                self.zones.iter().cycle().nth(usize::try_from(n).unwrap_or(0) % self.zones.len().max(1));
            let instance = Instance {
                host: self.idle.then(|| host(&id)),
                id,
                instance_type: self.instance_type.clone(),
                zone: zone.cloned().unwrap_or_default(),
                capacity_type: self.capacity_type,
                price_per_hour: self.price_per_hour,
                interruption_probability: self.interruption_probability,
                resources: self.resources.clone(),
                allocatable: self.allocatable.clone(),
                labels: self.labels.clone(),
            };
            denser(instance, density)
        })
    }
}

/// Machines of the default shapes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seeds {
    /// `idle-N`: bare metal with a host, price 0.
    pub idle: u32,
    /// `spec-N`: on-demand slots, $1 an hour, probability 0.05.
    pub speculative: u32,
    /// `spot-N`: spot slots, $0.30 an hour, probability 0.30.
    pub spot: u32,
    /// `conf-s<ordinal>-c<c>-i<n>`: machines that serve `kwok-cluster-<c>`, for each such cluster.
    pub configured_per_cluster: u32,
    /// Number of clusters.
    pub cluster_total: u32,
    /// Only clusters whose number leaves `ordinal` when divided by this are seeded; 0 means 1.
    pub cluster_stride: u32,
    /// Which of `cluster_stride` this is.
    pub ordinal: u32,
}

impl Seeds {
    pub(super) fn instances(&self, density: u64) -> impl Iterator<Item = Instance> + use<> {
        let idle = (0..self.idle).map(|n| shaped(&format!("idle-{n}"), n, CapacityType::BareMetal, 0.0, 0.0));
        let slot = |n, name: &str, kind, price, p| Instance {
            host: None,
            ..shaped(&format!("{name}-{n}"), n, kind, price, p)
        };
        let spec = (0..self.speculative).map(move |n| slot(n, "spec", CapacityType::OnDemand, 1.0, 0.05));
        let spot = (0..self.spot).map(move |n| slot(n, "spot", CapacityType::Spot, 0.3, 0.3));
        idle.chain(spec).chain(spot).map(move |instance| denser(instance, density))
    }

    pub(super) fn bound(&self, density: u64) -> Vec<(Instance, Binding)> {
        let stride = self.cluster_stride.max(1);
        let mut bound = Vec::new();
        for cluster in (0..self.cluster_total).filter(|c| c % stride == self.ordinal % stride) {
            for n in 0..self.configured_per_cluster {
                let id = format!("conf-s{}-c{cluster}-i{n}", self.ordinal);
                // One fixed shape: the first of the default ones with cpu and memory.
                let instance = shaped(&id, 1, CapacityType::BareMetal, 0.0, 0.0);
                bound.push((denser(instance, density), seeded_binding(format!("kwok-cluster-{cluster}"))));
            }
        }
        bound
    }
}

/// A binding to `cluster` as a shard would have stamped it for a high-priority Need.
pub(super) fn seeded_binding(cluster: String) -> Binding {
    let stamp = |key: &str, value: &str| (format!("bigfleet.lucy.sh/assigned-{key}"), value.to_owned());
    let metadata = [
        stamp("priority", "1000000"),
        stamp("interruption-penalty-dollars", "8192"),
        stamp("reclamation-penalty-dollars", "65536"),
        stamp("group", ""),
    ];
    Binding { cluster, metadata: metadata.into() }
}

fn shaped(id: &str, n: u32, capacity_type: CapacityType, price: f64, p: f64) -> Instance {
    let turn = usize::try_from(n).unwrap_or(0);
    let (instance_type, resources) = SHAPES[turn % SHAPES.len()];
    let zone = ZONES[turn % ZONES.len()];
    let rack = (n / 3) % RACKS;
    Instance {
        id: id.to_owned(),
        host: Some(host(id)),
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        capacity_type,
        price_per_hour: price,
        interruption_probability: p,
        resources: amounts(resources),
        allocatable: BTreeMap::new(),
        labels: BTreeMap::from([(RACK.to_owned(), format!("{zone}-rack-{rack}"))]),
    }
}

pub(super) fn host(id: &str) -> Host {
    Host { provider: PROVIDER.to_owned(), reference: format!("host-{id}") }
}

fn amounts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Multiplies what pods can use of the divisible resources.
fn denser(mut instance: Instance, by: u64) -> Instance {
    if by > 1 {
        let from = if instance.allocatable.is_empty() { &instance.resources } else { &instance.allocatable };
        let scaled = from.iter().map(|(name, value)| {
            let divisible = matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage");
            (name.clone(), if divisible { times(value, by) } else { value.clone() })
        });
        instance.allocatable = scaled.collect();
    }
    instance
}

/// A quantity times a whole number, keeping its suffix and its digits after the point.
fn times(quantity: &str, by: u64) -> String {
    let digits = quantity.trim_end_matches(|c: char| !c.is_ascii_digit());
    let suffix = &quantity[digits.len()..];
    let (whole, part) = digits.split_once('.').unwrap_or((digits, ""));
    let Ok(value) = format!("{whole}{part}").parse::<u128>() else { return quantity.to_owned() };
    let mut product = value.saturating_mul(u128::from(by)).to_string();
    if !part.is_empty() {
        while product.len() <= part.len() {
            product.insert(0, '0');
        }
        product.insert(product.len() - part.len(), '.');
    }
    product + suffix
}

impl Profile {
    /// The machines of the profile.
    #[must_use]
    pub fn instances(self) -> Vec<Instance> {
        self.classes().iter().flat_map(|class| class.instances(1)).collect()
    }

    /// The same as classes, for whoever wants other sizes.
    #[must_use]
    pub fn classes(self) -> Vec<Class> {
        match self {
            Self::None => Vec::new(),
            Self::Dev => dev(),
            Self::Demo => demo(),
        }
    }
}

fn dev() -> Vec<Class> {
    let idle = |name: &str, instance_type: &str, capacity_type, price, resources: &[(&str, &str)]| Class {
        name: name.to_owned(),
        count: 8,
        idle: true,
        instance_type: instance_type.to_owned(),
        zones: vec!["dev-zone-a".to_owned()],
        capacity_type,
        price_per_hour: price,
        resources: amounts(resources),
        ..Class::default()
    };
    vec![
        idle("dev-gpu", "a3-highgpu-8g", CapacityType::BareMetal, 0.0, &[("nvidia.com/gpu", "8")]),
        idle("dev-cpu", "m6i.large", CapacityType::OnDemand, 0.1, &[("cpu", "2"), ("memory", "8Gi")]),
    ]
}

fn demo() -> Vec<Class> {
    let class = |name: &str, instance_type: &str, zone: &str, count| Class {
        name: name.to_owned(),
        count,
        instance_type: instance_type.to_owned(),
        zones: vec![zone.to_owned()],
        resources: amounts(&[("cpu", "8"), ("memory", "32Gi")]),
        allocatable: amounts(&[("cpu", "7500m"), ("memory", "28Gi")]),
        ..Class::default()
    };
    let owned = |class: Class, capacity_type| Class { idle: true, capacity_type, ..class };
    let sold = |class: Class, capacity_type, price_per_hour, interruption_probability| Class {
        capacity_type,
        price_per_hour,
        interruption_probability,
        ..class
    };
    let (aws, gcp) = ("us-east-1a", "us-central1-a");
    let (m6i, m5, n2) = ("m6i.2xlarge", "m5.2xlarge", "n2-standard-8");
    vec![
        owned(class("onprem", "metal-8", "dc-1", 28), CapacityType::BareMetal),
        owned(class("aws-reserved", m6i, aws, 20), CapacityType::Reserved),
        sold(class("aws-od", m5, aws, 24), CapacityType::OnDemand, 0.38, 0.05),
        sold(class("aws-spot", m5, aws, 12), CapacityType::Spot, 0.12, 0.30),
        sold(class("gcp-od", n2, gcp, 24), CapacityType::OnDemand, 0.38, 0.05),
        sold(class("gcp-spot", n2, gcp, 12), CapacityType::Spot, 0.10, 0.30),
    ]
}

mod capacity_type {
    use bigfleet_types::CapacityType;
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    const ALL: [CapacityType; 4] =
        [CapacityType::BareMetal, CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot];

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
    pub(super) fn serialize<S: Serializer>(value: &CapacityType, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_str(value.label().unwrap_or("unspecified"))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<CapacityType, D::Error> {
        let text = String::deserialize(input)?;
        ALL.into_iter().find(|value| value.label() == Some(text.as_str())).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no capacity type; use bare-metal, reserved, on-demand or spot"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_multiplied_as_written() {
        for (text, by, product) in [
            ("2", 3, "6"),
            ("8Gi", 10, "80Gi"),
            ("7500m", 2, "15000m"),
            ("0.5", 4, "2.0"),
            ("1.25Gi", 3, "3.75Gi"),
        ] {
            assert_eq!(times(text, by), product);
        }
    }

    #[test]
    fn profiles_hold_what_they_promise() {
        let demo = Profile::Demo.instances();
        let count = |capacity, idle: bool| {
            demo.iter().filter(|i| i.capacity_type == capacity && i.host.is_some() == idle).count()
        };
        assert_eq!(count(CapacityType::BareMetal, true), 28);
        assert_eq!(count(CapacityType::Reserved, true), 20);
        assert_eq!(count(CapacityType::OnDemand, false), 48);
        assert_eq!(count(CapacityType::Spot, false), 24);
        assert!(demo.iter().all(|i| i.validate(true).is_ok()));
        let dev = Profile::Dev.instances();
        assert_eq!((dev.len(), dev[0].id.as_str(), dev[15].id.as_str()), (16, "dev-gpu-0", "dev-cpu-7"));
        assert!(dev.iter().all(|i| i.validate(true).is_ok() && i.host.is_some()));
    }

    #[test]
    fn seeds_cover_shapes_zones_and_racks() {
        let seeds = Seeds { idle: 30, speculative: 2, spot: 1, ..Seeds::default() };
        let all: Vec<Instance> = seeds.instances(3).collect();
        assert_eq!(all.len(), 33);
        let combos: std::collections::BTreeSet<_> = all.iter().map(|i| (&i.instance_type, &i.zone)).collect();
        assert_eq!(combos.len(), 15);
        assert_eq!(all[29].labels[RACK], "zone-c-rack-9");
        assert_eq!(all[1].allocatable["memory"], "24Gi");
        assert_eq!(all[0].allocatable["nvidia.com/gpu"], "8");
        let seeds = Seeds {
            configured_per_cluster: 2,
            cluster_total: 5,
            cluster_stride: 2,
            ordinal: 1,
            ..Seeds::default()
        };
        let bound = seeds.bound(1);
        let ids: Vec<&str> = bound.iter().map(|(i, _)| i.id.as_str()).collect();
        assert_eq!(ids, ["conf-s1-c1-i0", "conf-s1-c1-i1", "conf-s1-c3-i0", "conf-s1-c3-i1"]);
        assert_eq!(bound[0].1.cluster, "kwok-cluster-1");
    }
}
