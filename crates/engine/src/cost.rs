//! The two fixed orders: in which machines are acquired, and in which bound ones are kept.

use std::cmp::Reverse;

use bigfleet_types::{EffectiveCost, NanoDollars, PenaltyBucket, StampedPenalty};

use crate::class::Class;
use crate::lanes::Dimensions;
use crate::place::Place;

/// Sorts the pools of one tier: cheaper first, then fewer kinds of devices that nobody asked for. Ids break ties.
pub(crate) type AcquireKey = (EffectiveCost, usize);

/// The place of a class in the order of acquisition.
pub(crate) fn acquire_key(
    class: &Class,
    interruption: PenaltyBucket,
    requested: &[usize],
    dimensions: &Dimensions,
) -> AcquireKey {
    let traits = &class.traits;
    let cost = EffectiveCost::new(traits.price, traits.probability, interruption);
    (cost, dimensions.unrequested(&traits.capacity, requested))
}

/// Sorts pools for crediting: Configured before Configuring, cheaper before dearer, then the more valuable pairing.
/// Ids break ties. Machines are released in the reverse order.
pub(crate) type KeepKey = (bool, NanoDollars, Reverse<StampedPenalty>);

/// The place in the order of crediting of machines that are there and have that price.
pub(crate) fn keep_key(place: Place, price: NanoDollars) -> KeepKey {
    match place {
        Place::Bound(binding) => (binding.configuring, price, Reverse(binding.reclamation)),
        _ => (false, price, Reverse(StampedPenalty::Finite(NanoDollars::ZERO))),
    }
}
