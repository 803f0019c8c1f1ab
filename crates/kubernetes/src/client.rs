//! A budget and a time-out for every call to the API server.
//!
//! [`limited`] wraps a client: writes and lists take tokens from one bucket, in which the less important never use up
//! the last part ([`Class`]), and every call but a watch ends in time. Watches cost nothing and are timed out only
//! until they begin.

mod bucket;
mod target;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bigfleet_net::metrics::{OwnedLabels, counters};
use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tower::Service;

pub use bucket::Bucket;
pub use target::{Class, Target};

/// Calls to the API server by verb, resource and answer.
pub type Calls = Family<OwnedLabels<3>, Counter>;

/// How much a client may ask of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Calls a second in the long run, at least 1.
    pub qps: u32,
    /// Calls at once after a pause, at least 1.
    pub burst: u32,
    /// How long a call may take in all; a watch, until it begins.
    pub timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { qps: 200, burst: 400, timeout: Duration::from_secs(30) }
    }
}

/// Registers the counter of calls under `PREFIX_api_requests_total`.
pub fn calls(registry: &mut Registry, prefix: &str) -> Calls {
    let name = format!("{prefix}_api_requests");
    counters(registry, &name, "Calls to the API server, by verb, resource and status code")
}

/// A client that does what `inner` does within `limits`, and counts it. Must run on a tokio runtime.
#[must_use]
pub fn limited(inner: Client, limits: Limits, calls: Calls) -> Client {
    let namespace = inner.default_namespace().to_owned();
    let bucket = Arc::new(Bucket::new(limits.qps, limits.burst));
    Client::new(Limited { inner, bucket, timeout: limits.timeout, calls }, namespace)
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error("the API server has not answered {verb} {resource} within {} s", after.as_secs())]
    TimedOut { verb: &'static str, resource: String, after: Duration },
    #[error(transparent)]
    Client(#[from] kube::Error),
}

#[derive(Clone)]
struct Limited {
    inner: Client,
    bucket: Arc<Bucket>,
    timeout: Duration,
    calls: Calls,
}

impl Limited {
    async fn call(self, request: Request<Body>) -> Result<Response<Body>, CallError> {
        let target = Target::of(&request);
        if let Some(class) = target.class {
            self.bucket.take(class).await;
        }
        let whole = async {
            let response = self.inner.send(request).await?;
            if target.verb == "watch" && response.status().is_success() {
                return Ok(response);
            }
            let (head, body) = response.into_parts();
            Ok(Response::from_parts(head, Body::from(body.collect_bytes().await?)))
        };
        let result = tokio::time::timeout(self.timeout, whole).await.unwrap_or_else(|_| {
            let (verb, resource) = (target.verb, target.resource.clone());
            Err(CallError::TimedOut { verb, resource, after: self.timeout })
        });
        let code = match &result {
            Ok(response) => response.status().as_u16().to_string(),
            Err(CallError::TimedOut { .. }) => "timeout".to_owned(),
            Err(CallError::Client(_)) => "error".to_owned(),
        };
        let labels =
            [("verb", target.verb.to_owned()), ("resource", target.resource.clone()), ("code", code)];
        self.calls.get_or_create(&labels).inc();
        result
    }
}

impl Service<Request<Body>> for Limited {
    type Response = Response<Body>;
    type Error = CallError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, CallError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), CallError>> {
        // Whether there is a token is found out per call: an eviction must not wait behind an acknowledgement.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().call(request))
    }
}
