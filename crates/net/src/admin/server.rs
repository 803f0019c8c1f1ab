//! Serving a router over HTTP/1 with bounds: the listener faces scrapers and probes, and whoever else finds it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Pages;
use crate::grpc::next_connection;
use crate::listen::{self, Listener};

/// Connections at one time; more wait in the listener's queue.
const CONNECTIONS: usize = 64;
/// How long a request line and its headers may take; also how long a connection may be idle.
const HEADERS: Duration = Duration::from_secs(30);
/// Age at which a connection is asked to end after its request.
const AGE: Duration = Duration::from_secs(300);
/// How long a request may go on after its connection was asked to end.
const LAST_REQUEST: Duration = Duration::from_secs(5);

/// A bound admin listener, not serving yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    router: Router,
}

impl Server {
    /// Binds `addr` for `pages`. Must run on a tokio runtime.
    ///
    /// # Errors
    /// As [`listen::bind_addr`].
    pub async fn bind(addr: &listen::Addr, pages: Pages) -> Result<Self, listen::Error> {
        Ok(Self::new(listen::bind_addr(addr).await?, pages.router()))
    }

    /// Serves any router with the same bounds.
    #[must_use]
    pub fn new(listener: Listener, router: Router) -> Self {
        Self { listener, router }
    }

    /// Where the listener is bound, with its true port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Where a client on this machine reaches it.
    #[must_use]
    pub fn dial_addr(&self) -> SocketAddr {
        self.listener.dial_addr()
    }

    /// Serves until `stop` is cancelled; requests in flight then have a few seconds left.
    pub async fn serve(self, stop: CancellationToken) {
        let socket = self.listener.into_socket();
        let service = TowerToHyperService::new(self.router);
        let slots = Arc::new(Semaphore::new(CONNECTIONS));
        let connections = TaskTracker::new();
        loop {
            let accepted = async {
                // The semaphore is never closed: an error here cannot happen, and would end the listener visibly.
                let slot = Arc::clone(&slots).acquire_owned().await.ok()?;
                Some((slot, next_connection(&socket).await))
            };
            let (slot, stream) = tokio::select! {
                () = stop.cancelled() => break,
                Some(next) = accepted => next,
                else => break,
            };
            let (service, stop) = (service.clone(), stop.clone());
            connections.spawn(async move {
                connection(stream, service, stop).await;
                drop(slot);
            });
        }
        drop(socket);
        connections.close();
        connections.wait().await;
    }
}

/// One connection from its first byte to its end.
async fn connection(stream: TcpStream, service: TowerToHyperService<Router>, stop: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // Errors here are the client's: it went away, or spoke something else.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_REQUEST, connection).await;
}
