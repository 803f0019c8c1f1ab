//! Waiting for what must come, and watching for what must not.

use std::time::{Duration, Instant};

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;

use super::Context;
use crate::check::{Check, broken, ensure};
use crate::record;

/// Whether machines rest in a state.
pub(crate) fn rest(state: S) -> bool {
    matches!(state, S::Speculative | S::Idle | S::Configured | S::Failed)
}

/// Whether machines only pass through a state.
pub(crate) fn transitional(state: S) -> bool {
    matches!(state, S::Creating | S::Configuring | S::Draining | S::Deleting)
}

impl Context {
    /// Waits until a machine is in `state`. Another FAILED than the one waited for ends the wait.
    pub(crate) async fn reach(&self, id: &str, state: S) -> Check<pb::Machine> {
        self.reach_within(id, state, self.settings.settle).await
    }

    /// As [`Context::reach`], with a limit of its own.
    pub(crate) async fn reach_within(&self, id: &str, state: S, limit: Duration) -> Check<pb::Machine> {
        let machine = self.wait(id, limit, |m| m.state() == state || m.state() == S::Failed).await?;
        if machine.state() == state {
            return Ok(machine);
        }
        let wanted = record::state(state.into());
        broken(format!("{id} must come to {wanted} within {limit:?}; it is {}", record::machine(&machine)))
    }

    /// Waits until a machine rests, wherever.
    pub(crate) async fn settled(&self, id: &str) -> Check<pb::Machine> {
        let limit = self.settings.settle;
        let machine = self.wait(id, limit, |m| rest(m.state())).await?;
        ensure(rest(machine.state()), || {
            format!("{id} must come to rest within {limit:?}; it is {}", record::machine(&machine))
        })?;
        Ok(machine)
    }

    async fn wait(
        &self,
        id: &str,
        limit: Duration,
        enough: impl Fn(&pb::Machine) -> bool,
    ) -> Check<pb::Machine> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(2);
        loop {
            let machine = self.machine(id).await?;
            if enough(&machine) || begun.elapsed() >= limit {
                return Ok(machine);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    /// Watches a machine for the window: it must stay in `state`.
    pub(crate) async fn stays(&self, id: &str, state: S) -> Check {
        self.watch(
            id,
            self.settings.window,
            |m| m.state() == state,
            &format!("stay {}", record::state(state.into())),
        )
        .await
    }

    /// Watches a machine for a while: each look must pass `fine`.
    pub(crate) async fn watch(
        &self,
        id: &str,
        span: Duration,
        fine: impl Fn(&pb::Machine) -> bool,
        must: &str,
    ) -> Check {
        let begun = Instant::now();
        loop {
            let machine = self.machine(id).await?;
            ensure(fine(&machine), || format!("{id} must {must}; it is {}", record::machine(&machine)))?;
            if begun.elapsed() >= span {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Looks at a machine as often as possible until it is in `target`; gives what was seen, equal states once.
    pub(crate) async fn trace(&self, id: &str, target: S) -> Check<Vec<pb::Machine>> {
        let begun = Instant::now();
        let mut seen: Vec<pb::Machine> = Vec::new();
        loop {
            let machine = self.machine(id).await?;
            let state = machine.state();
            if seen.last().is_none_or(|last| last.state() != state) {
                seen.push(machine);
            }
            if state == target {
                return Ok(seen);
            }
            let late = begun.elapsed() >= self.settings.settle;
            if late || state == S::Failed {
                let states: Vec<_> = seen.iter().map(record::machine).collect();
                return broken(format!(
                    "{id} must come to {}; it was seen as {}",
                    record::state(target.into()),
                    states.join(", then ")
                ));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
