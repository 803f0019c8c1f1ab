//! The session over real gRPC: hello, queues, sizes, ends and returns.

use std::time::Duration;

use bigfleet_operator::io::Input;
use bigfleet_operator::session::delay::{Delays, End};
use bigfleet_operator::session::{self, Event, Handle, Options, QueueError};
use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{
    AvailableCapacityUpdate, CapacityNeed, ClusterCapacityNeeds, OperatorMessage, ReclaimAck, shard_message,
};
use bigfleet_types::ClusterId;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status};

use crate::fake_shard::{FakeShard, PATIENCE};

struct Client {
    handle: Handle,
    events: mpsc::Receiver<Event>,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn options(addr: &str) -> Options {
    Options {
        initial_backoff: Duration::from_millis(5),
        max_backoff: Duration::from_millis(50),
        ..Options::new(ClusterId::trusted("c1"), addr)
    }
}

fn start(options: Options) -> Client {
    let stop = CancellationToken::new();
    let (handle, events, task) = session::start(options, stop.clone()).unwrap();
    Client { handle, events, stop, task }
}

impl Client {
    async fn next(&mut self) -> Event {
        tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("no event came").unwrap()
    }

    async fn connected(&mut self) -> u64 {
        let event = self.next().await;
        assert!(matches!(event.input, Input::Connected), "{event:?}");
        event.session
    }

