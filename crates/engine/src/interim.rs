//! Demand that this version refuses to serve: gangs (`Same`) and enforced spreads over anything but the hostname.
//!
//! Such a Need claims nothing, is unmet, and no machine of its cluster is reclaimed: the machines that serve it
//! cannot be told from excess yet. All of this goes when the phases learn both.

use bigfleet_types::{Need, WhenUnsatisfiable, keys};

use crate::decision::Unsupported;
use crate::demand::Demand;
use crate::intern::{ClusterIx, Set};

/// What a Need asks for that this version cannot give. A Need of nothing is content in any case.
pub(crate) fn unsupported(need: &Need) -> Option<Unsupported> {
    if need.aggregate.is_empty() {
        return None;
    }
    if need.profile.same().is_some() {
        return Some(Unsupported::Same);
    }
    let enforced = need.profile.spread().iter().any(|term| {
        // Every machine is a hostname of its own, so that spread always holds.
        term.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule && &*term.topology_key != keys::HOSTNAME
    });
    enforced.then_some(Unsupported::Spread)
}

/// The clusters that keep all their machines for now.
pub(crate) fn held_clusters(demand: &Demand) -> Set<ClusterIx> {
    demand.in_order().filter(|row| row.unsupported.is_some()).map(|row| row.cluster).collect()
}
