//! Classes of interchangeable machines: equal in everything that a Need can tell apart, but for the id.

use std::sync::Arc;

use bigfleet_types::{CapacityType, NanoDollars, Probability, keys};
use smallvec::SmallVec;

use crate::intern::{KeyIx, Map, Symbols, ValueIx, index};
use crate::lanes::Lanes;
use crate::shape::Shape;

index! {
    /// A class.
    ClassIx;
    /// A capacity that machines of some class have. There are few.
    CapacityIx;
}

/// What makes machines interchangeable.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Traits {
    /// The instance type.
    pub(crate) instance_type: ValueIx,
    /// The zone.
    pub(crate) zone: ValueIx,
    /// How one is paid for.
    pub(crate) capacity_type: CapacityType,
    /// What one machine offers.
    pub(crate) capacity: Lanes,
    /// What one machine costs an hour.
    pub(crate) price: NanoDollars,
    /// How likely it is interrupted.
    pub(crate) probability: Probability,
    /// The values of the keys that requirements mention, by `KeyIx`.
    pub(crate) attributes: SmallVec<[ValueIx; 8]>,
}

impl Traits {
    /// `host` is the hostname as the classes see it.
    fn of(shape: &Shape, host: ValueIx, symbols: &mut Symbols) -> Self {
        let attributes = (0..symbols.mentioned_keys().len())
            .map(|position| {
                let key = symbols.mentioned_keys()[position].clone();
                match shape.attribute(&key) {
                    _ if &*key == keys::HOSTNAME => host,
                    None => ValueIx::ABSENT,
                    Some(value) => symbols.value(value),
                }
            })
            .collect();
        Self {
            instance_type: symbols.value(&shape.instance_type),
            zone: symbols.value(&shape.zone),
            capacity_type: shape.capacity_type,
            capacity: symbols.dimensions.lanes(&shape.capacity),
            price: shape.price,
            probability: shape.probability,
            attributes,
        }
    }
}

/// Which machines count as matching supply.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Supply {
    pub(crate) idle: u32,
    pub(crate) configured: u32,
    pub(crate) speculative: u32,
}

impl Supply {
    /// Whether some machine is Idle or Speculative.
    pub(crate) fn is_free(self) -> bool {
        self.idle > 0 || self.speculative > 0
    }
}

/// One class and how many machines it has.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) traits: Arc<Traits>,
    pub(crate) capacity: CapacityIx,
    pub(crate) supply: Supply,
    population: u32,
}

/// All classes. They are only ever added, so that match results stay valid; a rebuild drops the empty ones.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_traits: Map<Arc<Traits>, ClassIx>,
    all: Vec<Class>,
    capacities: Vec<Lanes>,
    by_capacity: Map<Lanes, CapacityIx>,
    empty: usize,
}

impl Classes {
    /// The class of a machine, with one more member. `host` is its hostname as the classes see it.
    pub(crate) fn join(&mut self, shape: &mut Shape, host: ValueIx, symbols: &mut Symbols) -> ClassIx {
        let ordinary = host == ValueIx::OTHER_HOST;
        let ix = match shape.class.filter(|_| ordinary) {
            Some(ix) => ix,
            None => self.find(Traits::of(shape, host, symbols)),
        };
        if ordinary {
            shape.class = Some(ix);
        }
        let class = &mut self.all[ix.at()];
        self.empty -= usize::from(class.population == 0);
        class.population += 1;
        ix
    }

    fn find(&mut self, traits: Traits) -> ClassIx {
        if let Some(ix) = self.by_traits.get(&traits) {
            return *ix;
        }
        let (ix, traits) = (ClassIx::new(self.all.len()), Arc::new(traits));
        self.by_traits.insert(traits.clone(), ix);
        let capacities = &mut self.capacities;
        let capacity = *self.by_capacity.entry(traits.capacity.clone()).or_insert_with(|| {
            capacities.push(traits.capacity.clone());
            CapacityIx::new(capacities.len() - 1)
        });
        self.all.push(Class { traits, capacity, supply: Supply::default(), population: 0 });
        self.empty += 1;
        ix
    }

    /// One member less.
    pub(crate) fn leave(&mut self, ix: ClassIx) {
        let class = &mut self.all[ix.at()];
        class.population -= 1;
        self.empty += usize::from(class.population == 0);
    }

    pub(crate) fn supply_mut(&mut self, ix: ClassIx) -> &mut Supply {
        &mut self.all[ix.at()].supply
    }

    pub(crate) fn get(&self, ix: ClassIx) -> &Class {
        &self.all[ix.at()]
    }

    pub(crate) fn capacity(&self, ix: ClassIx) -> &Lanes {
        self.amounts(self.all[ix.at()].capacity)
    }

    /// What one machine of this capacity offers.
    pub(crate) fn amounts(&self, ix: CapacityIx) -> &Lanes {
        &self.capacities[ix.at()]
    }

    /// The value of a key as a domain; an absent or empty one is none.
    pub(crate) fn domain(&self, ix: ClassIx, key: KeyIx) -> Option<ValueIx> {
        let value = self.all[ix.at()].traits.attributes.get(key.at()).copied()?;
        (value != ValueIx::ABSENT && value != ValueIx::EMPTY).then_some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether most classes have no machine any more.
    pub(crate) fn mostly_empty(&self) -> bool {
        self.empty > 1024 && self.empty * 2 > self.all.len()
    }
}

/// The class of a machine that is in no fleet.
#[cfg(test)]
pub(crate) fn class_of(
    machine: &bigfleet_types::Machine,
    classes: &mut Classes,
    symbols: &mut Symbols,
) -> ClassIx {
    let mut shapes = crate::shape::Shapes::default();
    let ix = shapes.of(machine, None);
    let host = symbols.host(machine.attribute(keys::HOSTNAME).unwrap_or_default());
    shapes.get_mut(ix).map(|shape| classes.join(shape, host, symbols)).unwrap()
}
