//! A scripted shard on loopback: a test takes every session that comes and speaks for the shard.

use std::pin::Pin;
use std::time::Duration;

use bigfleet_net::{grpc, limits, listen};
use bigfleet_proto::v1alpha1::shard_server::{Shard, ShardServer};
use bigfleet_proto::v1alpha1::{
    Acknowledgement, OperatorMessage, ShardMessage, operator_message, shard_message,
};
use futures::Stream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, Streaming};

/// The longest that any test waits for something that will happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// One session, from the shard's end. Dropping it ends the stream.
pub(crate) struct Peer {
    pub(crate) frames: Streaming<OperatorMessage>,
    answers: mpsc::Sender<Result<ShardMessage, Status>>,
}

impl Peer {
    pub(crate) async fn send(&self, payload: shard_message::Payload) {
        self.answers.send(Ok(ShardMessage { payload: Some(payload) })).await.unwrap();
    }

    pub(crate) async fn ack(&self, echo: &str, rollup: i64) {
        self.send(shard_message::Payload::Ack(Acknowledgement {
            echo: echo.to_owned(),
            rollup_timestamp_unix_nanos: rollup,
            ..Acknowledgement::default()
        }))
        .await;
    }

    /// Ends the stream with a status.
    pub(crate) async fn fail(self, status: Status) {
        self.answers.send(Err(status)).await.unwrap();
    }

    /// The next frame; panics when the operator takes too long or ends the stream.
    pub(crate) async fn next(&mut self) -> operator_message::Payload {
        let frame = tokio::time::timeout(PATIENCE, self.frames.message()).await.expect("no frame came");
        frame.unwrap().expect("the operator ended the stream").payload.unwrap()
    }

    /// Whether the operator has ended the stream, or its connection.
    pub(crate) async fn ended(&mut self) -> bool {
        let end = async { while let Ok(Some(_)) = self.frames.message().await {} };
        tokio::time::timeout(PATIENCE, end).await.is_ok()
    }
}

struct Service(mpsc::Sender<Peer>);

#[tonic::async_trait]
impl Shard for Service {
    type SessionStream = Pin<Box<dyn Stream<Item = Result<ShardMessage, Status>> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<OperatorMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (answers, stream) = mpsc::channel(64);
        let peer = Peer { frames: request.into_inner(), answers };
        self.0.send(peer).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

pub(crate) struct FakeShard {
    pub(crate) addr: String,
    sessions: mpsc::Receiver<Peer>,
    _stop: tokio_util::sync::DropGuard,
}

impl FakeShard {
    pub(crate) async fn start() -> Self {
        let listener = listen::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.dial_addr().to_string();
        let (peers, sessions) = mpsc::channel(8);
        let stop = CancellationToken::new();
        let service = ShardServer::new(Service(peers)).max_decoding_message_size(limits::ROLLUP_BYTES);
        let server = grpc::Server::new(listener).add_service(service);
        tokio::spawn(server.serve(stop.clone(), Duration::ZERO));
        Self { addr, sessions, _stop: stop.drop_guard() }
    }

    /// The next session, and the cluster that said hello in it.
    pub(crate) async fn accept(&mut self) -> (Peer, String) {
        let mut peer =
            tokio::time::timeout(PATIENCE, self.sessions.recv()).await.expect("nobody came").unwrap();
        match peer.next().await {
            operator_message::Payload::Hello(hello) => {
                assert_eq!(hello.protocol_version, "v1alpha1");
                (peer, hello.cluster_id)
            }
            other => panic!("the first frame is {other:?}"),
        }
    }

    /// Whether a session comes within `wait`.
    pub(crate) async fn anybody(&mut self, wait: Duration) -> bool {
        tokio::time::timeout(wait, self.sessions.recv()).await.is_ok()
    }
}
