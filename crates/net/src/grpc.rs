//! A gRPC server with keep-alive and a shutdown that always ends.
//!
//! Sessions are streams that last for ever, so a graceful stop alone would never return: new connections are refused
//! and calls in flight get a limited time, then every connection that is left is cut, which drops its streams.

mod accept;
mod socket;

use std::convert::Infallible;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::codegen::http;
use tonic::server::NamedService;
use tonic::service::Routes;

use crate::limits;
use crate::listen::Listener;
use crate::tls::Tls;
use accept::accept;

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
        let Self { listener, routes, keep_alive: (interval, timeout), tls } = self;
        let addr = listener.local_addr();
        let cut = CancellationToken::new();
        let _cut_on_drop = cut.clone().drop_guard();
        let serving = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(interval))
            .http2_keepalive_timeout(Some(timeout))
            .add_routes(routes)
            .serve_with_incoming_shutdown(accept(listener, tls, cut.clone()), stop.clone().cancelled_owned());
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
