//! Rows without a turn in clusters where others have one.
//!
//! A row that its own machines serve looks at nothing else, so what its neighbours do is no matter to it, but for one
//! thing: a neighbour with an earlier turn may take its machines. Before one looks at them, the row gives them up; in its
//! place in the order it claims them again, or has a turn after all if one is gone.

use super::turns::{Known, Order, Turn};
use crate::class::ClassIx;
use crate::demand::{Row, RowIx};
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, Map, Set};
use crate::ledger::Seat;
use crate::lines::Standing;
use crate::matching::ProfileIx;
use crate::members::Slot;

/// One such row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resting<'a> {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
    pub(crate) ix: RowIx,
    pub(crate) row: &'a Row,
    /// Its machines, once somebody asked.
    pub(crate) line: Option<&'a [Standing]>,
}

impl<'a> Resting<'a> {
    /// Whether one of its machines is of a class that matches.
    fn has(&mut self, fleet: &'a Fleet, matches: impl Fn(ClassIx) -> bool) -> bool {
        let line = *self.line.get_or_insert_with(|| fleet.pools.line(self.row.cluster, self.row.stamp));
        line.chunk_by(|a, b| a.class == b.class).any(|run| matches(run[0].class))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Rest<'a> {
    by_cluster: Map<ClusterIx, Vec<Resting<'a>>>,
    /// Who is behind this has its turn later; `None`: nobody had a turn yet.
    front: Option<Order>,
    /// Whoever is behind the front and may matter to these is awake already.
    asked: Set<(ClusterIx, ProfileIx)>,
    /// With what they claimed.
    woken: Vec<(Resting<'a>, Vec<Slot>)>,
}

impl<'a> Rest<'a> {
    /// Adds a row.
    pub(crate) fn add(&mut self, resting: Resting<'a>) {
        self.by_cluster.entry(resting.row.cluster).or_default().push(resting);
    }

    /// Turns are never taken out of order.
    pub(super) fn reached(&mut self, front: Order) {
        debug_assert!(self.front <= Some(front), "turns go on in order");
        self.front = Some(front);
    }

    /// Wakes those behind the front in a row's cluster that have machines of classes that match. `give_up` gives back
    /// what one claims of its machines, and tells what that was.
    pub(crate) fn wake_behind(
        &mut self,
        row: &Row,
        fleet: &'a Fleet,
        matches: impl Fn(ClassIx) -> bool,
        mut give_up: impl FnMut(RowIx, &[Standing]) -> Vec<Slot>,
    ) {
        let Some(resting) = self.by_cluster.get_mut(&row.cluster) else { return };
        if !self.asked.insert((row.cluster, row.profile)) {
            return;
        }
        let front = self.front;
        let woken = resting.extract_if(.., |rest| Some(rest.order) > front && rest.has(fleet, &matches));
        self.woken.extend(woken.map(|rest| (rest, give_up(rest.ix, rest.line.unwrap_or_default()))));
    }

    /// The turns of those that were woken since the last call.
    pub(super) fn take_woken(&mut self) -> impl Iterator<Item = Turn<'a>> {
        self.woken.drain(..).map(|(Resting { order, seat, ix, row, .. }, held)| {
            let known = Some(Box::new(Known::Rested(held)));
            Turn { order, seat, ix, row, known, acquired: Vec::new() }
        })
    }
}
