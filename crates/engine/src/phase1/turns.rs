//! Who has a turn: those that were listed beforehand, and those that are woken on the way.

use std::collections::BTreeMap;
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
    /// `None`: all that was known may have changed.
    pub(crate) known: Option<Box<Known>>,
    /// What it acquired in the pass before.
    pub(crate) acquired: Vec<Slot>,
}

/// What is known of a row before its turn.
#[derive(Debug)]
pub(crate) enum Known {
    /// What it has and lacks: only what is free for all has to be looked at again.
    Credit(Kept),
    /// It rested, and these machines are all that it claims, unless somebody took one.
    Rested(Vec<Slot>),
}

/// What a plain row keeps of its turn in the pass before.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// In the order of the walk.
    pub(crate) credited: Vec<Slot>,
    /// What credit left missing.
    pub(crate) missing: Lanes,
}

/// The turns to come. There are few precedences, and within one the turns are mostly listed in order.
#[derive(Default)]
pub(crate) struct Turns<'a> {
    listed: BTreeMap<Precedence, Vec<Turn<'a>>>,
    /// Those of the precedence whose turn it is, in order.
    current: vec::IntoIter<Turn<'a>>,
    woken: BTreeMap<Order, Turn<'a>>,
}

impl<'a> Turns<'a> {
    /// Lists a turn, before the first one is taken.
    pub(crate) fn push(&mut self, turn: Turn<'a>) {
        self.listed.entry(turn.order.0).or_default().push(turn);
    }

    /// How many are listed.
    pub(super) fn len(&self) -> usize {
        self.listed.values().map(Vec::len).sum()
    }

    /// Whose turn is next.
    pub(super) fn next_order(&mut self, rest: &mut Rest<'a>) -> Option<Order> {
        self.woken.extend(rest.take_woken().map(|turn| (turn.order, turn)));
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
    pub(super) fn next_of(&mut self, precedence: Precedence, rest: &mut Rest<'a>) -> Option<Turn<'a>> {
        let order = self.next_order(rest).filter(|order| order.0 == precedence)?;
        self.woken.remove(&order).or_else(|| self.current.next())
    }
}
