//! Folding: gangs that fit one machine whole need no domain; equal ones become one plain Need counted in whole gangs.
//!
//! What gangs would fold into is made when their cluster's demand arrives; which do depends on the fleet, and is found
//! again when the machines of the cluster or the gangs change.

use std::sync::Arc;

use bigfleet_types::{Fingerprint, Group, Need, Operator, Profile, Requirement, Resources, keys};
use sha2::{Digest, Sha256};

use crate::class::ClassIx;
use crate::demand::{Demand, Row, RowIx, Tables, Wants, earliest};
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, Map, Set, StampIx, Symbols};
use crate::lanes::Lanes;
use crate::matching::{Matching, ProfileIx};

/// All gangs of one cluster with one profile and size.
#[derive(Debug)]
pub(crate) struct GangSet {
    pub(crate) profile: ProfileIx,
    /// By arrival and group.
    pub(crate) gangs: Box<[RowIx]>,
    /// What machines bound for each of them are stamped with.
    pub(crate) stamps: Stamps,
    /// What they become if all of them fold.
    pub(crate) fold: RowIx,
    /// Gangs of another profile fold into the same row.
    pub(crate) shared: bool,
    /// How they folded last; `None`: they are not as they were then.
    pub(crate) way: Option<Way>,
}

/// A few stamps, and what most others are seen by not to be among them: those lie elsewhere.
#[derive(Debug)]
pub(crate) struct Stamps {
    all: Box<[StampIx]>,
    /// The bits of all of them.
    bits: u64,
}

impl FromIterator<StampIx> for Stamps {
    fn from_iter<I: IntoIterator<Item = StampIx>>(stamps: I) -> Self {
        let all: Box<[StampIx]> = stamps.into_iter().collect();
        let bits = all.iter().fold(0, |bits, stamp| bits | Self::bit(*stamp));
        Self { all, bits }
    }
}

impl Stamps {
    fn bit(stamp: StampIx) -> u64 {
        1 << (stamp.at() % 64)
    }

    fn has(&self, stamp: StampIx) -> bool {
        self.bits & Self::bit(stamp) != 0 && self.all.contains(&stamp)
    }
}

/// How a set of gangs folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// All into the fold of the set.
    Whole,
    /// None.
    Apart,
    /// Some, or into one with other sets.
    Mixed,
}

/// What all gangs of one profile and size fold into.
#[derive(Debug)]
struct Form {
    profile: Arc<Profile>,
    group: Group,
}

/// The forms of all folds, remembered because to make one takes two hashes.
#[derive(Debug, Default)]
pub(crate) struct Forms {
    by_size: Map<(Fingerprint, Lanes), Form>,
}

impl Forms {
    /// What gangs of one cluster and size fold into. `gangs` are by arrival, fingerprint and group; none give none.
    pub(crate) fn fold(
        &mut self,
        gangs: &[&Row],
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> Option<Row> {
        let first = gangs.first()?;
        let size = (first.need.profile.fingerprint(), first.aggregate.clone());
        let form = self.by_size.entry(size).or_insert_with(|| Form {
            profile: Arc::new(plain(&first.need.profile)),
            group: group(&first.need.aggregate),
        });
        let number = i64::try_from(gangs.len()).unwrap_or(i64::MAX);
        let arrival = gangs.iter().map(|gang| gang.need.arrival).fold(None, earliest);
        let fold = Need {
            profile: form.profile.clone(),
            aggregate: first.need.aggregate.scale(number),
            min_unit: first.need.aggregate.clone(),
            group: form.group.clone(),
            arrival: Some(arrival.unwrap_or_default()),
        };
        Some(Row {
            precedence: fold.precedence(),
            arrival: arrival.unwrap_or_default(),
            cluster: first.cluster,
            profile: matching.retain(&fold.profile, symbols),
            stamp: symbols.stamp(&fold.profile.fingerprint().to_string(), fold.group.as_str()),
            aggregate: first.aggregate.times(number),
            min_unit: first.aggregate.clone(),
            gangs: Some(gangs.iter().map(|gang| gang.need.clone()).collect()),
            need: Arc::new(fold),
        })
    }

    /// Forgets everything when there are far more forms than a demand of so many rows can use.
    pub(crate) fn bound(&mut self, rows: usize) {
        if self.by_size.len() > 2 * rows + 1024 {
            self.by_size.clear();
        }
    }
}

/// Which gangs some free machine of the fleet holds whole, so that equal gangs ask once.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    free: Map<(Fingerprint, Lanes), bool>,
}

/// A pool of bound machines, or of machines being created for a Need, of which the members changed: the cluster, the class
/// and the stamp.
pub(crate) type Shifted = (ClusterIx, ClassIx, StampIx);

