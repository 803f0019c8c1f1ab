//! The machines: Configured ones cluster by cluster, then Idle and Speculative ones in blocks.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_types::{Attribution, CapacityType, ClusterId, MachineState, NanoDollars, Probability};

use super::Realistic;
use super::tables::{Kind, Tables};
use crate::catalogue::{Archetype, CATALOGUE, RACK, RACK_KEY, ZONES, price};
use crate::factory::{Factory, Model, cluster};
use crate::sizing::{ByKind, Tally};
use crate::workload::Emit;

/// What one rack holds: machines of one kind, type, size and zone.
type Shelf = (usize, usize, usize, usize);

/// Emits all machines and counts them.
pub(super) fn emit(fleet: &Realistic, made: &mut Tally, emit: Emit<'_>) {
    let mut yard = Yard::new(&fleet.tables);
    configured(fleet, &mut yard, made, emit);
    let tiers =
        [(MachineState::Idle, fleet.sizing.idle), (MachineState::Speculative, fleet.sizing.speculative)];
    for (state, numbers) in tiers {
        for (kind, tables) in fleet.tables.kinds() {
            free(&mut yard, kind, tables, state, numbers[kind], emit);
            match state {
                MachineState::Idle => made.idle += numbers[kind],
                _ => made.speculative += numbers[kind],
            }
        }
    }
}

/// Machines that serve their cluster's rows.
fn configured(fleet: &Realistic, yard: &mut Yard<'_>, made: &mut Tally, emit: Emit<'_>) {
    let clusters = fleet.profile.clusters;
    let mut shares = Shares::new(fleet);
    let mut last_gang: [Option<Attribution>; CATALOGUE.len()] = Default::default();
    for number in 0..clusters {
        let cluster = cluster(number);
        let plan = fleet.plan(number);
        for row in &plan.plain {
            let stamps = &fleet.tables.kind(row.kind).profiles[row.at][usize::from(row.spread)].stamps;
            let mut turn = usize::try_from(number).unwrap_or(0);
            for (size, pods) in row.pods.iter().enumerate() {
                for _ in 0..shares.of(row.kind, *pods) {
                    turn += 1;
                    let shelf = (row.kind, row.at, size, turn % ZONES.len());
                    yard.place(shelf, 1, MachineState::Configured, Some((&cluster, stamps)), emit);
                }
            }
        }
        let mut folds: BTreeMap<(usize, usize, u64), u64> = BTreeMap::new();
        for gang in &plan.gangs {
            let kind = fleet.tables.kind(gang.kind);
            if kind.spec.gang_fits_machine() {
                *folds.entry((gang.kind, gang.at, gang.pods)).or_default() += gang.pods;
                continue;
            }
            let stamps = kind.gang_stamps(gang.at, &gang.group(number));
            let machines = shares.take(gang.kind, gang.pods);
            let zone = usize::try_from(gang.number).unwrap_or(0) % ZONES.len();
            let shelf = (gang.kind, gang.at, 0, zone);
            yard.place(shelf, machines, MachineState::Configured, Some((&cluster, &stamps)), emit);
            last_gang[gang.kind] = Some(stamps);
        }
        for ((kind, at, size), pods) in folds {
            let Some(stamps) = fleet.tables.kind(kind).folds.get(&(at, size)) else { continue };
            for turn in 0..shares.of(kind, pods) {
                let zone = usize::try_from(number + turn).unwrap_or(0) % ZONES.len();
                yard.place((kind, at, 0, zone), 1, MachineState::Configured, Some((&cluster, stamps)), emit);
            }
        }
    }
    // What is left once served a gang that has ended.
    for (kind, tables) in fleet.tables.kinds() {
        let left = shares.take(kind, u64::MAX);
        let mut stamps = last_gang[kind].take().unwrap_or_else(|| tables.profiles[0][0].stamps.clone());
        stamps.group = Some("apps/ended".into());
        for turn in 0..left {
            let cluster = cluster(turn % clusters);
            let shelf = (kind, 0, 0, usize::try_from(turn).unwrap_or(0) % ZONES.len());
            yard.place(shelf, 1, MachineState::Configured, Some((&cluster, &stamps)), emit);
        }
        made.configured += fleet.sizing.configured[kind];
    }
}

/// Who gets how many of the Configured machines of each kind.
struct Shares {
    machines: ByKind,
    pods: ByKind,
    given: ByKind,
    pods_so_far: ByKind,
}

