//! Bounds on what a file may ask for, so that a few bytes cannot keep a machine busy or fill it for ever.

use bigfleet_decide::json::Refused;

use super::Scenario;
use super::steps::{Fault, Step, Target};

/// Machines of the fleet.
pub(super) const MACHINES: u64 = 1_000_000;
/// Bytes of all machine records together.
pub(super) const RECORDS: u64 = 512 << 20;
/// Steps, with every repeat written out and every cycle counted.
const STEPS: u64 = 1_000_000;
/// Cycles times machines and rows.
const WORK: u64 = 10_000_000_000;
/// Bytes of the names in all faults, with every repeat written out.
const FAULTS: u64 = 64 << 20;

/// What steps amount to.
#[derive(Debug, Clone, Copy, Default)]
struct Total {
    steps: u64,
    cycles: u64,
    /// Rows of the roll-ups, each time that they are sent.
    sent: u64,
    /// Rows and clusters of the roll-ups as they are written: an upper bound of the demand at any time.
    rows: u64,
    faults: u64,
}

/// Refuses steps that do not come to an end soon.
pub(super) fn check(scenario: &Scenario) -> Result<(), Refused> {
    let total = Total::of(&scenario.steps);
    let refuse = |member: &str, is: u64, what: &str, most: u64| {
        let reason =
            format_args!("are {is} {what} when every repeat is written out; {most} are allowed").to_string();
        Err(Refused::at(member, reason))
    };
    if total.steps > STEPS {
        return refuse("steps", total.steps, "steps and cycles", STEPS);
    }
    if total.faults > FAULTS {
        return refuse("steps", total.faults, "bytes of machine names in faults", FAULTS);
    }
    let machines = u64::try_from(scenario.fleet.len()).unwrap_or(u64::MAX);
    let work = machines.saturating_add(total.rows).saturating_mul(total.cycles).saturating_add(total.sent);
    if work > WORK {
        return refuse("steps", work, "cycles times machines and rows", WORK);
    }
    let last = i64::try_from(total.cycles).ok().and_then(|cycles| cycles.checked_mul(scenario.cycle_seconds));
    match last.and_then(|seconds| seconds.checked_add(1)?.checked_mul(1_000_000_000)) {
        Some(_) => Ok(()),
        None => {
            Err(Refused::at("cycleSeconds", "lets the time of the last cycle exceed 64 bits of nanoseconds"))
        }
    }
}

impl Total {
    fn of(steps: &[Step]) -> Self {
        steps.iter().map(Self::of_step).fold(Self::default(), |a, b| Self {
            steps: a.steps.saturating_add(b.steps),
            cycles: a.cycles.saturating_add(b.cycles),
            sent: a.sent.saturating_add(b.sent),
            rows: a.rows.saturating_add(b.rows),
            faults: a.faults.saturating_add(b.faults),
        })
    }

    fn of_step(step: &Step) -> Self {
        let one = Self { steps: 1, ..Self::default() };
        match step {
            Step::Rollup { rows, .. } => {
                let rows = 1 + u64::try_from(rows.len()).unwrap_or(u64::MAX - 1);
                Self { sent: rows, rows, ..one }
            }
            Step::Cycles(cycles) => Self { steps: cycles.saturating_add(1), cycles: *cycles, ..one },
            Step::Fault(fault) => Self { faults: named(fault), ..one },
            Step::Repeat { times, steps } => {
                let inner = Self::of(steps);
                Self {
                    // An empty repeat still takes its turns.
                    steps: inner.steps.saturating_add(1).saturating_mul(*times).saturating_add(1),
                    cycles: inner.cycles.saturating_mul(*times),
                    sent: inner.sent.saturating_mul(*times),
                    rows: inner.rows,
                    faults: inner.faults.saturating_mul(*times),
                }
            }
        }
    }
}

/// How long the note on a fault is beyond what the fleet bounds: a machine is Configured only once before it fails.
fn named(fault: &Fault) -> u64 {
    let name = match fault {
        Fault::Ends(_, machine)
        | Fault::Fail(Target::Machine(machine))
        | Fault::Remove(Target::Machine(machine)) => machine.as_str(),
        Fault::Restart
        | Fault::Fail(Target::Configured { .. })
        | Fault::Remove(Target::Configured { .. }) => "",
    };
    32 + u64::try_from(name.len()).unwrap_or(u64::MAX - 32)
}
