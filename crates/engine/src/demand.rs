//! The demand table: what each cluster wants, one row per Need, replaced whole.

mod merge;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::hash::BuildHasher;
use std::sync::Arc;

use bigfleet_types::{ClusterId, Fingerprint, Group, Need, NeedKey, Precedence, UnixNanos};
use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

pub(crate) use self::merge::earliest;
use self::merge::merge;
use crate::ahead;
use crate::fold::{Forms, GangSet, Way};
use crate::intern::{ClusterIx, Map, Set, StampIx, Symbols, index};
use crate::lanes::Lanes;
use crate::matching::{Matching, ProfileIx};

index! {
    /// A row of the demand table.
    RowIx;
}

/// One Need with everything that the phases ask of it, in numbers.
#[derive(Debug)]
pub(crate) struct Row {
    /// With its arrival.
    pub(crate) need: Arc<Need>,
    pub(crate) precedence: Precedence,
    /// That of the Need, which is seldom at hand.
    pub(crate) arrival: UnixNanos,
    pub(crate) cluster: ClusterIx,
    pub(crate) profile: ProfileIx,
    /// What machines bound for this Need are stamped with.
    pub(crate) stamp: StampIx,
    pub(crate) aggregate: Lanes,
    pub(crate) min_unit: Lanes,
    /// The gangs that were folded into this row, by arrival, fingerprint and group; none for a row that is as it came.
    pub(crate) gangs: Option<Arc<[Arc<Need>]>>,
}

impl Row {
    pub(crate) fn key(&self, symbols: &Symbols) -> NeedKey {
        self.need.key(symbols.name(self.cluster))
    }

    /// What a machine of this capacity is worth to the Need: all that it has, or whole gangs if it serves a fold.
    pub(crate) fn worth<'c>(&self, capacity: &'c Lanes) -> Cow<'c, Lanes> {
        if self.gangs.is_none() {
            Cow::Borrowed(capacity)
        } else {
            Cow::Owned(self.min_unit.times(capacity.whole_units(&self.min_unit)))
        }
    }
}

/// The order in which Needs have their turn. A fold comes after a row that has its key.
pub(crate) fn compare(symbols: &Symbols, a: &Row, b: &Row) -> Ordering {
    let first = |row: &Row| (row.precedence, row.arrival);
    let ranks = || symbols.rank(a.cluster).cmp(&symbols.rank(b.cluster));
    let key = |row: &Row| row.need.profile.fingerprint();
    first(a)
        .cmp(&first(b))
        .then_with(ranks)
        .then_with(|| key(a).cmp(&key(b)))
        .then_with(|| a.need.group.cmp(&b.need.group))
        .then_with(|| a.gangs.is_some().cmp(&b.gangs.is_some()))
}

/// What one cluster wants.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    /// All rows as they came, by their keys.
    rows: HashTable<RowIx>,
    /// Those that are no gangs.
    pub(crate) plain: Vec<RowIx>,
    /// The gangs, equal ones together.
    pub(crate) sets: Vec<GangSet>,
    /// Folds of parts of these, as of the last decision.
    made: Vec<RowIx>,
}

/// What rows are compiled with.
pub(crate) type Tables<'a> = (&'a mut Forms, &'a mut Symbols, &'a mut Matching);

/// All rows.
#[derive(Debug, Default)]
pub(crate) struct Demand {
    clusters: Map<ClusterId, Wants>,
    /// Rows as they came, and what gangs may fold into.
    rows: Vec<Option<Row>>,
    /// By row: another number than any row had before, whenever anything about the row changes.
    versions: Vec<u64>,
    free: Vec<RowIx>,
    /// How many rows came.
    wanted: usize,
    /// How many rows went since the last fresh start.
    pub(crate) withdrawn: usize,
    /// The last version of any row.
    last_version: u64,
}

