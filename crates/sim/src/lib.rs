//! The closed loop: the production engine run in virtual time against a simulated fleet.
//!
//! Nothing here reads a clock, a network or chance; the same scenario gives the same bytes on every machine.

pub mod closed_loop;
pub mod scenario;
