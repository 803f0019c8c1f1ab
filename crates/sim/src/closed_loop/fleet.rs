//! Machines and clusters to begin with.

use bigfleet_types::{
    Attribution, CapacityType, ClusterId, Machine, MachineId, MachineState, NanoDollars, Probability,
    Quantity, ResourceName, Resources, Rounding,
};

use super::cluster::Cluster;
use super::workload::{RACK, Workload};

/// Makes machines that are all alike but for their racks.
#[derive(Debug, Clone)]
pub struct Pool {
    name: String,
    like: Machine,
    /// So many machines share a rack; 0: they have none.
    block: usize,
    /// Machines are dealt out over so many racks instead; 0: they are not.
    dealt: usize,
    made: usize,
    machines: Vec<Machine>,
}

impl Pool {
    /// Owned machines of a type with these resources, which cost nothing.
    #[must_use]
    pub fn new(instance_type: &str, resources: Resources) -> Self {
        let mut like = Machine::new(MachineId::trusted(instance_type), MachineState::Idle);
        like.instance_type = instance_type.into();
        like.zone = "zone-a".into();
        like.capacity_type = CapacityType::BareMetal;
        like.resources = resources;
        Self { name: instance_type.to_owned(), like, block: 0, dealt: 0, made: 0, machines: Vec::new() }
    }

    /// Machines that hold so many pods of a workload.
    #[must_use]
    pub fn holding(workload: &Workload, pods: i64) -> Self {
        let amounts = workload.request.iter().map(|(name, text)| {
            // A request that is none makes a machine without that resource, on which its pods never fit.
            let amount =
                Quantity::parse(text).map_or(0, |quantity| Resources::amount(name, quantity, Rounding::Up));
            (ResourceName::new(name), amount)
        });
        let name = workload.types.first().map_or("", String::as_str);
        Self::new(name, Resources::from_amounts(amounts).scale(pods))
    }

