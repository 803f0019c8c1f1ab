//! What one pass keeps: who claims what, what is still missing, what Phase 2 took; and the two orders of machines.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::Candidate;
use bigfleet_types::{MachineState, NeedKey, StampedPenalty};

use crate::amounts::Amounts;
use crate::row::{Row, Unit};
use crate::world::World;

/// The state of one pass. Machines are numbered in the byte order of their ids, Needs in precedence order.
pub(crate) struct Pass<'w> {
    pub(crate) world: &'w World,
    pub(crate) units: Vec<Unit<'w>>,
    pub(crate) rows: Vec<Row>,
    /// The keys of all rows: a stamp that names none of them is dead.
    live: BTreeSet<NeedKey>,
    /// Machine to Need.
    pub(crate) claims: BTreeMap<usize, usize>,
    /// One per row.
    pub(crate) progress: Vec<Progress>,
    /// Draining machines that a Need of this pass counts on.
    pub(crate) used_drains: BTreeSet<usize>,
    /// Victims of all Needs.
    pub(crate) victims: BTreeSet<usize>,
    /// engine.md 12.5.3.
    pub(crate) reserved: BTreeSet<usize>,
}

/// How far one Need has come.
#[derive(Debug, Clone, Default)]
pub(crate) struct Progress {
    /// Bound and Creating machines, in the order of the walk.
    pub(crate) credited: Vec<usize>,
    /// Idle and Speculative machines, in the order of acquisition.
    pub(crate) acquired: Vec<usize>,
    /// What is missing: at first the aggregate, at the end of Phase 1 the residual.
    pub(crate) remaining: Amounts,
    /// A gang that round 1 settled.
    pub(crate) settled: bool,
    /// A gang's recorded domain.
    pub(crate) domain: Option<String>,
    pub(crate) same_satisfiable: bool,
    pub(crate) candidates: Vec<Candidate>,
    /// In the order picked.
    pub(crate) victims: Vec<usize>,
    /// What Phase 2 left, if it left anything.
    pub(crate) unresolved: Option<Amounts>,
}

/// Where a machine stands in the credit walk of a Need (engine.md 6.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    OwnBound,
    Orphan,
    OwnCreating,
    Sibling,
    CreatingForUnknown,
}

impl<'w> Pass<'w> {
    pub(crate) fn new(world: &'w World, units: Vec<Unit<'w>>, rows: Vec<Row>) -> Self {
        let start = |row: &Row| Progress { remaining: row.aggregate.clone(), ..Progress::default() };
        Self {
            world,
            live: rows.iter().map(Row::key).collect(),
            progress: rows.iter().map(start).collect(),
            units,
            rows,
            claims: BTreeMap::new(),
            used_drains: BTreeSet::new(),
            victims: BTreeSet::new(),
            reserved: BTreeSet::new(),
        }
    }

    pub(crate) fn all_units(&self) -> std::ops::Range<usize> {
        0..self.units.len()
    }

    pub(crate) fn is_claimed(&self, unit: usize) -> bool {
        self.claims.contains_key(&unit)
    }

    pub(crate) fn contribution(&self, row: usize, unit: usize) -> Amounts {
        self.rows[row].contribution(&self.units[unit])
    }

    /// What machines together are worth to a Need.
    pub(crate) fn sum(&self, row: usize, units: impl IntoIterator<Item = usize>) -> Amounts {
        units.into_iter().fold(Amounts::default(), |sum, unit| sum.add(&self.contribution(row, unit)))
    }

    /// What is left of machines without those, the last first, that the others make superfluous (engine.md 8.4).
    /// Only those of `from` may go.
    pub(crate) fn without_surplus(
        &self,
        row: usize,
        mut kept: Vec<usize>,
        from: &[usize],
        want: &Amounts,
    ) -> Vec<usize> {
        for unit in from.iter().rev() {
            let rest: Vec<usize> = kept.iter().copied().filter(|other| other != unit).collect();
            if self.sum(row, rest.iter().copied()).covers(want) {
                kept = rest;
            }
        }
        kept
    }

