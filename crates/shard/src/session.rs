//! Operator streams: `Shard.Session`.
//!
//! A task per stream reads and only routes; a second one takes its roll-ups through the gate, the newest first. What
//! the shard says waits in the stream's [`Outbox`], from which the transport pulls.
//!
//! | End of a stream | Status |
//! |---|---|
//! | first frame is no usable Hello, or none within 10 s; a later Hello of another cluster | INVALID_ARGUMENT |
//! | unknown protocol version | UNIMPLEMENTED |
//! | a newer session of the cluster | ABORTED |
//! | too many sessions, a frame above the limit, an operator that does not read | RESOURCE_EXHAUSTED |
//! | the shard stops | UNAVAILABLE |

mod registry;
mod rollup;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bigfleet_proto::frames::shard_server::{Shard, ShardServer};
use bigfleet_proto::frames::{OperatorFrame, Payload};
use bigfleet_proto::gate::{self, Problem};
use bigfleet_types::ClusterId;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Code, Request, Response, Status, Streaming};
use tracing::Instrument as _;

use crate::io::{Blob, Input, SessionId};
use crate::outbox::{Outbox, Outgoing};
pub(crate) use registry::Sessions;
use rollup::Mailbox;

/// How long an operator may take to say Hello.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How long frames may wait without one being read.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const STUCK_CHECK: Duration = Duration::from_secs(5);
/// Bytes of roll-ups that are decoded at once, over all sessions.
const DECODE_BUDGET_KIB: usize = 2 * 1024 * 1024;
/// Identifiers in answers are ours, so anything longer is none.
const ANSWER_ID_BYTES_MAX: usize = 64;

/// The service. Clones share everything.
#[derive(Debug, Clone)]
pub(crate) struct SessionService {
    sessions: Sessions,
    inputs: mpsc::Sender<Input>,
    decode_budget: Arc<Semaphore>,
    /// Marks what its tasks log.
    span: tracing::Span,
}

impl SessionService {
    /// A service that installs its streams in `sessions` and hands what they say to `inputs`.
    pub(crate) fn new(sessions: Sessions, inputs: mpsc::Sender<Input>, span: tracing::Span) -> Self {
        Self { sessions, inputs, decode_budget: Arc::new(Semaphore::new(DECODE_BUDGET_KIB)), span }
    }

    /// The gRPC service, taking frames of up to `max_frame_bytes`.
    pub(crate) fn into_server(self, max_frame_bytes: usize) -> ShardServer<Self> {
        ShardServer::new(self)
            .max_decoding_message_size(max_frame_bytes)
            .max_encoding_message_size(bigfleet_net::limits::OPERATOR_FRAME_BYTES)
    }
}

#[tonic::async_trait]
impl Shard for SessionService {
    type SessionStream = Outgoing;

    async fn session(
        &self,
        request: Request<Streaming<OperatorFrame>>,
    ) -> Result<Response<Outgoing>, Status> {
        let (outbox, outgoing) = Outbox::new();
        let service = self.clone();
        // The answer begins at once: an operator may wait for it before it says Hello.
        let serving = async move {
            let end = service.run(request.into_inner(), &outbox).await;
            outbox.end(end);
        };
        tokio::spawn(serving.instrument(self.span.clone()));
        Ok(Response::new(outgoing))
    }
}

impl SessionService {
    /// Serves one stream; the status with which it is to end.
    async fn run(&self, mut stream: Streaming<OperatorFrame>, outbox: &Outbox) -> Status {
        let cluster = match tokio::time::timeout(HELLO_WITHIN, hello(&mut stream)).await {
            Ok(Ok(cluster)) => cluster,
            Ok(Err(status)) => return status,
            Err(_) => {
                let seconds = HELLO_WITHIN.as_secs();
                return Status::invalid_argument(format!(
                    "no Hello within {seconds} s of opening the session"
                ));
            }
        };
        let installed = self.sessions.install(&cluster, outbox, &self.inputs).await;
        let (session, ended) = match installed {
            Ok(installed) => installed,
            Err(status) => return status,
        };
        let reader = Reader {
            session,
            cluster: &cluster,
            outbox,
            inputs: &self.inputs,
            rollups: Mailbox::default(),
            warned: false,
        };
        let end = reader.run(&mut stream, &ended, &self.decode_budget).await;
        self.sessions.remove(session);
        // Nobody listens any more only when the decision thread is gone, which ends the process.
        let _ = self.inputs.send(Input::SessionClosed { session }).await;
        end
    }
}

/// Reads the first frame.
async fn hello(stream: &mut Streaming<OperatorFrame>) -> Result<ClusterId, Status> {
    let first = match stream.message().await {
        Ok(Some(OperatorFrame { payload })) => payload,
        Ok(None) => return Err(Status::invalid_argument("the session ended before it said Hello")),
        Err(status) => return Err(transport_end(&status)),
    };
    let Some(Payload::Hello(hello)) = first else {
        return Err(Status::invalid_argument("the first frame of a session must be hello"));
    };
    gate::session::hello(&hello).map_err(|error| match error.problem {
        Problem::UnknownVersion(_) => {
            tracing::warn!(%error, "refused a session of an unknown protocol version");
            Status::unimplemented(format!("hello.{error}; upgrade the shard before the operator"))
        }
        _ => Status::invalid_argument(format!("hello.{error}")),
    })
}

