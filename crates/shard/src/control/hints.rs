//! Hints to operators: how much could be had for what they ask for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_proto::v1alpha1::{
    AvailableCapacityUpdate, ShardMessage, available_capacity_update::Confidence, shard_message::Payload,
};
use bigfleet_types::{ClusterId, Fingerprint, MachineState, NanoDollars, Profile, UnixNanos};

use super::Control;
use crate::io::{Lane, Output};

/// A hint that stays the same is sent again after this time: operators drop what they do not hear for long.
const REFRESH: Duration = Duration::from_secs(300);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hint {
    count: u32,
    confidence: Confidence,
    cost: NanoDollars,
}

/// What was sent last, and which classes a profile accepts.
#[derive(Debug, Default)]
pub(super) struct Hints {
    sent: BTreeMap<ClusterId, BTreeMap<Fingerprint, (Hint, UnixNanos)>>,
    matching: BTreeMap<Fingerprint, Matching>,
}

/// The classes that a profile accepts, of those with a number below `seen`.
#[derive(Debug, Default)]
struct Matching {
    seen: usize,
    classes: Vec<usize>,
}

impl Hints {
    /// The operator is away: when it comes back it hears everything again.
    pub(super) fn forget(&mut self, cluster: &ClusterId) {
        self.sent.remove(cluster);
    }
}

impl Control {
    /// Sends the hints that changed and are due.
    pub(super) fn send_hints(&mut self, now: UnixNanos) {
        let mut hints = std::mem::take(&mut self.hints);
        let mut computed: BTreeMap<Fingerprint, Hint> = BTreeMap::new();
        let mut demanded: BTreeMap<Fingerprint, Arc<Profile>> = BTreeMap::new();
        let mut frames = Vec::new();
        let none = BTreeMap::new();
        for (cluster, session) in self.sessions.clusters() {
            let demand = self.demand.get(cluster);
            let profiles = demand.map_or(&none, |demand| &demand.profiles);
            let sent = hints.sent.entry(cluster.clone()).or_default();
            sent.retain(|fingerprint, _| profiles.contains_key(fingerprint));
            for (fingerprint, (profile, _)) in profiles {
                let fingerprint = *fingerprint;
                demanded.entry(fingerprint).or_insert_with(|| profile.clone());
                let last = sent.get(&fingerprint);
                if last.is_some_and(|(_, at)| now.since(*at) < self.config.available_capacity_interval) {
                    continue;
                }
                let matching = hints.matching.entry(fingerprint).or_default();
                let hint = *computed.entry(fingerprint).or_insert_with(|| self.hint(now, profile, matching));
                if last.is_some_and(|(before, at)| *before == hint && now.since(*at) < REFRESH) {
                    continue;
                }
                sent.insert(fingerprint, (hint, now));
                frames.push((session, frame(profile, hint)));
            }
        }
        hints.matching.retain(|fingerprint, _| demanded.contains_key(fingerprint));
        self.hints = hints;
        for (session, update) in frames {
            let lane = Lane::Coalescing(update.supersedes_key.clone());
            let message = Box::new(ShardMessage { payload: Some(Payload::AvailableCapacity(update)) });
            self.outputs.push_back(Output::Send { session, lane, message });
        }
    }

    fn hint(&self, now: UnixNanos, profile: &Profile, matching: &mut Matching) -> Hint {
        let stock = self.fleet.stock();
        for (number, class) in stock.from(matching.seen) {
            if bigfleet_engine::matches(profile, &class.sample) {
                matching.classes.push(number);
            }
        }
        matching.seen = stock.next();
        matching.classes.retain(|number| stock.class(*number).is_some());
        let (mut idle, mut speculative, mut later) = (0u32, 0u32, 0u32);
        let (mut idle_cost, mut speculative_cost) = (None, None);
        let cheaper = |known: &mut Option<NanoDollars>, price: Option<&NanoDollars>| {
            *known = known.iter().chain(price).min().copied();
        };
        for class in matching.classes.iter().filter_map(|number| stock.class(*number)) {
            let slots = class.speculative.values().sum::<u32>();
            idle = idle.saturating_add(class.idle.values().sum());
            later = later.saturating_add(class.later);
            cheaper(&mut idle_cost, class.idle.keys().next());
            let sample = &class.sample;
            let key = (sample.instance_type.clone(), sample.zone.clone(), sample.capacity_type);
            if self.cool.is_out_of_stock(&key, now) {
                later = later.saturating_add(slots);
            } else {
                speculative = speculative.saturating_add(slots);
                cheaper(&mut speculative_cost, class.speculative.keys().next());
            }
        }
        let confidence = match (idle, speculative, later) {
            (1.., _, _) => Confidence::High,
            (0, 1.., _) => Confidence::Medium,
            (0, 0, 1..) => Confidence::Low,
            (0, 0, 0) => Confidence::None,
        };
        let cost = idle_cost.or(speculative_cost).unwrap_or(NanoDollars::ZERO);
        Hint { count: idle.saturating_add(speculative), confidence, cost }
    }

    /// Machines in a state.
    #[must_use]
    pub fn machines_in(&self, state: MachineState) -> usize {
        self.fleet.tally().in_state(state)
    }
}

fn frame(profile: &Profile, hint: Hint) -> AvailableCapacityUpdate {
    AvailableCapacityUpdate {
        supersedes_key: format!("available:{}", profile.fingerprint()),
        requirements: profile.requirements().iter().map(Into::into).collect(),
        resources: None,
        available_count: i32::try_from(hint.count).unwrap_or(i32::MAX),
        confidence: hint.confidence.into(),
        cost_per_hour: hint.cost.dollars(),
    }
}