impl Demand {
    /// Replaces the demand of a cluster; no rows means that it wants nothing. Rows with equal keys are merged, and
    /// a key that stays keeps its arrival unless the row brings one. Says whether anything changed.
    pub(crate) fn replace(
        &mut self,
        cluster: &ClusterId,
        rows: Vec<Need>,
        at: UnixNanos,
        tables: Tables<'_>,
    ) -> bool {
        let mut wants = self.clusters.remove(cluster).unwrap_or_default();
        let needs = merge(rows);
        let located: Vec<_> = needs.into_iter().map(|need| (self.place_of(&wants, &need), need)).collect();
        let staying: Set<RowIx> = located.iter().filter_map(|(ix, _)| *ix).collect();
        let gone = match wants.rows.len() - staying.len() {
            0 => Vec::new(),
            _ => wants.rows.iter().copied().filter(|ix| !staying.contains(ix)).collect(),
        };
        self.take_out(&mut wants, &gone);
        self.take_in(cluster, wants, located, gone, at, tables)
    }

    /// Changes some rows of a cluster's demand, one per key, and takes out others. Says whether anything changed.
    pub(crate) fn change(
        &mut self,
        cluster: &ClusterId,
        changed: Vec<Arc<Need>>,
        removed: &[(Fingerprint, Group)],
        at: UnixNanos,
        tables: Tables<'_>,
    ) -> bool {
        let mut wants = self.clusters.remove(cluster).unwrap_or_default();
        let find = |(fingerprint, group): &(Fingerprint, Group)| self.find(&wants, *fingerprint, group);
        let mut gone: Vec<RowIx> = removed.iter().filter_map(find).collect();
        gone.sort_unstable();
        gone.dedup();
        self.take_out(&mut wants, &gone);
        let changed = changed.into_iter().map(Arc::unwrap_or_clone);
        let located: Vec<_> = changed.map(|need| (self.place_of(&wants, &need), need)).collect();
        self.take_in(cluster, wants, located, gone, at, tables)
    }

    /// Takes rows out of the keys of a cluster.
    fn take_out(&self, wants: &mut Wants, gone: &[RowIx]) {
        for ix in gone {
            if let Ok(entry) = wants.rows.find_entry(self.hash(*ix), |other| other == ix) {
                entry.remove();
            }
        }
    }

    /// Takes in rows, each with the place that it has if its key is known, after others were taken out.
    fn take_in(
        &mut self,
        cluster: &ClusterId,
        mut wants: Wants,
        located: Vec<(Option<RowIx>, Need)>,
        gone: Vec<RowIx>,
        at: UnixNanos,
        (forms, symbols, matching): Tables<'_>,
    ) -> bool {
        let before = wants.rows.len() + gone.len();
        let (mut fresh, mut touched): (Vec<RowIx>, Set<RowIx>) = (Vec::new(), gone.iter().copied().collect());
        for (place, mut need) in located {
            let ix = place.or_else(|| self.place_of(&wants, &need));
            let old = ix.and_then(|ix| self.row(ix));
            need.arrival = Some(need.arrival.or(old.map(|row| row.arrival)).unwrap_or(at));
            if old.is_some_and(|row| *row.need == need) {
                continue;
            }
            match ix {
                Some(ix) => {
                    self.update(ix, need, symbols);
                    touched.insert(ix);
                }
                None => {
                    let hash = hash(need.profile.fingerprint(), &need.group);
                    let row = compile(Arc::new(need), cluster, symbols, matching);
                    let ix = self.insert(row);
                    wants.rows.insert_unique(hash, ix, |ix| self.hash(*ix));
                    fresh.push(ix);
                }
            }
        }
        let anything = !(fresh.is_empty() && touched.is_empty());
        if anything {
            self.wanted = self.wanted + wants.rows.len() - before;
            let mut old = self.sort_out(&mut wants, &fresh, &touched, forms, symbols, matching);
            old.extend(gone);
            if wants.rows.is_empty() {
                old.append(&mut wants.made);
            }
            // What is new holds on to what it shares with the old before that goes.
            old.into_iter().for_each(|ix| self.withdraw(ix, matching));
            forms.bound(self.rows.len());
        }
        if !wants.rows.is_empty() {
            self.clusters.insert(cluster.clone(), wants);
        }
        anything
    }

