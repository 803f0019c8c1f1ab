//! The two lanes to an operator.

use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_proto::v1alpha1::{Acknowledgement, ShardMessage};
use bigfleet_shard::io::Lane;
use bigfleet_shard::outbox::{COALESCING_KEYS, FIFO_FRAMES, Outbox, Outgoing, Pushed};
use futures::{FutureExt, StreamExt};
use tonic::{Code, Status};

fn frame(echo: &str) -> ShardMessage {
    ShardMessage {
        payload: Some(Payload::Ack(Acknowledgement { echo: echo.into(), ..Acknowledgement::default() })),
    }
}

fn keyed(key: impl Into<String>) -> Lane {
    Lane::Coalescing(key.into())
}

/// What can be read now, without waiting.
fn read(outgoing: &mut Outgoing) -> Vec<String> {
    let mut out = Vec::new();
    while let Some(Some(item)) = outgoing.next().now_or_never() {
        out.push(match item {
            Ok(ShardMessage { payload: Some(Payload::Ack(ack)) }) => ack.echo,
            Ok(other) => format!("{other:?}"),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        });
    }
    out
}

#[test]
fn fifo_goes_first_and_the_newest_of_a_key_keeps_the_place_of_the_oldest() {
    let (outbox, mut outgoing) = Outbox::new();
    let now = Instant::now();
    for (lane, echo, want) in [
        (keyed("a"), "a1", Pushed::Queued),
        (keyed("b"), "b1", Pushed::Queued),
        (Lane::Fifo, "f1", Pushed::Queued),
        (keyed("a"), "a2", Pushed::Replaced),
        (Lane::Fifo, "f2", Pushed::Queued),
    ] {
        assert_eq!(outbox.push(lane, frame(echo), now).unwrap(), want, "{echo}");
    }
    assert_eq!(read(&mut outgoing), ["f1", "f2", "a2", "b1"]);
    assert_eq!(outbox.push(keyed("a"), frame("a3"), now).unwrap(), Pushed::Queued);
    assert_eq!(read(&mut outgoing), ["a3"]);
}

#[test]
fn an_instruction_does_not_overtake_the_state_of_its_machine() {
    let (outbox, mut outgoing) = Outbox::new();
    let now = Instant::now();
    for (lane, echo) in [
        (keyed("node:a"), "a configured"),
        (keyed("node:b"), "b configured"),
        (Lane::Behind("node:b".into()), "drain b"),
        (keyed("node:b"), "b draining"),
        (Lane::Behind("node:c".into()), "drain c"),
    ] {
        outbox.push(lane, frame(echo), now).unwrap();
    }
    assert_eq!(read(&mut outgoing), ["b configured", "drain b", "drain c", "a configured", "b draining"]);
}

#[test]
fn both_lanes_are_bounded_and_say_so() {
    let (outbox, _outgoing) = Outbox::new();
    let now = Instant::now();
    for _ in 0..FIFO_FRAMES {
        outbox.push(Lane::Fifo, frame("f"), now).unwrap();
    }
    let full = outbox.push(Lane::Fifo, frame("f"), now).unwrap_err();
    assert_eq!((full.lane, full.frames), ("fifo", FIFO_FRAMES));
    for key in 0..COALESCING_KEYS {
        outbox.push(keyed(key.to_string()), frame("c"), now).unwrap();
    }
    assert_eq!(outbox.push(keyed("0"), frame("c"), now).unwrap(), Pushed::Replaced);
    assert_eq!(outbox.push(keyed("new"), frame("c"), now).unwrap_err().lane, "coalescing");
    assert_eq!((outbox.depth().fifo, outbox.depth().coalescing), (FIFO_FRAMES, COALESCING_KEYS));
}

#[test]
fn an_end_drops_what_waits_and_only_the_first_end_counts() {
    let (outbox, mut outgoing) = Outbox::new();
    outbox.push(Lane::Fifo, frame("f"), Instant::now()).unwrap();
    outbox.end(Status::aborted("session replaced"));
    outbox.end(Status::unavailable("too late"));
    assert_eq!(outbox.push(Lane::Fifo, frame("g"), Instant::now()).unwrap(), Pushed::Ended);
    assert_eq!(read(&mut outgoing), ["Aborted: session replaced"]);
    assert!(outgoing.next().now_or_never().unwrap().is_none());
}

#[tokio::test]
async fn a_waiting_reader_is_woken_by_a_frame_and_by_the_end() {
    let (outbox, mut outgoing) = Outbox::new();
    let reader = tokio::spawn(async move {
        let first = outgoing.next().await.unwrap().unwrap();
        let end = outgoing.next().await.unwrap().unwrap_err();
        (first, end.code())
    });
    tokio::task::yield_now().await;
    outbox.push(Lane::Fifo, frame("f"), Instant::now()).unwrap();
    tokio::task::yield_now().await;
    tokio::task::yield_now().await;
    outbox.end(Status::unavailable("stop"));
    let (first, end) = tokio::time::timeout(Duration::from_secs(30), reader).await.unwrap().unwrap();
    assert_eq!(end, Code::Unavailable);
    assert_eq!(first, frame("f"));
}

#[test]
fn it_is_stuck_while_frames_wait_and_none_is_read() {
    let (outbox, mut outgoing) = Outbox::new();
    let start = Instant::now();
    let minute = start + Duration::from_secs(60);
    assert_eq!(outbox.stuck_for(minute), Duration::ZERO);
    outbox.push(keyed("a"), frame("a1"), start).unwrap();
    // A newer frame of the key is no progress.
    outbox.push(keyed("a"), frame("a2"), start + Duration::from_secs(59)).unwrap();
    assert_eq!(outbox.stuck_for(minute), Duration::from_secs(60));
    assert_eq!(read(&mut outgoing), ["a2"]);
    assert_eq!(outbox.stuck_for(minute), Duration::ZERO);
}
