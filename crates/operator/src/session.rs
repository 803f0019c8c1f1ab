//! The operator's end of the session with its shard: dial, say hello, carry frames both ways, come back after a loss.
//!
//! * [`start`]: spawns the task that keeps a session up, and gives a [`Handle`] and its [`Event`]s.
//! * [`Handle`]: puts a roll-up into the one-slot queue or a frame into the outbox, without ever waiting.
//!
//! A session is a number, counted from 1. Everything queued belongs to one session and is dropped with it: a queue
//! call for a session that is over does nothing.

mod connection;
pub mod delay;
mod queues;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bigfleet_net::{channel, limits};
use bigfleet_proto::v1alpha1::{ClusterCapacityNeeds, OperatorMessage, operator_message::Payload};
use bigfleet_types::ClusterId;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::io::Input;
use delay::{Delays, End};
use queues::Queues;

/// The protocol version of Hello.
pub const PROTOCOL_VERSION: &str = "v1alpha1";
/// How many events may wait for the reader before the session's own reading pauses.
const EVENTS: usize = 1024;

/// How a session is kept.
#[derive(Debug, Clone)]
pub struct Options {
    /// Who we are.
    pub cluster_id: ClusterId,
    /// The shard, `host:port`.
    pub shard_addr: String,
    /// Connect time-out and keep-alive. The connect time-out also bounds the wait for the shard's first answer.
    pub channel: channel::Options,
    /// The first delay before dialling again.
    pub initial_backoff: Duration,
    /// The largest delay of an ordinary loss.
    pub max_backoff: Duration,
    /// The largest roll-up, encoded in bytes, that is sent.
    pub max_rollup_bytes: usize,
}

impl Options {
    /// The defaults of the operator's flags.
    #[must_use]
    pub fn new(cluster_id: ClusterId, shard_addr: impl Into<String>) -> Self {
        Self {
            cluster_id,
            shard_addr: shard_addr.into(),
            channel: channel::Options::default(),
            initial_backoff: Duration::from_millis(500),
            max_backoff: Duration::from_secs(30),
            max_rollup_bytes: limits::ROLLUP_BYTES,
        }
    }
}

/// What the session tells the core, and in which session it happened.
#[derive(Debug)]
pub struct Event {
    /// The session, from 1.
    pub session: u64,
    /// What happened: connected, disconnected, a frame, or a roll-up that has left.
    pub input: Input,
}

/// Why something was not queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// The session is over.
    #[error("session {0} is over; nothing was queued")]
    Over(u64),
    /// The outbox is full: the shard does not take what waits.
    #[error("the outbox already holds {0} frames; this one was dropped")]
    Full(usize),
    /// The shard would refuse it and end the session, again and again.
    #[error("the roll-up has {bytes} bytes, at most {limit} are sent; the shard keeps the demand it has")]
    TooLarge {
        /// Its encoded size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// More rows than a shard takes.
    #[error("the roll-up has {needs} needs, at most {limit} are sent; the shard keeps the demand it has")]
    TooMany {
        /// Its rows.
        needs: usize,
        /// The limit.
        limit: usize,
    },
}

#[derive(Debug, Default)]
struct Counters {
    connected: AtomicBool,
    /// When the session came up.
    since: Mutex<Option<Instant>>,
    reconnects: AtomicU64,
    /// The same, in the order of [`End::REASONS`].
    reconnects_by: [AtomicU64; End::REASONS.len()],
    outbox_dropped: AtomicU64,
    rollups_sent: AtomicU64,
    rollups_refused: AtomicU64,
    rollup_bytes: AtomicU64,
    delay_nanos: AtomicU64,
}

impl Counters {
    fn came_up(&self, at: Option<Instant>) {
        *self.since.lock().unwrap_or_else(PoisonError::into_inner) = at;
    }
}