/// Whether machines came or went, all of them in these pools of its cluster, that decide whether gangs of a set fold.
fn may_move(
    shifted: &[Shifted],
    set: &GangSet,
    fleet: &Fleet,
    demand: &Demand,
    matching: &mut Matching,
) -> bool {
    if shifted.is_empty() {
        return false;
    }
    matching.look(set.profile, &fleet.classes);
    let first = || set.gangs.first().and_then(|ix| demand.row(*ix));
    shifted.iter().any(|(_, class, stamp)| {
        let is_large =
            || first().is_some_and(|first| fleet.classes.capacity(*class).covers(&first.aggregate));
        set.stamps.has(*stamp) || matching.matches(set.profile, *class) && is_large()
    })
}

/// The demand of one cluster, folded.
#[derive(Default)]
pub(crate) struct Plan {
    /// Rows of the table that stay as they came, and the folds of sets of which every gang folds.
    pub(crate) rows: Vec<RowIx>,
    /// Other folds.
    pub(crate) made: Vec<Row>,
    /// How each set folds.
    pub(crate) ways: Vec<Way>,
    /// A gang that stays wants one host, and the classes do not tell hosts apart yet.
    pub(crate) needs_hosts: bool,
}

impl Plan {
    /// Whether the demand of a cluster folds as it did last time: it did not change, and machines did in these pools.
    pub(crate) fn stands(
        wants: &Wants,
        shifted: &[Shifted],
        fleet: &Fleet,
        demand: &Demand,
        matching: &mut Matching,
    ) -> bool {
        !wants.sets.iter().any(|set| may_move(shifted, set, fleet, demand, matching))
    }

    /// Sorts what a cluster wants into what folds and what does not. `shifted`: its pools that changed since the last time;
    /// `None`: all has to be asked again.
    pub(crate) fn of(
        wants: &Wants,
        shifted: Option<&[Shifted]>,
        fleet: &Fleet,
        demand: &Demand,
        reach: &mut Reach,
        (forms, symbols, matching): Tables<'_>,
    ) -> Self {
        let mut plan = Self::default();
        // Folds that are not those of one whole set.
        let mut parts: Map<StampIx, Vec<&Row>> = Map::default();
        plan.rows.extend(&wants.plain);
        for set in &wants.sets {
            let stands = |shifted| !may_move(shifted, set, fleet, demand, matching);
            let known = set.way.filter(|_| shifted.is_some_and(stands));
            let way = match known {
                Some(Way::Whole) if !set.shared => {
                    plan.rows.push(set.fold);
                    Way::Whole
                }
                Some(Way::Apart) => {
                    plan.rows.extend(&set.gangs);
                    Way::Apart
                }
                _ => plan.sort(set, &mut parts, fleet, demand, reach, (symbols, matching)),
            };
            plan.ways.push(way);
        }
        for mut gangs in parts.into_values() {
            gangs.sort_by_key(|row| (row.arrival, row.need.profile.fingerprint(), row.need.group.clone()));
            plan.made.extend(forms.fold(&gangs, symbols, matching));
        }
        plan
    }

    /// Asks of each gang of a set whether it folds, and adds those of which not all do to `parts`.
    fn sort<'a>(
        &mut self,
        set: &GangSet,
        parts: &mut Map<StampIx, Vec<&'a Row>>,
        fleet: &Fleet,
        demand: &'a Demand,
        reach: &mut Reach,
        (symbols, matching): (&Symbols, &mut Matching),
    ) -> Way {
        let rows = || set.gangs.iter().filter_map(|ix| Some((*ix, demand.row(*ix)?)));
        let (Some((_, first)), Some(fold)) = (rows().next(), demand.row(set.fold)) else { return Way::Mixed };
        matching.look(first.profile, &fleet.classes);
        let fits = reach.holds(fleet, matching, first, fold.stamp);
        let folds = |row: &Row| fits && keeps_whole(fleet, row);
        // Nearly always, and found without a look at the gangs.
        let unstamped = || set.stamps.all.iter().all(|stamp| !fleet.pools.is_stamped(*stamp));
        if fits && !set.shared && (unstamped() || rows().all(|(_, row)| folds(row))) {
            self.rows.push(set.fold);
            return Way::Whole;
        }
        let mut way = Way::Apart;
        for (ix, row) in rows() {
            if folds(row) {
                way = Way::Mixed;
                parts.entry(fold.stamp).or_default().push(row);
            } else {
                let by_host = row.need.profile.same().is_some_and(|same| &*same.key == keys::HOSTNAME);
                self.needs_hosts |= by_host && !symbols.distinct_hosts;
                self.rows.push(ix);
            }
        }
        way
    }
}

/// Whether no machine serves the gang already as one of several.
fn keeps_whole(fleet: &Fleet, row: &Row) -> bool {
    let pools = &fleet.pools;
    if !pools.is_stamped(row.stamp) {
        return true;
    }
    let own = pools.own_bound(row.cluster, row.stamp).iter();
    let own = own.chain(pools.own_creating(row.cluster, row.stamp));
    own.map(|ix| pools.get(*ix).class).all(|class| fleet.classes.capacity(class).covers(&row.aggregate))
}

