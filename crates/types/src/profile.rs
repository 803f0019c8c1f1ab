//! Requirements, topology spread and the profile that Needs are aggregated by.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::{Fingerprint, PenaltyBucket};

/// Label keys with a meaning of their own.
pub mod keys {
    /// The machine's type; the first-class field of a machine answers it.
    pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
    /// Older name of [`INSTANCE_TYPE`].
    pub const INSTANCE_TYPE_BETA: &str = "beta.kubernetes.io/instance-type";
    /// The machine's zone; the first-class field of a machine answers it.
    pub const ZONE: &str = "topology.kubernetes.io/zone";
    /// Older name of [`ZONE`].
    pub const ZONE_BETA: &str = "failure-domain.beta.kubernetes.io/zone";
    /// The node's name; a machine without the label is a domain of its own, named by its id.
    pub const HOSTNAME: &str = "kubernetes.io/hostname";
    /// `bare-metal`, `reserved`, `on-demand` or `spot`; the first-class field of a machine answers it.
    pub const CAPACITY_TYPE: &str = "bigfleet.lucy.sh/capacity-type";
    /// The machine's id, as a node label.
    pub const MACHINE_ID: &str = "bigfleet.lucy.sh/machine-id";
}

/// How a requirement tests a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Operator {
    /// The value is one of the listed ones.
    In = 1,
    /// The label is absent or its value is none of the listed ones.
    NotIn = 2,
    /// The label is present.
    Exists = 3,
    /// The label is absent.
    DoesNotExist = 4,
    /// All machines that serve the Need share one value of the label.
    Same = 5,
}

impl Operator {
    /// The number on the wire, 1..=5.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// The operator of a wire number; `None` for 0 (unspecified) and unknown ones.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::In,
            2 => Self::NotIn,
            3 => Self::Exists,
            4 => Self::DoesNotExist,
            5 => Self::Same,
            _ => return None,
        })
    }
}

/// One condition on a label. A profile's requirements must all hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Requirement {
    /// The label's key.
    pub key: Arc<str>,
    /// The test.
    pub operator: Operator,
    /// The values of the test; canonical in a [`Profile`]: sorted, without duplicates.
    pub values: Vec<Arc<str>>,
}

/// What happens when a spread cannot be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum WhenUnsatisfiable {
    /// Not said; not enforced.
    Unspecified = 0,
    /// The machine is not taken.
    DoNotSchedule = 1,
    /// The spread is a wish; not enforced.
    ScheduleAnyway = 2,
}

impl WhenUnsatisfiable {
    /// The value of a wire number; `None` for unknown ones.
    #[must_use]
    pub fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            0 => Self::Unspecified,
            1 => Self::DoNotSchedule,
            2 => Self::ScheduleAnyway,
            _ => return None,
        })
    }
}

/// How evenly a Need's machines must spread over the values of a label.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpreadTerm {
    /// The label's key.
    pub topology_key: Arc<str>,
    /// The largest difference between two domains, as given; values below 1 mean 1.
    pub max_skew: i32,
    /// Whether it is enforced.
    pub when_unsatisfiable: WhenUnsatisfiable,
}

/// What pods must have in common to be one Need: where they may run and how much they matter. Not how large they are.
///
/// Always canonical: equal profiles have equal fields and equal fingerprints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    requirements: Vec<Requirement>,
    spread: Vec<SpreadTerm>,
    priority: i32,
    interruption: PenaltyBucket,
    reclamation: PenaltyBucket,
    fingerprint: Fingerprint,
}

impl Profile {
    /// Builds the canonical profile: values sorted and deduplicated in each requirement, requirements sorted by
    /// (key, operator, values) and spread terms by (key, skew, enforcement), exact duplicates dropped.
    #[must_use]
    pub fn new(
        mut requirements: Vec<Requirement>,
        mut spread: Vec<SpreadTerm>,
        priority: i32,
        interruption: PenaltyBucket,
        reclamation: PenaltyBucket,
    ) -> Self {
        for requirement in &mut requirements {
            requirement.values.sort();
            requirement.values.dedup();
        }
        requirements.sort();
        requirements.dedup();
        spread.sort();
        spread.dedup();
        let fingerprint = fingerprint(&requirements, &spread, priority, interruption, reclamation);
        Self { requirements, spread, priority, interruption, reclamation, fingerprint }
    }

    /// The requirements, canonical.
    #[must_use]
    pub fn requirements(&self) -> &[Requirement] {
        &self.requirements
    }

    /// The spread terms, canonical.
    #[must_use]
    pub fn spread(&self) -> &[SpreadTerm] {
        &self.spread
    }

    /// The priority; higher goes first.
    #[must_use]
    pub fn priority(&self) -> i32 {
        self.priority
    }

    /// What an interruption costs.
    #[must_use]
    pub fn interruption(&self) -> PenaltyBucket {
        self.interruption
    }

    /// What losing the machine costs.
    #[must_use]
    pub fn reclamation(&self) -> PenaltyBucket {
        self.reclamation
    }

    /// The profile's identity.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The key of the `Same` requirement, if the profile has one.
    #[must_use]
    pub fn same(&self) -> Option<&Requirement> {
        self.requirements.iter().find(|r| r.operator == Operator::Same)
    }
}

/// The canonical encoding, version 1: strings with a u32 length in front, integers big-endian. Its bytes decide
/// ties between Needs, so they never change.
fn fingerprint(
    requirements: &[Requirement],
    spread: &[SpreadTerm],
    priority: i32,
    interruption: PenaltyBucket,
    reclamation: PenaltyBucket,
) -> Fingerprint {
    let mut hash = Sha256::new();
    hash.update([1u8]);
    count(&mut hash, requirements.len());
    for requirement in requirements {
        text(&mut hash, &requirement.key);
        hash.update([requirement.operator.number()]);
        count(&mut hash, requirement.values.len());
        requirement.values.iter().for_each(|value| text(&mut hash, value));
    }
    count(&mut hash, spread.len());
    for term in spread {
        text(&mut hash, &term.topology_key);
        hash.update(term.max_skew.to_be_bytes());
        hash.update([term.when_unsatisfiable as u8]);
    }
    hash.update(priority.to_be_bytes());
    hash.update([interruption.number(), reclamation.number()]);
    let digest = hash.finalize();
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&digest[..16]);
    Fingerprint(bytes)
}

fn count(hash: &mut Sha256, n: usize) {
    hash.update(u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes());
}

fn text(hash: &mut Sha256, text: &str) {
    count(hash, text.len());
    hash.update(text.as_bytes());
}
