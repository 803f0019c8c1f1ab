//! What was applied since the last decision, as far as the next one must know.

use crate::class::ClassIx;
use crate::intern::{ClusterIx, Set};
use crate::members::Slot;
use crate::place::{Drain, Place};

/// What the next decision has to look at again.
#[derive(Debug)]
pub(crate) struct Changes {
    /// All of it; nothing else is noted then.
    pub(crate) everything: bool,
    /// Anything at all.
    pub(crate) any: bool,
    /// Clusters that want something else.
    pub(crate) demand: Set<ClusterIx>,
    /// Clusters of which a machine or the gate changed.
    pub(crate) stirred: Set<ClusterIx>,
    /// Clusters with gangs that fold now and did not before, or the other way round, for what is free in the fleet.
    pub(crate) refold: Vec<ClusterIx>,
    /// Machines that left the pool they were in, so that nobody has a claim on them any more. Perhaps repeatedly.
    pub(crate) moved: Vec<Slot>,
    /// Machines that are or were Idle. Perhaps repeatedly.
    pub(crate) idle: Vec<Slot>,
    /// Classes that got their first free machine or lost the last one. Perhaps repeatedly.
    pub(crate) flipped: Vec<ClassIx>,
}

impl Default for Changes {
    /// At first, everything is new.
    fn default() -> Self {
        Self {
            everything: true,
            any: true,
            demand: Set::default(),
            stirred: Set::default(),
            refold: Vec::new(),
            moved: Vec::new(),
            idle: Vec::new(),
            flipped: Vec::new(),
        }
    }
}

impl Changes {
    /// From now on, everything counts as changed.
    pub(crate) fn all(&mut self) {
        self.clear();
        self.everything = true;
        self.any = true;
    }

    /// Nothing counts as changed any more.
    pub(crate) fn clear(&mut self) {
        self.everything = false;
        self.any = false;
        self.demand.clear();
        self.stirred.clear();
        self.refold.clear();
        self.moved.clear();
        self.idle.clear();
        self.flipped.clear();
    }

    /// A cluster wants something else than before.
    pub(crate) fn demand(&mut self, cluster: ClusterIx) {
        self.any = true;
        if !self.everything {
            self.demand.insert(cluster);
        }
    }

    /// Of a cluster, something else changed.
    pub(crate) fn cluster(&mut self, cluster: ClusterIx) {
        self.any = true;
        if !self.everything {
            self.stirred.insert(cluster);
        }
    }

    /// A machine leaves a place.
    pub(crate) fn left(&mut self, slot: Slot, place: Option<Place>) {
        if !self.everything && place.is_some() {
            self.moved.push(slot);
        }
        self.machine(slot, place);
    }

    /// A machine is, or was, in a place.
    pub(crate) fn machine(&mut self, slot: Slot, place: Option<Place>) {
        self.any = true;
        if self.everything {
            return;
        }
        match place {
            Some(Place::Bound(binding)) => self.cluster(binding.cluster),
            Some(Place::CreatingFor { cluster, .. } | Place::Draining(Drain::For { cluster, .. })) => {
                self.cluster(cluster);
            }
            Some(Place::Idle | Place::Held) => self.idle.push(slot),
            // Any Need of any cluster may count on it.
            Some(Place::CreatingForAnyone) => self.all(),
            Some(Place::Speculative | Place::Draining(Drain::Unknown)) | None => {}
        }
    }

    pub(crate) fn flipped(&mut self, class: ClassIx) {
        if !self.everything {
            self.flipped.push(class);
        }
    }
}
