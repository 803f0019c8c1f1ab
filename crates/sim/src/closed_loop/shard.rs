//! The production shard: its control core, fed and carried out by hand, one cycle at a time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bigfleet_engine::{Decisions, Engine};
use bigfleet_shard::control::Control;
use bigfleet_shard::io::{Input, Output, Published, SessionId};
use bigfleet_shard::metrics::Metrics;
use bigfleet_shard::step::operator_answers;
use bigfleet_types::chance::{Seeded, shuffle};
use bigfleet_types::{ClusterId, Need, UnixNanos};
use prometheus_client::registry::Registry;

use super::knobs::Knobs;
use super::provider::Provider;

/// A shard, and operators that always deliver.
pub(super) struct Shard {
    pub(super) core: Control,
    sessions: BTreeMap<ClusterId, SessionId>,
    order: Seeded,
    pub(super) published: Option<Arc<Published>>,
}

impl Shard {
    pub(super) fn new(knobs: &Knobs) -> Self {
        let metrics = Metrics::register(&mut Registry::default());
        Self {
            core: Control::new(knobs.config(), Box::new(Seeded::new(knobs.seed)), metrics),
            sessions: BTreeMap::new(),
            order: Seeded::new(knobs.order),
            published: None,
        }
    }

    pub(super) fn connect(&mut self, now: UnixNanos, cluster: &ClusterId) {
        let session = SessionId(u64::try_from(self.sessions.len()).unwrap_or(u64::MAX) + 1);
        self.sessions.insert(cluster.clone(), session);
        self.core.handle(now, Input::SessionOpened { session, cluster: cluster.clone() });
    }

    pub(super) fn rollup(&mut self, now: UnixNanos, cluster: &ClusterId, rows: Vec<Need>) {
        if let Some(session) = self.sessions.get(cluster) {
            let rows = Ok(rows.into());
            self.core.handle(now, Input::Rollup { session: *session, timestamp_unix_nanos: now.0, rows });
        }
    }

    /// Lets the core do what is due, and carries it out until it wants nothing more at this time. What it asks for at
    /// the same time is answered in random order.
    pub(super) fn settle(&mut self, now: UnixNanos, provider: &mut Provider) {
        loop {
            self.core.poll(now);
            let mut outputs: Vec<Output> = self.core.drain_outputs().collect();
            if outputs.is_empty() {
                return;
            }
            shuffle(&mut outputs, &mut self.order);
            for output in outputs {
                if let Some(input) = self.answer(output, provider) {
                    self.core.handle(now, input);
                }
            }
        }
    }

    /// What an engine decides that knows nothing but what is true now.
    pub(super) fn decide_anew(&mut self, now: UnixNanos) -> Decisions {
        let mut engine = Engine::new(self.core.config().policy.clone());
        let mut events = self.core.told(now);
        shuffle(&mut events, &mut self.order);
        events.into_iter().for_each(|event| engine.apply(event));
        engine.decide(now)
    }

    fn answer(&mut self, output: Output, provider: &mut Provider) -> Option<Input> {
        match output {
            Output::List { call, known } => {
                let mut records = provider.list();
                shuffle(&mut records, &mut self.order);
                Some(Input::listed(call, known, Ok(records)))
            }
            Output::Get { call, machine } => Some(Input::Got { call, result: provider.get(&machine) }),
            Output::Mutate { call, machine, mutation } => {
                Some(Input::Acked { call, result: provider.mutate(&machine, &mutation) })
            }
            Output::Send { session, message, .. } => operator_answers(session, &message),
            Output::Publish(published) => {
                self.published = Some(published);
                None
            }
            Output::AuditDecision(audit) => {
                Some(Input::DecisionAudited { cycle: audit.cycle, result: Ok(audit.check()) })
            }
            Output::Close { .. } | Output::Audit(_) | Output::CheckEpoch => None,
        }
    }
}
