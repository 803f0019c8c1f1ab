//! The two queues of a session: frames in order, and the newest roll-up.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bigfleet_proto::v1alpha1::OperatorMessage;
use tokio::sync::Notify;

use super::QueueError;

/// How many frames wait at most.
pub(super) const OUTBOX: usize = 256;

#[derive(Debug, Default)]
struct State {
    /// The session that is open, 0 for none.
    session: u64,
    outbox: VecDeque<OperatorMessage>,
    slot: Option<OperatorMessage>,
    dropped: Option<String>,
    /// Wake this session's one sender and its one dropper. Those of another session have others: a stream that is
    /// being torn down must not swallow the wake-up of the next.
    sender: Arc<Notify>,
    dropper: Arc<Notify>,
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement, so a panic elsewhere leaves nothing broken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the queues, empty, for a session. Ends one before it.
    pub(super) fn open(&self, session: u64) {
        Self::replace(&mut self.lock(), State { session, ..State::default() });
    }

    fn replace(state: &mut State, by: State) {
        let old = std::mem::replace(state, by);
        old.sender.notify_one();
        old.dropper.notify_one();
    }

    /// Drops what waits, if `session` is still the open one.
    pub(super) fn close(&self, session: u64) {
        let mut state = self.lock();
        if state.session == session {
            Self::replace(&mut state, State::default());
        }
    }

    fn open_state(&self, session: u64) -> Result<MutexGuard<'_, State>, QueueError> {
        let state = self.lock();
        if session == 0 || state.session != session { Err(QueueError::Over(session)) } else { Ok(state) }
    }

    pub(super) fn put_rollup(&self, session: u64, frame: OperatorMessage) -> Result<(), QueueError> {
        let mut state = self.open_state(session)?;
        state.slot = Some(frame);
        state.sender.notify_one();
        Ok(())
    }

    pub(super) fn push(&self, session: u64, frame: OperatorMessage) -> Result<(), QueueError> {
        let mut state = self.open_state(session)?;
        if state.outbox.len() == OUTBOX {
            return Err(QueueError::Full(OUTBOX));
        }
        state.outbox.push_back(frame);
        state.sender.notify_one();
        Ok(())
    }

    pub(super) fn drop_session(&self, session: u64, reason: &str) {
        if let Ok(mut state) = self.open_state(session) {
            state.dropped = Some(reason.to_owned());
            state.dropper.notify_one();
        }
    }

    /// Waits for the next frame of a session: the outbox first, then the slot. `None` when the session is over.
    pub(super) async fn next(&self, session: u64) -> Option<OperatorMessage> {
        loop {
            let wake = {
                let mut state = self.open_state(session).ok()?;
                let frame = state.outbox.pop_front();
                if let Some(frame) = frame.or_else(|| state.slot.take()) {
                    return Some(frame);
                }
                Arc::clone(&state.sender)
            };
            // A wake-up that comes before this line is kept for it.
            wake.notified().await;
        }
    }

    /// Waits until somebody drops the session; gives the reason.
    pub(super) async fn dropped(&self, session: u64) -> String {
        loop {
            let wake = match self.open_state(session) {
                Ok(mut state) => match state.dropped.take() {
                    Some(reason) => return reason,
                    None => Arc::clone(&state.dropper),
                },
                Err(error) => return error.to_string(),
            };
            wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigfleet_proto::v1alpha1::operator_message::Payload;
    use bigfleet_proto::v1alpha1::{ClusterCapacityNeeds, ReclaimAck};

    fn frame(n: i32) -> OperatorMessage {
        let ack = ReclaimAck { instruction_id: String::new(), nodes_started: n };
        OperatorMessage { payload: Some(Payload::ReclaimAck(ack)) }
    }

    fn rollup(at: i64) -> OperatorMessage {
        let needs = ClusterCapacityNeeds { timestamp_unix_nanos: at, ..ClusterCapacityNeeds::default() };
        OperatorMessage { payload: Some(Payload::Rollup(needs)) }
    }

    #[tokio::test]
    async fn ex50_a_full_outbox_drops_the_newest_without_blocking() {
        let queues = Queues::default();
        queues.open(1);
        for n in 0..256 {
            queues.push(1, frame(n)).unwrap();
        }
        assert_eq!(queues.push(1, frame(256)), Err(QueueError::Full(256)));
        for n in 0..256 {
            assert_eq!(queues.next(1).await, Some(frame(n)));
        }
        queues.push(1, frame(7)).unwrap();
        assert_eq!(queues.next(1).await, Some(frame(7)));
    }

    #[tokio::test]
    async fn ex51_only_the_newest_rollup_leaves_and_behind_the_outbox() {
        let queues = Queues::default();
        queues.open(1);
        queues.put_rollup(1, rollup(1)).unwrap();
        queues.put_rollup(1, rollup(2)).unwrap();
        queues.push(1, frame(1)).unwrap();
        assert_eq!(queues.next(1).await, Some(frame(1)));
        assert_eq!(queues.next(1).await, Some(rollup(2)));
        queues.push(1, frame(2)).unwrap();
        assert_eq!(queues.next(1).await, Some(frame(2)), "no second roll-up waits");
    }

    #[tokio::test]
    async fn the_end_of_a_session_wakes_who_waits_for_it() {
        let queues = Arc::new(Queues::default());
        queues.open(1);
        let waiting = {
            let queues = Arc::clone(&queues);
            tokio::spawn(async move { (queues.next(1).await, queues.dropped(1).await) })
        };
        tokio::task::yield_now().await;
        queues.close(1);
        let patience = std::time::Duration::from_secs(60);
        let (frame, reason) = tokio::time::timeout(patience, waiting).await.unwrap().unwrap();
        assert_eq!((frame, reason.as_str()), (None, "session 1 is over; nothing was queued"));
    }

    #[tokio::test]
    async fn what_belongs_to_a_session_that_is_over_is_refused() {
        let queues = Queues::default();
        assert_eq!(queues.push(0, frame(1)), Err(QueueError::Over(0)));
        queues.open(1);
        queues.push(1, frame(1)).unwrap();
        queues.open(2);
        assert_eq!(queues.push(1, frame(2)), Err(QueueError::Over(1)));
        assert_eq!(queues.next(1).await, None);
        queues.push(2, frame(3)).unwrap();
        assert_eq!(queues.dropped(1).await, "session 1 is over; nothing was queued");
        queues.close(1);
        assert_eq!(queues.next(2).await, Some(frame(3)), "an older session's end closes nothing");
        queues.close(2);
        assert_eq!(queues.put_rollup(2, rollup(1)), Err(QueueError::Over(2)));
        assert_eq!(queues.next(2).await, None);
    }
}
