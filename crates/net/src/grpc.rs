//! A gRPC server with keep-alive and a shutdown that always ends.
//!
//! Sessions are streams that last for ever, so a graceful stop alone would never return: new connections are refused
//! and calls in flight get a limited time, then every connection that is left is cut, which drops its streams.

mod accept;
mod socket;

use std::convert::Infallible;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http;
use tonic::server::NamedService;
use tonic::service::Routes;

use crate::limits;
use crate::listen::Listener;
use crate::tls::Tls;
use accept::{Room, accept};

pub use socket::Connection;

/// How long cut connections may take to go away before the server leaves them to the runtime.
const AFTER_CUT: Duration = Duration::from_secs(1);

/// The transport ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
#[error("the gRPC server on {addr} stopped by itself: {source}")]
pub struct Error {
    addr: std::net::SocketAddr,
    source: tonic::transport::Error,
}

/// How a server that was told to stop came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stopped {
    /// Every call ended within the limit.
    Drained,
    /// The limit passed and the remaining connections were cut.
    Cut,
}

/// Services on a bound listener, not serving yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    routes: Routes,
    keep_alive: (Duration, Duration),
    tls: Option<Tls>,
    connections: usize,
    refused: Counter,
    age: Duration,
}

impl Server {
    /// A server without services. Connections already queue on `listener`.
    #[must_use]
    pub fn new(listener: Listener) -> Self {
        Self {
            listener,
            routes: Routes::default(),
            keep_alive: (limits::KEEP_ALIVE_INTERVAL, limits::KEEP_ALIVE_TIMEOUT),
            tls: None,
            connections: limits::CONNECTIONS,
            refused: Counter::default(),
            age: jittered(limits::CONNECTION_AGE),
        }
    }

    /// Adds a generated service. Its message limits are the caller's to set, from [`limits`].
    #[must_use]
    pub fn add_service<S>(mut self, service: S) -> Self
    where
        S: Service<http::Request<Body>, Error = Infallible> + NamedService + Clone + Send + Sync + 'static,
        S::Response: axum::response::IntoResponse,
        S::Future: Send + 'static,
    {
        self.routes = self.routes.add_service(service);
        self
    }

    /// Replaces the keep-alive timings: silence before a ping, and how long it may stay unanswered.
    #[must_use]
    pub fn keep_alive(mut self, interval: Duration, timeout: Duration) -> Self {
        self.keep_alive = (interval, timeout);
        self
    }

    /// Asks every client for a certificate. Each request then carries a [`Connection`] that says whose it is; what its
    /// owner may do is the service's to check.
    #[must_use]
    pub fn tls(mut self, tls: Option<Tls>) -> Self {
        self.tls = tls;
        self
    }

    /// Replaces the limit of connections at one time; what is above is closed at once and counted in `refused`.
    #[must_use]
    pub fn connections(mut self, limit: usize, refused: Counter) -> Self {
        self.connections = limit;
        self.refused = refused;
        self
    }

    /// Replaces the age at which a connection under TLS is asked to end.
    #[must_use]
    pub fn connection_age(mut self, age: Duration) -> Self {
        self.age = age;
        self
    }

    /// Where the server is reached from this machine.
    #[must_use]
    pub fn dial_addr(&self) -> std::net::SocketAddr {
        self.listener.dial_addr()
    }

    /// Serves until `stop` is cancelled, then stops accepting and waits at most `grace` for calls in flight before
    /// it cuts the rest. Dropping the future cuts every connection too.
    ///
    /// # Errors
    /// When the transport fails before `stop`.
    pub async fn serve(self, stop: CancellationToken, grace: Duration) -> Result<Stopped, Error> {
        let Self { listener, routes, keep_alive: (interval, timeout), tls, connections, refused, age } = self;
        let addr = listener.local_addr();
        let cut = CancellationToken::new();
        let _cut_on_drop = cut.clone().drop_guard();
        let mut server = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(interval))
            .http2_keepalive_timeout(Some(timeout))
            .max_concurrent_streams(limits::STREAMS)
            .http2_max_header_list_size(limits::HEADER_BYTES)
            .http2_max_pending_accept_reset_streams(Some(limits::RESET_STREAMS));
        if tls.is_some() {
            // A polite end: no new calls. Whoever then stays is cut.
            server = server.max_connection_age(age);
        }
        let oldest = age.saturating_add(limits::CONNECTION_AGE_GRACE);
        let incoming = accept(listener, tls, Room::new(connections, refused), oldest, cut.clone());
        let serving =
            server.add_routes(routes).serve_with_incoming_shutdown(incoming, stop.clone().cancelled_owned());
        let mut serving = std::pin::pin!(serving);
        tokio::select! {
            result = &mut serving => {
                result.map_err(|source| Error { addr, source })?;
                return Ok(Stopped::Drained);
            }
            () = async { stop.cancelled().await; tokio::time::sleep(grace).await } => {}
        }
        cut.cancel();
        if tokio::time::timeout(AFTER_CUT, serving).await.is_err() {
            tracing::warn!(%addr, "connections of the gRPC server outlived being cut");
        }
        Ok(Stopped::Cut)
    }
}

/// A time within a fifth of `time`, so that servers which started together do not send their peers away together.
fn jittered(time: Duration) -> Duration {
    let fifth = time / 5;
    let span = u64::try_from(fifth.as_millis()).unwrap_or(u64::MAX).saturating_mul(2).max(1);
    let chance = crate::ids::random_u64().unwrap_or(0) % span;
    time.saturating_sub(fifth).saturating_add(Duration::from_millis(chance))
}