/// The reading side of an installed session.
struct Reader<'a> {
    session: SessionId,
    cluster: &'a ClusterId,
    outbox: &'a Outbox,
    inputs: &'a mpsc::Sender<Input>,
    rollups: Mailbox,
    warned: bool,
}

impl Reader<'_> {
    async fn run(
        mut self,
        stream: &mut Streaming<OperatorFrame>,
        ended: &CancellationToken,
        budget: &Arc<Semaphore>,
    ) -> Status {
        let task = self.rollups.clone().serve(
            self.session,
            self.cluster.clone(),
            self.inputs.clone(),
            budget.clone(),
        );
        let _rollups = AbortOnDropHandle::new(tokio::spawn(task.in_current_span()));
        let mut check = tokio::time::interval(STUCK_CHECK);
        loop {
            let frame = tokio::select! {
                // Whoever ended the session has put its status into the outbox already, where the first one counts.
                () = ended.cancelled() => return Status::aborted("the session was ended"),
                _ = check.tick() => {
                    if self.outbox.stuck_for(Instant::now()) >= STUCK_AFTER {
                        let seconds = STUCK_AFTER.as_secs();
                        tracing::warn!(cluster = %self.cluster, seconds, "operator does not read; its session ends");
                        return Status::resource_exhausted(format!(
                            "nothing was read from the session for {seconds} s"
                        ));
                    }
                    continue;
                }
                frame = stream.message() => frame,
            };
            match frame {
                Ok(Some(OperatorFrame { payload })) => {
                    if let Err(end) = self.route(payload).await {
                        return end;
                    }
                }
                Ok(None) => return Status::new(Code::Ok, ""),
                Err(status) => {
                    let end = transport_end(&status);
                    if end.code() == Code::ResourceExhausted {
                        tracing::error!(
                            cluster = %self.cluster, error = %status.message(),
                            "a frame above --max-rollup-bytes ended a session; the cluster's last demand stays in force"
                        );
                    }
                    return end;
                }
            }
        }
    }

    /// Hands a frame on. The session ends with the status of an error.
    async fn route(&mut self, payload: Option<Payload>) -> Result<(), Status> {
        let session = self.session;
        let input = match payload {
            Some(Payload::Rollup(rollup)) => {
                self.rollups.put(rollup);
                return Ok(());
            }
            Some(Payload::BootstrapResponse(mut response)) => {
                if response.request_id.len() > ANSWER_ID_BYTES_MAX {
                    self.warn("a bootstrap response to no request of ours");
                    return Ok(());
                }
                let request_id = std::mem::take(&mut response.request_id);
                // Nothing but the answer holds the secret then, so that what it was read from can be wiped.
                let answer = gate::session::blob(response)
                    .map(|gate::session::Blob { user_data, ttl }| Blob { user_data: user_data.into(), ttl })
                    .map_err(|error| error.to_string());
                Input::Blob { session, request_id, answer }
            }
            Some(Payload::ReclaimAck(ack)) => {
                if ack.instruction_id.len() > ANSWER_ID_BYTES_MAX {
                    self.warn("a reclaim ack to no instruction of ours");
                    return Ok(());
                }
                Input::ReclaimAcked { session, instruction_id: ack.instruction_id }
            }
            Some(Payload::Hello(hello)) if hello.cluster_id == self.cluster.as_str() => {
                Input::HelloAgain { session }
            }
            Some(Payload::Hello(_)) => {
                tracing::error!(
                    target: "security", cluster = %self.cluster,
                    "a session said hello again for another cluster; it ends"
                );
                return Err(Status::invalid_argument(format!(
                    "hello.cluster_id differs from the session's cluster {:?}",
                    self.cluster
                )));
            }
            // What an operator sees of nodes becoming Ready is not used yet.
            Some(Payload::NodeObservation(_)) => return Ok(()),
            None => {
                self.warn("a frame of an unknown kind");
                return Ok(());
            }
        };
        self.inputs.send(input).await.map_err(|_| stopping())
    }

    /// Once a session, because a peer decides how often.
    fn warn(&mut self, ignored: &'static str) {
        if !std::mem::replace(&mut self.warned, true) {
            tracing::warn!(cluster = %self.cluster, ignored, "ignored a frame; further ones are ignored silently");
        }
    }
}

/// What became of the stream, as its last status.
fn transport_end(status: &Status) -> Status {
    match status.code() {
        // The transport's own limit; its message has both sizes.
        Code::OutOfRange => Status::resource_exhausted(format!(
            "the frame is above the shard's --max-rollup-bytes: {}; send fewer rows, or raise the limit",
            status.message()
        )),
        code => Status::new(code, status.message()),
    }
}

fn stopping() -> Status {
    Status::unavailable("the shard is stopping; connect again")
}
