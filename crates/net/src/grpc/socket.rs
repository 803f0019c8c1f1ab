//! A connection that can be cut from outside. The server's own graceful stop has no such end: its connections are tasks
//! of their own and outlive it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::{CancellationToken, DropGuard, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::tls::Peer;

/// What carries the bytes.
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

/// What each request knows about its connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The other end's address, where the system knows it.
    pub remote: Option<SocketAddr>,
    /// Who it is, on a server with TLS; `None` on one without.
    pub peer: Option<Peer>,
}

/// Reads and writes fail once `cut` is cancelled; a waiting read is woken for it.
pub(super) struct Socket {
    transport: Transport,
    connection: Connection,
    cut: CancellationToken,
    cut_wait: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Whoever watches the connection ends with it.
    _closed: DropGuard,
    _place: OwnedSemaphorePermit,
}

impl Socket {
    /// `cut` is the connection's own: it ends the connection from outside, and is cancelled when the connection has
    /// ended. `place` is free again then.
    pub(super) fn new(
        transport: Transport,
        peer: Option<Peer>,
        place: OwnedSemaphorePermit,
        cut: CancellationToken,
    ) -> Self {
        let cut_wait = Box::pin(cut.clone().cancelled_owned());
        let tcp = match &transport {
            Transport::Plain(tcp) => tcp,
            Transport::Tls(tls) => tls.get_ref().0,
        };
        let connection = Connection { remote: tcp.peer_addr().ok(), peer };
        let closed = cut.clone().drop_guard();
        Self { transport, connection, cut, cut_wait, _closed: closed, _place: place }
    }

    fn check(&self) -> io::Result<()> {
        if self.cut.is_cancelled() { Err(stopping()) } else { Ok(()) }
    }
}

fn stopping() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping")
}

impl Connected for Socket {
    type ConnectInfo = Connection;

    fn connect_info(&self) -> Connection {
        self.connection.clone()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // A connection always has a read pending, so this is where the cut reaches it.
        if self.cut.is_cancelled() || self.cut_wait.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(stopping()));
        }
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Transport::Tls(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Transport::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        match &mut self.transport {
            Transport::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
            Transport::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, bufs),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.transport {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }
}
