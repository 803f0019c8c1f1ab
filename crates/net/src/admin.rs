//! The admin HTTP listener of a component: metrics, probes and build information.
//!
//! | Path | Answer |
//! |---|---|
//! | `/metrics` | the registry in OpenMetrics text |
//! | `/healthz` | 200 `ok` while the process answers |
//! | `/readyz` | 200 `ok`, or 503 with the reason |
//! | `/buildinfo` | version, commit and role as JSON |
//!
//! The component's work never depends on this listener: [`supervise`] binds and serves it again, with back-off,
//! whenever it fails.

mod readiness;
mod server;
mod supervise;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::listen;

pub use readiness::Readiness;
pub use server::Server;
pub use supervise::{Supervised, supervise};

/// The value of a `--metrics-addr` flag: `host:port`, or `0` for no listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Addr {
    /// No listener at all.
    Off,
    /// Listen here.
    On(listen::Addr),
}

impl FromStr for Addr {
    type Err = listen::Error;

    fn from_str(text: &str) -> Result<Self, listen::Error> {
        if text == "0" { Ok(Self::Off) } else { Ok(Self::On(text.parse()?)) }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("0"),
            Self::On(addr) => addr.fmt(f),
        }
    }
}

/// Which build answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// The release, such as `0.1.0`.
    pub version: &'static str,
    /// The commit it was built from, `unknown` when the build did not say.
    pub commit: &'static str,
    /// What the process does, such as `shard`.
    pub role: &'static str,
}

impl BuildInfo {
    /// This build in `role`. The commit is what the environment variable `BIGFLEET_COMMIT` held at compile time.
    #[must_use]
    pub fn this(role: &'static str) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("BIGFLEET_COMMIT").unwrap_or("unknown"),
            role,
        }
    }

    /// Registers `bigfleet_build_info`.
    pub fn register(&self, registry: &mut Registry) {
        let labels = vec![("version", self.version), ("commit", self.commit), ("role", self.role)];
        registry.register("bigfleet_build", "Which build answers", Info::new(labels));
    }
}

/// What the listener shows. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Pages {
    /// The component's metrics.
    pub registry: Arc<Registry>,
    /// What `/readyz` answers.
    pub readiness: Readiness,
    /// What `/buildinfo` answers.
    pub build: BuildInfo,
}

impl Pages {
    /// The paths above as a router, for whoever serves more beside them.
    pub fn router(self) -> Router {
        let Self { registry, readiness, build } = self;
        Router::new()
            .route("/metrics", get(async move || metrics(&registry)))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(async move || ready(&readiness)))
            .route("/buildinfo", get(async move || build_info(&build)))
    }
}

fn metrics(registry: &Registry) -> Response {
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, registry) {
        Ok(()) => {
            const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, TYPE)], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "cannot encode metrics");
            (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be encoded\n").into_response()
        }
    }
}

fn ready(readiness: &Readiness) -> Response {
    match readiness.reason() {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")).into_response(),
    }
}

fn build_info(build: &BuildInfo) -> Response {
    let body = serde_json::json!({ "version": build.version, "commit": build.commit, "role": build.role });
    ([(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_literal_zero_turns_the_listener_off() {
        assert_eq!("0".parse::<Addr>().unwrap(), Addr::Off);
        assert_eq!(":0".parse::<Addr>().unwrap().to_string(), ":0");
        assert!(matches!(":8780".parse::<Addr>().unwrap(), Addr::On(_)));
        for bad in ["", "00", "8780"] {
            assert!(bad.parse::<Addr>().is_err(), "{bad}");
        }
    }
}
