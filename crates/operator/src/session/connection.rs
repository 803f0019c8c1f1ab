//! One session, from dialling to its end.

use std::sync::atomic::Ordering;

use bigfleet_net::{channel, limits};
use bigfleet_proto::v1alpha1::shard_client::ShardClient;
use bigfleet_proto::v1alpha1::{Hello, OperatorMessage, operator_message, shard_message};
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;

use super::delay::End;
use super::{Event, Handle, Options, PROTOCOL_VERSION};
use crate::io::Input;

pub(super) struct Outcome {
    pub(super) end: End,
    /// Whether the shard answered our hello.
    pub(super) greeted: bool,
    /// Whether the stream was up at all.
    pub(super) was_up: bool,
}

/// Runs session number `session` until it ends. Dropping the future drops the stream and the connection.
pub(super) async fn run(
    options: &Options,
    handle: &Handle,
    session: u64,
    events: &mpsc::Sender<Event>,
) -> Outcome {
    let down = |end| Outcome { end, greeted: false, was_up: false };
    let channel = match channel::connect_lazy(&options.shard_addr, &options.channel) {
        Ok(channel) => channel,
        Err(error) => return down(End::Lost(error.to_string())),
    };
    // A roll-up above the limit never reaches the queue, so the encoder needs none of its own.
    let mut client = ShardClient::new(channel)
        .max_decoding_message_size(limits::OPERATOR_FRAME_BYTES)
        .max_encoding_message_size(usize::MAX);
    handle.queues.open(session);
    let call = client.session(outgoing(options, handle, session, events));
    let mut frames = match tokio::time::timeout(options.channel.connect_timeout, call).await {
        Ok(Ok(response)) => response.into_inner(),
        Ok(Err(status)) => return down(End::of(&status)),
        Err(_) => {
            let wait = options.channel.connect_timeout;
            return down(End::Lost(format!("the shard did not open the stream within {wait:?}")));
        }
    };
    let mut outcome = Outcome { end: End::Stopped, greeted: false, was_up: true };
    handle.counters.came_up(Some(tokio::time::Instant::now()));
    handle.counters.connected.store(true, Ordering::Relaxed);
    if events.send(Event { session, input: Input::Connected }).await.is_err() {
        return outcome;
    }
    let mut dropped = std::pin::pin!(handle.queues.dropped(session));
    loop {
        let frame = tokio::select! {
            frame = frames.message() => frame,
            reason = &mut dropped => {
                outcome.end = End::Lost(reason);
                return outcome;
            }
        };
        match frame {
            Ok(Some(frame)) => {
                outcome.greeted |= matches!(
                    &frame.payload,
                    Some(shard_message::Payload::Ack(ack)) if ack.echo == "hello"
                );
                let input = Input::Frame(Box::new(frame));
                if events.send(Event { session, input }).await.is_err() {
                    return outcome;
                }
            }
            Ok(None) => {
                outcome.end = End::Lost("the shard ended the stream".to_owned());
                return outcome;
            }
            Err(status) => {
                outcome.end = End::of(&status);
                return outcome;
            }
        }
    }
}

/// Hello, then what the queues hold. The transport pulls, so a roll-up is the newest one until it is encoded.
fn outgoing(
    options: &Options,
    handle: &Handle,
    session: u64,
    events: &mpsc::Sender<Event>,
) -> impl Stream<Item = OperatorMessage> + Send + use<> {
    let hello =
        Hello { cluster_id: options.cluster_id.to_string(), protocol_version: PROTOCOL_VERSION.to_owned() };
    let hello = OperatorMessage { payload: Some(operator_message::Payload::Hello(hello)) };
    let (handle, events) = (handle.clone(), events.clone());
    let queued = stream::unfold((handle, events), move |(handle, events)| async move {
        let frame = handle.queues.next(session).await?;
        if let Some(operator_message::Payload::Rollup(rollup)) = &frame.payload {
            handle.counters.rollups_sent.fetch_add(1, Ordering::Relaxed);
            let timestamp_unix_nanos = rollup.timestamp_unix_nanos;
            let input = Input::RollupWritten { timestamp_unix_nanos };
            // Whoever no longer reads has ended the session already.
            events.send(Event { session, input }).await.ok()?;
        }
        Some((frame, (handle, events)))
    });
    stream::once(std::future::ready(hello)).chain(queued)
}
