//! What happens in a scenario, in order.

use std::collections::BTreeSet;
use std::sync::Arc;

use bigfleet_decide::json::{Ids, Node, Refused, shown};
use bigfleet_decide::rollup;
use bigfleet_types::{ClusterId, MachineId, Need};

use super::transition::{Transition, count};

/// How deep repeats may nest.
const DEPTH: u8 = 16;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// A cluster says what it wants. The rows have no arrival.
    Rollup { cluster: ClusterId, rows: Arc<Vec<Need>> },
    /// So many cycles pass.
    Cycles(u64),
    /// Something breaks.
    Fault(Fault),
    /// The same again and again.
    Repeat { times: u64, steps: Vec<Step> },
}

#[derive(Debug, Clone)]
pub(super) enum Fault {
    /// The shard process starts anew.
    Restart,
    /// The next such transition of the machine ends in Failed.
    Ends(Transition, MachineId),
    /// Machines become Failed.
    Fail(Target),
    /// Machines are no longer listed.
    Remove(Target),
}

#[derive(Debug, Clone)]
pub(super) enum Target {
    Machine(MachineId),
    /// The first Configured machines of a cluster by id.
    Configured {
        cluster: ClusterId,
        count: u64,
    },
}

pub(super) fn read(node: Node<'_>) -> Result<Vec<Step>, Refused> {
    steps(node, DEPTH)
}

fn steps(node: Node<'_>, depth: u8) -> Result<Vec<Step>, Refused> {
    node.each(|_, node| step(node, depth))
}

fn step(node: Node<'_>, depth: u8) -> Result<Step, Refused> {
    let mut object = node.object()?;
    let rollup = object.take("rollup", |node| rollup(node, &mut Ids::default()));
    let cycles = object.take("cycles", count);
    let fault = object.take("fault", fault);
    let repeat = object.take("repeat", |node| repeat(node, depth));
    object.finish()?;
    let rollup = rollup.map(|(cluster, mut rows)| {
        for row in &mut rows {
            row.arrival = None;
        }
        Step::Rollup { cluster, rows: Arc::new(rows) }
    });
    let mut given = [rollup, cycles.map(Step::Cycles), fault.map(Step::Fault), repeat].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(step), None) => Ok(step),
        (Some(_), Some(_)) => {
            Err(Refused::here("has more than one of rollup, cycles, fault and repeat; write a step for each"))
        }
        (None, _) => Err(Refused::here("has none of rollup, cycles, fault and repeat")),
    }
}

fn repeat(node: Node<'_>, depth: u8) -> Result<Step, Refused> {
    if depth == 0 {
        return Err(Refused::here(format_args!("is nested deeper than {DEPTH} repeats")));
    }
    let mut object = node.object()?;
    let times = object.take("times", count);
    let inner = object.take("steps", |node| steps(node, depth - 1));
    object.finish()?;
    let times = times.ok_or_else(|| Refused::at("times", "is missing"))?;
    let steps = inner.ok_or_else(|| Refused::at("steps", "is missing"))?;
    Ok(Step::Repeat { times, steps })
}

fn fault(node: Node<'_>) -> Result<Fault, Refused> {
    let name = |node: Node<'_>| {
        let text = node.text()?;
        if text.is_empty() { Err(Refused::here("must not be empty")) } else { Ok(text) }
    };
    let mut object = node.object()?;
    let kind = object.take("kind", |node| {
        let kind = node.text()?;
        let known =
            matches!(&*kind, "restart" | "fail" | "remove") || Transition::of_failure(&kind).is_some();
        if known {
            Ok(kind)
        } else {
            Err(Refused::here(format_args!("{} is not a known fault", shown(&kind))))
        }
    });
    let machine = object.take("machine", name).map(MachineId::trusted);
    let cluster = object.take("cluster", name).map(ClusterId::trusted);
    let machines = object.take("count", count);
    object.finish()?;
    let kind = kind.ok_or_else(|| Refused::at("kind", "is missing"))?;

    let none = |member: &str, given: bool| {
        let wrong = || Refused::at(member, format_args!("is nothing that the fault {kind} can have"));
        if given { Err(wrong()) } else { Ok(()) }
    };
    let missing = |member: &str| Refused::at(member, "is missing");
    let wants_target = matches!(&*kind, "fail" | "remove");
    if machine.is_some() || !wants_target {
        none("cluster", cluster.is_some())?;
        none("count", machines.is_some())?;
    }
    if let Some(transition) = Transition::of_failure(&kind) {
        return machine.map(|machine| Fault::Ends(transition, machine)).ok_or_else(|| missing("machine"));
    }
    if !wants_target {
        none("machine", machine.is_some())?;
        return Ok(Fault::Restart);
    }
    let target = match (machine, cluster, machines) {
        (Some(machine), ..) => Target::Machine(machine),
        (None, Some(cluster), Some(count)) => Target::Configured { cluster, count },
        (None, Some(_), None) => return Err(missing("count")),
        (None, None, _) => return Err(Refused::here("must have machine, or cluster and count")),
    };
    Ok(if kind == "fail" { Fault::Fail(target) } else { Fault::Remove(target) })
}

impl Step {
    /// The first roll-up of a cluster in these steps.
    pub(super) fn first_rollup<'s>(steps: &'s [Self], of: &str) -> Option<&'s [Need]> {
        steps.iter().find_map(|step| match step {
            Self::Rollup { cluster, rows } if cluster.as_str() == of => Some(&rows[..]),
            Self::Repeat { times, steps } if *times > 0 => Self::first_rollup(steps, of),
            _ => None,
        })
    }

    /// Faults strike machines that there are.
    pub(super) fn check(steps: &[Self], fleet: &BTreeSet<&MachineId>) -> Result<(), Refused> {
        let check = |step: &Self| match step {
            Self::Fault(
                Fault::Ends(_, id) | Fault::Fail(Target::Machine(id)) | Fault::Remove(Target::Machine(id)),
            ) if !fleet.contains(id) => {
                let unknown = format_args!("{} is not in the fleet", shown(id.as_str())).to_string();
                Err(Refused::at("machine", unknown).within("fault"))
            }
            Self::Repeat { steps, .. } => {
                Self::check(steps, fleet).map_err(|refused| refused.within("steps").within("repeat"))
            }
            _ => Ok(()),
        };
        let mut places = steps.iter().enumerate();
        places.try_for_each(|(i, step)| check(step).map_err(|refused| refused.within_element(i)))
    }
}
