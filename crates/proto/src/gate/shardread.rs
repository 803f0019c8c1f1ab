//! What an inspector of Needs asks for.

use bigfleet_types::ClusterId;

use super::{Error, Problem};
use crate::v1alpha1::InspectNeedsRequest;

/// A request that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspect {
    /// Whose Needs; `None` for everybody's.
    pub cluster: Option<ClusterId>,
    /// How many at most; `None` for all.
    pub limit: Option<usize>,
}

impl TryFrom<&InspectNeedsRequest> for Inspect {
    type Error = Error;

    fn try_from(request: &InspectNeedsRequest) -> Result<Self, Error> {
        let cluster = match request.cluster_id.as_str() {
            "" => None,
            text => {
                Some(ClusterId::parse(text).map_err(|error| Error::at("cluster_id", Problem::Id(error)))?)
            }
        };
        let limit = usize::try_from(request.limit).map_err(|_| {
            Error::at("limit", Problem::TooSmall { found: i64::from(request.limit), least: 0 })
        })?;
        Ok(Self { cluster, limit: (limit > 0).then_some(limit) })
    }
}