    /// Where the row with a Need's key is.
    fn place_of(&self, wants: &Wants, need: &Need) -> Option<RowIx> {
        self.find(wants, need.profile.fingerprint(), &need.group)
    }

    /// The row of a key.
    fn find(&self, wants: &Wants, fingerprint: Fingerprint, group: &Group) -> Option<RowIx> {
        let is_it = |ix: &RowIx| {
            self.row(*ix)
                .is_some_and(|row| row.need.profile.fingerprint() == fingerprint && row.need.group == *group)
        };
        wants.rows.find(hash(fingerprint, group), is_it).copied()
    }

    /// That of a row's key.
    fn hash(&self, ix: RowIx) -> u64 {
        self.row(ix).map_or(0, |row| hash(row.need.profile.fingerprint(), &row.need.group))
    }

    /// Takes in how the sets of a cluster fold, and replaces the folds of parts of its gangs; gives their places.
    pub(crate) fn take_plan(
        &mut self,
        cluster: &ClusterId,
        ways: Vec<Way>,
        folds: Vec<Row>,
        matching: &mut Matching,
    ) -> Vec<RowIx> {
        let Some(mut old) = self.clusters.get_mut(cluster).map(|wants| {
            wants.sets.iter_mut().zip(ways).for_each(|(set, way)| set.way = Some(way));
            std::mem::take(&mut wants.made)
        }) else {
            return Vec::new();
        };
        if old.is_empty() && folds.is_empty() {
            return Vec::new();
        }
        let made: Vec<RowIx> = folds.into_iter().map(|fold| self.put(fold, &mut old, matching)).collect();
        old.into_iter().for_each(|ix| self.withdraw(ix, matching));
        if let Some(wants) = self.clusters.get_mut(cluster) {
            wants.made.clone_from(&made);
        }
        made
    }

    /// Inserts a fold in the place of an old one of the same key, if there is one; that is not old any more. It is as it
    /// was if nothing about it changed.
    fn put(&mut self, fold: Row, old: &mut Vec<RowIx>, matching: &mut Matching) -> RowIx {
        let is_it = |ix: &RowIx| self.row(*ix).is_some_and(|row| row.stamp == fold.stamp);
        let Some(at) = old.iter().position(is_it) else { return self.insert(fold) };
        let ix = old.swap_remove(at);
        // Of one key, and so of one profile.
        matching.release(fold.profile);
        if let Some(row) = &mut self.rows[ix.at()]
            && (row.need != fold.need || row.gangs != fold.gangs)
        {
            *row = fold;
            self.renumber(ix);
        }
        ix
    }

    fn update(&mut self, ix: RowIx, need: Need, symbols: &mut Symbols) {
        let Some(row) = &mut self.rows[ix.at()] else { return };
        // Equal keys have equal profiles.
        row.aggregate = symbols.dimensions.lanes(&need.aggregate);
        row.min_unit = symbols.dimensions.lanes(&need.min_unit);
        row.arrival = need.arrival.unwrap_or_default();
        row.need = Arc::new(need);
        self.renumber(ix);
    }

    fn insert(&mut self, row: Row) -> RowIx {
        let ix = self.free.pop().unwrap_or_else(|| {
            self.rows.push(None);
            self.versions.push(0);
            RowIx::new(self.rows.len() - 1)
        });
        self.rows[ix.at()] = Some(row);
        self.renumber(ix);
        ix
    }

    fn renumber(&mut self, ix: RowIx) {
        self.last_version += 1;
        self.versions[ix.at()] = self.last_version;
    }

    fn withdraw(&mut self, ix: RowIx, matching: &mut Matching) {
        if let Some(row) = self.rows[ix.at()].take() {
            matching.release(row.profile);
            self.withdrawn += 1;
            self.free.push(ix);
        }
    }

