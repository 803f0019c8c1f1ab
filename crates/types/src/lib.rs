//! The vocabulary of BigFleet: ids, quantities and resource vectors, money and penalties, requirements and
//! profiles, Needs, machines and their states, and the traits through which time and chance come in.
//!
//! Everything here is a plain value. Nothing reads a clock, a file or a socket.

mod id;
mod machine;
mod money;
mod need;
mod penalty;
mod profile;
mod quantity;
mod resources;
mod state;
mod time;

pub mod chance;
pub mod duration;

pub use id::{ClusterId, Fingerprint, Group, IdError, MachineId, ShardId};
pub use machine::{Attribution, CapacityType, Host, Labels, Machine};
pub use money::{EffectiveCost, NanoDollars, Probability, StampedPenalty};
pub use need::{Need, NeedKey, Precedence};
pub use penalty::{PenaltyBucket, UnknownBucket};
pub use profile::{Operator, Profile, Requirement, SpreadTerm, WhenUnsatisfiable, keys};
pub use quantity::{Family, Quantity, QuantityError};
pub use resources::{ResourceName, Resources, Rounding, family, is_extended};
pub use state::{IllegalTransition, MachineState, Observed, Rollback};
pub use time::{Clock, ManualClock, UnixNanos};
