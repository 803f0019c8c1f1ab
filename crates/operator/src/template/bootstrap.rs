//! Bootstrap blobs: a template and the values that it may use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::BootstrapRequest;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_types::ClusterId;
use bytes::Bytes;

use super::{RenderError, Template, Value};
use crate::core::bootstrap::kubelet_version;
use crate::io::{Render, Rendered};

/// Values that no request carries. `None` has no source yet: a template that prints it gets an error.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statics {
    /// `.Token`, a secret.
    pub token: Option<String>,
    /// `.APIServerEndpoint`.
    pub api_server_endpoint: Option<String>,
    /// `.CABundle`.
    pub ca_bundle: Option<String>,
    /// `.CAHash`.
    pub ca_hash: Option<String>,
    /// `.KubernetesVersion`, the API server's, such as `v1.33.1`.
    pub kubernetes_version: Option<String>,
}

/// Why a request gets no blob. The text is what the shard shows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BootstrapError {
    /// The template could not be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
    /// No listed kubelet fits the API server.
    #[error("{0}")]
    Kubelet(String),
}

/// Renders bootstrap blobs for one cluster. Pure: no I/O, no clock.
#[derive(Debug, Clone)]
pub struct Bootstrap {
    cluster: ClusterId,
    template: Option<Arc<Template>>,
    statics: Statics,
    ttl: Duration,
}

impl Bootstrap {
    /// Blobs made by `template`, or by the built-in stub when there is none, with credentials that last `ttl` (at
    /// least a second). The stub joins nothing, which is logged.
    #[must_use]
    pub fn new(cluster: ClusterId, template: Option<Template>, statics: Statics, ttl: Duration) -> Self {
        if template.is_none() {
            tracing::warn!(%cluster, "no bootstrap template: machines get a stub that cannot join the cluster");
        }
        let ttl = ttl.max(Duration::from_secs(1));
        Self { cluster, template: template.map(Arc::new), statics, ttl }
    }

    /// The same, for an API server of this version.
    #[must_use]
    pub fn for_version(&self, kubernetes_version: Option<String>) -> Self {
        let statics = Statics { kubernetes_version, ..self.statics.clone() };
        Self { statics, ..self.clone() }
    }

    /// The blob for one request. Whether the request is for this cluster and the blob of a sendable size is the
    /// core's to check.
    ///
    /// # Errors
    /// See [`BootstrapError`]; every one is final for this request.
    pub fn blob(&self, request: &BootstrapRequest) -> Result<Rendered, BootstrapError> {
        let text = match &self.template {
            None => format!("#cloud-config\n# stub for cluster {}: it joins nothing\n", self.cluster),
            Some(template) => template.render(&self.data(request, self.kubelet(request)?))?,
        };
        Ok(Rendered { user_data: Bytes::from(text), ttl: self.ttl })
    }

    /// The version that is asked for, else the API server's own; unknown without the latter.
    fn kubelet(&self, request: &BootstrapRequest) -> Result<Option<String>, BootstrapError> {
        let Some(server) = &self.statics.kubernetes_version else {
            return Ok(None);
        };
        let asked = kubelet_version(&request.requirements, Some(server)).map_err(BootstrapError::Kubelet)?;
        Ok(Some(asked.unwrap_or_else(|| server.clone())))
    }

    fn data(&self, request: &BootstrapRequest, kubelet: Option<String>) -> Value {
        let requirements = request.requirements.iter().map(|r| {
            Value::Record(
                [
                    ("Key", Value::text(&r.key)),
                    ("Operator", Value::text(operator_name(r.operator()))),
                    ("Values", Value::texts(&r.values)),
                ]
                .into(),
            )
        });
        let taints = request.taints.iter().map(|taint| {
            Value::Record(
                [
                    ("Key", Value::text(&taint.key)),
                    ("Value", Value::text(&taint.value)),
                    ("Effect", Value::text(&taint.effect)),
                ]
                .into(),
            )
        });
        let or_absent = |value: Option<&String>, reason: &'static str| {
            value.map_or(Value::Absent(reason), |value| Value::text(value))
        };
        let machine = Some(&request.machine_id).filter(|id| !id.is_empty());
        let labels: BTreeMap<String, String> =
            request.labels.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let s = &self.statics;
        Value::Record(
            [
                ("ClusterID", Value::text(self.cluster.as_str())),
                ("MachineID", or_absent(machine, ".MachineID has no value: the shard named no machine")),
                ("Requirements", Value::List(requirements.collect())),
                ("NodeLabels", Value::Map(Arc::new(labels))),
                ("Taints", Value::List(taints.collect())),
                ("Token", or_absent(s.token.as_ref(), ".Token has no value: no token is configured")),
                (
                    "APIServerEndpoint",
                    or_absent(
                        s.api_server_endpoint.as_ref(),
                        ".APIServerEndpoint has no value: no endpoint is configured",
                    ),
                ),
                (
                    "CABundle",
                    or_absent(s.ca_bundle.as_ref(), ".CABundle has no value: no bundle is configured"),
                ),
                ("CAHash", or_absent(s.ca_hash.as_ref(), ".CAHash has no value: no hash is configured")),
                (
                    "KubernetesVersion",
                    or_absent(
                        s.kubernetes_version.as_ref(),
                        ".KubernetesVersion has no value: the API server's version is not known",
                    ),
                ),
                (
                    "KubeletVersion",
                    or_absent(
                        kubelet.as_ref(),
                        ".KubeletVersion has no value: the API server's version is not known",
                    ),
                ),
            ]
            .into(),
        )
    }
}

impl Render for Bootstrap {
    fn render(&self, request: &BootstrapRequest) -> Result<Rendered, String> {
        self.blob(request).map_err(|error| error.to_string())
    }
}

/// The text form that node selectors use, and `Same` beside it.
fn operator_name(operator: Operator) -> &'static str {
    match operator {
        Operator::Unspecified => "Unspecified",
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Same => "Same",
    }
}
