//! What readers are told beside the engine's verdicts: decided machines that are not coming, and why.
//!
//! The engine decides as if everything that it hands out happened. Where it does not, a verdict alone would make people
//! wait for machines that nobody has asked for.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_engine::{ActionKind, Decisions, Shortfall, Verdict};
use bigfleet_types::{ClusterId, NeedKey, Resources, UnixNanos};

use super::Control;
use crate::io::Note;

/// Notes on the verdicts of one cycle.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// By the Need's key.
    pub(super) by_need: BTreeMap<NeedKey, Note>,
    /// Deficits that the engine does not know of.
    pub(super) shortfalls: Vec<Shortfall>,
}

impl Control {
    /// Looks at what of `decisions` will not happen. Call it before anything of them has begun.
    pub(super) fn notes(&self, now: UnixNanos, decisions: &Decisions) -> Notes {
        let mut notes = Notes::default();
        let halted = self.halted_by(now);
        let refused = self.refused_capacity(decisions);
        // Hardly ever is there a refusal, and only then does anybody look at all verdicts.
        let all = if refused.is_empty() { &[][..] } else { &decisions.verdicts[..] };
        for verdict in all.iter().filter(|verdict| refused.contains_key(&verdict.key)) {
            let reason = self.bootstraps.refusal(&verdict.key.cluster, verdict.key.fingerprint);
            let (Some(reason), Some(skipped)) = (reason, refused.get(&verdict.key)) else { continue };
            let missing = missing(verdict, skipped);
            notes.shortfalls.push(Shortfall {
                key: verdict.key.clone(),
                need: verdict.need.clone(),
                deficit: missing.clone(),
                preempted: false,
            });
            let cause = format!("the operator refuses to bootstrap it: {reason}").into();
            notes.by_need.insert(verdict.key.clone(), Note { cause, missing: Some(missing) });
        }
        let begins = self.open.iter().filter(|verdict| verdict.bootstraps > 0 || verdict.provisions > 0);
        for verdict in begins.filter(|verdict| !refused.contains_key(&verdict.key)) {
            if let Some(cause) = halted.or_else(|| self.kept_waiting_by(now, &verdict.key.cluster)) {
                let note = Note { cause: Arc::from(cause), missing: None };
                notes.by_need.insert(verdict.key.clone(), note);
            }
        }
        notes
    }

    /// Why nothing at all begins.
    fn halted_by(&self, now: UnixNanos) -> Option<&'static str> {
        if self.is_paused() {
            Some("paused")
        } else if self.config.dry_run {
            Some("dry run")
        } else if self.fence.is_latched() {
            Some("the provider takes this shard for an older one; it must be restarted")
        } else if self.breaker.is_open() && self.breaker.until().is_none_or(|until| until > now) {
            Some("the provider does not answer")
        } else {
            None
        }
    }

    /// Why no machine joins the cluster.
    fn kept_waiting_by(&self, now: UnixNanos, cluster: &ClusterId) -> Option<&'static str> {
        if self.config.local_bootstrap {
            None
        } else if self.sessions.of(cluster).is_none() {
            Some("no session of the cluster")
        } else if self.bootstraps.is_paused(cluster, now) {
            Some("the operator does not answer bootstrap requests")
        } else {
            None
        }
    }

    /// Capacity that the engine counts on for Needs whose operator refused to bootstrap them when it was last asked:
    /// chosen machines, and those on which it is being asked again.
    fn refused_capacity(&self, decisions: &Decisions) -> BTreeMap<NeedKey, Resources> {
        let mut refused: BTreeMap<NeedKey, Resources> = BTreeMap::new();
        if !self.bootstraps.has_refusals() {
            return refused;
        }
        let acquires = |kind| matches!(kind, ActionKind::Bootstrap | ActionKind::Provision);
        let chosen = decisions.actions.iter();
        let asked = self.fleet.in_flight().filter_map(|(_, flight)| Some(&flight.work.as_ref()?.action));
        for action in chosen.chain(asked).filter(|action| acquires(action.kind)) {
            let Some(key) = &action.need_key else { continue };
            let capacity = self.fleet.get(&action.machine).map(|record| record.machine.capacity());
            if let Some(capacity) = capacity
                && self.bootstraps.refusal(&key.cluster, key.fingerprint).is_some()
            {
                let sum = refused.entry(key.clone()).or_default();
                *sum = sum.add(capacity);
            }
        }
        refused
    }
}

/// What the skipped machines would have covered, on top of what is missing anyway.
fn missing(verdict: &Verdict, skipped: &Resources) -> Resources {
    let total = verdict.residual.add(skipped);
    let all = verdict.need.aggregate.iter();
    Resources::from_amounts(all.map(|(name, amount)| (name.clone(), amount.min(total.get(name.as_str())))))
}
