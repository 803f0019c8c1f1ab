//! A TCP connection that can be cut from outside. The server's own graceful stop has no such end: its connections
//! are tasks of their own and outlive it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Reads and writes fail once `cut` is cancelled; a waiting read is woken for it.
pub(super) struct Socket {
    stream: TcpStream,
    cut: CancellationToken,
    cut_wait: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Socket {
    pub(super) fn new(stream: TcpStream, cut: CancellationToken) -> Self {
        let cut_wait = Box::pin(cut.clone().cancelled_owned());
        Self { stream, cut, cut_wait }
    }

    fn check(&self) -> io::Result<()> {
        if self.cut.is_cancelled() { Err(stopping()) } else { Ok(()) }
    }
}

fn stopping() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the server is stopping")
}

impl Connected for Socket {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.stream.connect_info()
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
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