    pub(crate) fn covers_floor(&self, row: usize, unit: usize) -> bool {
        self.units[unit].capacity.covers(&self.rows[row].min_unit)
    }

    /// It matches and is large enough for the largest pod (engine.md 5 and 8.2).
    pub(crate) fn is_suitable(&self, row: usize, unit: usize) -> bool {
        self.rows[row].matches(&self.units[unit]) && self.covers_floor(row, unit)
    }

    /// The machine is in the given domain of a gang; every machine is for a plain Need, which has none.
    pub(crate) fn is_in(&self, row: usize, unit: usize, domain: Option<&str>) -> bool {
        match (self.rows[row].same_key(), domain) {
            (Some(key), Some(domain)) => self.units[unit].domain(key) == Some(domain),
            (Some(_), None) => false,
            (None, _) => true,
        }
    }

    /// The part of the Need's credit walk that a machine of this kind belongs to, whatever it can hold.
    pub(crate) fn part(&self, row: usize, unit: usize) -> Option<Part> {
        let (need, unit) = (&self.rows[row], &self.units[unit]);
        if need.owns(unit) {
            let bound = unit.state() != MachineState::Creating;
            return Some(if bound { Part::OwnBound } else { Part::OwnCreating });
        }
        if unit.is_bound_to(&need.cluster) {
            let names = |key: &NeedKey| {
                key.cluster == need.cluster
                    && unit.stamp() == Some((key.fingerprint.to_string(), key.group.as_str().to_owned()))
            };
            return Some(if self.live.iter().any(names) { Part::Sibling } else { Part::Orphan });
        }
        let nobody_known = unit.state() == MachineState::Creating && unit.facts.created_for.is_none();
        nobody_known.then_some(Part::CreatingForUnknown)
    }

    /// Creditable to the Need: unclaimed, matching, and its own or as large as the largest pod (engine.md 8.2).
    pub(crate) fn creditable(&self, row: usize, unit: usize) -> Option<Part> {
        let part = self.part(row, unit)?;
        let own = matches!(part, Part::OwnBound | Part::OwnCreating);
        let fits = self.rows[row].matches(&self.units[unit]) && (own || self.covers_floor(row, unit));
        (self.units[unit].facts.eligibility.creditable && !self.is_claimed(unit) && fits).then_some(part)
    }

    /// engine.md 6.4: all that could be credited to the Need, five parts, each in keep order.
    pub(crate) fn walk(&self, row: usize) -> Vec<usize> {
        let mut walk: Vec<(Part, KeepOrder, usize)> = self
            .all_units()
            .filter_map(|unit| Some((self.creditable(row, unit)?, self.keep_order(unit), unit)))
            .collect();
        walk.sort();
        walk.into_iter().map(|(_, _, unit)| unit).collect()
    }

    /// engine.md 6.4: Configured before Configuring, then price, the more valuable first, id.
    pub(crate) fn keep_order(&self, unit: usize) -> KeepOrder {
        let of = &self.units[unit];
        let late = of.state() != MachineState::Configured;
        (late, of.machine.price.nano(), Reverse(of.penalties()[1]), unit)
    }

    /// engine.md 6.3, with the domain values of 11 before the id.
    pub(crate) fn acquisition_order(&self, row: usize, unit: usize) -> AcquisitionOrder {
        let (need, of) = (&self.rows[row], &self.units[unit]);
        let values =
            self.spread_terms(row).into_iter().map(|term| of.domain(&term.topology_key).map(str::to_owned));
        let late = of.state() != MachineState::Idle;
        (late, need.effective_cost(of), need.unrequested_kinds(of), values.collect(), unit)
    }
}

/// (not Configured, price, reclamation penalty, id), the first to keep first.
pub(crate) type KeepOrder = (bool, i64, Reverse<StampedPenalty>, usize);

/// (not Idle, effective cost, unrequested kinds, domain values, id), the first to take first.
pub(crate) type AcquisitionOrder = (bool, (bool, i128), usize, Vec<Option<String>>, usize);