impl Reach {
    /// Whether some machine within reach of the row's cluster holds the whole gang. `fold`: the stamp of its fold.
    fn holds(&mut self, fleet: &Fleet, matching: &Matching, row: &Row, fold: StampIx) -> bool {
        let pools = &fleet.pools;
        let is_large = |class: ClassIx| {
            matching.matches(row.profile, class) && fleet.classes.capacity(class).covers(&row.aggregate)
        };
        // Where such gangs are folded already, there is one.
        if pools.line(row.cluster, fold).first().is_some_and(|standing| is_large(standing.class)) {
            return true;
        }
        let size = (row.need.profile.fingerprint(), row.aggregate.clone());
        let free =
            *self.free.entry(size).or_insert_with(|| is_free(fleet, matching, row.profile, &row.aggregate));
        let mut home = pools.bound(row.cluster).iter().chain(pools.creating(row.cluster));
        free || home.any(|ix| is_large(pools.get(*ix).class))
    }

    /// Looks again after some classes got their first free machine or lost the last one. Gives the profiles and sizes
    /// for which the answer is another one now; those not given any more are forgotten.
    pub(crate) fn review(
        &mut self,
        flipped: &[ClassIx],
        fleet: &Fleet,
        matching: &mut Matching,
    ) -> Set<(Fingerprint, Lanes)> {
        let mut changed = Set::default();
        self.free.retain(|(fingerprint, aggregate), free| {
            let Some(profile) = matching.find(*fingerprint) else { return false };
            matching.look(profile, &fleet.classes);
            let concerns = |class: &ClassIx| {
                let class_is_free = fleet.classes.get(*class).supply.is_free();
                class_is_free != *free
                    && matching.matches(profile, *class)
                    && fleet.classes.capacity(*class).covers(aggregate)
            };
            if flipped.iter().any(concerns) {
                let now = is_free(fleet, matching, profile, aggregate);
                if std::mem::replace(free, now) != now {
                    changed.insert((*fingerprint, aggregate.clone()));
                }
            }
            true
        });
        changed
    }
}

/// Whether some free machine that matches is as large as this.
fn is_free(fleet: &Fleet, matching: &Matching, profile: ProfileIx, aggregate: &Lanes) -> bool {
    matching.classes(profile).iter().any(|class| {
        fleet.classes.get(*class).supply.is_free() && fleet.classes.capacity(*class).covers(aggregate)
    })
}

/// What machines of a folded gang are stamped for: the profile without the domain, and the group of all gangs of this
/// size. `None`: the Need is no gang. Whether a gang folds depends on the fleet.
#[must_use]
pub fn fold_key(gang: &Need) -> Option<(Profile, Group)> {
    gang.profile.same().map(|_| (plain(&gang.profile), group(&gang.aggregate)))
}

/// The profile of one gang without the domain: a machine without the key could never host it, though.
fn plain(gang: &Profile) -> Profile {
    let requirements = gang.requirements().iter().map(|requirement| match requirement.operator {
        Operator::Same if requirement.values.is_empty() => {
            Requirement { operator: Operator::Exists, ..requirement.clone() }
        }
        Operator::Same => Requirement { operator: Operator::In, ..requirement.clone() },
        _ => requirement.clone(),
    });
    Profile::new(
        requirements.collect(),
        gang.spread().to_vec(),
        gang.priority(),
        gang.interruption(),
        gang.reclamation(),
    )
}

/// Folds of different sizes, and plain Needs of the same profile, never share a key.
fn group(aggregate: &Resources) -> Group {
    let length = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes();
    let mut hash = Sha256::new();
    hash.update([1u8]);
    hash.update(length(aggregate.iter().count()));
    for (name, amount) in aggregate.iter() {
        hash.update(length(name.as_str().len()));
        hash.update(name.as_str().as_bytes());
        hash.update(u64::try_from(amount).unwrap_or(0).to_be_bytes());
    }
    let hex: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    Group::new(&format!("fold/{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lanes::Dimensions;

    /// Forms of so many sizes of one profile.
    fn forms(number: i64) -> Forms {
        let mut dimensions = Dimensions::default();
        let profile = Arc::new(Profile::new(
            Vec::new(),
            Vec::new(),
            0,
            bigfleet_types::PenaltyBucket::ZERO,
            bigfleet_types::PenaltyBucket::ZERO,
        ));
        let mut forms = Forms::default();
        for amount in 1..=number {
            let size = Resources::from_amounts([(bigfleet_types::ResourceName::new("cpu"), amount)]);
            let form = Form { profile: profile.clone(), group: group(&size) };
            forms.by_size.insert((profile.fingerprint(), dimensions.lanes(&size)), form);
        }
        forms
    }

    #[test]
    fn forms_are_forgotten_when_there_are_far_more_than_rows() {
        for (number, rows, kept) in [(1030, 3, 1030), (1031, 3, 0), (1031, 4, 1031), (0, 0, 0)] {
            let mut forms = forms(number);
            forms.bound(rows);
            assert_eq!(forms.by_size.len(), kept, "{number} forms, {rows} rows");
        }
    }
}
