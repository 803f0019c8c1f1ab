//! Who has a turn: those that were listed beforehand, and those that are woken on the way.

use std::collections::BTreeMap;
use std::vec;

use bigfleet_types::{Precedence, UnixNanos};

use super::First;
use crate::demand::{Demand, Row, RowIx};
use crate::lanes::Lanes;
use crate::ledger::{Minds, Rest, Round, Seat, Woken};
use crate::members::Slot;

/// Where a row stands among all: its precedence, its arrival, the rank of its cluster, its place there.
pub(crate) type Order = (Precedence, UnixNanos, u32, u32);

/// A row whose turn it is.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
    pub(crate) ix: RowIx,
    pub(crate) row: &'a Row,
    /// `None`: all that was known may have changed.
    pub(crate) known: Option<Box<Known>>,
    /// What it was credited with in the pass before, in the order of the walk.
    pub(crate) had: Vec<Slot>,
    /// What it claimed in the first round of that.
    pub(crate) first: First,
    /// What it acquired in the pass before.
    pub(crate) acquired: Vec<Slot>,
}

/// What is known of a row before its turn.
#[derive(Debug)]
pub(crate) enum Known {
    /// It has what it had, and lacks this: only what is free for all has to be looked at again.
    Missing(Lanes),
    /// It rested, and what it had is all that it claims, unless somebody took one or something that it minds happened.
    Rested(Minds),
}

/// The turns to come. There are few precedences, and within one the turns are mostly listed in order.
pub(crate) struct Turns<'a> {
    demand: &'a Demand,
    listed: BTreeMap<Precedence, Vec<Turn<'a>>>,
    /// Those of the precedence whose turn it is, in order.
    current: vec::IntoIter<Turn<'a>>,
    woken: BTreeMap<Order, Turn<'a>>,
    /// Woken in the second round of the precedence whose turn it is.
    late: BTreeMap<Order, Turn<'a>>,
}

impl<'a> Turns<'a> {
    /// None yet.
    pub(crate) fn new(demand: &'a Demand) -> Self {
        let (listed, woken, late) = Default::default();
        Self { demand, listed, current: Vec::new().into_iter(), woken, late }
    }

    /// Lists a turn, before the first one is taken.
    pub(crate) fn push(&mut self, turn: Turn<'a>) {
        self.listed.entry(turn.order.0).or_default().push(turn);
    }

    /// How many are listed.
    pub(super) fn len(&self) -> usize {
        self.listed.values().map(Vec::len).sum()
    }

    fn take_woken(&mut self, rest: &mut Rest) {
        for (round, Woken { order, seat, ix, credited: had, own, minds }) in rest.take_woken() {
            let Some(row) = self.demand.row(ix) else { continue };
            let (known, first) = (Some(Box::new(Known::Rested(minds))), First::Of(own));
            let woken = if round == Round::First { &mut self.woken } else { &mut self.late };
            woken.insert(order, Turn { order, seat, ix, row, known, had, first, acquired: Vec::new() });
        }
    }

    /// Whose turn is next.
    pub(super) fn next_order(&mut self, rest: &mut Rest) -> Option<Order> {
        self.take_woken(rest);
        if self.current.len() == 0
            && let Some((_, mut equals)) = self.listed.pop_first()
        {
            equals.sort_unstable_by_key(|turn| turn.order);
            self.current = equals.into_iter();
        }
        let woken = self.woken.first_key_value().map(|(order, _)| *order);
        self.current.as_slice().first().map(|turn| turn.order).into_iter().chain(woken).min()
    }

    /// The next turn of this precedence.
    pub(super) fn next_of(&mut self, precedence: Precedence, rest: &mut Rest) -> Option<Turn<'a>> {
        let order = self.next_order(rest).filter(|order| order.0 == precedence)?;
        self.woken.remove(&order).or_else(|| self.current.next())
    }

    /// One that has what it had so far goes on in the second round.
    pub(super) fn goes_on(&mut self, turn: Turn<'a>) {
        self.late.insert(turn.order, turn);
    }

    /// One that goes on in the second round, unless one at `before` comes first.
    pub(super) fn next_late(&mut self, before: Option<Order>, rest: &mut Rest) -> Option<Turn<'a>> {
        self.take_woken(rest);
        let first =
            self.late.first_entry().filter(|first| before.is_none_or(|order| *first.key() < order))?;
        Some(first.remove())
    }
}
