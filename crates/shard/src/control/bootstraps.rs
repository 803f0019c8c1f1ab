//! When an operator does not deliver blobs: a cluster that is silent, and a profile that its operator refuses.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{ClusterId, Fingerprint, MachineId, UnixNanos};
use tracing::warn;

use super::Control;
use super::cooldown::Backoff;
use super::schedule::Timer;

const SILENT_LIMIT: u32 = 3;
const LONGEST_REFUSAL: Duration = Duration::from_secs(600);
/// How much of an operator's words is kept.
const REASON_CHARS: usize = 200;

#[derive(Debug, Default)]
struct Silence {
    in_a_row: u32,
    pause: Option<Backoff>,
}

/// A profile that an operator does not bootstrap, as far as is known.
#[derive(Debug)]
struct Refusal {
    pause: Backoff,
    reason: Arc<str>,
}

/// Pauses of blob fetching.
#[derive(Debug, Default)]
pub(super) struct Bootstraps {
    silent: BTreeMap<ClusterId, Silence>,
    refused: BTreeMap<(ClusterId, Fingerprint), Refusal>,
}

impl Bootstraps {
    /// The operator answered, one way or the other.
    pub(super) fn answered(&mut self, cluster: &ClusterId) {
        self.silent.remove(cluster);
    }

    fn silent(&mut self, cluster: &ClusterId, now: UnixNanos) -> Option<UnixNanos> {
        let silence = self.silent.entry(cluster.clone()).or_default();
        silence.in_a_row = silence.in_a_row.saturating_add(1);
        if silence.in_a_row < SILENT_LIMIT || silence.pause.is_some_and(|pause| pause.until > now) {
            return None;
        }
        let pause = Backoff::next(silence.pause, now, Duration::from_secs(5), Duration::from_secs(60));
        silence.pause = Some(pause);
        Some(pause.until)
    }

    fn refuse(
        &mut self,
        cluster: &ClusterId,
        fingerprint: Fingerprint,
        now: UnixNanos,
        reason: &str,
    ) -> UnixNanos {
        let key = (cluster.clone(), fingerprint);
        // What was refused long ago says little about how long to wait now.
        let before = self.refused.get(&key).map(|refusal| refusal.pause);
        let before = before.filter(|before| now.since(before.until) < LONGEST_REFUSAL);
        if let Some(before) = before.filter(|before| before.until > now) {
            return before.until;
        }
        let pause = Backoff::next(before, now, Duration::from_secs(60), LONGEST_REFUSAL);
        let reason = reason.chars().take(REASON_CHARS).collect::<String>().into();
        self.refused.insert(key, Refusal { pause, reason });
        pause.until
    }

    /// The demand of a cluster: refusals of profiles that it does not ask for any more are forgotten.
    pub(super) fn demanded<V>(&mut self, cluster: &ClusterId, asked: &BTreeMap<Fingerprint, V>) {
        if !self.refused.is_empty() {
            self.refused
                .retain(|(known, fingerprint), _| known != cluster || asked.contains_key(fingerprint));
        }
    }

    /// Whether any refusal is on record.
    pub(super) fn has_refusals(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Why the operator refused to bootstrap the profile when it was last asked. Known until it accepts.
    pub(super) fn refusal(&self, cluster: &ClusterId, fingerprint: Fingerprint) -> Option<&Arc<str>> {
        self.refused.get(&(cluster.clone(), fingerprint)).map(|refusal| &refusal.reason)
    }

    pub(super) fn accepted(&mut self, cluster: &ClusterId, fingerprint: Fingerprint) {
        self.refused.remove(&(cluster.clone(), fingerprint));
    }

    /// Whether the cluster's operator is being left alone.
    pub(super) fn is_paused(&self, cluster: &ClusterId, now: UnixNanos) -> bool {
        let pause = self.silent.get(cluster).and_then(|silence| silence.pause);
        pause.is_some_and(|pause| pause.until > now)
    }

    /// Whether the operator refused to bootstrap the profile a short while ago.
    pub(super) fn is_refused(&self, cluster: &ClusterId, fingerprint: Fingerprint, now: UnixNanos) -> bool {
        self.refused.get(&(cluster.clone(), fingerprint)).is_some_and(|refusal| refusal.pause.until > now)
    }
}

impl Control {
    /// No blob came: nobody is to blame but the wire.
    pub(super) fn lost_blob(&mut self, now: UnixNanos, id: &MachineId, detail: &str) {
        let cluster = self.fleet.get(id).and_then(|record| record.machine.cluster.clone());
        if self.fleet.flight_mut(id).is_some_and(|flight| flight.reissued) {
            self.start_watch(id, now, None);
        } else {
            self.abandon(now, id, "ctx_canceled", detail);
        }
        if let Some(cluster) = cluster
            && let Some(until) = self.bootstraps.silent(&cluster, now)
        {
            warn!(%cluster, "{SILENT_LIMIT} bootstrap requests in a row got no answer; pausing them");
            self.timers.set(until, Timer::Wake);
        }
    }

    /// The operator says that it cannot render a blob: the Need stays short, the machine is free.
    pub(super) fn refused_blob(&mut self, now: UnixNanos, id: &MachineId, message: &str) {
        let Some(flight) = self.fleet.flight_mut(id) else { return };
        if let Some((cluster, need, _)) = flight.work.as_ref().and_then(|work| work.target()) {
            let (cluster, fingerprint) = (cluster.clone(), need.profile.fingerprint());
            warn!(%cluster, profile = %fingerprint, "the operator cannot bootstrap this profile: {message}");
            let until = self.bootstraps.refuse(&cluster, fingerprint, now, message);
            self.timers.set(until, Timer::Wake);
        }
        if self.fleet.flight_mut(id).is_some_and(|flight| flight.reissued) {
            self.start_watch(id, now, None);
        } else {
            self.abandon(now, id, "blob_error", message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_back_off_decay_and_go_with_the_demand() {
        let at = |s: u64| UnixNanos(0).after(Duration::from_secs(s));
        let a = ClusterId::parse("a").unwrap();
        let profile = Fingerprint::parse("00112233445566778899aabbccddeeff").unwrap();
        let mut bootstraps = Bootstraps::default();
        assert_eq!(bootstraps.refuse(&a, profile, at(0), "no"), at(60));
        assert_eq!(bootstraps.refuse(&a, profile, at(1), "no"), at(60), "one burst counts once");
        assert_eq!(bootstraps.refuse(&a, profile, at(61), "no"), at(181));
        assert!(bootstraps.is_refused(&a, profile, at(180)) && !bootstraps.is_refused(&a, profile, at(181)));
        assert!(bootstraps.refusal(&a, profile).is_some(), "on record until it is accepted");
        assert_eq!(bootstraps.refuse(&a, profile, at(181 + 600), "no"), at(181 + 660), "long ago");
        let nothing = BTreeMap::<Fingerprint, ()>::new();
        bootstraps.demanded(&ClusterId::parse("b").unwrap(), &nothing);
        assert!(bootstraps.has_refusals());
        bootstraps.demanded(&a, &nothing);
        assert!(!bootstraps.has_refusals());
    }
}
