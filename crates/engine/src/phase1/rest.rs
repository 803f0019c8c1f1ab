//! Rows without a turn in clusters where others have one.
//!
//! A row that its own machines serve looks at nothing else, so what its neighbours do is no matter to it, but for one
//! thing: a neighbour with an earlier turn may take its machines. Before one does, the row gets a turn after all.

use smallvec::SmallVec;

use super::turns::{Order, Turn};
use crate::demand::{Row, RowIx};
use crate::intern::{ClusterIx, Map, Set};
use crate::ledger::Seat;
use crate::matching::ProfileIx;

/// One such row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resting<'a> {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
    pub(crate) ix: RowIx,
    pub(crate) row: &'a Row,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Rest<'a> {
    by_cluster: Map<ClusterIx, Vec<Resting<'a>>>,
    /// Who is behind this has its turn later; `None`: nobody had a turn yet.
    front: Option<Order>,
    /// Whoever is behind the front and may matter to these is awake already.
    asked: Set<(ClusterIx, ProfileIx)>,
    woken: Vec<Resting<'a>>,
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

    /// Wakes those behind the front in a row's cluster whose machines the row `uses`; gives the woken.
    pub(crate) fn wake_behind(
        &mut self,
        row: &Row,
        uses: impl Fn(&Row) -> bool,
    ) -> SmallVec<[(RowIx, &'a Row); 4]> {
        let Some(resting) = self.by_cluster.get_mut(&row.cluster) else { return SmallVec::new() };
        if !self.asked.insert((row.cluster, row.profile)) {
            return SmallVec::new();
        }
        let front = self.front;
        let woken = resting.extract_if(.., |rest| Some(rest.order) > front && uses(rest.row));
        let before = self.woken.len();
        self.woken.extend(woken);
        self.woken[before..].iter().map(|rest| (rest.ix, rest.row)).collect()
    }

    /// The turns of those that were woken since the last call.
    pub(super) fn take_woken(&mut self) -> impl Iterator<Item = Turn<'a>> {
        self.woken.drain(..).map(|Resting { order, seat, ix, row }| Turn { order, seat, ix, row, kept: None })
    }
}
