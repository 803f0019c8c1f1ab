//! `List`, its answer as the bytes that came: hundreds of megabytes are read where they lie.

use bigfleet_proto::v1alpha1::ListFilter;
use bytes::{Buf as _, Bytes};
use prost::Message as _;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{GrpcMethod, Request, Status};

const PATH: &str = "/bigfleet.v1alpha1.CapacityProvider/List";

/// Asks for all machines.
pub(super) async fn call(lists: &mut Grpc<Channel>) -> Result<Bytes, Status> {
    lists.ready().await.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    let mut request = Request::new(ListFilter::default());
    request.extensions_mut().insert(GrpcMethod::new("bigfleet.v1alpha1.CapacityProvider", "List"));
    lists.unary(request, PathAndQuery::from_static(PATH), Raw).await.map(tonic::Response::into_inner)
}

/// Answers stay bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = ListFilter;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = ListFilter;
    type Error = Status;

    fn encode(&mut self, filter: ListFilter, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        filter.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    /// The transport calls this once it has the whole message, within its limit.
    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
