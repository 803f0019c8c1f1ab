//! Why each action, and what would have been done instead: the phases are asked again without the machine.

use bigfleet_types::{EffectiveCost, MachineState, PenaltyBucket, Probability, StampedPenalty};

use super::fates::cost;
use super::{ActionExplanation, Alternative, RUNNERS_UP, Victim, Why};
use crate::class::ClassIx;
use crate::decision::{Action, ActionKind};
use crate::demand::{Row, RowIx};
use crate::fleet::Fleet;
use crate::intern::Map;
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::Pass;
use crate::phase1::{self, Outcome};
use crate::phase2::{self, Again};
use crate::place::Place;
use crate::policy::Policy;

/// What credit left missing, raised to the floor where no credited machine is as large as the largest pod.
pub(super) fn missing(pass: &Pass<'_>, row: &Row, outcome: &Outcome) -> Lanes {
    let mut missing = row.aggregate.clone();
    let mut floor_met = outcome.choice.is_some() || row.aggregate.is_zero();
    for slot in &outcome.credited {
        let capacity = pass.fleet.capacity(*slot);
        missing.subtract(&row.worth(capacity));
        floor_met = floor_met || capacity.covers(&row.min_unit);
    }
    if !floor_met {
        missing.raise(&row.min_unit);
    }
    missing
}

/// Explains the actions that serve a Need and are asked about, by the position of the row and the action.
#[allow(clippy::too_many_arguments, reason = "a decision as it was taken")]
pub(super) fn explain(
    pass: &mut Pass<'_>,
    ixs: &[RowIx],
    claims: &[Option<usize>],
    outcomes: &[Outcome],
    actions: &[Action],
    heard: &[bool],
    policy: &Policy,
    is_about: &dyn Fn(usize, &Action) -> bool,
) -> Vec<ActionExplanation> {
    let rows = pass.rows.clone();
    let mut again = pass.anew();
    let mut claimed: Vec<(usize, Slot)> = Vec::new();
    claimed.extend((0..).zip(claims).filter_map(|(at, by)| Some(((*by)?, Slot::new(at)))));
    claimed.sort_unstable();
    let mut claimed = claimed.into_iter().peekable();
    let mut explained = Vec::new();
    let mut number = 0;
    // As in a decision: first all acquisitions, each row after the claims of those in front of it ...
    for (position, outcome) in outcomes.iter().enumerate() {
        let mut instead = Instead::default();
        for slot in &outcome.acquired {
            if is_about(position, &actions[number]) {
                let next = instead
                    .of(again.fleet.class(*slot), || alternatives(&mut again, position, outcome, *slot));
                let why = Why::Acquired { next };
                let cost = cost(&again, rows[position], again.fleet.class(*slot));
                explained.push(ActionExplanation { action: number, cost, why });
            }
            number += 1;
        }
        while let Some((by, slot)) = claimed.next_if(|(by, _)| *by <= position) {
            again.serve(ixs[by]);
            again.claim(slot);
        }
    }
    // ... then all preemptions, after all claims.
    again.serve_nobody();
    for (position, outcome) in outcomes.iter().enumerate() {
        let mut search: Option<Again> = None;
        let mut instead = Instead::default();
        for slot in outcome.victims() {
            if is_about(position, &actions[number]) {
                let search = search.get_or_insert_with(|| Again::new(&again, outcomes, position, heard));
                let class = again.fleet.class(*slot);
                let next =
                    instead.of(class, || next_victims(&again, search, position, outcomes, *slot, policy));
                let next = next.into_iter().filter_map(|slot| victim(&again, position, slot, heard, policy));
                let next = next.collect();
                let why = victim(&again, position, *slot, heard, policy)
                    .map(|victim| Why::Preempted { victim, next });
                let cost = cost(&again, rows[position], class);
                explained.extend(why.map(|why| ActionExplanation { action: number, cost, why }));
            }
            number += 1;
        }
    }
    explained
}

/// The answers for one row by class: machines of one class are replaced by the same.
struct Instead<T>(Map<ClassIx, T>);

impl<T> Default for Instead<T> {
    fn default() -> Self {
        Self(Map::default())
    }
}

