//! Rows without a turn in clusters where others have one.
//!
//! What credit gives a row follows from which machines of its cluster nobody in front of it has claimed. So a row that credit
//! covered has the same again unless one of those that it could use is in other hands, and nobody looks at it. Two things
//! end its rest. A row in front that looks at machines of its neighbours has to see its machines free: it gives them up, and
//! claims them again when that is its place in the order. And where a machine that it could use went or was left, it has a turn.

use bigfleet_types::{Precedence, UnixNanos};

use super::{Book, Seat};
use crate::bits::ClassBits;
use crate::class::ClassIx;
use crate::demand::{Row, RowIx};
use crate::intern::{ClusterIx, Map, Set};
use crate::matching::ProfileIx;
use crate::members::Slot;
use crate::phase1::{Order, Turn};

/// The rounds of a precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Round {
    /// All keep their own.
    First,
    /// They take what else there is.
    Second,
}

/// When a row claims.
pub(crate) type Time = (Precedence, Round, UnixNanos, u32, u32);

/// When the row of this place in the order claims in a round.
pub(crate) fn time((precedence, arrival, cluster, at): Order, round: Round) -> Time {
    (precedence, round, arrival, cluster, at)
}

/// What a covered row minds of what becomes of machines that it could use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Minds {
    /// Nothing: the first of its own machines serve it.
    Nothing,
    /// That there is one more. Those that it passed were of no use to it.
    More,
    /// That there is one more or one less: a gang compares all that there is.
    Any,
}

impl Minds {
    /// Whether it minds one more or, if not, one less.
    pub(crate) fn minds(self, more: bool) -> bool {
        match self {
            Self::Nothing => false,
            Self::More => more,
            Self::Any => true,
        }
    }
}

/// Such a row. What it claims stays in its book, which is seldom at hand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resting {
    pub(crate) ix: RowIx,
    pub(crate) profile: ProfileIx,
    pub(crate) minds: Minds,
    /// Its seat.
    pub(super) at: u32,
    /// Its place in the line of its cluster.
    pub(super) place: u32,
}

/// Those of a cluster.
#[derive(Debug)]
struct Dormitory {
    /// The rank of the cluster.
    rank: u32,
    rows: Vec<Resting>,
}

/// One that does not rest any more.
#[derive(Debug)]
pub(crate) struct Woken {
    pub(crate) order: Order,
    pub(crate) seat: Seat,
    pub(crate) ix: RowIx,
    /// All that it claimed, in the order of the walk.
    pub(crate) credited: Vec<Slot>,
    /// So many of them in the first round.
    pub(crate) own: usize,
    pub(crate) minds: Minds,
}

/// In a cluster, machines of a class are in other hands than in the pass before.
#[derive(Debug, Clone, Copy)]
pub(crate) struct News {
    pub(crate) class: ClassIx,
    /// Rows that follow may find one more; if not, one less.
    pub(crate) more: bool,
}

/// What became of machines of a cluster.
#[derive(Debug, Default)]
struct Told {
    more: ClassBits,
    less: ClassBits,
}

/// Who rests in which cluster, the news so far, and all books while the pass goes on.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    /// By cluster.
    books: Vec<Book>,
    by_cluster: Map<ClusterIx, Dormitory>,
    told: Map<ClusterIx, Told>,
    /// Who claims after this has not claimed yet; `None`: nobody has.
    front: Option<Time>,
    /// Whoever claims after the front and may matter to these is awake already.
    asked: Set<(ClusterIx, ProfileIx)>,
    /// By two profiles: whether some class matches both.
    overlaps: Map<(ProfileIx, ProfileIx), bool>,
    /// With the round in which they go on.
    woken: Vec<(Round, Woken)>,
}

impl Rest {
    /// Adds rows of a cluster that the news so far do not concern. `rank`: that of the cluster.
    pub(super) fn add(&mut self, cluster: ClusterIx, rank: u32, rows: Vec<Resting>) {
        self.by_cluster.insert(cluster, Dormitory { rank, rows });
    }

