//! The two queues of a session: frames in order, and the newest roll-up.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
}

#[derive(Debug, Default)]
pub(super) struct Queues {
    state: Mutex<State>,
    sender: Notify,
    dropper: Notify,
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The state is whole after every statement, so a panic elsewhere leaves nothing broken.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the queues, empty, for a session.
    pub(super) fn open(&self, session: u64) {
        *self.lock() = State { session, ..State::default() };
    }

    /// Drops what waits, if `session` is still the open one.
    pub(super) fn close(&self, session: u64) {
        let mut state = self.lock();
        if state.session == session {
            *state = State::default();
        }
    }

    fn open_state(&self, session: u64) -> Result<MutexGuard<'_, State>, QueueError> {
        let state = self.lock();
        if session == 0 || state.session != session { Err(QueueError::Over(session)) } else { Ok(state) }
    }

    pub(super) fn put_rollup(&self, session: u64, frame: OperatorMessage) -> Result<(), QueueError> {
        self.open_state(session)?.slot = Some(frame);
        self.sender.notify_one();
        Ok(())
    }

    pub(super) fn push(&self, session: u64, frame: OperatorMessage) -> Result<(), QueueError> {
        let mut state = self.open_state(session)?;
        if state.outbox.len() == OUTBOX {
            return Err(QueueError::Full(OUTBOX));
        }
        state.outbox.push_back(frame);
        drop(state);
        self.sender.notify_one();
        Ok(())
    }

    pub(super) fn drop_session(&self, session: u64, reason: &str) {
        if let Ok(mut state) = self.open_state(session) {
            state.dropped = Some(reason.to_owned());
            drop(state);
            self.dropper.notify_one();
        }
    }

    /// Waits for the next frame of a session: the outbox first, then the slot. `None` when the session is over.
    pub(super) async fn next(&self, session: u64) -> Option<OperatorMessage> {
        loop {
            let woken = self.sender.notified();
            {
                let mut state = self.open_state(session).ok()?;
                let frame = state.outbox.pop_front();
                if let Some(frame) = frame.or_else(|| state.slot.take()) {
                    return Some(frame);
                }
            }
            woken.await;
        }
    }

    /// Waits until somebody drops the session; gives the reason.
    pub(super) async fn dropped(&self, session: u64) -> String {
        loop {
            let woken = self.dropper.notified();
            match self.open_state(session) {
                Ok(mut state) => {
                    if let Some(reason) = state.dropped.take() {
                        return reason;
                    }
                }
                Err(error) => return error.to_string(),
            }
            woken.await;
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
    async fn what_belongs_to_a_session_that_is_over_is_refused() {
        let queues = Queues::default();
        assert_eq!(queues.push(0, frame(1)), Err(QueueError::Over(0)));
        queues.open(1);
        queues.push(1, frame(1)).unwrap();
        queues.open(2);
        assert_eq!(queues.push(1, frame(2)), Err(QueueError::Over(1)));
        assert_eq!(queues.next(1).await, None);
        queues.push(2, frame(3)).unwrap();
        queues.close(1);
        assert_eq!(queues.next(2).await, Some(frame(3)), "an older session's end closes nothing");
        queues.close(2);
        assert_eq!(queues.put_rollup(2, rollup(1)), Err(QueueError::Over(2)));
        assert_eq!(queues.next(2).await, None);
    }
}
