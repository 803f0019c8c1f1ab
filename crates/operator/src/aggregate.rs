//! The cluster's demand, kept current request by request.
//!
//! A request contributes its resources to the row of its profile and group. A row keeps how often each shape occurs:
//! the sum follows from that, and so does the largest amount, which could not be taken back otherwise. Building the
//! rows costs what the distinct shapes cost, however many requests there are.

mod canonical;
mod forms;
mod shape;

use std::cmp::Reverse;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bigfleet_proto::v1alpha1::{CapacityNeed, PenaltyBucket};
use bigfleet_types::{Group, Profile};
use hashbrown::HashMap;

use crate::io::{CapacityRequest, Uid};

pub use canonical::{Skip, SkipReason, gang_group, kinds_group};
use forms::Forms;
use shape::{Shape, Total};

/// What one request changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Whether its contribution differs from before.
    pub changed: bool,
    /// Whether the cluster wants more than before of anything.
    pub grew: bool,
    /// Whether an amount was cut to the largest that can be stated.
    pub saturated: bool,
    /// Why it contributes nothing, if so.
    pub skip: Option<Skip>,
}

/// Rows that may go on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Rows {
    /// By priority, highest first, then by content: equal demand gives equal rows in equal order.
    pub needs: Vec<CapacityNeed>,
    /// How many amounts were cut to the largest that can be stated.
    pub saturated: u64,
}

/// By how much sums are raised: such percents of what a machine offers are taken before any of these pods runs. Each is
/// below 100.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Raise {
    /// Of its cpu.
    pub cpu: u8,
    /// Of its memory.
    pub memory: u8,
}

/// The live aggregate.
#[derive(Debug, Default)]
pub struct Aggregate {
    requests: HashMap<Uid, Contribution>,
    rows: ShapesByRow,
    forms: Forms,
}

/// How often each shape occurs in each row.
type ShapesByRow = HashMap<Arc<RowKey>, HashMap<Arc<Shape>, u64>>;

#[derive(Debug, Clone, PartialEq, Eq)]
struct Contribution {
    row: Arc<RowKey>,
    shape: Arc<Shape>,
}

#[derive(Debug, Clone)]
struct RowKey {
    profile: Profile,
    group: Group,
}

impl RowKey {
    /// What orders rows: everything, so that no two rows tie.
    fn order(&self) -> impl Ord + '_ {
        let p = &self.profile;
        let buckets = (p.interruption(), p.reclamation());
        (Reverse(p.priority()), p.requirements(), p.spread(), buckets, &self.group)
    }
}

impl PartialEq for RowKey {
    fn eq(&self, other: &Self) -> bool {
        self.profile.fingerprint() == other.profile.fingerprint() && self.group == other.group
    }
}
impl Eq for RowKey {}
impl Hash for RowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.profile.fingerprint().hash(state);
        self.group.hash(state);
    }
}

impl Aggregate {
    /// Takes a request that appeared or changed; what it contributed before is taken back.
    pub fn apply(&mut self, request: &CapacityRequest) -> Change {
        let (new, saturated) = match self.read(request) {
            Ok(read) => read,
            Err(skip) => {
                let changed = self.remove(&request.uid);
                return Change { changed, grew: false, saturated: false, skip: Some(skip) };
            }
        };
        let old = self.requests.get(&request.uid);
        let changed = old != Some(&new);
        let grew = match old {
            Some(old) if old.row == new.row => new.shape.exceeds(&old.shape),
            _ => !new.shape.is_empty(),
        };
        if changed {
            if old.is_some() {
                self.remove(&request.uid);
            }
            self.add(request.uid.clone(), new);
        }
        Change { changed, grew, saturated, skip: None }
    }

    fn read(&mut self, request: &CapacityRequest) -> Result<(Contribution, bool), Skip> {
        if request.deleting {
            return Err(Skip { reason: SkipReason::Deleted, detail: "it is being deleted".to_owned() });
        }
        let (shape, saturated) = self.forms.shape(&request.resources)?;
        let row = self.forms.row(request, &shape, &self.rows)?;
        Ok((Contribution { row, shape }, saturated))
    }

    fn add(&mut self, uid: Uid, new: Contribution) {
        let shapes = self.rows.entry_ref(&new.row).or_default();
        *shapes.entry_ref(&new.shape).or_default() += 1;
        self.requests.insert(uid, new);
        self.forms.sweep(&self.rows);
    }

    /// Takes over what a request contributes to `before`, if anything.
    pub fn adopt(&mut self, before: &Self, uid: &str) {
        let Some((uid, known)) = before.requests.get_key_value(uid) else {
            return;
        };
        self.remove(uid);
        self.add(uid.clone(), known.clone());
    }

    /// Takes back what a request contributed; `false` when that was nothing.
    pub fn remove(&mut self, uid: &str) -> bool {
        let Some(Contribution { row, shape }) = self.requests.remove(uid) else {
            return false;
        };
        if let Some(shapes) = self.rows.get_mut(&row) {
            if let Some(count) = shapes.get_mut(&shape) {
                *count -= 1;
                if *count == 0 {
                    shapes.remove(&shape);
                }
            }
            if shapes.is_empty() {
                self.rows.remove(&row);
            }
        }
        true
    }

    /// How many requests contribute.
    #[must_use]
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Whether no request contributes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether the request contributes.
    #[must_use]
    pub fn contains(&self, uid: &str) -> bool {
        self.requests.contains_key(uid)
    }

    /// Whether some request contributes here what it did not in `before`.
    #[must_use]
    pub fn grew_over(&self, before: &Self) -> bool {
        self.requests.iter().any(|(uid, new)| match before.requests.get(uid) {
            Some(old) if old.row == new.row => new.shape.exceeds(&old.shape),
            _ => !new.shape.is_empty(),
        })
    }

    /// The rows of now. Rows of nothing are left out.
    #[must_use]
    pub fn rows(&self) -> Rows {
        self.raised_rows(Raise::default())
    }

    /// The same with the sums of cpu and memory raised; the largest amount of one pod stays what it is.
    #[must_use]
    pub fn raised_rows(&self, raise: Raise) -> Rows {
        let mut keys: Vec<_> = self.rows.iter().collect();
        keys.sort_unstable_by(|(a, _), (b, _)| a.order().cmp(&b.order()));
        let mut saturated = 0;
        let mut needs = Vec::with_capacity(keys.len());
        for (key, shapes) in keys {
            let mut total = Total::default();
            for (shape, count) in shapes {
                total.add(shape, *count);
            }
            total.raise(raise);
            saturated += total.saturate();
            if total.is_empty() {
                continue;
            }
            let profile = &key.profile;
            needs.push(CapacityNeed {
                requirements: profile.requirements().iter().map(Into::into).collect(),
                aggregate_resources: total.sums(),
                priority: profile.priority(),
                spread: profile.spread().iter().map(Into::into).collect(),
                interruption_penalty_bucket: PenaltyBucket::from(profile.interruption()).into(),
                reclamation_penalty_bucket: PenaltyBucket::from(profile.reclamation()).into(),
                min_unit: total.maxima(),
                group: key.group.as_str().to_owned(),
            });
        }
        Rows { needs, saturated }
    }
}
