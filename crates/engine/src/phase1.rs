//! Phase 1: every Need, in precedence order, is credited with machines that it has and acquires what it lacks.
//!
//! Needs of equal precedence take two rounds, so that none takes a machine that serves an equal.

mod acquire;
mod credit;
mod floor;
mod gang;
mod leeway;
mod lookout;
mod queue;
mod spread;
mod tell;
mod terrain;
pub(crate) mod trim;
mod turns;

use bigfleet_types::{MachineState, Precedence};

pub(crate) use self::gang::{Choice, Told};
pub(crate) use self::leeway::Leeway;
pub(crate) use self::lookout::Lookout;
pub(crate) use self::queue::Queue;
pub(crate) use self::spread::{Key as SpreadKey, Spread, Universe};
pub(crate) use self::tell::{Listener, retell};
pub(crate) use self::turns::{Known, Order, Turn, Turns};
use crate::demand::Row;
use crate::fleet::Fleet;
use crate::lanes::Lanes;
use crate::ledger::{Minds, Round, time};
use crate::members::{PoolIx, Slot};
use crate::pass::Pass;

/// What Phase 2 found for a row that Phase 1 could not satisfy.
#[derive(Debug, Default, Clone)]
pub(crate) struct Relief {
    /// Machines preempted for the row, in the order picked.
    pub(crate) victims: Vec<Slot>,
    /// What no phase could meet.
    pub(crate) unresolved: Option<Lanes>,
    /// Draining machines that the row counts on.
    pub(crate) drains: Vec<Slot>,
    /// Machines kept for a gang in the domain that it moves to.
    pub(crate) reserved: Vec<Slot>,
    /// Free machines that Phase 1 had claimed for a gang in the domain that it leaves.
    pub(crate) given_up: Vec<Slot>,
}

/// What a row claims in the first round.
#[derive(Debug, Clone)]
pub(crate) enum First {
    /// The first so many of all that it is credited with.
    Of(usize),
    /// These. One was added for the floor after the walk, and others perhaps released.
    Others(Box<[Slot]>),
}

impl Default for First {
    fn default() -> Self {
        Self::Of(0)
    }
}

impl First {
    /// `credited`: all that the row is credited with.
    pub(crate) fn of<'s>(&'s self, credited: &'s [Slot]) -> &'s [Slot] {
        match self {
            Self::Of(number) => &credited[..*number],
            Self::Others(others) => others,
        }
    }
}

/// What was found for one row. Phase 2 completes it.
#[derive(Debug, Default, Clone)]
pub(crate) struct Outcome {
    /// What is missing; no positive lane when satisfied.
    pub(crate) residual: Lanes,
    /// Bound and in-flight machines claimed, in the order of the walk.
    pub(crate) credited: Vec<Slot>,
    /// Free machines claimed, in the order of acquisition.
    pub(crate) acquired: Vec<Slot>,
    /// Where a gang goes; `None` for a plain Need.
    pub(crate) choice: Option<Box<Choice>>,
    /// What Phase 2 did for a row that is not satisfied.
    pub(crate) relief: Option<Box<Relief>>,
    /// What credit left missing of a plain Need, raised to the floor where no credited machine is as large.
    pub(crate) missing: Lanes,
    /// Settled in the first round.
    pub(crate) early: bool,
    /// Which machines were claimed in the first round.
    pub(crate) first: First,
    /// A plain row that the first of its own machines cover. Others matter to it only when they take one.
    pub(crate) alone: bool,
}

/// A row on its way through the two rounds.
#[derive(Debug)]
struct Work {
    remaining: Lanes,
    /// In the order of the walk.
    credited: Vec<Slot>,
    /// One of these is as large as the largest pod.
    floor_met: bool,
}

impl Work {
    fn new(row: &Row) -> Self {
        Self { remaining: row.aggregate.clone(), credited: Vec::new(), floor_met: false }
    }

    /// That of a row which claimed these machines in the first round.
    fn after_first(pass: &Pass<'_>, row: &Row, own: &[Slot]) -> Self {
        let mut work = Self { credited: own.to_vec(), ..Self::new(row) };
        for slot in own {
            let capacity = pass.fleet.capacity(*slot);
            work.remaining.subtract(&row.worth(capacity));
            work.floor_met |= capacity.covers(&row.min_unit);
        }
        work
    }

    /// Claims a machine as credit.
    fn credit(&mut self, pass: &mut Pass<'_>, row: &Row, slot: Slot, pool: PoolIx) {
        pass.claim_in(slot, pool);
        let capacity = pass.fleet.classes.capacity(pass.fleet.class_of(pool));
        self.remaining.subtract(&row.worth(capacity));
        self.credited.push(slot);
    }
}