    /// Keeps the books while the pass goes on.
    pub(super) fn keep(&mut self, books: Vec<Book>) {
        self.books = books;
    }

    /// The books, after the pass.
    pub(super) fn into_books(self) -> Vec<Book> {
        self.books
    }

    /// Adds what became of machines. Says whether that is new: otherwise all who mind are awake.
    pub(crate) fn add_news(&mut self, cluster: ClusterIx, news: News) -> bool {
        let told = self.told.entry(cluster).or_default();
        let classes = if news.more { &mut told.more } else { &mut told.less };
        classes.insert(news.class)
    }

    /// Whether anybody rests, or did, in a cluster.
    pub(crate) fn is_in(&self, cluster: ClusterIx) -> bool {
        self.by_cluster.contains_key(&cluster)
    }

    /// Whether there are news of a cluster.
    pub(crate) fn has_news(&self, cluster: ClusterIx) -> bool {
        self.told.contains_key(&cluster)
    }

    /// Whether a row minds what became of machines by now. `matches`: the classes that match it, 64 in a word.
    pub(crate) fn concerns(&self, cluster: ClusterIx, minds: Minds, matches: &[u64]) -> bool {
        let Some(Told { more, less }) = self.told.get(&cluster) else { return false };
        minds.minds(true) && more.meets(matches) || minds.minds(false) && less.meets(matches)
    }

    /// Turns are never taken out of order.
    pub(crate) fn reached(&mut self, front: Time) {
        debug_assert!(self.front <= Some(front), "turns go on in order");
        self.front = Some(front);
    }

    /// Wakes those of a row's cluster that have not claimed all yet and may have machines that match it, too. `overlap`:
    /// some class matches both profiles. `give_up` gives back what one has still to claim.
    pub(crate) fn wake_behind(
        &mut self,
        row: &Row,
        mut overlap: impl FnMut(ProfileIx, ProfileIx) -> bool,
        give_up: impl FnMut(RowIx, &[Slot]),
    ) {
        if !self.is_in(row.cluster) || !self.asked.insert((row.cluster, row.profile)) {
            return;
        }
        let mut overlaps = std::mem::take(&mut self.overlaps);
        let concerns = |rest: &Resting| {
            let pair = (row.profile, rest.profile);
            *overlaps.entry(pair).or_insert_with(|| overlap(pair.0, pair.1))
        };
        self.wake(row.cluster, concerns, give_up);
        self.overlaps = overlaps;
    }

    /// Wakes some of those of a cluster that have not claimed all yet.
    pub(crate) fn wake(
        &mut self,
        cluster: ClusterIx,
        mut whom: impl FnMut(&Resting) -> bool,
        mut give_up: impl FnMut(RowIx, &[Slot]),
    ) {
        let Some(Dormitory { rank, rows }) = self.by_cluster.get_mut(&cluster) else { return };
        let (front, book) = (self.front, &mut self.books[cluster.at()]);
        let mut rouse = |resting: &Resting| {
            let Resting { ix, minds, at, place, .. } = *resting;
            let (order, own, credited) = book.claims_of(at, *rank, place);
            let is_first = Some(time(order, Round::First)) > front;
            let is_second = own < credited.len() && Some(time(order, Round::Second)) > front;
            if !(is_first || is_second) {
                return false;
            }
            let (round, from) = if is_first { (Round::First, 0) } else { (Round::Second, own) };
            give_up(ix, &credited[from..]);
            let (seat, credited) = (Seat { cluster, at }, std::mem::take(credited));
            self.woken.push((round, Woken { order, seat, ix, credited, own, minds }));
            true
        };
        rows.retain(|resting| !(whom(resting) && rouse(resting)));
    }

    /// Those that were woken since the last call, with the round in which they go on.
    pub(crate) fn take_woken(&mut self) -> impl Iterator<Item = (Round, Woken)> {
        self.woken.drain(..)
    }

    /// Takes back one that was woken and has claimed again all that it had.
    pub(crate) fn sleep_again(&mut self, turn: Turn<'_>) {
        self.books[turn.seat.cluster.at()].take_back(turn.seat.at, turn.had);
    }
}
