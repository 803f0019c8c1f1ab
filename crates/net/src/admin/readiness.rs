//! Whether a component is ready, shared between the part that knows and the probe that asks.

use std::borrow::Cow;

use tokio::sync::watch;

/// Why a component is not ready yet; `None` once it is. Clones share one state.
#[derive(Debug, Clone)]
pub struct Readiness {
    state: watch::Sender<Option<Cow<'static, str>>>,
    latched: bool,
}

impl Readiness {
    /// Not ready for `reason`; once ready, it stays ready.
    pub fn latched(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { state: watch::Sender::new(Some(reason.into())), latched: true }
    }

    /// Not ready for `reason`; it may come and go.
    pub fn settable(reason: impl Into<Cow<'static, str>>) -> Self {
        Self { latched: false, ..Self::latched(reason) }
    }

    /// Says that the component is ready.
    pub fn set_ready(&self) {
        self.state.send_if_modified(|state| state.take().is_some());
    }

    /// Says why the component is not ready. Without effect on a latched one that has been ready.
    pub fn set_unready(&self, reason: impl Into<Cow<'static, str>>) {
        self.state.send_if_modified(|state| {
            let changes = !(self.latched && state.is_none());
            if changes {
                *state = Some(reason.into());
            }
            changes
        });
    }

    /// Whether the component is ready.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.borrow().is_none()
    }

    /// Why it is not ready, `None` when it is.
    #[must_use]
    pub fn reason(&self) -> Option<Cow<'static, str>> {
        self.state.borrow().clone()
    }

    /// Returns once the component is ready.
    pub async fn wait_ready(&self) {
        // The sender is part of `self`, so the channel cannot close while this waits.
        let _ = self.state.subscribe().wait_for(Option::is_none).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn latched_stays_ready_and_settable_does_not() {
        let (latch, flag) = (Readiness::latched("first pass"), Readiness::settable("no leader"));
        for r in [&latch, &flag] {
            r.set_unready("still starting");
            assert_eq!(r.reason().as_deref(), Some("still starting"));
            r.clone().set_ready();
            assert!(r.is_ready());
            r.wait_ready().await;
            r.set_unready("lost it");
        }
        assert_eq!(latch.reason(), None);
        assert_eq!(flag.reason().as_deref(), Some("lost it"));
    }
}
