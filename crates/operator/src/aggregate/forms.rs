//! What requests are found to mean, by how they are written: most are written as one before was, and reading one takes a
//! hash that cannot be hurried.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, Hash, Hasher};
use std::sync::Arc;

use bigfleet_types::is_extended;
use hashbrown::{DefaultHashBuilder, HashMap, HashSet, HashTable};

use super::canonical::{self, Skip};
use super::shape::Shape;
use super::{RowKey, ShapesByRow};
use crate::io::{CapacityRequest, CoLocation, LabelSelector};

/// How many forms there may be, beyond twice those that were in use at the last look.
const SPARE: usize = 1024;

/// The known forms.
#[derive(Debug, Default)]
pub(super) struct Forms {
    /// With their hashes.
    rows: HashTable<(u64, Form)>,
    hashing: DefaultHashBuilder,
    shapes: HashMap<BTreeMap<String, String>, (Arc<Shape>, bool)>,
    /// The shapes of the above, whatever way they are written.
    distinct: HashSet<Arc<Shape>>,
    /// How many forms there may be until the next look at which are in use.
    enough: usize,
}

/// All of a request that decides its row.
#[derive(Debug)]
struct Form {
    requirements: Vec<(String, String, Vec<String>)>,
    priority: i32,
    interruption_penalty: Option<String>,
    reclamation_penalty: Option<String>,
    topology_spread: Vec<(String, i32, String)>,
    /// The namespace counts with it only.
    co_location: Option<(String, CoLocation)>,
    /// The extended resources that it asks for.
    devices: Vec<Arc<str>>,
    row: Arc<RowKey>,
}

impl Forms {
    /// What a request asks for; says too whether an amount was cut to the largest.
    pub(super) fn shape(&mut self, resources: &BTreeMap<String, String>) -> Result<(Arc<Shape>, bool), Skip> {
        if let Some(known) = self.shapes.get(resources) {
            return Ok(known.clone());
        }
        let (shape, saturated) = canonical::shape(resources)?;
        let shape = self.distinct.get_or_insert_with(&shape, |shape| Arc::new(shape.clone())).clone();
        self.shapes.insert(resources.clone(), (shape.clone(), saturated));
        Ok((shape, saturated))
    }

    /// The row to which a request of this shape belongs; one of `rows`, if it is there.
    pub(super) fn row(
        &mut self,
        request: &CapacityRequest,
        shape: &Shape,
        rows: &ShapesByRow,
    ) -> Result<Arc<RowKey>, Skip> {
        let hash = self.hashing.hash_one(Written(request, shape));
        if let Some(known) = self.rows.find(hash, |(_, form)| form.is(request, shape)) {
            return Ok(known.1.row.clone());
        }
        let row = canonical::row(request, shape)?;
        let row = rows.get_key_value(&row).map_or_else(|| Arc::new(row), |(known, _)| known.clone());
        let form = Form::of(request, shape, row.clone());
        self.rows.insert_unique(hash, (hash, form), |(hash, _)| *hash);
        Ok(row)
    }

    /// Drops forms of what `rows` do not hold any more, now and then: there are never many more than are in use.
    pub(super) fn sweep(&mut self, rows: &ShapesByRow) {
        if self.rows.len().max(self.shapes.len()) < self.enough {
            return;
        }
        self.distinct = rows.values().flat_map(HashMap::keys).cloned().collect();
        self.shapes.retain(|_, (shape, _)| self.distinct.contains(shape));
        self.rows.retain(|(_, form)| rows.contains_key(&form.row));
        self.enough = 2 * self.rows.len().max(self.shapes.len()) + SPARE;
    }
}

/// What decides the row of a request of this shape.
struct Written<'a>(&'a CapacityRequest, &'a Shape);

impl Written<'_> {
    /// The namespace counts for gangs only.
    fn co_location(&self) -> Option<(&str, &CoLocation)> {
        Some((self.0.namespace.as_str(), self.0.co_location.as_ref()?))
    }

    fn devices(&self) -> impl Iterator<Item = &str> {
        self.1.names().filter(|name| is_extended(name))
    }
}

impl Hash for Written<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let CapacityRequest {
            requirements,
            priority,
            interruption_penalty,
            reclamation_penalty,
            topology_spread,
            ..
        } = self.0;
        (requirements, priority, interruption_penalty, reclamation_penalty, topology_spread).hash(state);
        if let Some((namespace, CoLocation { topology_key, selector })) = self.co_location() {
            (namespace, topology_key).hash(state);
            if let Some(LabelSelector { match_labels, match_expressions }) = selector {
                (match_labels, match_expressions).hash(state);
            }
        }
        self.devices().for_each(|device| device.hash(state));
    }
}

impl Form {
    fn of(request: &CapacityRequest, shape: &Shape, row: Arc<RowKey>) -> Self {
        let written = Written(request, shape);
        Self {
            requirements: request.requirements.clone(),
            priority: request.priority,
            interruption_penalty: request.interruption_penalty.clone(),
            reclamation_penalty: request.reclamation_penalty.clone(),
            topology_spread: request.topology_spread.clone(),
            co_location: written
                .co_location()
                .map(|(namespace, place)| (namespace.to_owned(), place.clone())),
            devices: written.devices().map(Arc::from).collect(),
            row,
        }
    }

    fn is(&self, request: &CapacityRequest, shape: &Shape) -> bool {
        let written = Written(request, shape);
        let co_location = self.co_location.as_ref().map(|(namespace, place)| (namespace.as_str(), place));
        self.requirements == request.requirements
            && self.priority == request.priority
            && self.interruption_penalty == request.interruption_penalty
            && self.reclamation_penalty == request.reclamation_penalty
            && self.topology_spread == request.topology_spread
            && co_location == written.co_location()
            && self.devices.iter().map(|device| &**device).eq(written.devices())
    }
}
