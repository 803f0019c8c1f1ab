//! Frames on their way to one operator: a lane in which nothing is lost, and one in which the newest frame of a key
//! replaces an older one that still waits.
//!
//! The transport pulls: an operator that stops reading makes frames wait here, bounded, and stalls nobody.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1::ShardMessage;
use futures::Stream;
use hashbrown::HashMap;
use tonic::Status;

use crate::io::Lane;

/// Frames that may wait in the lane in which nothing is lost.
pub const FIFO_FRAMES: usize = 1024;
/// Keys that may wait in the coalescing lane.
pub const COALESCING_KEYS: usize = 200_000;

/// A lane has no room: the operator is too far behind to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the operator does not read its stream: {frames} frames wait in the {lane} lane; the session ends")]
pub struct Full {
    /// Which lane.
    pub lane: &'static str,
    /// How many frames wait in it.
    pub frames: usize,
}

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pushed {
    /// It waits.
    Queued,
    /// It took the place of an older one of its key.
    Replaced,
    /// The stream has ended; it was dropped.
    Ended,
}

/// How many frames wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Depth {
    /// In the lane in which nothing is lost.
    pub fifo: usize,
    /// In the coalescing lane.
    pub coalescing: usize,
}

/// The sending end. Clones share one queue.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Mutex<Queue>>);

/// The reading end: the frames, then the status with which the stream was ended.
#[derive(Debug)]
pub struct Outgoing(Arc<Mutex<Queue>>);

#[derive(Debug, Default)]
struct Queue {
    fifo: VecDeque<ShardMessage>,
    /// Keys in order of their oldest waiting frame.
    order: VecDeque<Arc<str>>,
    newest: HashMap<Arc<str>, ShardMessage>,
    end: End,
    /// Since when frames wait and none was taken.
    stuck_since: Option<Instant>,
    reader: Option<Waker>,
}

#[derive(Debug, Default)]
enum End {
    #[default]
    Open,
    /// To be told to the peer.
    Ending(Status),
    Ended,
}

impl Outbox {
    /// An empty, open queue and its reading end.
    #[must_use]
    pub fn new() -> (Self, Outgoing) {
        let outbox = Self::default();
        let outgoing = Outgoing(Arc::clone(&outbox.0));
        (outbox, outgoing)
    }

    /// Queues a frame.
    ///
    /// # Errors
    /// The lane is full; the frame was not queued.
    pub fn push(&self, lane: Lane, message: ShardMessage, now: Instant) -> Result<Pushed, Full> {
        let mut queue = held(&self.0);
        if !matches!(queue.end, End::Open) {
            return Ok(Pushed::Ended);
        }
        match lane {
            Lane::Fifo => queue.push_in_order(message)?,
            Lane::Behind(key) => {
                if let Some(waiting) = queue.newest.remove(key.as_str()) {
                    queue.order.retain(|other| **other != *key);
                    queue.push_in_order(waiting)?;
                }
                queue.push_in_order(message)?;
            }
            Lane::Coalescing(key) => {
                if let Some(waiting) = queue.newest.get_mut(key.as_str()) {
                    *waiting = message;
                    return Ok(Pushed::Replaced);
                }
                if queue.newest.len() >= COALESCING_KEYS {
                    return Err(Full { lane: "coalescing", frames: queue.newest.len() });
                }
                let key: Arc<str> = key.into();
                queue.order.push_back(Arc::clone(&key));
                queue.newest.insert(key, message);
            }
        }
        queue.stuck_since.get_or_insert(now);
        queue.wake();
        Ok(Pushed::Queued)
    }

    /// Ends the stream with `status`. Frames that still wait are dropped. Only the first end counts.
    pub fn end(&self, status: Status) {
        let mut queue = held(&self.0);
        if matches!(queue.end, End::Open) {
            queue.clear();
            queue.end = End::Ending(status);
            queue.wake();
        }
    }

    /// For how long frames have waited without one being taken; zero when none waits.
    #[must_use]
    pub fn stuck_for(&self, now: Instant) -> Duration {
        held(&self.0).stuck_since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    /// How many frames wait.
    #[must_use]
    pub fn depth(&self) -> Depth {
        let queue = held(&self.0);
        Depth { fifo: queue.fifo.len(), coalescing: queue.newest.len() }
    }
}

impl Queue {
    fn push_in_order(&mut self, message: ShardMessage) -> Result<(), Full> {
        if self.fifo.len() >= FIFO_FRAMES {
            return Err(Full { lane: "fifo", frames: self.fifo.len() });
        }
        self.fifo.push_back(message);
        Ok(())
    }

    fn take(&mut self) -> Option<ShardMessage> {
        if let Some(frame) = self.fifo.pop_front() {
            return Some(frame);
        }
        let key = self.order.pop_front()?;
        self.newest.remove(&key)
    }

    fn clear(&mut self) {
        self.fifo = VecDeque::new();
        self.order = VecDeque::new();
        self.newest = HashMap::new();
        self.stuck_since = None;
    }

    fn wake(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Stream for Outgoing {
    type Item = Result<ShardMessage, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = held(&self.0);
        if let Some(frame) = queue.take() {
            let empty = queue.fifo.is_empty() && queue.order.is_empty();
            queue.stuck_since = (!empty).then(Instant::now);
            return Poll::Ready(Some(Ok(frame)));
        }
        match std::mem::replace(&mut queue.end, End::Ended) {
            End::Ending(status) => Poll::Ready(Some(Err(status))),
            End::Ended => Poll::Ready(None),
            End::Open => {
                queue.end = End::Open;
                queue.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Outgoing {
    /// The transport let go of the stream: nothing will be read any more.
    fn drop(&mut self) {
        let mut queue = held(&self.0);
        queue.clear();
        queue.end = End::Ended;
    }
}

/// No code panics while it holds the lock, and a queue is consistent between any two statements that could.
fn held(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
