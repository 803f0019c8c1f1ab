//! What is known of the rows of one cluster.

use bigfleet_types::{Precedence, UnixNanos};

use crate::demand::{Demand, Row, RowIx, compare};
use crate::fleet::Fleet;
use crate::intern::{StampIx, Symbols};
use crate::lanes::Lanes;
use crate::matching::ProfileIx;
use crate::phase1::{Leeway, Order, Outcome};
use crate::phase3::Excess;

/// What is known of a row.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) ix: RowIx,
    pub(super) precedence: Precedence,
    pub(super) arrival: UnixNanos,
    pub(super) stamp: StampIx,
    pub(super) profile: ProfileIx,
    /// The row is a fold.
    folded: bool,
    pub(super) outcome: Outcome,
    /// What it wanted last, and the least that a machine of it had to have.
    aggregate: Lanes,
    min_unit: Lanes,
    leeway: Room,
}

/// How much else a row may want.
#[derive(Debug)]
enum Room {
    Unasked,
    /// It has its outcome only for what it wanted.
    Exact,
    Within(Box<Leeway>),
}

impl Entry {
    /// That of a row of which nothing is known.
    pub(super) fn new(ix: RowIx, row: &Row) -> Self {
        Self {
            ix,
            precedence: row.precedence,
            arrival: row.arrival,
            stamp: row.stamp,
            profile: row.profile,
            folded: row.gangs.is_some(),
            outcome: Outcome::default(),
            aggregate: row.aggregate.clone(),
            min_unit: row.min_unit.clone(),
            leeway: Room::Unasked,
        }
    }

    /// When it has its turn. `rank`: that of its cluster; `place`: its own there.
    pub(super) fn order(&self, rank: u32, place: u32) -> Order {
        (self.precedence, self.arrival, rank, place)
    }

    /// Takes in what the row wants now. Says whether it has the same outcome, if nobody else changes.
    pub(super) fn stands(&mut self, row: &Row, fleet: &Fleet) -> bool {
        if row.min_unit != self.min_unit {
            self.min_unit.clone_from(&row.min_unit);
            self.leeway = Room::Exact;
        }
        if matches!(self.leeway, Room::Unasked) {
            let leeway = self.outcome.leeway(fleet, row, &self.aggregate);
            self.leeway = leeway.map_or(Room::Exact, |leeway| Room::Within(Box::new(leeway)));
        }
        self.aggregate.clone_from(&row.aggregate);
        matches!(&self.leeway, Room::Within(leeway) if leeway.allows(&row.aggregate))
    }

    /// Whether the row at its place in the table is the one that it was, though it may want something else. One that went
    /// and came back may have its profile under another number.
    fn is_of(&self, demand: &Demand) -> bool {
        let key = (self.stamp, self.profile, self.folded, self.arrival);
        demand
            .row(self.ix)
            .is_some_and(|row| (row.stamp, row.profile, row.gangs.is_some(), row.arrival) == key)
    }
}

/// A row of a cluster after folding, and where it is seated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) ix: RowIx,
    pub(super) at: u32,
    /// The one of which all is known.
    pub(super) version: u64,
    /// As in its entry, which is seldom at hand.
    pub(super) stamp: StampIx,
}

/// What others may have to know of an outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) is_open: bool,
    /// A gang.
    pub(super) has_choice: bool,
    pub(super) is_told: bool,
}

impl Kind {
    fn of(outcome: &Outcome) -> Self {
        Self { is_open: outcome.is_open(), has_choice: outcome.choice.is_some(), is_told: outcome.is_told() }
    }
}

/// One cluster. Each of its rows keeps its seat as long as it is there.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// By seat.
    pub(super) entries: Vec<Entry>,
    /// By seat: the places of verdicts; `None` before the first one. Not with the entries, for many change at once.
    pub(super) positions: Vec<Option<u32>>,
    /// By seat: of the outcomes that were recorded last.
    pub(super) kinds: Vec<Kind>,
    /// Seats that nobody has.
    vacant: Vec<u32>,
    /// The seats in precedence order.
    pub(super) line: Vec<u32>,
    /// The rows in the order of the plan.
    pub(super) planned: Vec<Planned>,
    /// Where the gangs are that are told what is free, and what they match.
    pub(super) told: Vec<(u32, ProfileIx)>,
    /// Configured machines that nobody claims.
    pub(super) excess: Excess,
}

impl Book {
    /// Whether a row is the one that it was, though it may want something else.
    pub(super) fn stays(&self, planned: &Planned, demand: &Demand) -> bool {
        planned.version == demand.version(planned.ix) || self.entries[planned.at as usize].is_of(demand)
    }

    /// Gives a row a seat. It is not in line yet.
    pub(super) fn seat(&mut self, entry: Entry, position: Option<u32>) -> u32 {
        if let Some(at) = self.vacant.pop() {
            self.entries[at as usize] = entry;
            self.positions[at as usize] = position;
            return at;
        }
        self.entries.push(entry);
        self.positions.push(position);
        self.kinds.push(Kind::default());
        u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes a row's seat and what was known of it. It is in line still.
    pub(super) fn vacate(&mut self, at: u32) -> (Outcome, Option<u32>) {
        self.vacant.push(at);
        self.kinds[at as usize] = Kind::default();
        let outcome = std::mem::take(&mut self.entries[at as usize].outcome);
        (outcome, self.positions[at as usize].take())
    }

    /// Takes some out of the line.
    pub(super) fn leave_line(&mut self, mut seats: Vec<u32>) {
        seats.sort_unstable();
        self.line.retain(|at| seats.binary_search(at).is_err());
    }

    /// Brings some, which are in precedence order, in line.
    pub(super) fn line_up(&mut self, seats: &[(u32, &Row)], demand: &Demand, symbols: &Symbols) {
        if seats.is_empty() {
            return;
        }
        let mut line = Vec::with_capacity(self.line.len() + seats.len());
        let mut rest = &self.line[..];
        for (at, row) in seats {
            let is_before = |at: &u32| {
                demand
                    .row(self.entries[*at as usize].ix)
                    .is_some_and(|other| compare(symbols, other, row).is_lt())
            };
            let (before, behind) = rest.split_at(rest.partition_point(is_before));
            line.extend(before);
            line.push(*at);
            rest = behind;
        }
        line.extend(rest);
        self.line = line;
    }

    /// Takes in an outcome. Says whether it is of another kind than the one before.
    pub(super) fn take(&mut self, at: u32, outcome: Outcome) -> bool {
        let kind = Kind::of(&outcome);
        let entry = &mut self.entries[at as usize];
        (entry.outcome, entry.leeway) = (outcome, Room::Unasked);
        std::mem::replace(&mut self.kinds[at as usize], kind) != kind
    }

    /// The kinds of all rows.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.line.iter().map(|at| self.kinds[*at as usize])
    }

    /// Finds the gangs that are told what is free.
    pub(super) fn find_told(&mut self, demand: &Demand) {
        self.told.clear();
        for at in self.line.iter().filter(|at| self.kinds[**at as usize].is_told) {
            let row = demand.row(self.entries[*at as usize].ix);
            self.told.extend(row.map(|row| (*at, row.profile)));
        }
    }
}
