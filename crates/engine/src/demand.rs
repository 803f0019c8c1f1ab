//! The demand table: what each cluster wants, one row per Need, replaced whole.

use std::borrow::Cow;
use std::sync::Arc;

use bigfleet_types::{ClusterId, Fingerprint, Group, Need, NeedKey, UnixNanos};

use crate::intern::{ClusterIx, Map, StampIx, Symbols, index};
use crate::lanes::Lanes;
use crate::matching::{Matching, ProfileIx};

index! {
    /// A row of the demand table.
    RowIx;
}

/// One Need with everything that the phases ask of it, in numbers.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) need: Arc<Need>,
    pub(crate) key: NeedKey,
    pub(crate) arrival: UnixNanos,
    pub(crate) cluster: ClusterIx,
    pub(crate) profile: ProfileIx,
    /// What machines bound for this Need are stamped with.
    pub(crate) stamp: StampIx,
    pub(crate) aggregate: Lanes,
    pub(crate) min_unit: Lanes,
    /// The gangs that were folded into this row, by arrival, fingerprint and group; none for a row that is as it came.
    pub(crate) gangs: Vec<RowIx>,
}

impl Row {
    /// The place in the order of precedence.
    pub(crate) fn order(&self) -> impl Ord + '_ {
        (self.need.precedence(), self.arrival, &self.key)
    }

    /// What a machine of this capacity is worth to the Need: all that it has, or whole gangs if it serves a fold.
    pub(crate) fn worth<'c>(&self, capacity: &'c Lanes) -> Cow<'c, Lanes> {
        if self.gangs.is_empty() {
            Cow::Borrowed(capacity)
        } else {
            Cow::Owned(self.min_unit.times(capacity.whole_units(&self.min_unit)))
        }
    }
}

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    clusters: Map<ClusterId, Vec<RowIx>>,
    rows: Vec<Option<Row>>,
    free: Vec<RowIx>,
    order: Vec<RowIx>,
    unordered: bool,
}

impl Demand {
    /// Replaces the demand of a cluster; no rows means that it wants nothing. Rows with equal keys are merged, and
    /// a key that stays keeps its arrival unless the row brings one.
    pub(crate) fn replace(
        &mut self,
        cluster: &ClusterId,
        rows: Vec<Need>,
        at: UnixNanos,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) {
        let mut before: Map<(Fingerprint, Group), RowIx> = Map::default();
        for ix in self.clusters.remove(cluster).unwrap_or_default() {
            if let Some(row) = &self.rows[ix.at()] {
                before.insert((row.key.fingerprint, row.key.group.clone()), ix);
            }
        }
        let mut after = Vec::new();
        for mut need in merge(rows) {
            let old = before.remove(&(need.profile.fingerprint(), need.group.clone()));
            let known = old.and_then(|ix| self.rows[ix.at()].as_ref()).map(|row| row.arrival);
            let arrival = need.arrival.or(known).unwrap_or(at);
            need.arrival = Some(arrival);
            after.push(match old {
                Some(ix) => {
                    self.update(ix, need, arrival, symbols);
                    ix
                }
                None => self.insert(cluster, need, arrival, symbols, matching),
            });
        }
        for ix in before.into_values() {
            self.withdraw(ix, matching);
        }
        if !after.is_empty() {
            self.clusters.insert(cluster.clone(), after);
        }
    }

    fn update(&mut self, ix: RowIx, need: Need, arrival: UnixNanos, symbols: &mut Symbols) {
        let Some(row) = &mut self.rows[ix.at()] else { return };
        if *row.need == need {
            return;
        }
        // Equal keys have equal profiles, so nothing but the arrival may change the order.
        self.unordered |= row.arrival != arrival;
        row.arrival = arrival;
        row.aggregate = symbols.dimensions.lanes(&need.aggregate);
        row.min_unit = symbols.dimensions.lanes(&need.min_unit);
        row.need = Arc::new(need);
    }

    fn insert(
        &mut self,
        cluster: &ClusterId,
        need: Need,
        arrival: UnixNanos,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> RowIx {
        let row = compile(Arc::new(need), cluster, arrival, symbols, matching);
        self.unordered = true;
        if let Some(ix) = self.free.pop() {
            self.rows[ix.at()] = Some(row);
            ix
        } else {
            self.rows.push(Some(row));
            RowIx::new(self.rows.len() - 1)
        }
    }

    fn withdraw(&mut self, ix: RowIx, matching: &mut Matching) {
        if let Some(row) = self.rows[ix.at()].take() {
            matching.release(row.profile);
            self.unordered = true;
            self.free.push(ix);
        }
    }

    /// Compiles every row anew, after `symbols` and `matching` were replaced.
    pub(crate) fn recompile(&mut self, symbols: &mut Symbols, matching: &mut Matching) {
        for row in self.rows.iter_mut().flatten() {
            let cluster = row.key.cluster.clone();
            *row = compile(row.need.clone(), &cluster, row.arrival, symbols, matching);
        }
    }

    /// Brings the rows into precedence order, if they are not.
    pub(crate) fn settle(&mut self) {
        if !std::mem::take(&mut self.unordered) {
            return;
        }
        let rows = &self.rows;
        let mut keyed: Vec<_> = (0..)
            .zip(rows)
            .filter_map(|(position, row)| {
                let row = row.as_ref()?;
                Some((row.order(), RowIx::new(position)))
            })
            .collect();
        keyed.sort_unstable();
        self.order = keyed.into_iter().map(|(_, ix)| ix).collect();
    }

    /// The rows in precedence order, once settled.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = (RowIx, &Row)> {
        self.order.iter().filter_map(|ix| Some((*ix, self.rows[ix.at()].as_ref()?)))
    }

    pub(crate) fn row(&self, ix: RowIx) -> Option<&Row> {
        self.rows[ix.at()].as_ref()
    }

    /// How many rows all clusters have together.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }
}

fn compile(
    need: Arc<Need>,
    cluster: &ClusterId,
    arrival: UnixNanos,
    symbols: &mut Symbols,
    matching: &mut Matching,
) -> Row {
    let key = need.key(cluster);
    let (cluster, stamp) = symbols.destination(&key);
    Row {
        arrival,
        cluster,
        profile: matching.retain(&need.profile, symbols),
        stamp,
        aggregate: symbols.dimensions.lanes(&need.aggregate),
        min_unit: symbols.dimensions.lanes(&need.min_unit),
        gangs: Vec::new(),
        key,
        need,
    }
}

/// One Need per key: aggregates add up, the larger minimum and the earliest known arrival count.
fn merge(rows: Vec<Need>) -> Vec<Need> {
    let mut places: Map<(Fingerprint, Group), usize> = Map::default();
    let mut merged: Vec<Need> = Vec::with_capacity(rows.len());
    for row in rows {
        let key = (row.profile.fingerprint(), row.group.clone());
        if let Some(place) = places.get(&key) {
            let first = &mut merged[*place];
            first.aggregate = first.aggregate.add(&row.aggregate);
            first.min_unit = first.min_unit.max(&row.min_unit);
            first.arrival = earliest(first.arrival, row.arrival);
        } else {
            places.insert(key, merged.len());
            merged.push(row);
        }
    }
    merged
}

/// The earlier of two arrivals; 0 and none mean that it is not known.
pub(crate) fn earliest(a: Option<UnixNanos>, b: Option<UnixNanos>) -> Option<UnixNanos> {
    let known = |arrival: Option<UnixNanos>| arrival.filter(|arrival| arrival.0 != 0);
    match (known(a), known(b)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a_known, b_known) => a_known.or(b_known).or(a).or(b),
    }
}
