//! A copy of the columns, and the machines that they tell of.

use std::sync::Arc;

use bigfleet_types::{Attribution, Fingerprint, Group, Machine, MachineState, NeedKey, UnixNanos, keys};

use super::{Fleet, NEVER};
use crate::content::{Mark, Marks};
use crate::event::{Eligibility, Facts, PreemptedFor, Purpose};
use crate::ids::Names;
use crate::intern::{ClusterIx, StampIx, Texts};
use crate::members::{PoolIx, Slot};
use crate::place::{Binding, Drain, Place, PlaceIx};
use crate::shape::{Shape, ShapeIx};

/// What is known of machines, by slot, and the tables that it refers to.
#[derive(Debug)]
pub(crate) struct Columns {
    names: Names,
    state: Vec<MachineState>,
    eligibility: Vec<Eligibility>,
    shape: Vec<ShapeIx>,
    pool: Vec<PoolIx>,
    since: Vec<i64>,
    /// In ascending order of slots.
    hosts: Vec<(Slot, Box<str>)>,
    shapes: Vec<Option<Shape>>,
    /// By pool.
    place: Vec<PlaceIx>,
    places: Vec<Place>,
}

impl Fleet {
    /// A copy of what was told of the machines.
    pub(crate) fn columns(&self) -> Columns {
        let mut hosts: Vec<_> = self.hosts.iter().map(|(slot, host)| (*slot, host.clone())).collect();
        hosts.sort_unstable_by_key(|(slot, _)| *slot);
        Columns {
            names: self.ids.names(),
            state: self.state.clone(),
            eligibility: self.eligibility.clone(),
            shape: self.shape.clone(),
            pool: self.pool.clone(),
            since: self.since.clone(),
            hosts,
            shapes: self.shapes.all().to_vec(),
            place: (0..self.pools.len()).map(|at| self.pools.get(PoolIx::new(at)).place).collect(),
            places: self.places.all().to_vec(),
        }
    }

    /// By slot: since when the machine is Idle or excess.
    pub(crate) fn since(&self) -> &[i64] {
        &self.since
    }
}

impl Columns {
    fn slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.state.len()).map(Slot::new).filter(|slot| self.names.text(*slot).is_some())
    }

    /// All machines by slot.
    pub(crate) fn machines(&self, texts: &Texts) -> impl Iterator<Item = (Machine, Facts)> {
        self.slots().filter_map(|slot| self.machine(slot, texts))
    }

    fn machine(&self, slot: Slot, texts: &Texts) -> Option<(Machine, Facts)> {
        let at = slot.at();
        let shape = self.shapes.get(self.shape[at].at())?.as_ref()?;
        let mut machine = Machine::new(self.names.id(slot)?, self.state[at]);
        machine.instance_type = shape.instance_type.clone();
        machine.zone = shape.zone.clone();
        machine.capacity_type = shape.capacity_type;
        machine.price = shape.price;
        machine.interruption_probability = shape.probability;
        machine.resources = shape.capacity.clone();
        machine.labels = shape.labels().map(|(key, value)| (key.clone(), value.clone())).collect();
        if let Ok(host) = self.hosts.binary_search_by_key(&slot, |(slot, _)| *slot) {
            machine.labels.insert(keys::HOSTNAME.into(), Arc::from(&*self.hosts[host].1));
        }
        let since = Some(UnixNanos(self.since[at])).filter(|since| since.0 != NEVER);
        let mut facts = Facts {
            eligibility: self.eligibility[at],
            idle_since: since.filter(|_| machine.state == MachineState::Idle),
            excess_since: since.filter(|_| machine.state == MachineState::Configured),
            ..Facts::default()
        };
        match self.place(slot) {
            Some(Place::Bound(binding)) => {
                machine.cluster = Some(texts.cluster(binding.cluster).clone());
                machine.attribution = attribution(&binding, texts);
            }
            Some(Place::CreatingFor { cluster, stamp, .. }) => {
                facts.created_for = key(cluster, stamp, texts);
            }
            Some(Place::Draining(Drain::For { cluster, stamp, priority })) => {
                let purpose = key(cluster, stamp, texts).map(|need| PreemptedFor { need, priority });
                facts.preempted_for = purpose.map_or(Purpose::None, Purpose::Preemption);
            }
            Some(Place::Draining(Drain::Unknown)) => facts.preempted_for = Purpose::Unknown,
            Some(Place::Idle | Place::Speculative | Place::Held | Place::CreatingForAnyone) | None => {}
        }
        Some((machine, facts))
    }

    fn place(&self, slot: Slot) -> Option<Place> {
        let pool = Some(self.pool[slot.at()]).filter(|pool| *pool != PoolIx::NONE)?;
        Some(self.places[self.place[pool.at()].at()])
    }

    /// What `marks` say of every machine.
    pub(crate) fn marked(&self, marks: &Marks) -> impl Iterator<Item = Mark> {
        self.slots().filter_map(|slot| {
            let since = marks.since.get(slot.at()).filter(|since| **since != NEVER);
            let configured = self.state[slot.at()] == MachineState::Configured;
            Some(Mark {
                machine: self.names.id(slot)?,
                claimed: marks.claimed.get(slot.at()).is_some_and(|claimed| *claimed),
                excess_since: since.filter(|_| configured).map(|since| UnixNanos(*since)),
            })
        })
    }
}

/// Stamps that place a machine where it is.
fn attribution(binding: &Binding, texts: &Texts) -> Attribution {
    if !binding.attributed {
        return Attribution::default();
    }
    let (fingerprint, group) = texts.stamp(binding.stamp).unzip();
    Attribution {
        priority: Some(binding.priority),
        interruption: Some(binding.interruption),
        reclamation: Some(binding.reclamation),
        fingerprint: fingerprint.cloned(),
        group: group.cloned(),
    }
}

fn key(cluster: ClusterIx, stamp: StampIx, texts: &Texts) -> Option<NeedKey> {
    let (fingerprint, group) = texts.stamp(stamp)?;
    Some(NeedKey {
        cluster: texts.cluster(cluster).clone(),
        fingerprint: Fingerprint::parse(fingerprint)?,
        group: Group::new(group),
    })
}
