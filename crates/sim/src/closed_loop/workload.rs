//! What runs in a cluster: pods of one kind, alone or as a gang.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_operator::aggregate::Aggregate;
use bigfleet_operator::io::{CapacityRequest, CoLocation, LabelSelector};
use bigfleet_proto::gate::rollup;
use bigfleet_proto::v1alpha1::ClusterCapacityNeeds;
use bigfleet_types::{ClusterId, Machine, Need, keys};

/// The label that names a machine's rack.
pub const RACK: &str = "rack";

/// Pods that are all alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Its name within the cluster.
    pub name: String,
    /// Instance types that it may run on.
    pub types: Vec<String>,
    /// What each pod asks for: quantities by resource name.
    pub request: Vec<(String, String)>,
    /// Its priority.
    pub priority: i32,
    /// What an interruption costs, in dollars.
    pub interruption: String,
    /// What the loss of its machine costs, in dollars.
    pub reclamation: String,
    /// All pods must share a rack.
    pub gang: bool,
    /// Racks, or whatever label is named, over which pods must be spread evenly.
    pub spread: Vec<String>,
    /// How many pods there are to be.
    pub pods: usize,
}

impl Workload {
    /// Pods without a penalty, alone, on one instance type.
    #[must_use]
    pub fn new(
        name: &str,
        instance_type: &str,
        request: &[(&str, &str)],
        priority: i32,
        pods: usize,
    ) -> Self {
        Self {
            name: name.to_owned(),
            types: vec![instance_type.to_owned()],
            request: request.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect(),
            priority,
            interruption: "0".to_owned(),
            reclamation: "0".to_owned(),
            gang: false,
            spread: Vec::new(),
            pods,
        }
    }

    /// With penalties, in dollars.
    #[must_use]
    pub fn penalties(mut self, interruption: &str, reclamation: &str) -> Self {
        (self.interruption, self.reclamation) = (interruption.to_owned(), reclamation.to_owned());
        self
    }

    /// As a gang.
    #[must_use]
    pub fn gang(mut self) -> Self {
        self.gang = true;
        self
    }

    /// The CapacityRequest of one of its pods.
    #[must_use]
    pub fn request_of(&self, pod: u64) -> CapacityRequest {
        let labels = BTreeMap::from([("gang".to_owned(), self.name.clone())]);
        CapacityRequest {
            uid: format!("{}-{pod}", self.name).into(),
            namespace: "sim".to_owned(),
            name: format!("{}-{pod}", self.name),
            deleting: false,
            requirements: vec![(keys::INSTANCE_TYPE.to_owned(), "In".to_owned(), self.types.clone())],
            resources: self.request.iter().cloned().collect(),
            priority: self.priority,
            interruption_penalty: Some(self.interruption.clone()),
            reclamation_penalty: Some(self.reclamation.clone()),
            topology_spread: self
                .spread
                .iter()
                .map(|key| (key.clone(), 1, "DoNotSchedule".to_owned()))
                .collect(),
            co_location: self.gang.then(|| CoLocation {
                topology_key: RACK.to_owned(),
                selector: Some(LabelSelector { match_labels: labels, match_expressions: Vec::new() }),
            }),
            acknowledged: true,
        }
    }

    /// The row that one pod makes.
    ///
    /// # Errors
    /// Why the operator or the shard would refuse its request.
    pub fn row_of_one(&self) -> Result<Need, String> {
        let mut aggregate = Aggregate::default();
        let change = aggregate.apply(&self.request_of(0));
        if let Some(skip) = change.skip {
            return Err(format!("{}: {}", self.name, skip.detail));
        }
        let rows = rows(&ClusterId::trusted("sim"), &aggregate)?;
        rows.into_iter().next().ok_or_else(|| format!("{}: asks for nothing", self.name))
    }
}

/// The aggregate as the shard's gate reads it.
pub(super) fn rows(cluster: &ClusterId, aggregate: &Aggregate) -> Result<Vec<Need>, String> {
    let message = ClusterCapacityNeeds {
        cluster_id: cluster.to_string(),
        needs: aggregate.rows().needs,
        ..ClusterCapacityNeeds::default()
    };
    rollup::accept(cluster, &message).map(|rollup| rollup.needs).map_err(|error| error.to_string())
}

/// The rack of a machine.
#[must_use]
pub fn rack_of(machine: &Machine) -> Option<&Arc<str>> {
    machine.labels.get(RACK).filter(|rack| !rack.is_empty())
}