    /// Tells gangs from plain rows, and brings equal gangs together with what they fold into, after `fresh` rows came and
    /// `touched` ones changed or went. Gives the folds that are no more.
    fn sort_out(
        &mut self,
        wants: &mut Wants,
        fresh: &[RowIx],
        touched: &Set<RowIx>,
        forms: &mut Forms,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> Vec<RowIx> {
        let is_there = |demand: &Self, wants: &Wants, ix: RowIx| {
            wants.rows.find(demand.hash(ix), |other| *other == ix).is_some()
        };
        if touched.iter().any(|ix| !self.is_gang(*ix, matching)) {
            let mut plain = std::mem::take(&mut wants.plain);
            plain.retain(|ix| !touched.contains(ix) || is_there(self, wants, *ix));
            wants.plain = plain;
        }
        wants.plain.extend(fresh.iter().filter(|ix| !self.is_gang(**ix, matching)));

        let mut gangs: Vec<RowIx> =
            fresh.iter().chain(touched).copied().filter(|ix| self.is_gang(*ix, matching)).collect();
        if gangs.is_empty() {
            return Vec::new();
        }
        gangs.retain(|ix| is_there(self, wants, *ix));
        let size = |demand: &Self, ix: RowIx| demand.row(ix).map(|row| (row.profile, row.aggregate.clone()));
        let sizes: Set<_> = gangs.iter().map(|ix| size(self, *ix)).collect();
        let mut folds = Vec::new();
        let sets = std::mem::take(&mut wants.sets);
        for set in sets {
            let concerned = set.gangs.iter().any(|ix| touched.contains(ix))
                || set.gangs.first().is_some_and(|ix| sizes.contains(&size(self, *ix)));
            if concerned {
                folds.push(set.fold);
                gangs.extend(set.gangs.iter().filter(|ix| !touched.contains(*ix)));
            } else {
                wants.sets.push(set);
            }
        }
        wants.sets.extend(self.gang_sets(gangs, &mut folds, forms, symbols, matching));
        self.mark_shared(&mut wants.sets);
        folds
    }

    fn is_gang(&self, ix: RowIx, matching: &Matching) -> bool {
        self.row(ix).is_some_and(|row| matching.same(row.profile).is_some())
    }

    /// Equal gangs together, with what they fold into: what `old` folds become, as far as they do.
    fn gang_sets(
        &mut self,
        mut gangs: Vec<RowIx>,
        old: &mut Vec<RowIx>,
        forms: &mut Forms,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> Vec<GangSet> {
        let row_of = |ix: &RowIx| self.rows[ix.at()].as_ref();
        gangs.sort_unstable_by(|a, b| {
            let size = |ix| row_of(ix).map(|row| (row.need.profile.fingerprint(), &row.aggregate));
            let turn = |ix| row_of(ix).map(|row| (row.arrival, &row.need.group));
            size(a).cmp(&size(b)).then_with(|| turn(a).cmp(&turn(b)))
        });
        let equal = |a: &RowIx, b: &RowIx| {
            let size = |ix| row_of(ix).map(|row| (row.profile, &row.aggregate));
            size(a) == size(b)
        };
        let groups: Vec<Box<[RowIx]>> = gangs.chunk_by(equal).map(Into::into).collect();
        let mut sets = Vec::with_capacity(groups.len());
        for group in groups {
            let members: Vec<&Row> = group.iter().filter_map(|ix| self.rows[ix.at()].as_ref()).collect();
            if let (Some(first), Some(fold)) = (members.first(), forms.fold(&members, symbols, matching)) {
                let profile = first.profile;
                let stamps = members.iter().map(|row| row.stamp).collect();
                let fold = self.put(fold, old, matching);
                sets.push(GangSet { profile, gangs: group, stamps, fold, shared: false, way: None });
            }
        }
        sets
    }

    /// Finds out which sets fold into the same row as another.
    fn mark_shared(&self, sets: &mut [GangSet]) {
        let stamp = |set: &GangSet| self.row(set.fold).map(|row| row.stamp);
        sets.sort_unstable_by_key(stamp);
        sets.iter_mut().for_each(|set| set.shared = false);
        for at in 1..sets.len() {
            if stamp(&sets[at - 1]) == stamp(&sets[at]) {
                sets[at - 1].shared = true;
                sets[at].shared = true;
            }
        }
    }

    /// Compiles every row anew, after `symbols` and `matching` were replaced.
    pub(crate) fn recompile(&mut self, forms: &mut Forms, symbols: &mut Symbols, matching: &mut Matching) {
        self.withdrawn = 0;
        for (cluster, mut wants) in std::mem::take(&mut self.clusters) {
            for fold in wants.sets.drain(..).map(|set| set.fold).chain(wants.made.drain(..)) {
                self.rows[fold.at()] = None;
                self.free.push(fold);
            }
            for ix in &wants.rows {
                if let Some(row) = &mut self.rows[ix.at()] {
                    *row = compile(row.need.clone(), &cluster, symbols, matching);
                    self.renumber(*ix);
                }
            }
            wants.plain.clear();
            let fresh: Vec<RowIx> = wants.rows.iter().copied().collect();
            self.sort_out(&mut wants, &fresh, &Set::default(), forms, symbols, matching);
            self.clusters.insert(cluster, wants);
        }
    }

    /// The clusters that want gangs of some of these profiles and sizes.
    pub(crate) fn with_gangs<'d>(
        &'d self,
        sizes: &'d Set<(Fingerprint, Lanes)>,
    ) -> impl Iterator<Item = ClusterIx> + 'd {
        let first = |set: &GangSet| self.row(*set.gangs.first()?);
        let gangs = self.clusters.values().flat_map(|wants| &wants.sets).filter_map(first);
        gangs
            .filter(|row| sizes.contains(&(row.need.profile.fingerprint(), row.aggregate.clone())))
            .map(|row| row.cluster)
    }