/// Counters since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Whether a session is up.
    pub connected: bool,
    /// How long the session has been up; zero without one.
    pub age: Duration,
    /// How often a session was lost or could not be had.
    pub reconnects: u64,
    /// The same by reason: `lost`, `refused`, `too_large` or `replaced`.
    pub reconnects_by: [(&'static str, u64); End::REASONS.len()],
    /// Frames that a full outbox dropped.
    pub outbox_dropped: u64,
    /// Roll-ups that left.
    pub rollups_sent: u64,
    /// Roll-ups that were too large to send.
    pub rollups_refused: u64,
    /// The encoded size of the last roll-up, sent or refused.
    pub rollup_bytes: u64,
    /// How long the last wait before dialling again was to be; zero before the first.
    pub delay: Duration,
}

/// Queues frames for the running session. Cheap to clone; no call waits.
#[derive(Debug, Clone)]
pub struct Handle {
    queues: Arc<Queues>,
    counters: Arc<Counters>,
    max_rollup_bytes: usize,
}

impl Handle {
    /// Puts a roll-up into the slot, in place of one that still waits there.
    ///
    /// # Errors
    /// When it is too large, or `session` is over. What waits in the slot stays then.
    pub fn rollup(&self, session: u64, needs: ClusterCapacityNeeds) -> Result<(), QueueError> {
        let rows = needs.needs.len();
        let frame = OperatorMessage { payload: Some(Payload::Rollup(needs)) };
        let (bytes, limit) = (frame.encoded_len(), self.max_rollup_bytes);
        self.counters.rollup_bytes.store(u64::try_from(bytes).unwrap_or(u64::MAX), Ordering::Relaxed);
        let refused = if bytes > limit {
            Some(QueueError::TooLarge { bytes, limit })
        } else if rows > limits::ROLLUP_NEEDS {
            Some(QueueError::TooMany { needs: rows, limit: limits::ROLLUP_NEEDS })
        } else {
            None
        };
        if let Some(error) = refused {
            self.counters.rollups_refused.fetch_add(1, Ordering::Relaxed);
            tracing::error!(bytes, needs = rows, "{error}");
            return Err(error);
        }
        if bytes >= limit / 4 {
            tracing::warn!(bytes, limit, "the roll-up has passed a quarter of the largest one that is sent");
        }
        self.queues.put_rollup(session, frame)
    }

    /// Queues a frame; frames leave in order and before roll-ups.
    ///
    /// # Errors
    /// When the outbox is full, which is counted, or `session` is over.
    pub fn send(&self, session: u64, frame: OperatorMessage) -> Result<(), QueueError> {
        let result = self.queues.push(session, frame);
        if matches!(result, Err(QueueError::Full(_))) {
            self.counters.outbox_dropped.fetch_add(1, Ordering::Relaxed);
        }
        result
    }

    /// Ends a session that looks dead; another one is dialled after the usual delay.
    pub fn drop_session(&self, session: u64, reason: &str) {
        self.queues.drop_session(session, reason);
    }

    /// Counters since the start.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let since = *self.counters.since.lock().unwrap_or_else(PoisonError::into_inner);
        Stats {
            connected: self.counters.connected.load(Ordering::Relaxed),
            age: since.map_or(Duration::ZERO, |since| since.elapsed()),
            reconnects_by: std::array::from_fn(|i| (End::REASONS[i], get(&self.counters.reconnects_by[i]))),
            reconnects: self.counters.reconnects.load(Ordering::Acquire),
            outbox_dropped: get(&self.counters.outbox_dropped),
            rollups_sent: get(&self.counters.rollups_sent),
            rollups_refused: get(&self.counters.rollups_refused),
            rollup_bytes: get(&self.counters.rollup_bytes),
            delay: Duration::from_nanos(get(&self.counters.delay_nanos)),
        }
    }
}

/// Keeps a session up on a task of its own until `stop`. The task ends on its own when the events are no longer read.
///
/// # Errors
/// When the shard's address cannot be one.
pub fn start(
    options: Options,
    stop: CancellationToken,
) -> Result<(Handle, mpsc::Receiver<Event>, tokio::task::JoinHandle<()>), channel::Error> {
    // Checked once here; every session then dials a channel of its own.
    drop(channel::connect_lazy(&options.shard_addr, &options.channel)?);
    let handle = Handle {
        queues: Arc::new(Queues::default()),
        counters: Arc::new(Counters::default()),
        max_rollup_bytes: options.max_rollup_bytes,
    };
    let (events, reader) = mpsc::channel(EVENTS);
    let task = tokio::spawn(keep(options, handle.clone(), events, stop));
    Ok((handle, reader, task))
}

async fn keep(options: Options, handle: Handle, events: mpsc::Sender<Event>, stop: CancellationToken) {
    let mut delays = Delays::new(options.initial_backoff, options.max_backoff);
    let mut session = 0;
    while !stop.is_cancelled() && !events.is_closed() {
        session += 1;
        let started = Instant::now();
        let run = connection::run(&options, &handle, session, &events);
        let outcome = tokio::select! {
            outcome = Box::pin(run) => outcome,
            () = stop.cancelled() => connection::Outcome { end: End::Stopped, greeted: false, was_up: true },
        };
        handle.queues.close(session);
        let was_connected = handle.counters.connected.swap(false, Ordering::Relaxed);
        handle.counters.came_up(None);
        if was_connected && events.send(Event { session, input: Input::Disconnected }).await.is_err() {
            return;
        }
        if outcome.end == End::Stopped {
            return;
        }
        let chance = bigfleet_net::ids::random_u64().unwrap_or(u64::MAX);
        let lived = started.elapsed();
        let wait = delays.after(&outcome.end, lived, outcome.greeted, chance);
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        handle.counters.delay_nanos.store(nanos, Ordering::Relaxed);
        if let Some(at) = End::REASONS.iter().position(|reason| *reason == outcome.end.reason()) {
            handle.counters.reconnects_by[at].fetch_add(1, Ordering::Relaxed);
        }
        handle.counters.reconnects.fetch_add(1, Ordering::Release);
        report(&options, &handle, &outcome, wait);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => return,
            () = events.closed() => return,
        }
    }
}

fn report(options: &Options, handle: &Handle, outcome: &connection::Outcome, wait: Duration) {
    let (cluster, shard) = (&options.cluster_id, &options.shard_addr);
    let end = &outcome.end;
    match end {
        End::Refused(_) => {
            tracing::error!(%cluster, shard, ?wait, "the shard refuses this cluster: {end}");
        }
        End::Replaced(_) => {
            tracing::error!(%cluster, shard, ?wait, "another operator speaks for this cluster: {end}");
        }
        End::TooLarge(_) => {
            let bytes = handle.stats().rollup_bytes;
            tracing::error!(%cluster, shard, ?wait, rollup_bytes = bytes, "the shard is out of room: {end}");
        }
        End::Lost(_) if outcome.was_up => {
            tracing::warn!(%cluster, shard, ?wait, "the session ended: {end}");
        }
        End::Lost(_) | End::Stopped => {
            tracing::info!(%cluster, shard, ?wait, "no session yet: {end}");
        }
    }
}
