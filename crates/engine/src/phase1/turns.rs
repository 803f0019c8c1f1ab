//! Who has a turn: those that were listed beforehand, and those that are woken on the way.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::vec;

use bigfleet_types::{Precedence, UnixNanos};

use super::rest::Rest;
use crate::demand::{Row, RowIx};
use crate::lanes::Lanes;
use crate::ledger::Seat;
use crate::members::Slot;

/// Where a row stands among all: its precedence, its arrival, the rank of its cluster, its place there.
pub(crate) type Order = (Precedence, UnixNanos, u32, u32);

/// A row whose turn it is.
pub(crate) struct Turn<'a> {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
    pub(crate) ix: RowIx,
    pub(crate) row: &'a Row,
    pub(crate) known: Known,
}

/// What is known of a row before its turn.
#[derive(Debug)]
pub(crate) enum Known {
    /// Nothing that may not have changed.
    Nothing,
    /// What it has and lacks: only what is free for all has to be looked at again.
    Credit(Box<Kept>),
    /// It rested, and these machines are all that it claims, unless somebody took one.
    Rested(Vec<Slot>),
}

impl Turn<'_> {
    /// What the row acquired in the pass before, as far as is known.
    pub(crate) fn acquired_before(&self) -> Option<&[Slot]> {
        match &self.known {
            Known::Credit(kept) => Some(&kept.acquired),
            Known::Nothing | Known::Rested(_) => None,
        }
    }
}

/// What a plain row keeps of its turn in the pass before.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of the walk.
    pub(crate) credited: Vec<Slot>,
    /// What credit left missing.
    pub(crate) missing: Lanes,
    /// What it acquired then.
    pub(crate) acquired: Vec<Slot>,
}

/// Brings turns in order. There are few precedences, and within one the turns mostly are in order already.
pub(crate) fn in_order(turns: Vec<Turn<'_>>) -> Vec<Turn<'_>> {
    let mut sorted = Vec::with_capacity(turns.len());
    let mut by_precedence: BTreeMap<Precedence, Vec<Turn<'_>>> = BTreeMap::new();
    for turn in turns {
        by_precedence.entry(turn.order.0).or_default().push(turn);
    }
    for mut equals in by_precedence.into_values() {
        equals.sort_unstable_by_key(|turn| turn.order);
        sorted.append(&mut equals);
    }
    sorted
}

/// The turns to come.
pub(super) struct Turns<'a> {
    listed: Peekable<vec::IntoIter<Turn<'a>>>,
    woken: BTreeMap<Order, Turn<'a>>,
}

impl<'a> Turns<'a> {
    /// `listed`: in order.
    pub(super) fn new(listed: Vec<Turn<'a>>) -> Self {
        Self { listed: listed.into_iter().peekable(), woken: BTreeMap::new() }
    }

    /// Whose turn is next.
    pub(super) fn next_order(&mut self, rest: &mut Rest<'a>) -> Option<Order> {
        self.woken.extend(rest.take_woken().map(|turn| (turn.order, turn)));
        let woken = self.woken.first_key_value().map(|(order, _)| *order);
        self.listed.peek().map(|turn| turn.order).into_iter().chain(woken).min()
    }

    /// The next turn of this precedence.
    pub(super) fn next_of(&mut self, precedence: Precedence, rest: &mut Rest<'a>) -> Option<Turn<'a>> {
        let order = self.next_order(rest).filter(|order| order.0 == precedence)?;
        self.woken.remove(&order).or_else(|| self.listed.next())
    }
}
