//! Answers to bootstrap requests. The shard waits, so nothing here waits for anything but its turn: a blob lets a machine
//! into the cluster, and a shard that asks for very many must not get them all at once. Beyond the limit a request waits up
//! to two seconds, then it is refused.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::time::Duration;

use bigfleet_proto::gate::session::MAX_BLOB_BYTES;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{
    BootstrapBlobResponse, BootstrapRequest, NodeSelectorRequirement, OperatorMessage,
};

use bigfleet_types::UnixNanos;

use super::Core;
use super::counters::bump;
use crate::io::{Output, Rendered};

/// The requirement that names kubelet versions.
pub const KUBELET_VERSION: &str = "bigfleet.lucy.sh/kubelet-version";
/// Several clouds take no more user data than this.
const COMMON_LIMIT: usize = 16 << 10;
/// A kubelet may be this many minor versions behind its API server.
const SKEW: u32 = 3;

/// How long a request may wait for its turn: longer, and the shard should look elsewhere.
const TURN_WITHIN: Duration = Duration::from_secs(2);

/// How many bootstrap requests are answered with a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// A second.
    pub rate: NonZeroU32,
    /// At once, after a quiet time.
    pub burst: NonZeroU32,
}

impl Default for Limit {
    /// 50 a second, 500 at once.
    fn default() -> Self {
        let number = |n| NonZeroU32::new(n).unwrap_or(NonZeroU32::MIN);
        Self { rate: number(50), burst: number(500) }
    }
}

/// Requests that wait for their turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// When as many as the burst could be answered at once.
    full_at: UnixNanos,
    /// In the order of their turns.
    waiting: VecDeque<(UnixNanos, BootstrapRequest)>,
}

impl Turns {
    /// When the next request has its turn; `None` when that is too late. Takes the turn.
    fn take(&mut self, now: UnixNanos, limit: Limit) -> Option<UnixNanos> {
        let interval = Duration::from_secs(1) / limit.rate.get();
        let full_at = self.full_at.max(now);
        // While the bucket is less than a burst away from full, there is something in it.
        let rest = interval.saturating_mul(limit.burst.get() - 1);
        let turn = now.after(full_at.since(now).saturating_sub(rest));
        if turn.since(now) > TURN_WITHIN {
            return None;
        }
        self.full_at = full_at.after(interval);
        Some(turn)
    }

    /// The session is over: nobody waits any more. Its turns stay taken.
    pub(super) fn disconnected(&mut self) {
        self.waiting.clear();
    }

    /// When a request has its turn next.
    pub(super) fn next_wake(&self) -> Option<UnixNanos> {
        self.waiting.front().map(|(turn, _)| *turn)
    }
}

impl Core {
    pub(super) fn on_bootstrap_request(&mut self, now: UnixNanos, request: BootstrapRequest) {
        let limit = self.config.bootstrap_limit;
        match self.turns.take(now, limit) {
            Some(turn) if turn <= now => self.answer_bootstrap(&request),
            Some(turn) => self.turns.waiting.push_back((turn, request)),
            None => {
                let error = format!(
                    "too many bootstrap requests: at most {} a second are answered, {} at once; ask again later",
                    limit.rate, limit.burst
                );
                self.refuse_bootstrap(&request, "rate_limited", error);
            }
        }
    }

    /// Answers the requests that have their turn.
    pub(super) fn poll_bootstraps(&mut self, now: UnixNanos) {
        while self.turns.next_wake().is_some_and(|turn| turn <= now) {
            if let Some((_, request)) = self.turns.waiting.pop_front() {
                self.answer_bootstrap(&request);
            }
        }
    }

    fn refuse_bootstrap(&mut self, request: &BootstrapRequest, label: &'static str, error: String) {
        bump(&mut self.counters.bootstrap, label);
        tracing::warn!(
            request = request.request_id,
            machine = request.machine_id,
            error,
            "no bootstrap data"
        );
        let request_id = request.request_id.clone();
        self.send_bootstrap(BootstrapBlobResponse { request_id, error, ..Default::default() });
    }

    fn send_bootstrap(&mut self, response: BootstrapBlobResponse) {
        let payload = Some(Payload::BootstrapResponse(response));
        self.outputs.push(Output::Send(Box::new(OperatorMessage { payload })));
    }

    fn answer_bootstrap(&mut self, request: &BootstrapRequest) {
        match self.render_checked(request) {
            Ok(Rendered { user_data, ttl }) => {
                bump(&mut self.counters.bootstrap, "rendered");
                self.send_bootstrap(BootstrapBlobResponse {
                    request_id: request.request_id.clone(),
                    user_data,
                    ttl_seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1),
                    error: String::new(),
                });
            }
            Err((label, error)) => self.refuse_bootstrap(request, label, error),
        }
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
