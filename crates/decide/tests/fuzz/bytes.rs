//! Fleets and demand out of the bytes of a fuzz input: few names, so that everything meets, and extreme numbers.

use std::sync::Arc;

use bigfleet_engine::{Eligibility, Facts, PreemptedFor, Purpose};
use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Group, Machine, MachineId, MachineState, NanoDollars, Need,
    Operator, PenaltyBucket, Probability, Profile, Requirement, ResourceName, Resources, SpreadTerm,
    UnixNanos, WhenUnsatisfiable, keys,
};

/// The rest of an input. Nothing is left for ever: the end reads as zeros.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    pub(crate) fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub(crate) fn one_in(&mut self, n: u8) -> bool {
        self.byte() % n == n - 1
    }
}

pub(crate) const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const PRIORITIES: [i32; 6] = [0, 100, -1, 900_001, i32::MIN, i32::MAX];
const KEYS: [&str; 6] =
    [keys::ZONE, "rack", keys::HOSTNAME, keys::INSTANCE_TYPE, keys::CAPACITY_TYPE, "never"];
const VALUES: [&str; 5] = ["z0", "z1", "", "m-1", "spot"];
const PRICES: [i64; 5] = [0, 1, 1_000_000_000, 3_000_000_000, i64::MAX];

/// A vector, perhaps of nothing, perhaps of more than there is.
fn vector(bytes: &mut Bytes<'_>) -> Resources {
    let amount = |bytes: &mut Bytes<'_>| bytes.pick(&[0, 1, 2, 4, 8, 16, 1000, i64::MAX]);
    let names = ["cpu", "memory", "nvidia.com/gpu"];
    Resources::from_amounts(names.map(|name| (ResourceName::new(name), amount(bytes))))
}

/// One row of demand.
pub(crate) fn need(bytes: &mut Bytes<'_>) -> Need {
    let bucket = |bytes: &mut Bytes<'_>| {
        PenaltyBucket::from_wire(bytes.pick(&[0, 1, 5, 26, 27])).unwrap_or(PenaltyBucket::PINNED)
    };
    let mut requirements: Vec<Requirement> = Vec::new();
    for _ in 0..bytes.byte() % 3 {
        let operator = Operator::from_number(i32::from(bytes.byte() % 5) + 1).unwrap_or(Operator::In);
        let again = requirements.iter().any(|other| other.operator == Operator::Same);
        let values = (0..bytes.byte() % 3).map(|_| bytes.pick(&VALUES).into()).collect();
        let key = bytes.pick(&KEYS).into();
        if !(again && operator == Operator::Same) {
            requirements.push(Requirement { key, operator, values });
        }
    }
    let spread = (0..bytes.byte() % 3).map(|_| SpreadTerm {
        topology_key: bytes.pick(&KEYS).into(),
        max_skew: bytes.pick(&[1, 0, 2, i32::MIN, i32::MAX]),
        when_unsatisfiable: bytes.pick(&[
            WhenUnsatisfiable::DoNotSchedule,
            WhenUnsatisfiable::ScheduleAnyway,
            WhenUnsatisfiable::Unspecified,
        ]),
    });
    let spread = spread.collect();
    let (priority, interruption, reclamation) = (bytes.pick(&PRIORITIES), bucket(bytes), bucket(bytes));
    Need {
        profile: Arc::new(Profile::new(requirements, spread, priority, interruption, reclamation)),
        aggregate: vector(bytes),
        min_unit: vector(bytes),
        group: Group::new(bytes.pick(&["", "g", "h"])),
        arrival: Some(UnixNanos(bytes.pick(&[0, 1, 2, i64::MAX]))),
    }
}

/// A machine, perhaps with the stamps of some row of the demand.
pub(crate) fn machine(
    bytes: &mut Bytes<'_>,
    number: u8,
    demand: &[(ClusterId, Vec<Need>)],
) -> (Machine, Facts) {
    let states = [
        MachineState::Configured,
        MachineState::Idle,
        MachineState::Speculative,
        MachineState::Creating,
        MachineState::Configuring,
        MachineState::Draining,
        MachineState::Failed,
        MachineState::Deleting,
    ];
    let state = bytes.pick(&states);
    let mut machine = Machine::new(MachineId::trusted(format!("m-{number}")), state);
    machine.instance_type = bytes.pick(&["t0", "t1", ""]).into();
    machine.zone = bytes.pick(&["z0", "z1", ""]).into();
    machine.capacity_type = CapacityType::from_number(i32::from(bytes.byte() % 5)).unwrap_or_default();
    machine.price = NanoDollars::from_nano(bytes.pick(&PRICES));
    machine.interruption_probability = Probability::new(bytes.pick(&[0.0, 0.1, 1.0])).unwrap_or_default();
    machine.resources = vector(bytes);
    if bytes.one_in(4) {
        machine.labels.insert("rack".into(), bytes.pick(&["r0", "r1", ""]).into());
    }
    let home = bytes.byte();
    let (cluster, rows) = &demand[usize::from(home) % demand.len()];
    let stamp = usize::from(bytes.byte()).checked_rem(rows.len()).map(|at| &rows[at]);
    let mut facts = Facts::default();
    if state.is_bound() {
        machine.cluster = Some(cluster.clone());
        machine.attribution = stamp.map(Attribution::of).unwrap_or_default();
    }
    let key = stamp.map(|need| need.key(cluster));
    match state {
        MachineState::Creating => facts.created_for = key,
        MachineState::Draining => {
            facts.preempted_for = match key {
                Some(need) => Purpose::Preemption(PreemptedFor { need, priority: bytes.pick(&PRIORITIES) }),
                None if bytes.one_in(2) => Purpose::None,
                None => Purpose::Unknown,
            };
        }
        MachineState::Idle => facts.idle_since = bytes.one_in(2).then_some(UnixNanos(0)),
        MachineState::Configured => facts.excess_since = bytes.one_in(3).then_some(UnixNanos(0)),
        _ => {}
    }
    if bytes.one_in(8) && state != MachineState::Configured {
        facts.eligibility = Eligibility::WITHHELD;
    }
    (machine, facts)
}
