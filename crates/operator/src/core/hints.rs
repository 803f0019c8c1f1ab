//! Hints of what the fleet could provide: frames into AvailableCapacities, and the end of those that nobody refreshes.

use std::time::Duration;

use bigfleet_proto::v1alpha1::available_capacity_update::Confidence;
use bigfleet_proto::v1alpha1::node_selector_requirement::Operator;
use bigfleet_proto::v1alpha1::{AvailableCapacityUpdate, NodeSelectorRequirement};
use bigfleet_types::{Quantity, UnixNanos};

use super::Core;
use super::counters::bump;
use super::writes::Key;
use crate::io::{AvailableCapacity, Write};

/// A shard that refreshes its hints does so every five minutes of connected time.
const STALE: Duration = Duration::from_secs(15 * 60);
/// A shard that does not has sent all that there are after this much of a session.
const REPLAYED: Duration = Duration::from_secs(2 * 60);

/// One hint.
#[derive(Debug, Default)]
pub(super) struct Hint {
    /// The object that the cluster holds.
    pub(super) stored: Option<AvailableCapacity>,
    /// Connected time when it was last heard of.
    seen: Duration,
    /// The session in which that was.
    session: u64,
}

impl Core {
    pub(super) fn on_hint(&mut self, now: UnixNanos, update: AvailableCapacityUpdate) {
        if update.supersedes_key.is_empty() {
            return bump(&mut self.counters.frames_ignored, "hint_without_key");
        }
        let mut resources = update.resources.unwrap_or_default().resources;
        resources.retain(|name, text| {
            let good = Quantity::parse(text).is_ok_and(|quantity| !quantity.is_negative());
            if !good {
                self.counters.quantities_dropped += 1;
                tracing::warn!(name, "a hint's quantity cannot be read and is left out");
            }
            good
        });
        let object = AvailableCapacity {
            key: update.supersedes_key,
            requirements: update.requirements.iter().filter_map(requirement).collect(),
            count: u32::try_from(update.available_count).unwrap_or(0),
            confidence: confidence(update.confidence),
            cost_per_hour: cost(update.cost_per_hour),
            resources,
        };
        let seen = self.connected_time(now);
        let hint = self.hints.entry(object.key.clone()).or_default();
        hint.seen = seen;
        hint.session = self.sessions;
        let key = Key::Hint(object.key.clone());
        let current = match self.writes.latest(&key) {
            Some(Write::PutAvailableCapacity(waiting)) => Some(&**waiting),
            Some(_) => None,
            None => hint.stored.as_ref(),
        };
        if current == Some(&object) {
            bump(&mut self.counters.read_back_writes, "noop");
        } else {
            self.writes.want(now, key, Write::PutAvailableCapacity(Box::new(object)));
        }
    }

    /// The cluster holds this hint.
    pub(super) fn on_stored_hint(&mut self, now: UnixNanos, object: AvailableCapacity) {
        let seen = self.connected_time(now);
        let hint = self.hints.entry(object.key.clone()).or_insert(Hint { stored: None, seen, session: 0 });
        hint.stored = Some(object);
    }

    /// The cluster does not hold this hint (any more): the next frame about it writes it anew.
    pub(super) fn on_hint_gone(&mut self, key: &str) {
        if let Some(hint) = self.hints.get_mut(key) {
            hint.stored = None;
        }
    }

    /// Deletes hints that the shard does not speak of any more.
    pub(super) fn sweep_hints(&mut self, now: UnixNanos) {
        let Some(session) = &self.session else {
            return;
        };
        let age = now.since(session.since);
        let connected = self.connected_time(now);
        let refreshes = session.resynced;
        for (key, hint) in &self.hints {
            let stale = if refreshes {
                connected.saturating_sub(hint.seen) > STALE
            } else {
                age > REPLAYED && hint.session != self.sessions
            };
            let write = Key::Hint(key.clone());
            if stale && hint.stored.is_some() && self.writes.latest(&write).is_none() {
                self.writes.want(now, write, Write::DeleteAvailableCapacity { key: key.clone() });
            }
        }
    }
}

/// The requirement as text; `Same` is for the wire only.
fn requirement(requirement: &NodeSelectorRequirement) -> Option<(String, String, Vec<String>)> {
    let operator = match requirement.operator() {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Same | Operator::Unspecified => return None,
    };
    Some((requirement.key.clone(), operator.to_owned(), requirement.values.clone()))
}

fn confidence(number: i32) -> &'static str {
    match Confidence::try_from(number) {
        Ok(Confidence::Low) => "Low",
        Ok(Confidence::Medium) => "Medium",
        Ok(Confidence::High) => "High",
        Ok(Confidence::None | Confidence::Unspecified) | Err(_) => "None",
    }
}

/// A plain decimal with at most six digits after the point.
fn cost(dollars: f64) -> String {
    if !dollars.is_finite() || dollars < 0.0 {
        tracing::warn!(dollars, "a hint's cost is no amount and reads 0");
        return "0".to_owned();
    }
    let text = format!("{dollars:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
