//! When an operator does not deliver blobs: a cluster that is silent, and a profile that its operator refuses.

use std::collections::BTreeMap;
use std::time::Duration;

use bigfleet_types::{ClusterId, Fingerprint, MachineId, UnixNanos};
use tracing::warn;

use super::Control;
use super::cooldown::Backoff;
use super::schedule::Timer;

const SILENT_LIMIT: u32 = 3;

#[derive(Debug, Default)]
struct Silence {
    in_a_row: u32,
    pause: Option<Backoff>,
}

/// Pauses of blob fetching.
#[derive(Debug, Default)]
pub(super) struct Bootstraps {
    silent: BTreeMap<ClusterId, Silence>,
    refused: BTreeMap<(ClusterId, Fingerprint), Backoff>,
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

    fn refuse(&mut self, cluster: &ClusterId, fingerprint: Fingerprint, now: UnixNanos) -> UnixNanos {
        let key = (cluster.clone(), fingerprint);
        let before = self.refused.get(&key).copied();
        if let Some(before) = before.filter(|before| before.until > now) {
            return before.until;
        }
        let pause = Backoff::next(before, now, Duration::from_secs(60), Duration::from_secs(600));
        self.refused.insert(key, pause);
        pause.until
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
        self.refused.get(&(cluster.clone(), fingerprint)).is_some_and(|pause| pause.until > now)
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
            let until = self.bootstraps.refuse(&cluster, fingerprint, now);
            self.timers.set(until, Timer::Wake);
        }
        if self.fleet.flight_mut(id).is_some_and(|flight| flight.reissued) {
            self.start_watch(id, now, None);
        } else {
            self.abandon(now, id, "blob_error", message);
        }
    }
}
