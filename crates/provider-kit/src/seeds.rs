//! Slots to begin with, for providers whose back end is not there.

use std::collections::BTreeMap;

use bigfleet_types::CapacityType;

use crate::instance::Instance;

/// Type, how it is paid for, price in dollars an hour, chance of being taken away within an hour.
const KINDS: [(&str, CapacityType, f64, f64); 2] =
    [("m6i.large", CapacityType::OnDemand, 0.096, 0.01), ("c7g.xlarge", CapacityType::Spot, 0.058, 0.12)];
const ZONES: [&str; 2] = ["zone-a", "zone-b"];

/// `count` slots `<prefix>-0`, `<prefix>-1` and so on, a quarter each of two types in two zones: on-demand and spot. The
/// hardware says 1 cpu and 2 GiB, what pods can use is more, so that whoever packs them must look at the right one.
#[must_use]
pub fn quarters(prefix: &str, count: u64) -> Vec<Instance> {
    let kinds = KINDS.into_iter().flat_map(|kind| ZONES.map(|zone| (kind, zone))).cycle();
    (0..count).zip(kinds).map(|(n, (kind, zone))| slot(format!("{prefix}-{n}"), kind, zone)).collect()
}

/// As [`quarters`], of machines that somebody owns: bare metal, at no price.
#[must_use]
pub fn bare_metal(prefix: &str, count: u64) -> Vec<Instance> {
    let owned = |mut instance: Instance| {
        instance.capacity_type = CapacityType::BareMetal;
        instance.price_per_hour = 0.0;
        instance.interruption_probability = 0.0;
        instance
    };
    quarters(prefix, count).into_iter().map(owned).collect()
}

fn slot(id: String, kind: (&str, CapacityType, f64, f64), zone: &str) -> Instance {
    let (instance_type, capacity_type, price_per_hour, interruption_probability) = kind;
    let amounts = |cpu: &str, memory: &str| {
        BTreeMap::from([("cpu".to_owned(), cpu.to_owned()), ("memory".to_owned(), memory.to_owned())])
    };
    Instance {
        id,
        host: None,
        instance_type: instance_type.to_owned(),
        zone: zone.to_owned(),
        capacity_type,
        price_per_hour,
        interruption_probability,
        resources: amounts("1", "2Gi"),
        allocatable: amounts("4", "8Gi"),
        labels: BTreeMap::new(),
    }
}