/// What the second round has to do for a row.
#[derive(Clone, Copy)]
enum Left {
    /// All but the credit of its own bound machines; whether one of them is as large as its largest pod.
    Credit { floor_met: bool },
    /// Acquisition only: all credit is as in the pass before.
    Acquisition,
}

/// What became of all rows that had a turn.
#[derive(Default)]
pub(crate) struct Found<'a> {
    /// In precedence order.
    pub(crate) turns: Vec<Turn<'a>>,
    /// Theirs.
    pub(crate) outcomes: Vec<Outcome>,
    /// The positions of those that acquire something, or did before.
    pub(crate) acquirers: Vec<usize>,
    /// The positions of those that lack something.
    pub(crate) unmet: Vec<usize>,
}

/// Runs the phase for rows in precedence order, and for those that it wakes. What rows without a turn claim stays
/// claimed; those that were woken for nothing have none.
pub(crate) fn run<'a>(pass: &mut Pass<'a>, mut turns: Turns<'a>) -> Found<'a> {
    let (had, outcomes) = (Vec::with_capacity(turns.len()), Vec::with_capacity(turns.len()));
    let mut found = Found { turns: had, outcomes, ..Found::default() };
    while let Some(precedence) = turns.next_order(&mut pass.rest).map(|order| order.0) {
        let first = found.turns.len();
        let left = first_round(pass, &mut turns, precedence, &mut found);
        second_round(pass, &mut turns, left, &mut found);
        found.bring_in_order(first);
        for position in first..found.turns.len() {
            let (turn, outcome) = (&found.turns[position], &found.outcomes[position]);
            if !(outcome.acquired.is_empty() && turn.acquired.is_empty()) {
                found.acquirers.push(position);
            }
            if !outcome.residual.is_zero() {
                found.unmet.push(position);
            }
        }
    }
    pass.rows = found.turns.iter().map(|turn| turn.row).collect();
    found
}

/// All of a precedence keep their own. Gives the positions of those that are not done, and what is left to do.
fn first_round<'a>(
    pass: &mut Pass<'a>,
    turns: &mut Turns<'a>,
    precedence: Precedence,
    found: &mut Found<'a>,
) -> Vec<(usize, Left)> {
    let mut not_done = Vec::new();
    while let Some(mut turn) = turns.next_of(precedence, &mut pass.rest) {
        pass.serve(turn.ix);
        pass.rest.reached(time(turn.order, Round::First));
        let own = turn.first.of(&turn.had);
        if let Some(Known::Rested(minds)) = turn.known.as_deref()
            && pass.has_again(turn.row, *minds, own)
        {
            if own.len() < turn.had.len() {
                turns.goes_on(turn);
            } else {
                pass.rest.sleep_again(turn);
            }
            continue;
        }
        let (mut outcome, left) = keep_own(pass, &mut turn);
        outcome.early = left.is_none();
        if !matches!(left, Some(Left::Acquisition)) {
            pass.changed_hands(turn.ix, turn.row, turn.first.of(&turn.had), &outcome.credited);
            if left.is_none() {
                pass.changed_hands(turn.ix, turn.row, &turn.had, &outcome.credited);
            }
        }
        not_done.extend(left.map(|left| (found.turns.len(), left)));
        found.outcomes.push(outcome);
        found.turns.push(turn);
    }
    not_done
}

/// Those of a precedence that are not done take what else there is.
fn second_round<'a>(
    pass: &mut Pass<'a>,
    turns: &mut Turns<'a>,
    not_done: Vec<(usize, Left)>,
    found: &mut Found<'a>,
) {
    let mut not_done = not_done.into_iter().peekable();
    loop {
        let next = not_done.peek().map(|(position, _)| found.turns[*position].order);
        if let Some(turn) = turns.next_late(next, &mut pass.rest) {
            pass.serve(turn.ix);
            pass.rest.reached(time(turn.order, Round::Second));
            let own = turn.first.of(&turn.had);
            let others = &turn.had[own.len()..];
            if let Some(Known::Rested(minds)) = turn.known.as_deref()
                && pass.has_again(turn.row, *minds, others)
            {
                pass.rest.sleep_again(turn);
                continue;
            }
            wake_for(pass, turn.row);
            let work = Work::after_first(pass, turn.row, own);
            let outcome = settle(pass, turn.row, work);
            pass.changed_hands(turn.ix, turn.row, &turn.had, &outcome.credited);
            found.outcomes.push(outcome);
            found.turns.push(turn);
            continue;
        }
        let Some((position, left)) = not_done.next() else { break };
        let (turn, outcome) = (&found.turns[position], &mut found.outcomes[position]);
        pass.serve(turn.ix);
        pass.rest.reached(time(turn.order, Round::Second));
        *outcome = match left {
            Left::Credit { floor_met } => settle(pass, turn.row, outcome.take_work(floor_met)),
            Left::Acquisition => {
                Outcome { first: turn.first.clone(), ..buy(pass, turn.row, outcome.take_work(true)) }
            }
        };
        if let Left::Credit { .. } = left {
            pass.changed_hands(turn.ix, turn.row, &turn.had, &outcome.credited);
        }
    }
}

