//! The control core: reconcile, execution, sessions and the decision cycle of one shard, without any I/O.
//!
//! Feed it with [`Control::handle`], call [`Control::poll`] after each batch of inputs and at [`Control::next_wake`],
//! and carry out what [`Control::drain_outputs`] gives. Equal calls give equal outputs.

mod config;

use std::collections::VecDeque;

use bigfleet_types::UnixNanos;
use bigfleet_types::chance::Chance;

pub use config::{Config, StuckAfter};

use crate::io::{CallId, Input, Output};
use crate::metrics::Metrics;

/// The control core of one shard.
pub struct Control {
    config: Config,
    metrics: Metrics,
    chance: Box<dyn Chance>,
    outputs: VecDeque<Output>,
    next_call: u64,
    listed: bool,
    next_list: Option<UnixNanos>,
}

impl Control {
    /// A core that knows nothing yet. `chance` makes the ids of requests to operators: it must not be guessable.
    #[must_use]
    pub fn new(config: Config, chance: Box<dyn Chance>, metrics: Metrics) -> Self {
        Self {
            config,
            metrics,
            chance,
            outputs: VecDeque::new(),
            next_call: 1,
            listed: false,
            next_list: Some(UnixNanos(i64::MIN)),
        }
    }

    /// Takes in what happened. Time never goes back.
    pub fn handle(&mut self, now: UnixNanos, input: Input) {
        if let Input::Listed { result, .. } = input {
            self.listed |= result.is_ok();
            self.next_list = Some(now.after(self.config.cycle_interval));
        }
    }

    /// Does what is due at `now`: timers, and at most one decision cycle.
    pub fn poll(&mut self, now: UnixNanos) {
        if self.next_list.is_some_and(|at| at <= now) {
            self.next_list = None;
            let call = CallId(self.next_call);
            self.next_call += 1;
            self.outputs.push_back(Output::List { call });
        }
    }

    /// When [`Control::poll`] has something to do if nothing else happens; may lie in the past.
    #[must_use]
    pub fn next_wake(&self, _now: UnixNanos) -> Option<UnixNanos> {
        self.next_list
    }

    /// Takes what is to be done, in order.
    pub fn drain_outputs(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Whether the first List has been applied. Never goes back.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.listed
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}
