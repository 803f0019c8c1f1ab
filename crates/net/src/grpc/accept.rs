//! Accepted connections as a stream: plain ones at once, under TLS after their handshake.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _, stream};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::socket::{Socket, Transport};
use crate::listen::{Listener, next_connection};
use crate::tls::{Peer, Tls};

/// Handshakes at one time; more connections wait in the listener's queue.
const HANDSHAKES: usize = 256;
/// How long one may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Connections without end, until dropped: a failed accept is waited out, a failed handshake ends its connection only.
pub(super) fn accept(
    listener: Listener,
    tls: Option<Tls>,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Socket>> {
    match tls {
        None => plain(listener, cut).left_stream(),
        Some(tls) => secure(listener, tls, cut).right_stream(),
    }
}

fn plain(listener: Listener, cut: CancellationToken) -> impl Stream<Item = std::io::Result<Socket>> {
    let socket = listener.into_socket();
    stream::unfold(socket, async |socket| Some((next_connection(&socket).await, socket)))
        .map(move |stream| Ok(Socket::new(Transport::Plain(stream), None, cut.clone())))
}

fn secure(
    listener: Listener,
    tls: Tls,
    cut: CancellationToken,
) -> impl Stream<Item = std::io::Result<Socket>> {
    let (done, ready) = mpsc::channel(1);
    let accepting = tokio::spawn(async move {
        let socket = listener.into_socket();
        let slots = Arc::new(Semaphore::new(HANDSHAKES));
        // Closed by nobody; were it, the listener would end visibly.
        while let Ok(slot) = Arc::clone(&slots).acquire_owned().await {
            let stream = next_connection(&socket).await;
            let (tls, cut, done) = (tls.clone(), cut.clone(), done.clone());
            tokio::spawn(async move {
                if let Some(socket) = handshake(stream, &tls, cut).await {
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

async fn handshake(stream: TcpStream, tls: &Tls, cut: CancellationToken) -> Option<Socket> {
    let from = stream.peer_addr().map_or_else(|_| "unknown".to_owned(), |addr| addr.to_string());
    let accepting = TlsAcceptor::from(tls.server()).accept(stream);
    match cut.run_until_cancelled(timeout(HANDSHAKE, accepting)).await? {
        Ok(Ok(stream)) => {
            let peer = Peer::of(stream.get_ref().1.peer_certificates());
            Some(Socket::new(Transport::Tls(Box::new(stream)), Some(peer), cut))
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