    /// With another prefix of ids.
    #[must_use]
    pub fn named(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// Racks of so many machines, filled one after the other.
    #[must_use]
    pub fn racks_of(mut self, machines: usize) -> Self {
        self.block = machines;
        self
    }

    /// So many racks, to which machines are dealt in turn.
    #[must_use]
    pub fn over_racks(mut self, racks: usize) -> Self {
        self.dealt = racks;
        self
    }

    /// Paid for by the hour, in thousandths of a dollar, with a chance of interruption in per cent.
    #[must_use]
    pub fn priced(mut self, capacity: CapacityType, millis: i64, percent: u32) -> Self {
        self.like.capacity_type = capacity;
        self.like.price = NanoDollars::from_nano(millis.saturating_mul(1_000_000));
        self.like.interruption_probability =
            Probability::new(f64::from(percent) / 100.0).unwrap_or(Probability::ZERO);
        self
    }

    /// Adds machines that serve a workload and say so.
    pub fn serving(&mut self, cluster: &str, workload: &Workload, machines: usize) {
        let stamps = workload.row_of_one().map(|row| Attribution::of(&row)).unwrap_or_default();
        self.configured(cluster, machines, &stamps);
    }

    /// Adds Configured machines with these stamps.
    pub fn configured(&mut self, cluster: &str, machines: usize, stamps: &Attribution) {
        for _ in 0..machines {
            let mut machine = self.next(MachineState::Configured);
            machine.cluster = Some(ClusterId::trusted(cluster));
            machine.attribution = stamps.clone();
            self.machines.push(machine);
        }
    }

    /// Adds Idle machines.
    pub fn idle(&mut self, machines: usize) {
        for _ in 0..machines {
            let machine = self.next(MachineState::Idle);
            self.machines.push(machine);
        }
    }

    /// Adds Speculative machines.
    pub fn speculative(&mut self, machines: usize) {
        for _ in 0..machines {
            let machine = self.next(MachineState::Speculative);
            self.machines.push(machine);
        }
    }

    /// What it made.
    #[must_use]
    pub fn machines(self) -> Vec<Machine> {
        self.machines
    }

    fn next(&mut self, state: MachineState) -> Machine {
        let number = self.made;
        self.made += 1;
        let mut machine = self.like.clone();
        machine.id = MachineId::trusted(format!("{}-{number:04}", self.name));
        machine.state = state;
        let rack = match (self.block, self.dealt) {
            (0, 0) => return machine,
            (0, racks) => number % racks,
            (block, _) => number / block,
        };
        machine.labels.insert(RACK.into(), format!("{}-r{rack:03}", self.name).into());
        machine
    }
}

/// The fleet that most scenarios begin with: small pods, services and gangs, in every cluster the same.
#[derive(Debug, Clone)]
pub struct Base {
    /// How many clusters.
    pub clusters: usize,
    /// Small pods, ten a machine.
    pub tiny: Workload,
    /// Service pods, ten a machine.
    pub service: Workload,
    /// Gangs, one pod a machine.
    pub gangs: Vec<Workload>,
    /// Configured machines a cluster: tiny, service.
    pub serving: [usize; 2],
    /// Machines in a rack of the gangs; 0 deals them out to `scattered` racks.
    pub block: usize,
    /// See `block`.
    pub scattered: usize,
    /// Whether machines say whom they serve.
    pub stamped: bool,
}

impl Default for Base {
    /// Two clusters with machines for exactly what they want.
    fn default() -> Self {
        let tiny = Workload::new("tiny", "m6i.large", &[("cpu", "200m"), ("memory", "256Mi")], 100, 200);
        let service = Workload::new("service", "m6i.xlarge", &[("cpu", "2"), ("memory", "8Gi")], 1000, 50);
        Self {
            clusters: 2,
            tiny: tiny.penalties("32", "64"),
            service: service.penalties("1024", "8192"),
            gangs: (0..3).map(|n| gang(&format!("gang-{n}"), 4)).collect(),
            serving: [20, 5],
            block: 4,
            scattered: 0,
            stamped: true,
        }
    }
}

/// A gang of whole machines with eight GPUs each.
#[must_use]
pub fn gang(name: &str, pods: usize) -> Workload {
    let workload = Workload::new(name, "p4d.24xlarge", &[("nvidia.com/gpu", "8")], 5000, pods);
    workload.penalties("8192", "65536").gang()
}

impl Base {
    /// Its machines and clusters.
    ///
    /// # Errors
    /// As [`Cluster::new`].
    pub fn build(&self) -> Result<(Vec<Machine>, Vec<Cluster>), String> {
        let mut tiny = Pool::holding(&self.tiny, 10);
        let mut service = Pool::holding(&self.service, 10);
        let mut racks = Pool::holding(&gang("any", 1), 1);
        racks.block = self.block;
        racks.dealt = self.scattered;
        let mut clusters = Vec::new();
        for number in 0..self.clusters {
            let name = format!("cluster-{number:02}");
            let serve = |pool: &mut Pool, workload: &Workload, machines: usize| {
                if self.stamped {
                    pool.serving(&name, workload, machines);
                } else {
                    pool.configured(&name, machines, &Attribution::default());
                }
            };
            serve(&mut tiny, &self.tiny, self.serving[0]);
            serve(&mut service, &self.service, self.serving[1]);
            for gang in &self.gangs {
                // A gang that is larger than a rack has had one rack so far.
                let most = if self.block > 0 { self.block } else { usize::MAX };
                serve(&mut racks, gang, gang.pods.min(most));
            }
            let workloads = [&self.tiny, &self.service].into_iter().chain(&self.gangs).cloned();
            clusters.push(Cluster::new(&name, workloads)?);
        }
        for (pool, idle, speculative) in [(&mut tiny, 3, 2), (&mut service, 2, 2), (&mut racks, 4, 4)] {
            pool.idle(idle);
            pool.speculative(speculative);
        }
        let machines = [tiny, service, racks].into_iter().flat_map(Pool::machines).collect();
        Ok((machines, clusters))
    }
}
