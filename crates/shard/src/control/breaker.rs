//! When to stop sending calls that change machines: a provider that does not answer, and a provider that takes us
//! for a zombie.

use std::collections::BTreeSet;
use std::time::Duration;

use bigfleet_types::{MachineId, UnixNanos};

use super::config::FENCED_LATCH;
use super::cooldown::Backoff;

const LIMIT: u32 = 5;
const FIRST: Duration = Duration::from_secs(5);
const LAST: Duration = Duration::from_secs(60);

/// Opens after five calls in a row without an answer; one probe closes it.
#[derive(Debug, Default)]
pub(crate) struct Breaker {
    silent: u32,
    open: Option<Backoff>,
    probe: Option<MachineId>,
}

impl Breaker {
    /// Whether calls are held back, but for one probe.
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// When a probe may go.
    pub(crate) fn until(&self) -> Option<UnixNanos> {
        self.open.map(|backoff| backoff.until)
    }

    /// Whether the one probe of an open breaker is under way.
    pub(crate) fn is_probing(&self) -> bool {
        self.open.is_some() && self.probe.is_some()
    }

    /// Whether an action on this machine may begin or go on.
    pub(crate) fn allows(&self, id: &MachineId, now: UnixNanos) -> bool {
        match (&self.open, &self.probe) {
            (None, _) => true,
            (Some(_), Some(probe)) => probe == id,
            (Some(backoff), None) => backoff.until <= now,
        }
    }

    /// An action begins: if the breaker is open, it is the probe.
    pub(crate) fn begins(&mut self, id: &MachineId) {
        if self.open.is_some() {
            self.probe = Some(id.clone());
        }
    }

    /// The action ended, whether or not it came to a call.
    pub(crate) fn ends(&mut self, id: &MachineId) {
        if self.probe.as_ref() == Some(id) {
            self.probe = None;
        }
    }

    /// The provider answered. Gives whether this closed the breaker.
    pub(crate) fn answered(&mut self) -> bool {
        self.silent = 0;
        self.probe = None;
        self.open.take().is_some()
    }

    /// The provider did not answer. Gives when it may be probed, if the breaker opened now.
    pub(crate) fn silent(&mut self, id: &MachineId, now: UnixNanos) -> Option<UnixNanos> {
        self.silent = self.silent.saturating_add(1);
        let is_probe = self.probe.as_ref() == Some(id);
        if is_probe || (self.open.is_none() && self.silent >= LIMIT) {
            return Some(self.trip(now));
        }
        None
    }

    /// Opens at once. Gives when it may be probed.
    pub(crate) fn trip(&mut self, now: UnixNanos) -> UnixNanos {
        let backoff = Backoff::next(self.open, now, FIRST, LAST);
        self.open = Some(backoff);
        self.probe = None;
        backoff.until
    }
}

/// Counts distinct machines that fenced us with no accepted call in between.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    machines: BTreeSet<MachineId>,
    latched: bool,
}

impl Fence {
    /// Whether we take ourselves for the zombie: nothing is sent until a restart.
    pub(crate) fn is_latched(&self) -> bool {
        self.latched
    }

    /// A call was accepted.
    pub(crate) fn accepted(&mut self) {
        self.machines.clear();
    }

    /// A machine fenced us. Gives whether that latched.
    pub(crate) fn fenced(&mut self, id: &MachineId) -> bool {
        self.machines.insert(id.clone());
        let latches = !self.latched && self.machines.len() >= FENCED_LATCH;
        self.latched |= latches;
        latches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_probes_and_doubles() {
        let at = |s: u64| UnixNanos(0).after(Duration::from_secs(s));
        let id = |n: u32| MachineId::trusted(format!("m{n}"));
        let mut breaker = Breaker::default();
        assert!((0..4).all(|n| breaker.silent(&id(n), at(0)).is_none()));
        assert!(!breaker.answered());
        assert!((0..4).all(|n| breaker.silent(&id(n), at(0)).is_none()));
        assert_eq!(breaker.silent(&id(4), at(0)), Some(at(5)));
        assert!(!breaker.allows(&id(9), at(4)));
        // Calls that were on their way when it opened do not make it worse.
        assert_eq!(breaker.silent(&id(5), at(1)), None);
        assert!(breaker.allows(&id(9), at(5)));
        breaker.begins(&id(9));
        assert!(breaker.allows(&id(9), at(5)) && !breaker.allows(&id(8), at(5)));
        assert_eq!(breaker.silent(&id(9), at(6)), Some(at(16)));
        breaker.begins(&id(8));
        breaker.ends(&id(8));
        assert!(breaker.allows(&id(7), at(16)));
        assert!(breaker.answered());
        assert!(breaker.allows(&id(1), at(16)) && !breaker.is_open());
    }
}
