//! Answers to bootstrap requests: a template, the values that it may use, and the rules that a blob has to keep.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::{BootstrapRequest, NodeSelectorRequirement};
use bigfleet_types::ClusterId;
use bytes::Bytes;

use super::{Template, Value};
use crate::io::{Render, Rendered};

/// The requirement that asks for kubelet versions.
pub const KUBELET_VERSION_KEY: &str = "bigfleet.lucy.sh/kubelet-version";
/// The largest blob that is sent, in bytes.
pub const BLOB_BYTES: usize = super::OUTPUT_BYTES;
/// Several clouds take no more user data than this; a larger blob is worth a warning.
pub const BLOB_WARN_BYTES: usize = 16 * 1024;
/// How many minor versions a kubelet may lag behind its API server.
const SKEW: u64 = 3;

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
    /// The request is for somebody else.
    #[error("cluster id mismatch")]
    OtherCluster,
    /// The template could not be rendered.
    #[error("render: {0}")]
    Render(#[from] super::RenderError),
    /// The template made nothing of this request.
    #[error("render: the blob is empty")]
    Empty,
    /// No listed kubelet fits the API server.
    #[error(
        "kubelet version {requested} outside supported skew [v{major}.{oldest}, v{major}.{newest}] of API server {server}"
    )]
    Skew {
        /// What was asked for.
        requested: String,
        /// The API server's major version.
        major: u64,
        /// The oldest minor version that it takes.
        oldest: u64,
        /// Its own minor version.
        newest: u64,
        /// The API server's version.
        server: String,
    },
    /// A version that cannot be read.
    #[error("{what} {text:?} is not a version; write it as v1.33.1")]
    Version {
        /// Whose version.
        what: &'static str,
        /// The text.
        text: String,
    },
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

    /// The blob for one request.
    ///
    /// # Errors
    /// See [`BootstrapError`]; every one is final for this request.
    pub fn blob(&self, request: &BootstrapRequest) -> Result<Rendered, BootstrapError> {
        if !request.cluster_id.is_empty() && request.cluster_id != self.cluster.as_str() {
            return Err(BootstrapError::OtherCluster);
        }
        let kubelet = self.kubelet_version(&request.requirements)?;
        let text = match &self.template {
            None => format!("#cloud-config\n# stub for cluster {}: it joins nothing\n", self.cluster),
            Some(template) => template.render(&self.data(request, kubelet))?,
        };
        if text.trim().is_empty() {
            return Err(BootstrapError::Empty);
        }
        if text.len() > BLOB_WARN_BYTES {
            tracing::warn!(
                bytes = text.len(),
                "the bootstrap blob is larger than the 16 KiB that several clouds take"
            );
        }
        Ok(Rendered { user_data: Bytes::from(text), ttl: self.ttl })
    }

    /// The newest listed version that the API server takes; without a list, the server's own.
    fn kubelet_version(
        &self,
        requirements: &[NodeSelectorRequirement],
    ) -> Result<Option<String>, BootstrapError> {
        let asked = requirements
            .iter()
            .filter(|r| r.key == KUBELET_VERSION_KEY && r.operator() == Operator::In)
            .flat_map(|r| &r.values);
        let read = |text: &String| {
            version(text)
                .map(|v| (v, text.clone()))
                .ok_or_else(|| BootstrapError::Version { what: "kubelet version", text: text.clone() })
        };
        let mut asked = asked.map(read).collect::<Result<Vec<_>, _>>()?;
        asked.sort();
        let Some((_, newest)) = asked.last().cloned() else {
            return Ok(self.statics.kubernetes_version.clone());
        };
        let Some(server) = &self.statics.kubernetes_version else {
            return Ok(Some(newest));
        };
        let (major, minor, _) = version(server)
            .ok_or_else(|| BootstrapError::Version { what: "API server version", text: server.clone() })?;
        let oldest = minor.saturating_sub(SKEW);
        let fits = |(v, _): &&((u64, u64, u64), String)| v.0 == major && (oldest..=minor).contains(&v.1);
        asked.iter().rev().find(fits).map(|(_, text)| Some(text.clone())).ok_or_else(|| {
            BootstrapError::Skew { requested: newest, major, oldest, newest: minor, server: server.clone() }
        })
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
                        ".KubeletVersion has no value: none is asked for and the API server's is not known",
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

/// Major, minor and patch of `v1.33.1`; the `v` and the patch may be missing, and what follows `-` or `+` is not read.
fn version(text: &str) -> Option<(u64, u64, u64)> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let core = text.split(['-', '+']).next()?;
    let mut parts = core
        .split('.')
        .map(|part| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse::<u64>().ok()).flatten());
    let (major, minor) = (parts.next()??, parts.next()??);
    let patch = parts.next().map_or(Some(0), |patch| patch)?;
    parts.next().is_none().then_some((major, minor, patch))
}
