//! Answers to List that are made while they are sent. Half a million machines have 200 MB: put together first, they would
//! stand in memory several times over, and the caller would wait for the last before it sees the first.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bigfleet_net::limits;
use bigfleet_proto::v1alpha1 as pb;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body::Frame;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;

use crate::table::{Encoded, Page};

/// Bytes of one piece of an answer, or a little more.
const PIECE: usize = 128 * 1024;
/// The number of `MachineList.machines`.
const MACHINES: u32 = 1;

/// An answer on its way: the service puts it beside an empty one, and [`Lists`] sends it instead.
#[derive(Debug, Clone)]
pub(super) struct Listed {
    machines: Vec<Encoded>,
    /// The message after its machines.
    tail: Bytes,
    /// Bytes of the message.
    length: u32,
}

impl Listed {
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for an answer that no caller takes.
    pub(super) fn new(page: Page) -> Result<Self, Status> {
        let rest =
            pb::MachineList { revision: page.cursor.into(), removed_ids: page.removed, ..Default::default() };
        let tail = Bytes::from(rest.encode_to_vec());
        let of = |machine: &Encoded| {
            let length = machine.bytes().len();
            key_len(MACHINES) + encoded_len_varint(u64::try_from(length).unwrap_or(u64::MAX)) + length
        };
        let length = page.machines.iter().map(of).sum::<usize>() + tail.len();
        let length =
            u32::try_from(length).ok().filter(|_| length <= limits::LIST_BYTES).ok_or_else(|| {
                let most = limits::LIST_BYTES;
                Status::resource_exhausted(format!(
                    "the list has {length} bytes, more than {most}; ask for pages with max_results"
                ))
            })?;
        Ok(Self { machines: page.machines, tail, length })
    }

    fn body(self) -> Body {
        let mut head = BytesMut::with_capacity(PIECE);
        head.put_u8(0);
        head.put_u32(self.length);
        Body::new(Pieces {
            next: head,
            machines: self.machines.into_iter(),
            tail: Some(self.tail),
            ended: false,
        })
    }
}

/// The bytes as they are made.
struct Pieces {
    /// What the next piece begins with.
    next: BytesMut,
    machines: std::vec::IntoIter<Encoded>,
    tail: Option<Bytes>,
    ended: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut piece = std::mem::take(&mut self.next);
        while piece.len() < PIECE {
            let Some(machine) = self.machines.next() else {
                piece.extend_from_slice(&self.tail.take().unwrap_or_default());
                break;
            };
            encode_key(MACHINES, WireType::LengthDelimited, &mut piece);
            encode_varint(u64::try_from(machine.bytes().len()).unwrap_or(u64::MAX), &mut piece);
            piece.extend_from_slice(machine.bytes());
        }
        if !piece.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(piece.freeze()))));
        }
        if std::mem::replace(&mut self.ended, true) {
            return Poll::Ready(None);
        }
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }
}

/// A service whose lists are sent piece by piece.
#[derive(Debug, Clone)]
pub(super) struct Lists<S>(pub(super) S);

impl<S: NamedService> NamedService for Lists<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Lists<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let answering = self.0.call(request);
        Box::pin(async move {
            let mut answer = answering.await?;
            if let Some(listed) = answer.extensions_mut().remove::<Listed>() {
                *answer.body_mut() = listed.body();
            }
            Ok(answer)
        })
    }
}
