//! The provider, as the shard calls it: each change stamped with a fencing token, nothing sent twice, every answer
//! past the gate.
//!
//! The channel connects at the first call. A provider that cannot be reached is dialled again with growing pauses;
//! calls wait for the end of the pause within their own deadline.

mod dial;
mod list;
mod status;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bigfleet_net::metrics::code_label;
use bigfleet_net::{channel, limits};
use bigfleet_proto::gate::{machine, metadata};
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_proto::v1alpha1::{ConfigureRequest, CreateRequest, DeleteRequest, DrainRequest, MachineRef};
use bigfleet_types::{MachineId, ShardId};
use tokio::time::Instant;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Response, Status};

use crate::io::{Acknowledged, CallError, Known, Listing, Mutation, Reported};
use crate::metrics::Metrics;
use dial::Dial;

/// How long every call but List may take. It bounds the acceptance; the change itself may take hours.
const CALL_DEADLINE: Duration = Duration::from_secs(30);
/// How long a List may take.
const LIST_DEADLINE: Duration = Duration::from_secs(120);

/// Where the provider is and who calls it.
#[derive(Debug, Clone)]
pub struct Options {
    /// `host:port`.
    pub addr: String,
    /// Who calls.
    pub shard: ShardId,
    /// The epoch of this process.
    pub epoch: i64,
    /// The largest List answer that is taken, in bytes.
    pub max_list_bytes: usize,
}

/// A client of one provider. Cheap to clone; clones share the sequence of tokens.
#[derive(Debug, Clone)]
pub struct ProviderClient(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    calls: CapacityProviderClient<Channel>,
    lists: Grpc<Channel>,
    shard: ShardId,
    epoch: i64,
    next_sequence: AtomicI64,
    dial: Dial,
    metrics: Metrics,
}

/// A fencing token, used for one attempt of one call.
struct Token {
    shard_id: String,
    shard_epoch: i64,
    sequence_number: i64,
}

