//! Accepted connections as a stream: plain ones at once, under TLS after their handshake.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt as _, stream};
use prometheus_client::metrics::counter::Counter;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::socket::{Socket, Transport};
use crate::listen::{Listener, next_connection};
use crate::log_limit::LogLimit;
use crate::tls::{Leaf, Tls};

/// Handshakes at one time; more connections wait in the listener's queue.
const HANDSHAKES: usize = 256;
/// How long one may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often the files of TLS are looked at while nobody connects.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How often it is asked whether an open connection may go on.
const WATCH_EVERY: Duration = Duration::from_secs(5);

/// Connections without end, until dropped: a failed accept is waited out, a failed handshake ends its connection only.
/// Under TLS each ends when its certificate loses its rights, and when it is older than `oldest`.
pub(super) fn accept(
    listener: Listener,
    tls: Option<Tls>,
    room: Room,
    oldest: Duration,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Socket>> {
    match tls {
        None => plain(listener, room, cut).left_stream(),
        Some(tls) => secure(listener, tls, room, oldest, cut).right_stream(),
    }
}

/// How many connections there may be at one time. One that finds no room is closed at once.
#[derive(Debug, Clone)]
pub(super) struct Room {
    places: Arc<Semaphore>,
    limit: usize,
    refused: Counter,
    said: Arc<Mutex<LogLimit>>,
}

impl Room {
    /// Room for so many; `refused` counts those that found none.
    pub(super) fn new(limit: usize, refused: Counter) -> Self {
        let limit = limit.min(Semaphore::MAX_PERMITS);
        Self { places: Arc::new(Semaphore::new(limit)), limit, refused, said: Arc::default() }
    }

    fn take(&self, stream: &TcpStream) -> Option<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned().ok();
        if place.is_none() {
            self.refused.inc();
            let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(unsaid) = said.pass() {
                let from = stream.peer_addr().ok();
                tracing::warn!(
                    ?from,
                    limit = self.limit,
                    unsaid,
                    "too many connections; new ones are closed"
                );
            }
        }
        place
    }
}

fn plain(
    listener: Listener,
    room: Room,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Socket>> {
    let socket = listener.into_socket();
    stream::unfold(socket, async |socket| Some((next_connection(&socket).await, socket))).filter_map(
        move |stream| {
            let socket = room
                .take(&stream)
                .map(|place| Socket::new(Transport::Plain(stream), None, place, cut.child_token()));
            std::future::ready(socket.map(Ok))
        },
    )
}

fn secure(
    listener: Listener,
    tls: Tls,
    room: Room,
    oldest: Duration,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Socket>> {
    let (done, ready) = mpsc::channel(1);
    let looking = tokio::spawn({
        let tls = tls.clone();
        async move {
            loop {
                tokio::time::sleep(LOOK_EVERY).await;
                tls.look();
            }
        }
    });
    let looking = tokio_util::task::AbortOnDropHandle::new(looking);
    let accepting = tokio::spawn(async move {
        let _looking = looking;
        let socket = listener.into_socket();
        let slots = Arc::new(Semaphore::new(HANDSHAKES));
        // Closed by nobody; were it, the listener would end visibly.
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = next_connection(&socket).await;
            let Some(place) = room.take(&stream) else { continue };
            let (tls, cut, done) = (tls.clone(), cut.clone(), done.clone());
            tokio::spawn(async move {
                if let Some(socket) = handshake(stream, &tls, place, oldest, cut).await {
                    drop(slot);
                    // A server that has stopped wants no more connections.
                    let _ = done.send(Ok(socket)).await;
                }
            });
        }
    });
    // Dropped with the stream: the port is free once the server has stopped.
    let accepting = tokio_util::task::AbortOnDropHandle::new(accepting);
    stream::unfold((ready, accepting), async |(mut ready, accepting)| {
        Some((ready.recv().await?, (ready, accepting)))
    })
}

async fn handshake(
    stream: TcpStream,
    tls: &Tls,
    place: OwnedSemaphorePermit,
    oldest: Duration,
    cut: CancellationToken,
) -> Option<Socket> {
    let from = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |addr| addr.to_string());
    let accepting = TlsAcceptor::from(tls.server()).accept(stream);
    match cut.run_until_cancelled(timeout(HANDSHAKE, accepting)).await? {
        Ok(Ok(stream)) => {
            let leaf = Leaf::of(stream.get_ref().1.peer_certificates());
            let peer = tls.judge(&leaf);
            // Ends with its connection, or ends it.
            let cut = cut.child_token();
            tokio::spawn(watch(tls.clone(), leaf, from, oldest, cut.clone()));
            Some(Socket::new(Transport::Tls(Box::new(stream)), Some(peer), place, cut))
        }
        // The other side learns no more than that it failed, so the reason must stand here.
        Ok(Err(error)) => {
            tracing::warn!(from, %error, "TLS handshake failed");
            None
        }
        Err(_elapsed) => {
            tracing::warn!(from, limit = ?HANDSHAKE, "TLS handshake took too long");
            None
        }
    }
}

/// Cuts a connection whose certificate has lost its rights, or that is too old.
async fn watch(tls: Tls, leaf: Leaf, from: String, oldest: Duration, cut: CancellationToken) {
    let born = Instant::now();
    while cut.run_until_cancelled(tokio::time::sleep(WATCH_EVERY)).await.is_some() {
        let too_old = (born.elapsed() > oldest).then_some("it is too old");
        if let Some(reason) = tls.ends(&leaf).or(too_old) {
            tracing::warn!(from, peer = %leaf.peer, reason, "connection closed");
            cut.cancel();
        }
    }
}
