//! What a scenario expects of its end, and whether it came.

use std::collections::BTreeSet;

use bigfleet_decide::json::{Node, Refused, shown};
use bigfleet_engine::ActionKind;
use bigfleet_types::MachineState;

use super::transition::count;
use super::world::State;

/// One entry of `expect`.
#[derive(Debug, Clone, Default)]
pub(super) struct Expectation {
    actions: Option<Actions>,
    by_state: Vec<(MachineState, u64)>,
    configured: Vec<(String, u64)>,
    shortfalls: Option<u64>,
}

#[derive(Debug, Clone)]
struct Actions {
    from: u64,
    to: Option<u64>,
    kinds: BTreeSet<ActionKind>,
    number: u64,
}

impl Expectation {
    pub(super) fn read(node: Node<'_>) -> Result<Self, Refused> {
        let mut object = node.object()?;
        let cycle = |node: Node<'_>| node.integer(1, i64::MAX).map(i64::unsigned_abs);
        let from = object.take("from", cycle);
        let to = object.take("to", cycle);
        let kinds = object.take("kinds", |node| {
            let kinds = node.each(|_, node| kind(node))?;
            if kinds.is_empty() { Err(Refused::here("must name a kind of action")) } else { Ok(kinds) }
        });
        let number = object.take("actions", count);
        let by_state = object.take("byState", |node| {
            let entry = |(name, node): (String, Node<'_>)| {
                let state = MachineState::ALL.into_iter().find(|state| state.name() == name);
                let state = state.ok_or_else(|| Refused::at(&name, "is not a state of machines"))?;
                Ok((state, count(node).map_err(|refused| refused.within(&name))?))
            };
            node.entries()?.into_iter().map(entry).collect()
        });
        let configured = object.take("configured", |node| {
            let entry = |(name, node): (String, Node<'_>)| {
                let number = count(node).map_err(|refused| refused.within(&name))?;
                Ok((name, number))
            };
            node.entries()?.into_iter().map(entry).collect()
        });
        let shortfalls = object.take("shortfalls", count);
        object.finish()?;

        let span = from.is_some() || to.is_some() || kinds.is_some();
        if number.is_none() && span {
            return Err(Refused::at("actions", "is missing: how many of them?"));
        }
        let from = from.unwrap_or(1);
        if to.is_some_and(|to| to < from) {
            return Err(Refused::at("to", format_args!("is before from, {from}")));
        }
        if number.is_none() && by_state.is_none() && configured.is_none() && shortfalls.is_none() {
            return Err(Refused::here("expects nothing"));
        }
        let kinds: BTreeSet<_> = kinds.unwrap_or_else(|| ActionKind::ALL.to_vec()).into_iter().collect();
        Ok(Self {
            actions: number.map(|number| Actions { from, to, kinds, number }),
            by_state: by_state.unwrap_or_default(),
            configured: configured.unwrap_or_default(),
            shortfalls,
        })
    }

    /// What did not come: the member, and what there is instead.
    pub(super) fn failures(&self, tally: &Tally, state: &State, shortfalls: u64) -> Vec<Refused> {
        let mut failures = Vec::new();
        let mut compare = |path: [&str; 2], wanted: u64, is: u64, what: String| {
            if wanted != is {
                let reason = format!("expected {wanted} {what}, there are {is}");
                let [outer, inner] = path;
                let failure = Refused::here(reason);
                let failure = if inner.is_empty() { failure } else { failure.within(inner) };
                failures.push(failure.within(outer));
            }
        };
        if let Some(actions) = &self.actions {
            let to = actions.to.unwrap_or(u64::MAX);
            let names: Vec<&str> = actions.kinds.iter().map(|kind| kind.name()).collect();
            let until = actions.to.map_or("the last".to_owned(), |to| to.to_string());
            let what = format!("of {} in cycles {} to {until}", names.join(", "), actions.from);
            compare(["actions", ""], actions.number, tally.count(&actions.kinds, actions.from, to), what);
        }
        for (machine_state, wanted) in &self.by_state {
            let is = state.by_state.get(machine_state.name()).copied().unwrap_or_default();
            compare(["byState", machine_state.name()], *wanted, is, "machines at the end".to_owned());
        }
        for (cluster, wanted) in &self.configured {
            let is = state.configured_per_cluster.get(cluster.as_str()).copied().unwrap_or_default();
            compare(["configured", cluster], *wanted, is, "machines at the end".to_owned());
        }
        if let Some(wanted) = self.shortfalls {
            compare(["shortfalls", ""], wanted, shortfalls, "at the end".to_owned());
        }
        failures
    }
}

fn kind(node: Node<'_>) -> Result<ActionKind, Refused> {
    let name = node.text()?;
    let known = ActionKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.ok_or_else(|| Refused::here(format_args!("{} is not a kind of action", shown(&name))))
}

/// How many actions of each kind there were up to the end of each cycle.
#[derive(Debug, Default)]
pub(super) struct Tally(Vec<[u64; 5]>);

impl Tally {
    /// The next cycle had these.
    pub(super) fn cycle(&mut self, kinds: impl Iterator<Item = ActionKind>) {
        let mut sums = self.0.last().copied().unwrap_or_default();
        for kind in kinds {
            sums[place(kind)] += 1;
        }
        self.0.push(sums);
    }

    /// From and to are cycles, counted from 1, both included.
    fn count(&self, kinds: &BTreeSet<ActionKind>, from: u64, to: u64) -> u64 {
        let up_to = |cycle: u64| {
            let cycle = usize::try_from(cycle).unwrap_or(usize::MAX).min(self.0.len());
            cycle.checked_sub(1).map(|last| self.0[last]).unwrap_or_default()
        };
        let (before, after) = (up_to(from - 1), up_to(to));
        kinds.iter().map(|kind| after[place(*kind)].saturating_sub(before[place(*kind)])).sum()
    }
}

fn place(kind: ActionKind) -> usize {
    match kind {
        ActionKind::Bootstrap => 0,
        ActionKind::Provision => 1,
        ActionKind::Preempt => 2,
        ActionKind::Reclaim => 3,
        ActionKind::Delete => 4,
    }
}