impl Found<'_> {
    /// Brings those from a position on in order: some came in the second round.
    fn bring_in_order(&mut self, first: usize) {
        if self.turns[first..].is_sorted_by_key(|turn| turn.order) {
            return;
        }
        let mut pairs: Vec<_> = self.turns.drain(first..).zip(self.outcomes.drain(first..)).collect();
        pairs.sort_unstable_by_key(|(turn, _)| turn.order);
        for (turn, outcome) in pairs {
            self.turns.push(turn);
            self.outcomes.push(outcome);
        }
    }
}

/// The first round: a plain Need keeps its own bound machines until they cover it; a gang that its own bound machines
/// in one domain cover is settled. Says what is left to do.
fn keep_own(pass: &mut Pass<'_>, turn: &mut Turn<'_>) -> (Outcome, Option<Left>) {
    let row = turn.row;
    pass.matching.look(row.profile, &pass.fleet.classes);
    if let Some(Known::Missing(missing)) = turn.known.as_deref_mut() {
        let (residual, credited) = (std::mem::take(missing), std::mem::take(&mut turn.had));
        return (Outcome { residual, credited, ..Outcome::default() }, Some(Left::Acquisition));
    }
    let same = pass.matching.same(row.profile);
    if row.aggregate.is_zero() {
        let choice = same.map(|_| Box::new(Choice::NOTHING_WANTED));
        let alone = choice.is_none();
        return (Outcome { alone, choice, ..Outcome::default() }, None);
    }
    let mut work = Work::new(row);
    wake_for(pass, row);
    match same {
        Some(key) => {
            if gang::own_suffice(pass, row, key) {
                let outcome = gang::settle(pass, row, key);
                return (Outcome { first: First::Of(outcome.credited.len()), ..outcome }, None);
            }
        }
        None => {
            let undisturbed = credit::own_bound(pass, row, &mut work);
            if work.remaining.is_zero() && (work.floor_met || row.min_unit.is_zero()) {
                let credited = work.credited;
                let first = First::Of(credited.len());
                return (Outcome { credited, first, alone: undisturbed, ..Outcome::default() }, None);
            }
        }
    }
    let Work { remaining: residual, credited, floor_met } = work;
    (Outcome { residual, credited, ..Outcome::default() }, Some(Left::Credit { floor_met }))
}

/// Wakes those that rest behind a row and may have machines that it looks at before all others: what it has of its own, and
/// for a gang all that its cluster has.
fn wake_for(pass: &mut Pass<'_>, row: &Row) {
    match pass.matching.same(row.profile) {
        Some(_) => pass.wake_behind(row),
        None => pass.wake_on_line(row),
    }
}

/// The second round: the rest of the credit walk, then acquisition.
fn settle(pass: &mut Pass<'_>, row: &Row, mut work: Work) -> Outcome {
    if let Some(key) = pass.matching.same(row.profile) {
        return gang::settle(pass, row, key);
    }
    let own = work.credited.len();
    credit::others(pass, row, &mut work);
    let first = floor::guarantee(pass, row, own, &mut work);
    Outcome { first, ..buy(pass, row, work) }
}

/// Acquisition of a plain Need.
fn buy(pass: &mut Pass<'_>, row: &Row, mut work: Work) -> Outcome {
    let missing = work.remaining.clone();
    let acquired = if pass.matching.spread(row.profile).is_empty() {
        acquire::acquire(pass, row, &mut work, acquire::Within::ANYWHERE)
    } else {
        spread::acquire(pass, row, &mut work)
    };
    Outcome { residual: work.remaining, credited: work.credited, acquired, missing, ..Outcome::default() }
}

