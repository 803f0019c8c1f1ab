//! Shapes: what providers say of machines, kept once for all machines of which they say the same.
//!
//! A shape has all labels, so that machines can be classed anew by other labels without asking anybody again. Only the
//! hostname is apart, since every machine has its own.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use bigfleet_types::{CapacityType, Machine, NanoDollars, Probability, Resources, keys};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::class::ClassIx;
use crate::intern::{Set, index};

index! {
    /// A shape.
    ShapeIx;
}

/// What a provider says of a machine, but for its name, host and state.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(crate) instance_type: Arc<str>,
    pub(crate) zone: Arc<str>,
    pub(crate) capacity_type: CapacityType,
    pub(crate) price: NanoDollars,
    pub(crate) probability: Probability,
    pub(crate) capacity: Resources,
    /// Sorted by key, without the hostname.
    labels: Box<[(Arc<str>, Arc<str>)]>,
    /// The class of machines whose hostname nobody asks for, once known.
    pub(crate) class: Option<ClassIx>,
    machines: u32,
    hash: u64,
}

impl Shape {
    fn is_of(&self, machine: &Machine) -> bool {
        self.capacity_type == machine.capacity_type
            && self.price == machine.price
            && self.probability == machine.interruption_probability
            && *self.instance_type == *machine.instance_type
            && *self.zone == *machine.zone
            && (self.capacity.is_shared_with(machine.capacity()) || self.capacity == *machine.capacity())
            && self.has_labels_of(machine)
    }

    fn has_labels_of(&self, machine: &Machine) -> bool {
        let mut others = labels_of(machine);
        let is_next = |(key, value): &(Arc<str>, Arc<str>)| {
            others.next().is_some_and(|(k, v)| **k == **key && **v == **value)
        };
        self.labels.iter().all(is_next) && others.next().is_none()
    }

    /// All labels but for the hostname, by key.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
        self.labels.iter().map(|(key, value)| (key, value))
    }

    /// The value that requirements on `key` see, as [`Machine::attribute`] gives it; not for hostnames.
    pub(crate) fn attribute(&self, key: &str) -> Option<&str> {
        let field = match key {
            keys::INSTANCE_TYPE | keys::INSTANCE_TYPE_BETA => Some(&*self.instance_type),
            keys::ZONE | keys::ZONE_BETA => Some(&*self.zone),
            keys::CAPACITY_TYPE => self.capacity_type.label(),
            _ => None,
        };
        let label = || {
            let place = self.labels.binary_search_by(|(known, _)| (**known).cmp(key)).ok()?;
            Some(&*self.labels[place].1)
        };
        field.filter(|value| !value.is_empty()).or_else(label)
    }
}

/// The label that names a machine's host. Keys are told apart by their lengths first, which needs no look at a text.
pub(crate) fn hostname(machine: &Machine) -> Option<&Arc<str>> {
    machine.labels.iter().find(|(key, _)| &***key == keys::HOSTNAME).map(|(_, value)| value)
}

fn labels_of(machine: &Machine) -> impl Iterator<Item = (&Arc<str>, &Arc<str>)> {
    machine.labels.iter().filter(|(key, _)| &***key != keys::HOSTNAME)
}

fn hash_of(machine: &Machine) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    machine.instance_type.hash(&mut hasher);
    machine.zone.hash(&mut hasher);
    (machine.capacity_type, machine.price, machine.interruption_probability).hash(&mut hasher);
    machine.capacity().iter().for_each(|(_, amount)| amount.hash(&mut hasher));
    labels_of(machine).for_each(|(_, value)| value.hash(&mut hasher));
    hasher.finish()
}

/// All shapes with at least one machine.
#[derive(Debug, Default)]
pub(crate) struct Shapes {
    all: Vec<Option<Shape>>,
    free: Vec<ShapeIx>,
    index: HashTable<ShapeIx>,
    /// Every text once, so that a shape costs no more than its own combination.
    texts: Set<Arc<str>>,
    /// How many texts there were after the last sweep.
    swept: usize,
}

impl Shapes {
    /// The shape of a machine, which has to join a new one. `before`: what shape it had, which mostly stays.
    pub(crate) fn of(&mut self, machine: &Machine, before: Option<ShapeIx>) -> ShapeIx {
        let stays = before.filter(|ix| self.get(*ix).is_some_and(|shape| shape.is_of(machine)));
        stays.unwrap_or_else(|| self.find(machine))
    }

    /// One machine more.
    pub(crate) fn join(&mut self, ix: ShapeIx) {
        if let Some(shape) = &mut self.all[ix.at()] {
            shape.machines += 1;
        }
    }

    fn find(&mut self, machine: &Machine) -> ShapeIx {
        let hash = hash_of(machine);
        let is_same = |ix: &ShapeIx| self.get(*ix).is_some_and(|s| s.hash == hash && s.is_of(machine));
        match self.index.find(hash, is_same) {
            Some(ix) => *ix,
            None => self.open(machine, hash),
        }
    }

    fn open(&mut self, machine: &Machine, hash: u64) -> ShapeIx {
        let shape = Shape {
            instance_type: self.text(&machine.instance_type),
            zone: self.text(&machine.zone),
            capacity_type: machine.capacity_type,
            price: machine.price,
            probability: machine.interruption_probability,
            capacity: machine.capacity().clone(),
            labels: labels_of(machine).map(|(key, value)| (self.text(key), self.text(value))).collect(),
            class: None,
            machines: 0,
            hash,
        };
        let ix = if let Some(ix) = self.free.pop() {
            self.all[ix.at()] = Some(shape);
            ix
        } else {
            self.all.push(Some(shape));
            ShapeIx::new(self.all.len() - 1)
        };
        let all = &self.all;
        let hash_again = |ix: &ShapeIx| all[ix.at()].as_ref().map_or(0, |shape| shape.hash);
        self.index.insert_unique(hash, ix, hash_again);
        ix
    }

    /// By number.
    pub(crate) fn all(&self) -> &[Option<Shape>] {
        &self.all
    }

    /// One machine less; the last one takes the shape with it.
    pub(crate) fn leave(&mut self, ix: ShapeIx) {
        let Some(shape) = &mut self.all[ix.at()] else { return };
        shape.machines -= 1;
        if shape.machines > 0 {
            return;
        }
        if let Ok(entry) = self.index.find_entry(shape.hash, |other| *other == ix) {
            entry.remove();
        }
        self.all[ix.at()] = None;
        self.free.push(ix);
        if self.texts.len() > 2 * self.swept + 1024 {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.swept = self.texts.len();
        }
    }

    pub(crate) fn get(&self, ix: ShapeIx) -> Option<&Shape> {
        self.all[ix.at()].as_ref()
    }

    pub(crate) fn get_mut(&mut self, ix: ShapeIx) -> Option<&mut Shape> {
        self.all[ix.at()].as_mut()
    }

    /// Forgets which classes the shapes are of.
    pub(crate) fn forget_classes(&mut self) {
        self.all.iter_mut().flatten().for_each(|shape| shape.class = None);
    }

    fn text(&mut self, text: &Arc<str>) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        // A copy of its own: the caller's may be part of what it wants to free.
        let text: Arc<str> = (**text).into();
        self.texts.insert(text.clone());
        text
    }
}