impl Shares {
    fn new(fleet: &Realistic) -> Self {
        let mut pods = fleet.sizing.pods;
        for (kind, spec) in CATALOGUE.iter().enumerate().filter(|(_, spec)| spec.gang.is_some()) {
            pods[kind] = pods_in_gangs(fleet, kind, spec);
        }
        let none = [0; CATALOGUE.len()];
        Self { machines: fleet.sizing.configured, pods, given: none, pods_so_far: none }
    }

    /// The share of so many pods, rounded so that all pods together get all machines.
    fn of(&mut self, kind: usize, pods: u64) -> u64 {
        self.pods_so_far[kind] += pods;
        let target = self.machines[kind] * self.pods_so_far[kind] / self.pods[kind].max(1);
        target - std::mem::replace(&mut self.given[kind], target)
    }

    /// So many machines, or what is left.
    fn take(&mut self, kind: usize, machines: u64) -> u64 {
        let taken = machines.min(self.machines[kind] - self.given[kind]);
        self.given[kind] += taken;
        taken
    }
}

/// Pods of all gangs of a kind.
fn pods_in_gangs(fleet: &Realistic, kind: usize, spec: &Archetype) -> u64 {
    let Some((least, most)) = spec.gang else { return 0 };
    let (all, span) = (fleet.sizing.gangs[kind], most - least + 1);
    let (rounds, rest) = (all / span, all % span);
    rounds * span * (least + most) / 2 + (0..rest).map(|number| least + number).sum::<u64>()
}

/// Machines that serve nobody: blocks of one rack each, over zones, then types, then sizes.
fn free(yard: &mut Yard<'_>, kind: usize, tables: &Kind, state: MachineState, number: u64, emit: Emit<'_>) {
    let (types, sizes) = (tables.types.len(), tables.unit.len());
    let shelves = (ZONES.len() * types * sizes) as u64;
    // Few machines still come in every zone, type and size.
    let block = number.div_ceil(shelves).clamp(1, RACK);
    let mut left = number;
    let mut turn = 0usize;
    while left > 0 {
        let zone = turn % ZONES.len();
        let at = turn / ZONES.len() % types;
        let size = turn / ZONES.len() / types % sizes;
        turn += 1;
        let machines = block.min(left);
        left -= machines;
        yard.close((kind, at, size, zone));
        yard.place((kind, at, size, zone), machines, state, None, emit);
    }
}

/// Where machines stand.
struct Yard<'t> {
    tables: &'t Tables,
    factory: Factory,
    open: BTreeMap<Shelf, Rack>,
    racks: u64,
}

struct Rack {
    model: Model,
    used: u64,
}

impl<'t> Yard<'t> {
    fn new(tables: &'t Tables) -> Self {
        Self { tables, factory: Factory::new(), open: BTreeMap::new(), racks: 0 }
    }

    /// Puts machines into one rack together.
    fn place(
        &mut self,
        shelf: Shelf,
        machines: u64,
        state: MachineState,
        bound: Option<(&ClusterId, &Attribution)>,
        emit: Emit<'_>,
    ) {
        if self.open.get(&shelf).is_some_and(|rack| rack.used + machines > RACK) {
            self.close(shelf);
        }
        if !self.open.contains_key(&shelf) {
            let model = model(self.tables.kind(shelf.0), shelf, self.racks);
            self.racks += 1;
            self.open.insert(shelf, Rack { model, used: 0 });
        }
        let Some(rack) = self.open.get_mut(&shelf) else { return };
        rack.used += machines;
        for _ in 0..machines {
            emit(self.factory.make(&rack.model, state, bound));
        }
    }

    /// The next machine of this shelf begins a rack.
    fn close(&mut self, shelf: Shelf) {
        self.open.remove(&shelf);
    }
}

/// The machines of a rack: every fourth rack is reserved, of batch machines every second is spot.
fn model(kind: &Kind, (_, at, size, zone): Shelf, rack: u64) -> Model {
    let instance_type = kind.types[at].clone();
    let full = price(&instance_type) * 1000;
    let (capacity_type, price, chance) = match rack % 4 {
        0 => (CapacityType::Reserved, full * 6 / 10, 0.0),
        1 | 3 if kind.spec.spot => (CapacityType::Spot, full * 3 / 10, 0.05),
        _ => (CapacityType::OnDemand, full, 0.0),
    };
    let labels: [(Arc<str>, Arc<str>); 2] =
        [("kubernetes.io/arch".into(), "amd64".into()), (RACK_KEY.into(), format!("rack-{rack:06}").into())];
    Model {
        instance_type,
        zone: ZONES[zone].into(),
        capacity_type,
        price: NanoDollars::from_nano(price),
        interruption: Probability::new(chance).unwrap_or(Probability::ZERO),
        capacity: kind.machine[size].clone(),
        labels: labels.into_iter().collect(),
    }
}