/// What a row would acquire now with this missing. Claims nothing for good.
pub(crate) fn acquire_instead(
    pass: &mut Pass<'_>,
    row: &Row,
    outcome: &Outcome,
    missing: &Lanes,
) -> Vec<Slot> {
    let mut work = Work { remaining: missing.clone(), credited: outcome.credited.clone(), floor_met: true };
    let taken = if let Some(choice) = &outcome.choice {
        let within = acquire::Within { domain: choice.domain, buys: choice.satisfiable };
        acquire::acquire(pass, row, &mut work, within)
    } else if pass.matching.spread(row.profile).is_empty() {
        acquire::acquire(pass, row, &mut work, acquire::Within::ANYWHERE)
    } else {
        spread::acquire(pass, row, &mut work)
    };
    taken.iter().for_each(|slot| pass.unclaim(*slot));
    // Lists forget what is used up, and here nothing was.
    pass.candidates.clear();
    pass.spread_candidates.clear();
    taken
}

impl Outcome {
    /// What is left to do after the first round.
    fn take_work(&mut self, floor_met: bool) -> Work {
        Work {
            remaining: std::mem::take(&mut self.residual),
            credited: std::mem::take(&mut self.credited),
            floor_met,
        }
    }

    /// Machines preempted for the row, in the order picked.
    pub(crate) fn victims(&self) -> &[Slot] {
        self.relief.as_ref().map_or(&[], |relief| &relief.victims)
    }

    /// Draining machines that the row counts on.
    pub(crate) fn drains(&self) -> &[Slot] {
        self.relief.as_ref().map_or(&[], |relief| &relief.drains)
    }

    /// Machines kept for a gang in the domain that it moves to.
    pub(crate) fn reserved(&self) -> &[Slot] {
        self.relief.as_ref().map_or(&[], |relief| &relief.reserved)
    }

    /// Free machines that Phase 1 claimed, whether Phase 2 gave them back or not.
    pub(crate) fn once_acquired(&self) -> impl Iterator<Item = Slot> {
        let given_up = self.relief.as_ref().map_or(&[][..], |relief| &relief.given_up);
        self.acquired.iter().chain(given_up).copied()
    }

    /// What no phase could meet.
    pub(crate) fn unresolved(&self) -> Option<&Lanes> {
        self.relief.as_ref()?.unresolved.as_ref()
    }

    /// What Phase 2 does for the row.
    pub(crate) fn relief_mut(&mut self) -> &mut Relief {
        self.relief.get_or_insert_default()
    }

    /// How much else a row that wanted that much may want and have the same outcome, if nobody else changes: the walk passes
    /// the same machines and takes the same ones as long as the same lanes are missing. `None`: nothing else.
    pub(crate) fn leeway(&self, fleet: &Fleet, row: &Row, wanted: &Lanes) -> Option<Leeway> {
        if !matches!(self.minds(), Some(Minds::Nothing | Minds::More)) {
            return None;
        }
        let capacity = |slot: &Slot| fleet.classes.get(fleet.class(*slot)).capacity;
        let equals = self.credited.chunk_by(|a, b| capacity(a) == capacity(b));
        let worth = |equals: &[Slot]| row.worth(fleet.classes.amounts(capacity(&equals[0])));
        Leeway::of(wanted, equals.map(|equals| (worth(equals), equals.len())))
    }

    /// What the row minds of what becomes of the machines of its cluster that it could use; `None`: all.
    pub(crate) fn minds(&self) -> Option<Minds> {
        match self.first {
            First::Of(_) if self.alone => Some(Minds::Nothing),
            First::Of(_) if self.is_open() => None,
            First::Of(_) if self.choice.is_none() => Some(Minds::More),
            First::Of(_) => Some(Minds::Any),
            First::Others(_) => None,
        }
    }

    /// Whether what is free for all, or what others acquire, may change the outcome.
    pub(crate) fn is_open(&self) -> bool {
        !self.residual.is_zero() || !self.acquired.is_empty()
    }

    /// Whether a gang is served by what it has, and yet is told what is free.
    pub(crate) fn is_told(&self) -> bool {
        !self.is_open() && self.choice.as_ref().is_some_and(|choice| choice.domain.is_some())
    }

    /// How many of the acquired machines were in this state.
    pub(crate) fn acquired_from(&self, pass: &Pass<'_>, state: MachineState) -> usize {
        self.acquired.iter().filter(|slot| pass.fleet.state(**slot) == state).count()
    }

    /// All machines claimed.
    pub(crate) fn claimed(&self) -> impl Iterator<Item = Slot> {
        self.credited.iter().chain(&self.acquired).copied()
    }
}
