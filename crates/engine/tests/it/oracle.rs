//! The rules of Phases 1 and 3 once more, as plainly as they can be put: texts, whole sorts, no index. The engine must
//! agree with it.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use bigfleet_engine::{Facts, matches};
use bigfleet_types::{
    ClusterId, EffectiveCost, Machine, MachineState, NanoDollars, Need, NeedKey, Resources, StampedPenalty,
    UnixNanos, is_extended,
};

use crate::dsl::{M, cluster, secs};
use crate::random::Case;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    /// `Kind id cluster`, in emission order.
    pub(crate) actions: Vec<String>,
    pub(crate) claimed: Vec<String>,
    /// Key, residual and number of machines claimed, in precedence order.
    pub(crate) rows: Vec<(NeedKey, Resources, usize)>,
}

struct Row {
    cluster: ClusterId,
    need: Need,
    key: NeedKey,
    remaining: Resources,
    credited: Vec<usize>,
}

struct Oracle<'a> {
    machines: &'a [M],
    live: BTreeSet<(ClusterId, String, String)>,
    claimed: BTreeSet<usize>,
}

/// What the engine must answer at time 0 under the default policy.
pub(crate) fn answer(case: &Case) -> Answer {
    let mut rows: Vec<Row> = case
        .needs()
        .into_iter()
        .map(|(name, need)| Row {
            cluster: cluster(name),
            key: need.key(&cluster(name)),
            remaining: need.aggregate.clone(),
            credited: Vec::new(),
            need,
        })
        .collect();
    let arrival = |row: &Row| row.need.arrival.unwrap_or(secs(1));
    rows.sort_by_key(|row| (row.need.precedence(), arrival(row), row.key.clone()));
    let live = rows
        .iter()
        .map(|row| (row.cluster.clone(), row.key.fingerprint.to_string(), row.key.group.to_string()));
    let mut oracle = Oracle { machines: &case.machines, live: live.collect(), claimed: BTreeSet::new() };
    let mut answer = Answer::default();
    for group in rows.chunk_by_mut(|a, b| a.need.precedence() == b.need.precedence()) {
        for row in group.iter_mut() {
            oracle.credit(row, 1);
        }
        for row in group.iter_mut() {
            let acquired = oracle.second_round(row);
            let name = |state| if state == MachineState::Idle { "Bootstrap" } else { "Provision" };
            for i in &acquired {
                let machine = &case.machines[*i].machine;
                answer.actions.push(format!("{} {} {}", name(machine.state), machine.id, row.cluster));
            }
            answer.rows.push((row.key.clone(), row.remaining.clone(), row.credited.len() + acquired.len()));
        }
    }
    oracle.phase3(case, &mut answer);
    answer.claimed = oracle.claimed.iter().map(|i| case.machines[*i].machine.id.to_string()).collect();
    answer.claimed.sort();
    answer
}

fn reclamation(machine: &Machine) -> StampedPenalty {
    machine.attribution.reclamation.unwrap_or(StampedPenalty::Finite(NanoDollars::ZERO))
}

fn progress(machine: &Machine, remaining: &Resources) -> bool {
    remaining.iter().any(|(name, _)| machine.capacity().get(name.as_str()) > 0)
}

