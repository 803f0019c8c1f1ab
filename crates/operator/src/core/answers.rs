//! Answers to writes: what the cluster holds now.

use bigfleet_types::UnixNanos;

use super::Core;
use super::counters::bump;
use super::drain::{Drain, Notice};
use super::writes::Key;
use crate::io::{Write, WriteError, WriteId};

impl Core {
    pub(super) fn on_done(&mut self, now: UnixNanos, id: WriteId, result: Result<(), WriteError>) {
        let connected = self.session.is_some();
        if let Some(node) = self.drain_writes.remove(&id) {
            return self.on_drain_done(now, id, &node, &result);
        }
        if let Some(acknowledged) = self.demand.acks.done(id, &result, now, connected, &mut self.chance) {
            self.counters.acknowledged += u64::from(acknowledged);
            return;
        }
        let Some(answered) = self.writes.done(id, result, now, connected, &mut self.chance) else {
            return;
        };
        let outcome = match &answered.result {
            Ok(()) => "success",
            Err(WriteError::Gone) => "gone",
            Err(WriteError::Conflict) => "conflict",
            Err(WriteError::TooMany { .. } | WriteError::Other(_)) => "error",
        };
        if let Err(WriteError::Other(message)) = &answered.result {
            tracing::warn!(about = ?answered.key, message, "a write failed");
        }
        if let Key::Cordon(node) = &answered.key
            && self.drains.get(node).is_some_and(Drain::is_active)
        {
            // It is to be cordoned again: what failed is not tried again.
            self.writes.abandon(&answered.key);
        }
        let there = answered.result.is_ok();
        match (answered.key, answered.write) {
            (Key::Machine(id), write) => {
                bump(&mut self.counters.read_back_writes, outcome);
                let object = match write {
                    Write::PutUpcomingNode(object) if there => Some(*object),
                    Write::PutUpcomingNode(_) if outcome != "gone" => return,
                    Write::DeleteUpcomingNode { .. } if !there && outcome != "gone" => return,
                    _ => None,
                };
                match object {
                    None => self.on_upcoming_gone(&id),
                    Some(object) => {
                        if let Some(machine) = self.machines.get_mut(&id) {
                            machine.stored = Some(object);
                        }
                    }
                }
            }
            (Key::Hint(key), write) => {
                bump(&mut self.counters.read_back_writes, outcome);
                match write {
                    Write::PutAvailableCapacity(object) if there => {
                        self.hints.entry(key).or_default().stored = Some(*object);
                    }
                    Write::DeleteAvailableCapacity { .. } if there || outcome == "gone" => {
                        // A frame may have asked for it again in the meantime.
                        if self.writes.latest(&Key::Hint(key.clone())).is_none() {
                            self.hints.remove(&key);
                        } else if let Some(hint) = self.hints.get_mut(&key) {
                            hint.stored = None;
                        }
                    }
                    _ => {}
                }
            }
            (Key::Node(name), _) if there || outcome == "gone" => {
                self.leaving.remove(&name);
            }
            (Key::Cordon(name), _) if !there && !connected => {
                self.uncordoned.remove(&name);
            }
            (Key::Cordon(_) | Key::Label(_) | Key::Node(_), _) => {}
        }
    }

    fn on_drain_done(&mut self, now: UnixNanos, id: WriteId, node: &str, result: &Result<(), WriteError>) {
        let Some(drain) = self.drains.get_mut(node) else {
            return;
        };
        match drain.answered(now, id, result, &mut self.chance) {
            Some(Some(label)) => bump(&mut self.counters.evictions, label),
            Some(None) if result.is_ok() => {
                if let Some(Notice { reason, message }) = drain.notice.take() {
                    self.event(("Node", node), false, reason, message);
                }
            }
            _ => {}
        }
    }
}