    async fn disconnected(&mut self) {
        let event = self.next().await;
        assert!(matches!(event.input, Input::Disconnected), "{event:?}");
    }
}

fn rollup(at: i64) -> ClusterCapacityNeeds {
    ClusterCapacityNeeds { cluster_id: "c1".to_owned(), timestamp_unix_nanos: at, needs: Vec::new() }
}

fn ack(n: i32) -> OperatorMessage {
    let ack = ReclaimAck { instruction_id: "i".to_owned(), nodes_started: n };
    OperatorMessage { payload: Some(Payload::ReclaimAck(ack)) }
}

#[tokio::test]
async fn hello_comes_first_and_frames_go_both_ways() {
    let mut shard = FakeShard::start().await;
    let mut client = start(options(&shard.addr));
    let (mut peer, cluster) = shard.accept().await;
    assert_eq!(cluster, "c1");
    let number = client.connected().await;
    assert_eq!(number, 1);
    assert!(client.handle.stats().connected);

    peer.ack("hello", 0).await;
    let event = client.next().await;
    assert!(matches!(&event.input, Input::Frame(frame)
        if matches!(&frame.payload, Some(shard_message::Payload::Ack(ack)) if ack.echo == "hello")));

    client.handle.rollup(number, rollup(7)).unwrap();
    assert!(matches!(peer.next().await, Payload::Rollup(r) if r.timestamp_unix_nanos == 7));
    let event = client.next().await;
    assert!(matches!(event.input, Input::RollupWritten { timestamp_unix_nanos: 7 }), "{event:?}");
    client.handle.send(number, ack(3)).unwrap();
    assert!(matches!(peer.next().await, Payload::ReclaimAck(ack) if ack.nodes_started == 3));

    client.stop.cancel();
    client.disconnected().await;
    assert!(peer.ended().await);
    tokio::time::timeout(PATIENCE, client.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_oversized_rollup_is_not_sent_and_the_session_stays() {
    let mut shard = FakeShard::start().await;
    let mut client = start(Options { max_rollup_bytes: 1000, ..options(&shard.addr) });
    let (mut peer, _) = shard.accept().await;
    let number = client.connected().await;
    let large = ClusterCapacityNeeds {
        needs: vec![CapacityNeed { group: "x".repeat(1000), ..CapacityNeed::default() }],
        ..rollup(1)
    };
    let error = client.handle.rollup(number, large).unwrap_err();
    assert!(matches!(error, QueueError::TooLarge { bytes: 1001.., limit: 1000 }), "{error}");
    let many = ClusterCapacityNeeds { needs: vec![CapacityNeed::default(); 250_001], ..rollup(1) };
    let error = client.handle.rollup(number, many).unwrap_err();
    assert!(matches!(error, QueueError::TooLarge { .. }), "{error}");
    client.handle.rollup(number, rollup(2)).unwrap();
    assert!(matches!(peer.next().await, Payload::Rollup(r) if r.timestamp_unix_nanos == 2));
    let stats = client.handle.stats();
    assert_eq!((stats.rollups_refused, stats.rollups_sent, stats.reconnects), (2, 1, 0));
}

#[tokio::test]
async fn more_rows_than_a_shard_takes_are_not_sent() {
    let mut shard = FakeShard::start().await;
    let mut client = start(options(&shard.addr));
    let (_peer, _) = shard.accept().await;
    let number = client.connected().await;
    let many = ClusterCapacityNeeds { needs: vec![CapacityNeed::default(); 250_001], ..rollup(1) };
    let error = client.handle.rollup(number, many).unwrap_err();
    assert_eq!(error, QueueError::TooMany { needs: 250_001, limit: 250_000 });
}

#[tokio::test]
async fn drill07_a_rollup_above_four_mebibytes_goes_through() {
    let mut shard = FakeShard::start().await;
    let mut client = start(options(&shard.addr));
    let (mut peer, _) = shard.accept().await;
    let number = client.connected().await;
    let need = |n: u32| CapacityNeed { group: format!("gang/{n:032}"), ..CapacityNeed::default() };
    let needs: Vec<CapacityNeed> = (0..200_000).map(need).collect();
    client.handle.rollup(number, ClusterCapacityNeeds { needs, ..rollup(1) }).unwrap();
    assert!(client.handle.stats().rollup_bytes > 4 * 1024 * 1024);
    assert!(matches!(peer.next().await, Payload::Rollup(r) if r.needs.len() == 200_000));
    // And a frame of more than 4 MiB comes back.
    let supersedes_key = "k".repeat(5 * 1024 * 1024);
    let hint = AvailableCapacityUpdate { supersedes_key, ..AvailableCapacityUpdate::default() };
    peer.send(shard_message::Payload::AvailableCapacity(hint)).await;
    loop {
        if matches!(client.next().await.input, Input::Frame(_)) {
            break;
        }
    }
    assert_eq!(client.handle.stats().reconnects, 0);
}

#[tokio::test]
async fn it_comes_back_and_what_waited_is_gone() {
    let mut shard = FakeShard::start().await;
    let mut client = start(options(&shard.addr));
    for round in 1..=5 {
        let (mut peer, _) = shard.accept().await;
        let number = client.connected().await;
        assert_eq!(number, round);
        if number > 1 {
            assert_eq!(client.handle.rollup(number - 1, rollup(1)), Err(QueueError::Over(number - 1)));
        }
        client.handle.rollup(number, rollup(5)).unwrap();
        assert!(matches!(peer.next().await, Payload::Rollup(_)));
        let written = client.next().await;
        assert!(matches!(written.input, Input::RollupWritten { .. }));
        match round % 3 {
            0 => drop(peer),
            1 => peer.fail(Status::unavailable("restarting")).await,
            _ => client.handle.drop_session(number, "six roll-ups were not acknowledged"),
        }
        client.disconnected().await;
    }
    assert!(client.handle.stats().reconnects >= 5);
}

#[tokio::test]
async fn it_keeps_trying_while_nobody_listens() {
    let addr = FakeShard::start().await.addr;
    let client = start(options(&addr));
    let tries = async {
        while client.handle.stats().reconnects < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.unwrap();
    assert!(!client.handle.stats().connected);
    client.stop.cancel();
    tokio::time::timeout(PATIENCE, client.task).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_good_session_starts_the_delays_again() {
    let mut shard = FakeShard::start().await;
    let first = Duration::from_millis(1);
    let mut options = Options { initial_backoff: first, max_backoff: first * 64, ..options(&shard.addr) };
    options.channel.keep_alive_interval = Duration::from_secs(3600);
    let mut client = start(options);
    let delay_after = async |client: &mut Client, losses: u64| {
        client.disconnected().await;
        let counted = async {
            while client.handle.stats().reconnects < losses {
                tokio::time::sleep(first).await;
            }
        };
        tokio::time::timeout(PATIENCE, counted).await.unwrap();
        client.handle.stats().delay
    };
    for losses in 1..=7 {
        let (peer, _) = shard.accept().await;
        client.connected().await;
        peer.fail(Status::unavailable("x")).await;
        let top = first * 2u32.pow(u32::try_from(losses).unwrap() - 1);
        let delay = delay_after(&mut client, losses).await;
        assert!((top / 2..=top).contains(&delay), "after {losses} losses: {delay:?}");
    }
    let (peer, _) = shard.accept().await;
    client.connected().await;
    peer.ack("hello", 0).await;
    assert!(matches!(client.next().await.input, Input::Frame(_)));
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    peer.fail(Status::unavailable("x")).await;
    assert!(delay_after(&mut client, 8).await <= first);
}

#[tokio::test]
async fn drill10_a_replaced_session_does_not_fight_back() {
    let mut shard = FakeShard::start().await;
    let mut client = start(options(&shard.addr));
    let (peer, _) = shard.accept().await;
    client.connected().await;
    peer.fail(Status::aborted("session replaced")).await;
    client.disconnected().await;
    // With the ordinary delays of this test it would be back a hundred times over.
    assert!(!shard.anybody(Duration::from_secs(2)).await);
}

#[tokio::test]
async fn a_stream_that_never_opens_is_given_up() {
    // Accepts connections and says nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut options = options(&silent.local_addr().unwrap().to_string());
    options.channel.connect_timeout = Duration::from_millis(50);
    let client = start(options);
    let tries = async {
        while client.handle.stats().reconnects < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, tries).await.unwrap();
    drop(silent);
}

#[tokio::test]
async fn a_wrong_address_is_refused_at_the_start() {
    let stop = CancellationToken::new();
    assert!(session::start(options("nowhere"), stop).is_err());
}

#[test]
fn delays_go_by_how_the_session_ended() {
    let second = Duration::from_secs(1);
    let lost = End::of(&Status::unavailable("x"));
    let fresh = || Delays::new(second / 2, second * 30);
    for (code, least, most) in [
        (Code::Unavailable, 250, 500),
        (Code::Internal, 250, 500),
        (Code::Unknown, 250, 500),
        (Code::PermissionDenied, 15_000, 30_000),
        (Code::Unauthenticated, 15_000, 30_000),
        (Code::InvalidArgument, 15_000, 30_000),
        (Code::ResourceExhausted, 10_000, 20_000),
        (Code::Aborted, 30_000, 60_000),
    ] {
        let end = End::of(&Status::new(code, "x"));
        for (chance, want) in [(0, least), (u64::MAX, most)] {
            let got = fresh().after(&end, Duration::ZERO, false, chance);
            assert!(
                got.abs_diff(Duration::from_millis(want)) < Duration::from_millis(1),
                "{code:?}: {got:?}"
            );
        }
    }
    assert_eq!(fresh().after(&End::Stopped, second * 99, true, 7), Duration::ZERO);

    // Seven losses reach the cap; a short session, or one that was never greeted, leaves it there.
    let mut delays = fresh();
    let tops: Vec<Duration> = (0..8).map(|_| delays.after(&lost, second * 29, true, u64::MAX)).collect();
    let want = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000].map(Duration::from_millis);
    assert_eq!(tops, want);
    assert_eq!(delays.after(&lost, second * 3600, false, u64::MAX), second * 30);
    // A good one starts again.
    assert_eq!(delays.after(&lost, second * 30, true, u64::MAX), second / 2);
    assert_eq!(delays.after(&lost, Duration::ZERO, false, u64::MAX), second);
}
