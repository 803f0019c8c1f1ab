//! Needs: what one cluster wants of one profile, as vectors. How many machines serve it is an output.

use std::cmp::Reverse;
use std::sync::Arc;

use crate::{ClusterId, Fingerprint, Group, PenaltyBucket, Profile, Resources, UnixNanos};

/// One row of a cluster's demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// Where its pods may run and how much they matter.
    pub profile: Arc<Profile>,
    /// The sum of the pods' requests.
    pub aggregate: Resources,
    /// The largest request per dimension: what every newly acquired machine must offer.
    pub min_unit: Resources,
    /// Keeps rows of one profile apart.
    pub group: Group,
    /// When the row was first seen. `None`: unknown, whoever keeps the demand fills in its own first sight; an
    /// unknown arrival orders as 0.
    pub arrival: Option<UnixNanos>,
}

impl Need {
    /// The row's key within its cluster.
    #[must_use]
    pub fn key(&self, cluster: &ClusterId) -> NeedKey {
        NeedKey {
            cluster: cluster.clone(),
            fingerprint: self.profile.fingerprint(),
            group: self.group.clone(),
        }
    }

    /// Who goes first: see [`Precedence`].
    #[must_use]
    pub fn precedence(&self) -> Precedence {
        let profile = &self.profile;
        (Reverse(profile.priority()), Reverse(profile.interruption()), Reverse(profile.reclamation()))
    }
}

/// Sorts higher priority first, then higher interruption penalty, then higher reclamation penalty. Only a strictly
/// smaller value ever overrides another Need.
pub type Precedence = (Reverse<i32>, Reverse<PenaltyBucket>, Reverse<PenaltyBucket>);

/// What identifies a Need across the fleet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NeedKey {
    /// Who wants it.
    pub cluster: ClusterId,
    /// What profile.
    pub fingerprint: Fingerprint,
    /// Which group of that profile.
    pub group: Group,
}
