//! What is known of the rows of one cluster.

use bigfleet_types::{Precedence, UnixNanos};

use super::Minds;
use crate::ahead;
use crate::demand::{Demand, Row, RowIx, compare};
use crate::fleet::Fleet;
use crate::intern::{StampIx, Symbols};
use crate::lanes::Lanes;
use crate::matching::ProfileIx;
use crate::members::Slot;
use crate::phase1::{Leeway, Order, Outcome};
use crate::phase3::Excess;

/// What is known of a row.
#[derive(Debug)]
pub(super) struct Entry {
    precedence: Precedence,
    arrival: UnixNanos,
    /// The row is a fold.
    folded: bool,
    pub(super) outcome: Outcome,
    /// The least that a machine of it had to have.
    min_unit: Lanes,
    room: Room,
}

/// How much else a row may want.
#[derive(Debug)]
enum Room {
    /// Nobody asked since it wanted this.
    Unasked(Lanes),
    /// It has its outcome only for what it wanted.
    Exact,
    Within(Leeway),
}

impl Entry {
    /// That of a row of which nothing is known.
    pub(super) fn new(row: &Row) -> Self {
        Self {
            precedence: row.precedence,
            arrival: row.arrival,
            folded: row.gangs.is_some(),
            outcome: Outcome::default(),
            min_unit: row.min_unit.clone(),
            room: Room::Exact,
        }
    }

    /// Has what is asked first brought near.
    pub(super) fn fetch(&self) {
        ahead::fetch(self.arrival);
        ahead::fetch(self.outcome.early);
        ahead::fetch(matches!(self.room, Room::Exact));
    }

    /// When it has its turn. `rank`: that of its cluster; `place`: its own there.
    pub(super) fn order(&self, rank: u32, place: u32) -> Order {
        (self.precedence, self.arrival, rank, place)
    }

    /// Takes in what the row wants now. Says whether it has the same outcome, if nobody else changes.
    pub(super) fn stands(&mut self, row: &Row, fleet: &Fleet) -> bool {
        if row.min_unit != self.min_unit {
            self.min_unit.clone_from(&row.min_unit);
            self.room = Room::Exact;
        }
        if let Room::Unasked(wanted) = &self.room {
            self.room = self.outcome.leeway(fleet, row, wanted).map_or(Room::Exact, Room::Within);
        }
        matches!(&self.room, Room::Within(leeway) if leeway.allows(&row.aggregate))
    }
}

/// A row of a cluster after folding, and where it is seated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planned {
    pub(super) ix: RowIx,
    pub(super) at: u32,
    /// The one of which all is known.
    pub(super) version: u64,
    /// As in its brief, which another row has when this one is gone.
    pub(super) stamp: StampIx,
}

/// What is asked of a row most often, for its entry is seldom at hand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Brief {
    pub(super) ix: RowIx,
    pub(super) stamp: StampIx,
    pub(super) profile: ProfileIx,
    /// Of the outcome that was recorded last.
    pub(super) kind: Kind,
    /// What the row minds while it rests, with that outcome; `None`: it does not rest.
    pub(super) minds: Option<Minds>,
}

impl Brief {
    /// That of a row of which nothing is known.
    fn new(ix: RowIx, row: &Row) -> Self {
        Self { ix, stamp: row.stamp, profile: row.profile, kind: Kind::default(), minds: None }
    }
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
    pub(super) briefs: Vec<Brief>,
    /// By seat.
    pub(super) entries: Vec<Entry>,
    /// By seat: the places of verdicts; `None` before the first one. Not with the entries, for many change at once.
    pub(super) positions: Vec<Option<u32>>,
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
    /// Whether the row at its place in the table is the one that it was, though it may want something else. One that went
    /// and came back may have its profile under another number.
    pub(super) fn stays(&self, planned: &Planned, demand: &Demand) -> bool {
        if planned.version == demand.version(planned.ix) {
            return true;
        }
        let (brief, entry) = (&self.briefs[planned.at as usize], &self.entries[planned.at as usize]);
        let key = (brief.stamp, brief.profile, entry.folded, entry.arrival);
        demand
            .row(planned.ix)
            .is_some_and(|row| (row.stamp, row.profile, row.gangs.is_some(), row.arrival) == key)
    }

    /// Gives a row a seat. It is not in line yet.
    pub(super) fn seat(&mut self, ix: RowIx, row: &Row, position: Option<u32>) -> u32 {
        let (brief, entry) = (Brief::new(ix, row), Entry::new(row));
        if let Some(at) = self.vacant.pop() {
            self.briefs[at as usize] = brief;
            self.entries[at as usize] = entry;
            self.positions[at as usize] = position;
            return at;
        }
        self.briefs.push(brief);
        self.entries.push(entry);
        self.positions.push(position);
        u32::try_from(self.entries.len() - 1).unwrap_or(u32::MAX)
    }

    /// Takes a row's seat and what was known of it. It is in line still.
    pub(super) fn vacate(&mut self, at: u32) -> (Outcome, Option<u32>) {
        self.vacant.push(at);
        self.briefs[at as usize].kind = Kind::default();
        let outcome = std::mem::take(&mut self.entries[at as usize].outcome);
        (outcome, self.positions[at as usize].take())
    }

    /// When a row has its turn, how many machines it claims in the first round, and all that it claims. `rank`: that of the
    /// cluster; `place`: that of the row in line.
    pub(super) fn claims_of(&mut self, at: u32, rank: u32, place: u32) -> (Order, usize, &mut Vec<Slot>) {
        let entry = &mut self.entries[at as usize];
        let (order, outcome) = (entry.order(rank, place), &mut entry.outcome);
        let own = outcome.first.of(&outcome.credited).len();
        (order, own, &mut outcome.credited)
    }

    /// Gives a row back the machines that were taken from it when it was woken.
    pub(super) fn take_back(&mut self, at: u32, credited: Vec<Slot>) {
        self.entries[at as usize].outcome.credited = credited;
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
                    .row(self.briefs[*at as usize].ix)
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

    /// Takes in the outcome of a row. Says whether it is of another kind than the one before.
    pub(super) fn take(&mut self, at: u32, row: &Row, outcome: Outcome) -> bool {
        let kind = Kind::of(&outcome);
        let brief = &mut self.briefs[at as usize];
        brief.minds = outcome.minds();
        let entry = &mut self.entries[at as usize];
        (entry.outcome, entry.room) = (outcome, Room::Unasked(row.aggregate.clone()));
        std::mem::replace(&mut brief.kind, kind) != kind
    }

    /// The kinds of all rows.
    pub(super) fn kinds(&self) -> impl Iterator<Item = Kind> {
        self.line.iter().map(|at| self.briefs[*at as usize].kind)
    }

    /// Finds the gangs that are told what is free.
    pub(super) fn find_told(&mut self) {
        let briefs = self.line.iter().map(|at| (*at, &self.briefs[*at as usize]));
        self.told.clear();
        self.told
            .extend(briefs.filter(|(_, brief)| brief.kind.is_told).map(|(at, brief)| (at, brief.profile)));
    }
}