impl Oracle<'_> {
    /// Which part of the walk of `row` this machine belongs to, 1 to 5.
    fn part(&self, row: &Row, machine: &Machine, facts: &Facts) -> Option<u8> {
        if !facts.eligibility.creditable {
            return None;
        }
        match machine.state {
            MachineState::Configured | MachineState::Configuring
                if machine.cluster.as_ref() == Some(&row.cluster) =>
            {
                let Some(fingerprint) = &machine.attribution.fingerprint else { return Some(2) };
                let group = machine.attribution.group.as_deref().unwrap_or("");
                let own = **fingerprint == row.key.fingerprint.to_string() && group == row.key.group.as_str();
                let live =
                    self.live.contains(&(row.cluster.clone(), fingerprint.to_string(), group.to_owned()));
                Some(if own {
                    1
                } else if live {
                    4
                } else {
                    2
                })
            }
            MachineState::Creating => match &facts.created_for {
                Some(key) => (*key == row.key).then_some(3),
                None => Some(5),
            },
            _ => None,
        }
    }

    /// The unclaimed machines of a part, in keep order.
    fn walk(&self, row: &Row, part: u8) -> Vec<usize> {
        let mut found: Vec<usize> = (0..self.machines.len())
            .filter(|i| {
                let M { machine, facts } = &self.machines[*i];
                !self.claimed.contains(i)
                    && self.part(row, machine, facts) == Some(part)
                    && matches(&row.need.profile, machine)
                    && (part == 1 || part == 3 || machine.capacity().covers(&row.need.min_unit))
            })
            .collect();
        found.sort_by_key(|i| {
            let m = &self.machines[*i].machine;
            (m.state == MachineState::Configuring, m.price, Reverse(reclamation(m)), m.id.clone())
        });
        found
    }

    fn take(&mut self, row: &mut Row, i: usize) {
        assert!(self.claimed.insert(i));
        row.remaining = row.remaining.saturating_sub(self.machines[i].machine.capacity());
    }

    fn credit(&mut self, row: &mut Row, part: u8) {
        for i in self.walk(row, part) {
            if !row.remaining.is_empty() && progress(&self.machines[i].machine, &row.remaining) {
                self.take(row, i);
                row.credited.push(i);
            }
        }
    }

    fn second_round(&mut self, row: &mut Row) -> Vec<usize> {
        if row.need.aggregate.is_empty() {
            return Vec::new();
        }
        (1..=5).for_each(|part| self.credit(row, part));
        self.floor(row);
        let missing = row.remaining.clone();
        let mut acquired = Vec::new();
        for state in [MachineState::Idle, MachineState::Speculative] {
            for i in self.market(row, state) {
                if !row.remaining.is_empty() && progress(&self.machines[i].machine, &row.remaining) {
                    self.take(row, i);
                    acquired.push(i);
                }
            }
        }
        if row.remaining.is_empty() {
            self.drop_surplus(&mut acquired, &[], &missing);
        }
        acquired
    }

    /// Gives back from the end of `list` what the rest and `fixed` can do without.
    fn drop_surplus(&mut self, list: &mut Vec<usize>, fixed: &[usize], want: &Resources) {
        for i in list.clone().into_iter().rev() {
            let rest = list.iter().chain(fixed).filter(|other| **other != i);
            let mut missing = want.clone();
            for other in rest {
                missing = missing.saturating_sub(self.machines[*other].machine.capacity());
            }
            if missing.is_empty() {
                list.retain(|other| *other != i);
                self.claimed.remove(&i);
            }
        }
    }

    fn floor(&mut self, row: &mut Row) {
        let floor = &row.need.min_unit.clone();
        let covers = |oracle: &Self, i: usize| oracle.machines[i].machine.capacity().covers(floor);
        if floor.is_empty() || row.credited.iter().any(|i| covers(self, *i)) {
            return;
        }
        let first = (1..=5).flat_map(|part| self.walk(row, part)).find(|i| covers(self, *i));
        let Some(i) = first else {
            row.remaining = row.remaining.max(floor);
            return;
        };
        self.take(row, i);
        if self.machines[i].machine.state == MachineState::Configured {
            let want = row.need.aggregate.clone();
            self.drop_surplus(&mut row.credited, &[i], &want);
        }
        row.credited.push(i);
    }

    /// The unclaimed free machines of a tier that the row may take, in the order of acquisition.
    fn market(&self, row: &Row, state: MachineState) -> Vec<usize> {
        let Need { profile, aggregate, min_unit, .. } = &row.need;
        let mut found: Vec<usize> = (0..self.machines.len())
            .filter(|i| {
                let M { machine, facts } = &self.machines[*i];
                let free =
                    machine.state == state && facts.eligibility.acquirable && !self.claimed.contains(i);
                free && matches(profile, machine) && machine.capacity().covers(min_unit)
            })
            .collect();
        found.sort_by_key(|i| {
            let m = &self.machines[*i].machine;
            let cost = EffectiveCost::new(m.price, m.interruption_probability, profile.interruption());
            let asked = |name: &str| aggregate.get(name) > 0 || min_unit.get(name) > 0;
            let unasked = m.capacity().iter().filter(|(n, _)| is_extended(n.as_str()) && !asked(n.as_str()));
            (cost, unasked.count(), m.id.clone())
        });
        found
    }

    fn phase3(&self, case: &Case, answer: &mut Answer) {
        let unclaimed = || {
            let all = self.machines.iter().enumerate().filter(|(i, _)| !self.claimed.contains(i));
            all.map(|(_, m)| m).filter(|m| m.facts.eligibility.releasable)
        };
        let heard = |m: &&M| m.machine.cluster.as_ref().is_some_and(|id| case.heard.contains(&id.as_str()));
        let mut excess: Vec<_> =
            unclaimed().filter(|m| m.machine.state == MachineState::Configured).filter(heard).collect();
        excess.sort_by_key(|m| {
            let m = &m.machine;
            (m.cluster.clone(), Reverse(m.price), reclamation(m), Reverse(m.id.clone()))
        });
        let reclaims = excess.iter().filter_map(|m| m.machine.cluster.as_ref().map(|c| (m, c)));
        answer.actions.extend(reclaims.map(|(m, c)| format!("Reclaim {} {c}", m.machine.id)));
        let expired = |m: &&M| match (m.facts.idle_since, m.machine.capacity_type.label()) {
            (Some(since), Some("on-demand")) => since <= secs(-600),
            (Some(since), Some("spot")) => since <= secs(-60),
            _ => false,
        };
        let mut idle: Vec<_> =
            unclaimed().filter(|m| m.machine.state == MachineState::Idle).filter(expired).collect();
        idle.sort_by_key(|m| m.machine.id.clone());
        answer.actions.extend(idle.iter().map(|m| format!("Delete {} -", m.machine.id)));
    }
}

/// The time that the oracle answers for.
pub(crate) const NOW: UnixNanos = UnixNanos(0);
