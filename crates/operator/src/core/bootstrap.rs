//! Answers to bootstrap requests. The shard waits, so nothing here waits for anything.

use bigfleet_proto::gate::session::MAX_BLOB_BYTES;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{
    BootstrapBlobResponse, BootstrapRequest, NodeSelectorRequirement, OperatorMessage,
};

use super::Core;
use super::counters::bump;
use crate::io::{Output, Rendered};

/// The requirement that names kubelet versions.
pub const KUBELET_VERSION: &str = "bigfleet.lucy.sh/kubelet-version";
/// Several clouds take no more user data than this.
const COMMON_LIMIT: usize = 16 << 10;
/// A kubelet may be this many minor versions behind its API server.
const SKEW: u32 = 3;

impl Core {
    pub(super) fn on_bootstrap_request(&mut self, request: &BootstrapRequest) {
        let mut response =
            BootstrapBlobResponse { request_id: request.request_id.clone(), ..Default::default() };
        match self.render_checked(request) {
            Ok(Rendered { user_data, ttl }) => {
                bump(&mut self.counters.bootstrap, "rendered");
                response.user_data = user_data;
                response.ttl_seconds = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
            }
            Err((label, error)) => {
                bump(&mut self.counters.bootstrap, label);
                tracing::warn!(
                    request = request.request_id,
                    machine = request.machine_id,
                    error,
                    "no bootstrap data"
                );
                response.error = error;
            }
        }
        let payload = Some(Payload::BootstrapResponse(response));
        self.outputs.push(Output::Send(Box::new(OperatorMessage { payload })));
    }

    fn render_checked(&self, request: &BootstrapRequest) -> Result<Rendered, (&'static str, String)> {
        if !request.cluster_id.is_empty() && request.cluster_id != self.config.cluster.as_str() {
            return Err(("foreign_cluster", "cluster id mismatch".to_owned()));
        }
        kubelet_version(&request.requirements, self.server_version.as_deref())
            .map_err(|error| ("kubelet_skew", error))?;
        let rendered = self.render.render(request).map_err(|e| ("render_error", format!("render: {e}")))?;
        let bytes = rendered.user_data.len();
        if bytes == 0 {
            return Err(("bad_size", "the bootstrap data is empty".to_owned()));
        }
        if bytes > MAX_BLOB_BYTES {
            let error = format!("the bootstrap data has {bytes} bytes, at most {MAX_BLOB_BYTES} are taken");
            return Err(("bad_size", error));
        }
        if rendered.ttl.as_secs() == 0 {
            return Err(("expired", "the bootstrap data would expire within a second".to_owned()));
        }
        if bytes > COMMON_LIMIT {
            tracing::warn!(
                bytes,
                "the bootstrap data is larger than some clouds take ({COMMON_LIMIT} bytes)"
            );
        }
        Ok(rendered)
    }
}

/// The kubelet version to install: the newest of those that the requirements list and that the API server of version
/// `server` supports; `None` when no requirement asks for one.
///
/// # Errors
/// No listed version is supported, or the server's version is not known.
pub fn kubelet_version(
    requirements: &[NodeSelectorRequirement],
    server: Option<&str>,
) -> Result<Option<String>, String> {
    let asks = |r: &&NodeSelectorRequirement| r.key == KUBELET_VERSION && r.operator() == Operator::In;
    let Some(wanted) = requirements.iter().find(asks) else {
        return Ok(None);
    };
    let newest = |versions: &mut dyn Iterator<Item = &String>| {
        versions.max_by_key(|version| parse(version)).cloned().unwrap_or_default()
    };
    let listed = newest(&mut wanted.values.iter());
    let Some((server, (major, minor, _))) = server.and_then(|text| Some((text, parse(text)?))) else {
        return Err(format!(
            "kubelet version {listed} cannot be checked: the version of the API server is not known"
        ));
    };
    let oldest = minor.saturating_sub(SKEW);
    let supported = |version: &&String| {
        parse(version)
            .is_some_and(|(its_major, its, _)| its_major == major && (oldest..=minor).contains(&its))
    };
    let best = newest(&mut wanted.values.iter().filter(supported));
    if best.is_empty() {
        return Err(format!(
            "kubelet version {listed} outside supported skew [v{major}.{oldest}, v{major}.{minor}] of API server {server}"
        ));
    }
    Ok(Some(best))
}

/// `v1.29.4`, `1.29` or `v1.29.4-gke.7`.
fn parse(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).splitn(3, '.');
    let number = |text: &str| {
        let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        text[..digits].parse::<u32>().ok()
    };
    let (major, minor) = (number(parts.next()?)?, number(parts.next()?)?);
    Some((major, minor, parts.next().and_then(number).unwrap_or(0)))
}
