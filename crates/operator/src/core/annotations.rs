//! What we write on a node that we drain, so that the drain survives a restart and only our cordon is undone.

use std::collections::BTreeMap;

use bigfleet_types::{MachineId, UnixNanos};

use crate::io::Node;

/// The instruction that the drain follows.
pub(super) const INSTRUCTION: &str = "bigfleet.lucy.sh/drain-instruction";
/// When the drain ends, RFC 3339.
pub(super) const DEADLINE: &str = "bigfleet.lucy.sh/drain-deadline";
/// Who cordoned.
pub(super) const CORDONED_BY: &str = "bigfleet.lucy.sh/cordoned-by";
const US: &str = "bigfleet-operator";

/// The instruction of a drain that none ordered begins so.
const UNASKED: &str = "draining/";

/// What stands for the instruction of a machine's drain that none ordered.
pub(super) fn unasked(machine: &MachineId) -> String {
    format!("{UNASKED}{machine}")
}

/// What a node's drain follows, by its annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// The node is not being drained.
    None,
    /// The shard showed its machine Draining and had sent no instruction.
    Unasked,
    /// This instruction.
    Instruction(String),
}

impl Order {
    /// The order that a node carries.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        match node.annotations.get(INSTRUCTION) {
            None => Self::None,
            Some(instruction) if instruction.starts_with(UNASKED) => Self::Unasked,
            Some(instruction) => Self::Instruction(instruction.clone()),
        }
    }
}

/// All of ours.
pub(super) fn keys() -> Vec<String> {
    [INSTRUCTION, DEADLINE, CORDONED_BY].map(str::to_owned).to_vec()
}

/// The annotations of a drain. `cordons` is false when somebody else had cordoned the node before us.
pub(super) fn of_drain(instruction: &str, deadline: UnixNanos, cordons: bool) -> BTreeMap<String, String> {
    let mut all = BTreeMap::from([
        (INSTRUCTION.to_owned(), instruction.to_owned()),
        (DEADLINE.to_owned(), print(deadline)),
    ]);
    if cordons {
        all.insert(CORDONED_BY.to_owned(), US.to_owned());
    }
    all
}

/// Whether the node's cordon is ours.
pub(super) fn ours(node: &Node) -> bool {
    node.unschedulable && node.annotations.get(CORDONED_BY).is_some_and(|by| by == US)
}

/// The instruction and deadline that a node carries; `None` when there are none that can be read.
pub(super) fn drain(node: &Node) -> Option<(&str, UnixNanos)> {
    let deadline: jiff::Timestamp = node.annotations.get(DEADLINE)?.parse().ok()?;
    let nanos = i64::try_from(deadline.as_nanosecond()).ok()?;
    let instruction = node.annotations.get(INSTRUCTION).map_or("", String::as_str);
    Some((instruction, UnixNanos(nanos)))
}

fn print(at: UnixNanos) -> String {
    jiff::Timestamp::from_nanosecond(i128::from(at.0)).map_or_else(|_| String::new(), |at| at.to_string())
}
