//! Classes of interchangeable machines: equal in everything that a Need can tell apart, but for the id.

use std::sync::Arc;

use bigfleet_types::{CapacityType, Machine, NanoDollars, Probability, keys};
use smallvec::SmallVec;

use crate::intern::{KeyIx, Map, Symbols, ValueIx, index};
use crate::lanes::Lanes;

index! {
    /// A class.
    ClassIx;
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
    fn of(machine: &Machine, symbols: &mut Symbols) -> Self {
        let attributes = (0..symbols.mentioned_keys().len())
            .map(|position| {
                let key = symbols.mentioned_keys()[position].clone();
                match machine.attribute(&key) {
                    None => ValueIx::ABSENT,
                    Some(host) if &*key == keys::HOSTNAME => symbols.host(host),
                    Some(value) => symbols.value(value),
                }
            })
            .collect();
        Self {
            instance_type: symbols.value(&machine.instance_type),
            zone: symbols.value(&machine.zone),
            capacity_type: machine.capacity_type,
            capacity: symbols.dimensions.lanes(machine.capacity()),
            price: machine.price,
            probability: machine.interruption_probability,
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

/// One class and how many machines it has.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) traits: Arc<Traits>,
    pub(crate) supply: Supply,
    population: u32,
}

/// All classes. They are only ever added, so that match results stay valid; a rebuild drops the empty ones.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_traits: Map<Arc<Traits>, ClassIx>,
    all: Vec<Class>,
    empty: usize,
}

impl Classes {
    /// The class of a machine, with one more member.
    pub(crate) fn join(&mut self, machine: &Machine, symbols: &mut Symbols) -> ClassIx {
        let traits = Traits::of(machine, symbols);
        let ix = match self.by_traits.get(&traits) {
            Some(ix) => *ix,
            None => {
                let (ix, traits) = (ClassIx::new(self.all.len()), Arc::new(traits));
                self.by_traits.insert(traits.clone(), ix);
                self.all.push(Class { traits, supply: Supply::default(), population: 0 });
                self.empty += 1;
                ix
            }
        };
        let class = &mut self.all[ix.at()];
        self.empty -= usize::from(class.population == 0);
        class.population += 1;
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
        &self.all[ix.at()].traits.capacity
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
