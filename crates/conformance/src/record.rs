//! What was sent and what came back, kept for the report of a failure.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bigfleet_proto::v1alpha1 as pb;
use serde::Serialize;

/// Calls kept of each behaviour: the latest.
const KEPT: usize = 24;

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// The call and its fields.
    pub sent: String,
    /// The answer.
    pub received: String,
    /// How often in a row the same was asked with the same answer.
    pub times: u32,
}

/// The latest calls.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<VecDeque<Exchange>>);

impl Log {
    pub(crate) fn add(&self, sent: String, received: String) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = kept.back_mut()
            && last.sent == sent
            && last.received == received
        {
            last.times = last.times.saturating_add(1);
            return;
        }
        if kept.len() == KEPT {
            kept.pop_front();
        }
        kept.push_back(Exchange { sent, received, times: 1 });
    }

    pub(crate) fn take(&self) -> Vec<Exchange> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// A text cut to `most` characters, saying so.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((at, _)) => format!("{}... ({} bytes)", text.get(..at).unwrap_or_default(), text.len()),
        None => text.to_owned(),
    }
}

/// A machine in a line.
pub(crate) fn machine(m: &pb::Machine) -> String {
    let mut text = format!("{} {}", m.id, state(m.state));
    if let Some(host) = &m.host {
        text += &format!(" host={}/{}", host.provider, host.r#ref);
    }
    if !m.cluster.is_empty() {
        text += &format!(" cluster={:?}", m.cluster);
    }
    if !m.shard_metadata.is_empty() {
        text += &format!(" shard_metadata={}", cut(&format!("{:?}", m.shard_metadata), 200));
    }
    if !m.last_error.is_empty() {
        text += &format!(" last_error={:?}", cut(&m.last_error, 200));
    }
    text
}

/// The name of a state, without the prefix that all share.
pub(crate) fn state(number: i32) -> String {
    match pb::MachineState::try_from(number) {
        Ok(state) => state.as_str_name().trim_start_matches("MACHINE_STATE_").to_owned(),
        Err(_) => format!("state {number}"),
    }
}

pub(crate) fn ack(ack: &pb::TransitionAck) -> String {
    let seen = ack.machine.as_ref().map_or_else(|| "no machine".to_owned(), machine);
    format!("operation_id={:?}, {seen}", ack.operation_id)
}

pub(crate) fn list(list: &pb::MachineList) -> String {
    let shown: Vec<_> = list.machines.iter().take(4).map(machine).collect();
    let more = list.machines.len().saturating_sub(shown.len());
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    let removed = if list.removed_ids.is_empty() {
        String::new()
    } else {
        format!(" removed_ids={:?}", list.removed_ids)
    };
    format!(
        "{} machines [{}{rest}] revision={:?}{removed}",
        list.machines.len(),
        shown.join("; "),
        list.revision
    )
}

pub(crate) fn filter(filter: &pb::ListFilter) -> String {
    let states: Vec<_> = filter.states.iter().map(|s| state(*s)).collect();
    let cursor = cut(&format!("{:?}", filter.since_revision), 80);
    format!("List states=[{}] max_results={} since_revision={cursor}", states.join(" "), filter.max_results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_counted_and_old_calls_go() {
        let log = Log::default();
        for _ in 0..3 {
            log.add("Get".into(), "IDLE".into());
        }
        for n in 0..KEPT {
            log.add(format!("Get {n}"), String::new());
        }
        let kept = log.take();
        assert_eq!(kept.len(), KEPT);
        assert_eq!(kept[0].sent, "Get 0", "the first went");
        log.add("Get".into(), "IDLE".into());
        log.add("Get".into(), "IDLE".into());
        assert_eq!(log.take()[0].times, 2);
        assert_eq!(cut("\u{e9}\u{e9}\u{e9}", 2), "\u{e9}\u{e9}... (6 bytes)");
    }
}
