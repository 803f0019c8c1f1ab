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
use crate::listen::{self, Listener, next_connection};

/// What one client may take of the process.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Connections at one time; more wait in the listener's queue.
    connections: usize,
    /// How long a request line and its headers may take; also how long a connection may be idle.
    headers: Duration,
    /// Age at which a connection is asked to end after its request.
    age: Duration,
    /// How long a request may go on after its connection was asked to end.
    last_request: Duration,
}

const BOUNDS: Bounds = Bounds {
    connections: 64,
    headers: Duration::from_secs(30),
    age: Duration::from_secs(300),
    last_request: Duration::from_secs(5),
};

/// Bytes of a request line and its headers together.
const HEAD_BYTES: usize = 64 * 1024;

/// A bound admin listener, not serving yet.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    router: Router,
    bounds: Bounds,
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
        Self { listener, router, bounds: BOUNDS }
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
        let bounds = self.bounds;
        let slots = Arc::new(Semaphore::new(bounds.connections));
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
                connection(stream, service, bounds, stop).await;
                drop(slot);
            });
        }
        drop(socket);
        connections.close();
        connections.wait().await;
    }
}

/// One connection from its first byte to its end.
async fn connection(
    stream: TcpStream,
    service: TowerToHyperService<Router>,
    bounds: Bounds,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.headers)
        .max_buf_size(HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        // Errors here are the client's: it went away, or spoke something else.
        _ = connection.as_mut() => return,
        () = stop.cancelled() => {}
        () = tokio::time::sleep(bounds.age) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(bounds.last_request, connection).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LONG: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(50);

    async fn start(bounds: Bounds) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let router = Router::new().route("/", get(async || "hello"));
        let mut server = Server::new(listen::bind("127.0.0.1:0").await.unwrap(), router);
        server.bounds = bounds;
        let (addr, stop) = (server.local_addr(), CancellationToken::new());
        (addr, stop.clone(), tokio::spawn(server.serve(stop)))
    }

    async fn ask(stream: &mut TcpStream) -> String {
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        while !answer.ends_with("hello") {
            let mut buf = [0; 512];
            let n = timeout(LONG, stream.read(&mut buf)).await.unwrap().unwrap();
            assert_ne!(n, 0, "closed after {answer:?}");
            answer.push_str(std::str::from_utf8(&buf[..n]).unwrap());
        }
        answer
    }

    async fn closed(mut stream: TcpStream) {
        let mut rest = Vec::new();
        // A reset is a close as well.
        let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("the server never closed");
    }

    #[tokio::test]
    async fn half_a_request_does_not_hold_a_connection() {
        let (addr, ..) = start(Bounds { headers: SHORT, ..BOUNDS }).await;
        let mut slow = TcpStream::connect(addr).await.unwrap();
        slow.write_all(b"GET / HT").await.unwrap();
        closed(slow).await;
    }

    #[tokio::test]
    async fn an_old_connection_is_asked_to_end() {
        let (addr, ..) = start(Bounds { age: SHORT, ..BOUNDS }).await;
        closed(TcpStream::connect(addr).await.unwrap()).await;
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_their_turn() {
        let (addr, ..) = start(Bounds { connections: 1, ..BOUNDS }).await;
        let mut first = TcpStream::connect(addr).await.unwrap();
        ask(&mut first).await;
        let mut second = TcpStream::connect(addr).await.unwrap();
        second.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert!(timeout(4 * SHORT, second.read_u8()).await.is_err(), "served beyond the bound");
        drop(first);
        assert_eq!(timeout(LONG, second.read_u8()).await.unwrap().unwrap(), b'H');
    }

    #[tokio::test]
    async fn stopping_ends_idle_connections_and_frees_the_port() {
        let (addr, stop, serving) = start(BOUNDS).await;
        let mut idle = TcpStream::connect(addr).await.unwrap();
        ask(&mut idle).await;
        stop.cancel();
        timeout(LONG, serving).await.unwrap().unwrap();
        closed(idle).await;
        listen::bind(&addr.to_string()).await.unwrap();
    }
}
