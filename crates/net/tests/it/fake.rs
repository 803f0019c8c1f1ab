//! A gRPC service by hand: it answers `Watch` with a stream that never ends and tells when the stream is dropped,
//! and refuses everything else, counting.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use axum::body::{Bytes, HttpBody};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

#[derive(Clone)]
pub(crate) struct Fake {
    pub(crate) calls: Arc<AtomicUsize>,
    dropped: mpsc::UnboundedSender<()>,
}

impl Fake {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<()>) {
        let (dropped, seen) = mpsc::unbounded_channel();
        (Self { calls: Arc::default(), dropped }, seen)
    }
}

impl NamedService for Fake {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<http::Request<Body>> for Fake {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        ready(Ok(if request.uri().path().ends_with("/Watch") {
            let body = Body::new(Endless(self.dropped.clone()));
            http::Response::builder().header("content-type", "application/grpc").body(body).unwrap()
        } else {
            Status::unavailable("not now").into_http()
        }))
    }
}

struct Endless(mpsc::UnboundedSender<()>);

impl HttpBody for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        Poll::Pending
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}