impl<T: Clone> Instead<T> {
    fn of(&mut self, class: ClassIx, find: impl FnOnce() -> T) -> T {
        self.0.entry(class).or_insert_with(find).clone()
    }
}

/// What a row would acquire, machine by machine, if the first and those found so far were not there.
fn alternatives(pass: &mut Pass<'_>, position: usize, outcome: &Outcome, without: Slot) -> Vec<Alternative> {
    let row = pass.rows[position];
    let missing = missing(pass, row, outcome);
    pass.serve_nobody();
    let mut barred = vec![without];
    pass.claim(without);
    let mut found: Vec<Slot> = Vec::new();
    while found.len() < RUNNERS_UP {
        let taken = phase1::acquire_instead(pass, row, outcome, &missing);
        let new: Vec<Slot> = taken.into_iter().filter(|slot| !outcome.acquired.contains(slot)).collect();
        if new.is_empty() {
            break;
        }
        new.iter().for_each(|slot| pass.claim(*slot));
        barred.extend(&new);
        found.extend(new);
    }
    barred.into_iter().for_each(|slot| pass.unclaim(slot));
    found.truncate(RUNNERS_UP);
    let alternative = |slot: Slot| Alternative {
        machine: pass.fleet.ids.id(slot),
        kind: match pass.fleet.state(slot) {
            MachineState::Idle => ActionKind::Bootstrap,
            _ => ActionKind::Provision,
        },
        cost: cost(pass, row, pass.fleet.class(slot)),
    };
    found.into_iter().map(alternative).collect()
}

/// Whom a row would preempt, one by one, if the first and those found so far were not there.
fn next_victims(
    pass: &Pass<'_>,
    search: &mut Again,
    position: usize,
    outcomes: &[Outcome],
    without: Slot,
    policy: &Policy,
) -> Vec<Slot> {
    let outcome = &outcomes[position];
    let mut barred = vec![without];
    let mut found: Vec<Slot> = Vec::new();
    while found.len() < RUNNERS_UP {
        let picked = search.pick(pass, position, outcome, &barred, policy);
        let new: Vec<Slot> = picked.into_iter().filter(|slot| !outcome.victims().contains(slot)).collect();
        if new.is_empty() {
            break;
        }
        barred.extend(&new);
        found.extend(new);
    }
    found.truncate(RUNNERS_UP);
    found
}

fn victim(pass: &Pass<'_>, position: usize, slot: Slot, heard: &[bool], policy: &Policy) -> Option<Victim> {
    let claimed_by = pass.claimant(slot);
    let spoken = pass.fleet.cluster(slot).is_some_and(|cluster| heard[cluster.at()]);
    let priority = phase2::effective_priority(pass, slot, claimed_by);
    Some(Victim {
        machine: pass.fleet.ids.id(slot),
        cluster: pass.fleet.cluster(slot).map(|cluster| pass.symbols.name(cluster).clone()),
        priority,
        claimed_by: claimed_by.map(|by| by.key(pass.symbols)),
        excess: claimed_by.is_none() && spoken,
        score: phase2::score_of(pass, slot, pass.rows[position], priority, policy),
    })
}

/// Explains a Reclaim or Delete.
pub(super) fn release(
    fleet: &Fleet,
    number: usize,
    action: &Action,
    policy: &Policy,
) -> Option<ActionExplanation> {
    let slot = fleet.ids.find(action.machine.as_str())?;
    let why = match action.kind {
        ActionKind::Reclaim => Why::Excess {
            reclamation: match fleet.place(fleet.pool(slot)) {
                Place::Bound(binding) => binding.reclamation,
                _ => StampedPenalty::from(PenaltyBucket::ZERO),
            },
            since: fleet.excess_since(slot)?,
        },
        _ => Why::HoldOver {
            since: fleet.idle_since(slot)?,
            hold: policy.idle_hold(fleet.capacity_type(fleet.pool(slot)))?,
        },
    };
    let cost = EffectiveCost::new(fleet.price(fleet.pool(slot)), Probability::ZERO, PenaltyBucket::ZERO);
    Some(ActionExplanation { action: number, cost, why })
}
