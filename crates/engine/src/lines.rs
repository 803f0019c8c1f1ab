//! The bound machines of each Need in the order in which it keeps them, so that the first and by far most frequent
//! part of crediting is one walk along a line.

use crate::class::{CapacityIx, ClassIx, Classes};
use crate::cost::{KeepKey, keep_key};
use crate::intern::{ClusterIx, Map, StampIx};
use crate::members::{Pool, PoolIx, Slot};
use crate::place::{Place, Places};

/// A machine in a line, with what a walk asks about it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) slot: Slot,
    pub(crate) pool: PoolIx,
    pub(crate) class: ClassIx,
    pub(crate) capacity: CapacityIx,
}

/// A cluster, and what the machines are stamped with.
pub(crate) type Owner = (ClusterIx, StampIx);

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    by_owner: Map<Owner, Box<[Standing]>>,
    /// Those that are out of order. Perhaps repeatedly.
    dirty: Vec<Owner>,
    keyed: Vec<(KeepKey, PoolIx)>,
    line: Vec<Standing>,
}

impl Lines {
    /// The creditable machines of an owner, in keep order.
    pub(crate) fn of(&self, owner: Owner) -> &[Standing] {
        self.by_owner.get(&owner).map_or(&[], |line| line)
    }

    /// Notes that machines of a place came or went.
    pub(crate) fn touch(&mut self, place: Place) {
        if let Place::Bound(binding) = place {
            self.dirty.push((binding.cluster, binding.stamp));
        }
    }

    /// Brings the lines in order that were touched. `pools`: those of an owner. `rank` is a column by [`Slot`].
    pub(crate) fn settle<'p>(
        &mut self,
        pools: impl Fn(Owner) -> &'p [PoolIx],
        pool: impl Fn(PoolIx) -> &'p Pool,
        rank: &[u32],
        places: &Places,
        classes: &Classes,
    ) {
        self.dirty.sort_unstable();
        self.dirty.dedup();
        for owner in self.dirty.drain(..) {
            let keyed = pools(owner).iter().filter_map(|ix| {
                let (of, place) = (pool(*ix), places.get(pool(*ix).place));
                let key = || keep_key(place, classes.get(of.class).traits.price);
                place.is_creditable().then(|| (key(), *ix))
            });
            self.keyed.clear();
            self.keyed.extend(keyed);
            self.keyed.sort_unstable();
            self.line.clear();
            for equals in self.keyed.chunk_by(|a, b| a.0 == b.0) {
                let start = self.line.len();
                for (_, ix) in equals {
                    let (class, members) = (pool(*ix).class, pool(*ix).members().iter());
                    let capacity = classes.get(class).capacity;
                    self.line.extend(members.map(|slot| Standing {
                        slot: *slot,
                        pool: *ix,
                        class,
                        capacity,
                    }));
                }
                // Each pool is in order.
                if equals.len() > 1 {
                    self.line[start..].sort_by_key(|standing| rank[standing.slot.at()]);
                }
            }
            if self.line.is_empty() {
                self.by_owner.remove(&owner);
            } else {
                self.by_owner.insert(owner, self.line.as_slice().into());
            }
        }
    }
}
