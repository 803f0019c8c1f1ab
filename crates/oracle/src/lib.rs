//! A second decision engine: the rules written down as plainly as they read, with loops over all machines for every
//! Need. It is slow on purpose. Tests and simulations compare the real engine's answers with it, so it shares none of
//! that engine's code, only the words of its input and output.
//!
//! Comments name the paragraph of the engine's specification that a piece follows ("engine.md 8.2").

mod amounts;
mod gang;
mod normalise;
mod pass;
mod phase1;
mod phase2;
mod phase3;
mod relocation;
mod row;
mod spread;
mod verdict;
mod world;

pub use phase2::{grace, victim_score};
pub use world::{Action, MemberVerdict, Outcome, Shortfall, Verdict, World};

use bigfleet_engine::Eligibility;
use bigfleet_types::MachineState;

use pass::Pass;
use row::Unit;

/// Decides everything afresh (engine.md 1.2): demand is normalised, then the three phases run on the same fleet.
#[must_use]
pub fn decide(world: &World) -> Outcome {
    // engine.md 1.1: a withheld machine does not exist; a Configured one is never withheld.
    let visible = world.machines.iter().filter(|(machine, facts)| {
        machine.state == MachineState::Configured || facts.eligibility != Eligibility::WITHHELD
    });
    let mut units: Vec<Unit<'_>> = visible.map(|(machine, facts)| Unit::new(machine, facts)).collect();
    units.sort_by(|a, b| a.machine.id.cmp(&b.machine.id));
    let rows = normalise::rows(world, &units);
    let mut pass = Pass::new(world, units, rows);
    pass.phase1();
    pass.phase2();
    pass.outcome()
}
