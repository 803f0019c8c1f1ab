//! Everything that many rows and machines share, made once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_engine::fold_key;
use bigfleet_operator::aggregate::kinds_group;
use bigfleet_types::{
    Attribution, Group, Need, Operator, Profile, Requirement, Resources, SpreadTerm, WhenUnsatisfiable, keys,
};

use super::amounts;
use crate::catalogue::{Archetype, CATALOGUE, GPU, RACK_KEY, penalty};

/// The tables of all kinds, in the order of the catalogue.
#[derive(Debug)]
pub(super) struct Tables(Vec<Kind>);

/// What one kind of workload needs.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) spec: &'static Archetype,
    pub(super) types: Vec<Arc<str>>,
    /// By size: one pod, and a machine of such pods.
    pub(super) unit: Vec<Resources>,
    pub(super) machine: Vec<Resources>,
    /// The group of its plain rows.
    pub(super) group: Group,
    /// By type: without spread and with it. For gangs: the gang's profile twice.
    pub(super) profiles: Vec<[Stamped; 2]>,
    /// By type and gang size: what machines of folded gangs are stamped with.
    pub(super) folds: BTreeMap<(usize, u64), Attribution>,
}

/// A profile with the stamps of a machine that serves it, but for the group.
#[derive(Debug)]
pub(super) struct Stamped {
    pub(super) profile: Arc<Profile>,
    pub(super) stamps: Attribution,
}

impl Tables {
    pub(super) fn new() -> Self {
        Self(CATALOGUE.iter().map(Kind::new).collect())
    }

    pub(super) fn kind(&self, kind: usize) -> &Kind {
        &self.0[kind]
    }

    pub(super) fn kinds(&self) -> impl Iterator<Item = (usize, &Kind)> {
        self.0.iter().enumerate()
    }
}

impl Kind {
    fn new(spec: &'static Archetype) -> Self {
        let unit: Vec<_> = spec.sizes.iter().map(|size| amounts(size.cpu, size.memory, size.gpus)).collect();
        let pods = i64::try_from(spec.pods_per_node).unwrap_or(i64::MAX);
        let devices = spec.sizes.iter().any(|size| size.gpus > 0).then_some(GPU);
        let mut kind = Self {
            spec,
            types: spec.types.iter().map(|name| Arc::from(*name)).collect(),
            machine: unit.iter().map(|unit| unit.scale(pods)).collect(),
            unit,
            group: if spec.gang.is_some() { Group::NONE } else { Group::new(&kinds_group(devices)) },
            profiles: Vec::new(),
            folds: BTreeMap::new(),
        };
        kind.profiles =
            (0..spec.types.len()).map(|at| [kind.profile(at, false), kind.profile(at, true)]).collect();
        if let Some((_, most)) = spec.gang.filter(|_| spec.gang_fits_machine()) {
            for (at, profiles) in kind.profiles.iter().enumerate() {
                for size in 1..=most {
                    let gang = kind.need(&profiles[0].profile, &[size], Group::new("any"));
                    if let Some((profile, group)) = fold_key(&gang) {
                        let fold = kind.need(&Arc::new(profile), &[size], group);
                        kind.folds.insert((at, size), Attribution::of(&fold));
                    }
                }
            }
        }
        kind
    }

    fn profile(&self, at: usize, spread: bool) -> Stamped {
        let mut requirements = vec![Requirement {
            key: keys::INSTANCE_TYPE.into(),
            operator: Operator::In,
            values: vec![self.types[at].clone()],
        }];
        if self.spec.gang.is_some() {
            requirements.push(Requirement {
                key: RACK_KEY.into(),
                operator: Operator::Same,
                values: Vec::new(),
            });
        }
        let term = SpreadTerm {
            topology_key: keys::ZONE.into(),
            max_skew: 1,
            when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
        };
        let spread = if spread && self.spec.gang.is_none() { vec![term] } else { Vec::new() };
        let (interruption, reclamation) = (penalty(self.spec.interruption), penalty(self.spec.reclamation));
        let profile =
            Arc::new(Profile::new(requirements, spread, self.spec.priority, interruption, reclamation));
        let stamps = Attribution::of(&self.need(&profile, &[1], self.group.clone()));
        Stamped { profile, stamps }
    }

    /// A row of so many pods of each size.
    pub(super) fn need(&self, profile: &Arc<Profile>, pods: &[u64], group: Group) -> Need {
        let mut aggregate = Resources::EMPTY;
        let mut min_unit = Resources::EMPTY;
        for (count, unit) in pods.iter().zip(&self.unit).filter(|(count, _)| **count > 0) {
            aggregate = aggregate.add(&unit.scale(i64::try_from(*count).unwrap_or(i64::MAX)));
            min_unit = min_unit.max(unit);
        }
        Need { profile: profile.clone(), aggregate, min_unit, group, arrival: None }
    }

    /// The stamps of a machine that serves one gang.
    pub(super) fn gang_stamps(&self, at: usize, group: &Group) -> Attribution {
        let mut stamps = self.profiles[at][0].stamps.clone();
        stamps.group = Some(group.as_str().into());
        stamps
    }
}
