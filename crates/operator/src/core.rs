//! The operator's core: a plain value. Inputs and time go in, outputs come out; it reads no clock and does no I/O.
//!
//! A shell calls [`Core::handle`] for what happens, [`Core::poll`] when [`Core::next_wake`] says so (and after a batch
//! of inputs), and carries out [`Core::drain_outputs`] in order.

mod counters;

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{ClusterId, UnixNanos};

pub use counters::Counters;

use crate::io::{Input, Output, Render};

/// How the core behaves; [`Config::new`] has the defaults.
#[derive(Debug, Clone)]
pub struct Config {
    /// The cluster that it speaks for.
    pub cluster: ClusterId,
    /// The period of roll-ups.
    pub rollup_interval: Duration,
    /// Whether growing demand is sent ahead of the period.
    pub rollup_on_increase: bool,
    /// The largest roll-up that is sent, in encoded bytes.
    pub max_rollup_bytes: usize,
    /// Parallel writes that acknowledge requests.
    pub ack_concurrency: usize,
    /// Whether pods that outlive a drain are deleted.
    pub force_delete_at_deadline: bool,
    /// Whether the Node object of a machine that left is deleted.
    pub delete_node_on_release: bool,
    /// Seeds the jitter of retries.
    pub seed: u64,
}

impl Config {
    /// The defaults, for one cluster.
    #[must_use]
    pub fn new(cluster: ClusterId) -> Self {
        Self {
            cluster,
            rollup_interval: Duration::from_secs(10),
            rollup_on_increase: true,
            max_rollup_bytes: 64 << 20,
            ack_concurrency: 16,
            force_delete_at_deadline: false,
            delete_node_on_release: false,
            seed: 0,
        }
    }
}

/// The core.
pub struct Core {
    config: Config,
    render: Arc<dyn Render>,
    counters: Counters,
    outputs: Vec<Output>,
}

impl Core {
    /// A core that knows nothing yet and is not connected.
    #[must_use]
    pub fn new(config: Config, render: Arc<dyn Render>) -> Self {
        Self { config, render, counters: Counters::default(), outputs: Vec::new() }
    }

    /// Takes one input. What needs no waiting is answered at once, the rest by the next [`Core::poll`].
    pub fn handle(&mut self, now: UnixNanos, input: Input) {
        let _ = (now, input, &self.config, &self.render);
    }

    /// Does what is due.
    pub fn poll(&mut self, now: UnixNanos) {
        let _ = now;
    }

    /// When [`Core::poll`] has something to do next; `None` when only an input can change that. Not later than `now`
    /// when something is due.
    #[must_use]
    pub fn next_wake(&self, now: UnixNanos) -> Option<UnixNanos> {
        let _ = now;
        None
    }

    /// What is to be done, in order.
    pub fn drain_outputs(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.outputs)
    }

    /// What has been counted so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
