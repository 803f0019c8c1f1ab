//! Folding: gangs that fit one machine whole need no domain; equal ones become one plain Need counted in whole gangs.
//!
//! Which gangs fold is found afresh in every pass, since it depends on the fleet. The profiles and groups of folds are
//! kept from pass to pass.

use std::sync::Arc;

use bigfleet_types::{Fingerprint, Group, Need, Operator, Profile, Requirement, Resources, keys};
use sha2::{Digest, Sha256};

use crate::class::ClassIx;
use crate::demand::{Demand, Row, RowIx, earliest};
use crate::fleet::Fleet;
use crate::intern::{ClusterIx, Map, StampIx, Symbols};
use crate::lanes::Lanes;
use crate::matching::{Matching, ProfileIx};

/// What all gangs of one profile and size fold into.
#[derive(Debug)]
struct Form {
    profile: Arc<Profile>,
    compiled: ProfileIx,
    group: Group,
    used: bool,
}

/// The folds of the last pass, and what is worth keeping for the next.
#[derive(Debug, Default)]
pub(crate) struct Folds {
    forms: Map<(Fingerprint, Lanes), Form>,
    /// The folded rows, in no particular order.
    rows: Vec<Row>,
}

/// What of the fleet is known to hold a gang, so that equal gangs ask once.
#[derive(Default)]
struct Reach {
    free: Map<(ProfileIx, Lanes), bool>,
    home: Map<(ClusterIx, ProfileIx, Lanes), bool>,
}

/// The demand of one pass.
pub(crate) struct Plan {
    /// Rows that stay as they came, in precedence order.
    kept: Vec<RowIx>,
    /// A gang that stays wants one host, and the classes do not tell hosts apart yet.
    pub(crate) needs_hosts: bool,
}

impl Folds {
    /// Forgets everything, before texts and profiles are numbered anew.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Sorts the demand into what folds and what does not.
    pub(crate) fn plan(
        &mut self,
        fleet: &Fleet,
        demand: &Demand,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) -> Plan {
        self.rows.clear();
        self.forms.values_mut().for_each(|form| form.used = false);
        let mut plan = Plan { kept: Vec::new(), needs_hosts: false };
        let mut reach = Reach::default();
        let mut places: Map<(ClusterIx, StampIx), usize> = Map::default();
        for (ix, row) in demand.in_order() {
            if matching.same(row.profile).is_none() {
                plan.kept.push(ix);
                continue;
            }
            matching.look(row.profile, &fleet.classes);
            if reach.folds(fleet, matching, row) {
                self.fold(ix, row, &mut places, symbols, matching);
            } else {
                let by_host = row.need.profile.same().is_some_and(|same| &*same.key == keys::HOSTNAME);
                plan.needs_hosts |= by_host && !symbols.distinct_hosts;
                plan.kept.push(ix);
            }
        }
        for row in &mut self.rows {
            let order = |ix: &RowIx| {
                demand.row(*ix).map(|gang| (gang.arrival, gang.key.fingerprint, gang.key.group.clone()))
            };
            row.gangs.sort_by_cached_key(order);
            row.aggregate = symbols.dimensions.lanes(&row.need.aggregate);
        }
        self.forms.retain(|_, form| {
            if !form.used {
                matching.release(form.compiled);
            }
            form.used
        });
        plan
    }

    /// All rows of a plan in precedence order.
    pub(crate) fn rows<'a>(&'a self, plan: &Plan, demand: &'a Demand) -> Vec<&'a Row> {
        let mut rows: Vec<&Row> = plan.kept.iter().filter_map(|ix| demand.row(*ix)).collect();
        if !self.rows.is_empty() {
            rows.extend(&self.rows);
            // One long run in order and a short one after it.
            rows.sort_by(|a, b| a.order().cmp(&b.order()));
        }
        rows
    }

    fn fold(
        &mut self,
        ix: RowIx,
        gang: &Row,
        places: &mut Map<(ClusterIx, StampIx), usize>,
        symbols: &mut Symbols,
        matching: &mut Matching,
    ) {
        let size = (gang.key.fingerprint, gang.aggregate.clone());
        let form = self.forms.entry(size).or_insert_with(|| {
            let profile = Arc::new(plain(&gang.need.profile));
            Form {
                compiled: matching.retain(&profile, symbols),
                profile,
                group: group(&gang.need.aggregate),
                used: false,
            }
        });
        form.used = true;
        let fold = Need {
            profile: form.profile.clone(),
            aggregate: gang.need.aggregate.clone(),
            min_unit: gang.need.aggregate.clone(),
            group: form.group.clone(),
            arrival: Some(gang.arrival),
        };
        let key = fold.key(&gang.key.cluster);
        let (cluster, stamp) = symbols.destination(&key);
        if let Some(place) = places.get(&(cluster, stamp)) {
            self.rows[*place].join(ix, gang);
            return;
        }
        places.insert((cluster, stamp), self.rows.len());
        self.rows.push(Row {
            need: Arc::new(fold),
            key,
            arrival: gang.arrival,
            cluster,
            profile: form.compiled,
            stamp,
            aggregate: gang.aggregate.clone(),
            min_unit: gang.aggregate.clone(),
            gangs: vec![ix],
        });
    }
}

impl Row {
    /// One more gang in a fold.
    fn join(&mut self, ix: RowIx, gang: &Self) {
        self.arrival = earliest(Some(self.arrival), Some(gang.arrival)).unwrap_or_default();
        let need = Arc::make_mut(&mut self.need);
        need.aggregate = need.aggregate.add(&gang.need.aggregate);
        need.arrival = Some(self.arrival);
        self.gangs.push(ix);
    }
}

impl Reach {
    /// Whether some machine within reach holds the whole gang, and none serves it already as one of several.
    fn folds(&mut self, fleet: &Fleet, matching: &Matching, row: &Row) -> bool {
        let whole = |class: ClassIx| fleet.classes.capacity(class).covers(&row.aggregate);
        let size = (row.profile, row.aggregate.clone());
        let free = *self.free.entry(size).or_insert_with(|| {
            matching.classes(row.profile).iter().any(|class| {
                let supply = fleet.classes.get(*class).supply;
                (supply.idle > 0 || supply.speculative > 0) && whole(*class)
            })
        });
        let size = (row.cluster, row.profile, row.aggregate.clone());
        let pools = &fleet.pools;
        let fits = free
            || *self.home.entry(size).or_insert_with(|| {
                let home = pools.bound(row.cluster).iter().chain(pools.creating(row.cluster));
                let mut classes = home.map(|ix| pools.get(*ix).class);
                classes.any(|class| matching.matches(row.profile, class) && whole(class))
            });
        let own = pools.own_bound(row.cluster, row.stamp);
        let own = own.iter().chain(pools.own_creating(row.cluster, row.stamp));
        fits && own.map(|ix| pools.get(*ix).class).all(whole)
    }
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