    /// All rows as they came, by cluster.
    pub(crate) fn copy(&self) -> Vec<(ClusterId, Vec<Arc<Need>>)> {
        let rows = |wants: &Wants| {
            wants.rows.iter().filter_map(|ix| self.row(*ix)).map(|row| row.need.clone()).collect()
        };
        self.clusters.iter().map(|(cluster, wants)| (cluster.clone(), rows(wants))).collect()
    }

    /// What a cluster wants.
    pub(crate) fn wants(&self, cluster: &ClusterId) -> Option<&Wants> {
        self.clusters.get(cluster)
    }

    pub(crate) fn row(&self, ix: RowIx) -> Option<&Row> {
        self.rows[ix.at()].as_ref()
    }

    /// Has a row brought near.
    pub(crate) fn fetch(&self, ix: RowIx) {
        if let Some(row) = self.row(ix) {
            ahead::fetch(row.arrival);
            ahead::fetch(row.aggregate.is_zero());
        }
    }

    /// The version of a row: whenever anything about it changes, and when another row takes its place, one that no row had.
    pub(crate) fn version(&self, ix: RowIx) -> u64 {
        self.versions[ix.at()]
    }

    /// How many rows all clusters have together.
    pub(crate) fn len(&self) -> usize {
        self.wanted
    }
}

fn hash(fingerprint: Fingerprint, group: &Group) -> u64 {
    FxBuildHasher.hash_one((fingerprint, group))
}

fn compile(need: Arc<Need>, cluster: &ClusterId, symbols: &mut Symbols, matching: &mut Matching) -> Row {
    let (cluster, stamp) = symbols.destination(&need.key(cluster));
    Row {
        precedence: need.precedence(),
        arrival: need.arrival.unwrap_or_default(),
        cluster,
        profile: matching.retain(&need.profile, symbols),
        stamp,
        aggregate: symbols.dimensions.lanes(&need.aggregate),
        min_unit: symbols.dimensions.lanes(&need.min_unit),
        gangs: None,
        need,
    }
}
