//! The file `bigfleet.scenario/v1`.

use std::collections::BTreeSet;
use std::sync::Arc;

use bigfleet_decide::json::{Ids, Node, Refused, shown};
use bigfleet_decide::{PolicyFile, of_format, record};
use bigfleet_types::{Attribution, Machine};

use super::expect::Expectation;
use super::steps::{self, Step};
use super::template::Template;
use super::transition::{Dwell, count};
use super::{Scenario, limits, yaml};

const FORMAT: &str = "bigfleet.scenario/v1";

/// Reads a file, YAML 1.2 or JSON.
///
/// # Errors
/// The first field that is unknown, repeated or breaks a rule of the format, a reference to what is not there, and a
/// scenario that is too large to be played; the file means nothing then.
pub fn read(bytes: &[u8]) -> Result<Scenario, Refused> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Refused::here(format_args!("is neither JSON nor YAML: {error}")))?;
    let scenario = match Node::parse(text) {
        Ok(root) => file(root),
        Err(_) => {
            let json = yaml::to_json(text)?;
            file(Node::parse(&json)?)
        }
    }?;
    limits::check(&scenario)?;
    Ok(scenario)
}

fn file(root: Node<'_>) -> Result<Scenario, Refused> {
    of_format(root, FORMAT)?;
    let mut object = root.object()?;
    object.take("format", Node::text);
    let name = object.take("name", Node::text).unwrap_or_default();
    let seed = object.take("seed", Node::int64).unwrap_or(0xC0_FFEE);
    let cycle_seconds = object.take("cycleSeconds", |node| node.integer(1, i64::MAX)).unwrap_or(10);
    let policy = object.take("policy", PolicyFile::read).unwrap_or_default();
    let dwell = object.take("dwell", Dwell::read).unwrap_or_default();
    let mut size = Size::default();
    let mut ids = Ids::default();
    let groups = object.take("fleet", |node| node.each(|_, node| group(node, &mut ids, &mut size)));
    let steps = object.take("steps", steps::read).unwrap_or_default();
    let expect = object.take("expect", |node| node.each(|_, node| Expectation::read(node)));
    object.finish()?;

    let mut fleet = Vec::new();
    for (place, group) in groups.unwrap_or_default().into_iter().enumerate() {
        let group = group.stamped(&steps);
        fleet.extend(group.map_err(|refused| refused.within_element(place).within("fleet"))?);
    }
    let ids: BTreeSet<_> = fleet.iter().map(|machine| &machine.id).collect();
    Step::check(&steps, &ids).map_err(|refused| refused.within("steps"))?;
    Ok(Scenario {
        name,
        seed,
        cycle_seconds,
        policy,
        dwell,
        fleet: fleet.into_iter().map(Arc::new).collect(),
        steps,
        expect: expect.unwrap_or_default(),
    })
}

/// How large the fleet has become.
#[derive(Debug, Default)]
struct Size {
    machines: u64,
    bytes: u64,
}

impl Size {
    fn grow(&mut self, machines: u64, each: usize) -> Result<(), Refused> {
        let each = u64::try_from(each).unwrap_or(u64::MAX);
        self.machines = self.machines.saturating_add(machines);
        self.bytes = self.bytes.saturating_add(machines.saturating_mul(each));
        let refuse = |is: u64, what: &str, most: u64| {
            let reason = format_args!("brings the fleet to {is} {what}; {most} are allowed").to_string();
            Err(Refused::at("count", reason))
        };
        if self.machines > limits::MACHINES {
            return refuse(self.machines, "machines", limits::MACHINES);
        }
        if self.bytes > limits::RECORDS {
            return refuse(self.bytes, "bytes of machine records", limits::RECORDS);
        }
        Ok(())
    }
}

/// Machines that are alike, and for whom they work.
#[derive(Debug)]
struct Group {
    machines: Vec<Machine>,
    /// A cluster, and a row of its first roll-up.
    assigned: Option<(String, usize)>,
}

fn group(node: Node<'_>, ids: &mut Ids, size: &mut Size) -> Result<Group, Refused> {
    let mut object = node.object()?;
    let machines = object.take("count", count);
    let from = object.take("from", |node| node.integer(0, i64::MAX)).unwrap_or_default();
    let template = object.take("machine", Template::new);
    let assigned = object.take("assigned", assigned);
    object.finish()?;
    let template = template.ok_or_else(|| Refused::at("machine", "is missing"))?;
    let machines = machines.unwrap_or(1);
    size.grow(machines, template.longest())?;
    let last = i64::try_from(machines).ok().and_then(|machines| from.checked_add(machines));
    let last = last.ok_or_else(|| Refused::at("from", "lets the numbers of the machines exceed 64 bits"))?;
    let machine = |i| {
        let text = template.fill(i);
        Node::parse(&text).and_then(|node| record(node, ids)).map_err(|refused| refused.within("machine"))
    };
    let machines = (from..last).map(machine).collect::<Result<Vec<_>, _>>()?;
    if assigned.is_some()
        && let Some(machine) = machines.iter().find(|machine| !machine.state.is_bound())
    {
        let state = machine.state;
        let reason = format_args!("is nothing that a machine in state {state} can have").to_string();
        return Err(Refused::at("assigned", reason));
    }
    Ok(Group { machines, assigned })
}

fn assigned(node: Node<'_>) -> Result<(String, usize), Refused> {
    let mut object = node.object()?;
    let cluster = object.take("cluster", Node::text);
    let row = object.take("row", |node| usize::try_from(count(node)?).map_err(Refused::here));
    object.finish()?;
    let cluster = cluster.ok_or_else(|| Refused::at("cluster", "is missing"))?;
    Ok((cluster, row.unwrap_or_default()))
}

impl Group {
    /// The machines with the stamps of their row.
    fn stamped(mut self, steps: &[Step]) -> Result<Vec<Machine>, Refused> {
        let Some((cluster, row)) = self.assigned else { return Ok(self.machines) };
        let refuse = |member: &str, reason: String| Refused::at(member, reason).within("assigned");
        let rows = Step::first_rollup(steps, &cluster)
            .ok_or_else(|| refuse("cluster", format!("{} sends no roll-up in the steps", shown(&cluster))))?;
        let need = rows.get(row).ok_or_else(|| {
            refuse("row", format!("{row} is none of the {} rows of the cluster's first roll-up", rows.len()))
        })?;
        let stamps = Attribution::of(need);
        for machine in &mut self.machines {
            machine.attribution = stamps.clone();
        }
        Ok(self.machines)
    }
}