impl ProviderClient {
    /// A client that has not connected yet; must run on a tokio runtime. Times its calls in `metrics`.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(options: Options, metrics: Metrics) -> Result<Self, channel::Error> {
        let channel = channel::connect_lazy(&options.addr, &channel::Options::default())?;
        let calls = CapacityProviderClient::new(channel.clone())
            .max_encoding_message_size(limits::CALL_BYTES)
            .max_decoding_message_size(limits::CALL_BYTES);
        let lists = Grpc::new(channel)
            .max_encoding_message_size(limits::CALL_BYTES)
            .max_decoding_message_size(options.max_list_bytes);
        Ok(Self(Arc::new(Inner {
            calls,
            lists,
            shard: options.shard,
            epoch: options.epoch,
            next_sequence: AtomicI64::new(1),
            dial: Dial::new(options.addr),
            metrics,
        })))
    }

    /// Every machine that the provider has, compared with what is known of its last List. That comes back, whatever the
    /// outcome.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn list(&self, known: Box<Known>) -> (Box<Known>, Result<Listing, CallError>) {
        let mut lists = self.0.lists.clone();
        let mut held = Some(known);
        let place = &mut held;
        let send = || async move {
            let answer = list::call(&mut lists).await?;
            let mut known = place.take().unwrap_or_default();
            // Half a million records are work of a second: not for a thread that also carries frames.
            let read = tokio::task::spawn_blocking(move || {
                let listing = Listing::read(&mut known, &answer);
                (known, listing)
            });
            let (known, listing) = read
                .await
                .map_err(|error| Status::internal(format!("the answer could not be read: {error}")))?;
            *place = Some(known);
            listing.map(Response::new).map_err(|error| Status::internal(error.to_string()))
        };
        let result = self.call("List", LIST_DEADLINE, send).await;
        // What did not come back is not known any more: the next List comes whole.
        (held.unwrap_or_default(), result)
    }

    /// One machine.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn get(&self, id: &MachineId) -> Result<Reported, CallError> {
        let mut client = self.0.calls.clone();
        let request = MachineRef { id: id.to_string() };
        let answer = self.call("Get", CALL_DEADLINE, || async move { client.get(request).await }).await?;
        Ok(machine::record(&answer).into())
    }

    /// Changes one machine, once, under a token of its own. The caller has at most one change of a machine in
    /// flight.
    ///
    /// # Errors
    /// Why there is no acknowledgement.
    pub async fn mutate(&self, id: &MachineId, mutation: Mutation) -> Result<Acknowledged, CallError> {
        let (mut client, machine_id) = (self.0.calls.clone(), id.to_string());
        let token = || self.0.token();
        let ack = match mutation {
            Mutation::Create => {
                let send = || async move {
                    let Token { shard_id, shard_epoch, sequence_number } = token();
                    client.create(CreateRequest { machine_id, shard_id, shard_epoch, sequence_number }).await
                };
                self.call("Create", CALL_DEADLINE, send).await
            }
            Mutation::Configure { cluster, blob, attribution } => {
                let send = || async move {
                    let Token { shard_id, shard_epoch, sequence_number } = token();
                    client
                        .configure(ConfigureRequest {
                            machine_id,
                            cluster_id: cluster.to_string(),
                            bootstrap_blob: blob.into_bytes(),
                            shard_id,
                            shard_epoch,
                            sequence_number,
                            shard_metadata: metadata::encode(&attribution),
                        })
                        .await
                };
                self.call("Configure", CALL_DEADLINE, send).await
            }
            Mutation::Drain { grace } => {
                let grace_period_seconds = i64::try_from(grace.as_secs()).unwrap_or(i64::MAX);
                let send = || async move {
                    let Token { shard_id, shard_epoch, sequence_number } = token();
                    client
                        .drain(DrainRequest {
                            machine_id,
                            grace_period_seconds,
                            shard_id,
                            shard_epoch,
                            sequence_number,
                        })
                        .await
                };
                self.call("Drain", CALL_DEADLINE, send).await
            }
            Mutation::Delete => {
                let send = || async move {
                    let Token { shard_id, shard_epoch, sequence_number } = token();
                    client.delete(DeleteRequest { machine_id, shard_id, shard_epoch, sequence_number }).await
                };
                self.call("Delete", CALL_DEADLINE, send).await
            }
        };
        let machine::Acknowledged { operation_id, record } = machine::acknowledged(&ack?);
        Ok(Acknowledged { operation_id, machine: record.into() })
    }

    /// Waits for the pause between attempts to connect, calls, and sorts the answer.
    async fn call<T, F>(
        &self,
        rpc: &'static str,
        limit: Duration,
        send: impl FnOnce() -> F,
    ) -> Result<T, CallError>
    where
        F: Future<Output = Result<Response<T>, Status>>,
    {
        let inner = &*self.0;
        let begun = Instant::now();
        let attempt = async {
            inner.dial.pause().await;
            let dialled = Instant::now();
            let result = send().await;
            inner.dial.learn(dialled, result.as_ref().err());
            result
        };
        let (code, result) = match tokio::time::timeout(limit, attempt).await {
            Ok(Ok(response)) => (Code::Ok, Ok(response.into_inner())),
            Ok(Err(status)) => (status.code(), Err(status::sort(&status))),
            Err(_) => {
                let message = format!("no answer to {rpc} within {} s", limit.as_secs());
                (Code::DeadlineExceeded, Err(CallError::Ambiguous { deadline: true, message }))
            }
        };
        let labels = [("rpc", rpc), ("code", code_label(code))];
        inner
            .metrics
            .provider_rpc_duration_seconds
            .get_or_create(&labels)
            .observe(begun.elapsed().as_secs_f64());
        result
    }
}

impl Inner {
    fn token(&self) -> Token {
        Token {
            shard_id: self.shard.to_string(),
            shard_epoch: self.epoch,
            sequence_number: self.next_sequence.fetch_add(1, Ordering::Relaxed),
        }
    }
}
