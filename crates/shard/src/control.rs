//! The control core: reconcile, execution, sessions and the decision cycle of one shard, without any I/O.
//!
//! Feed it with [`Control::handle`], call [`Control::poll`] after each batch of inputs and at [`Control::next_wake`],
//! and carry out what [`Control::drain_outputs`] gives. Equal calls give equal outputs.
//!
//! Inside, every change of a machine goes through `notify`, so that engine, operators, gauges and watchdog can never
//! disagree; and a machine is in transition exactly as long as it has a `flight` that somebody will end.

mod audits;
mod board;
mod bootstraps;
mod breaker;
mod config;
mod cooldown;
mod cycle;
mod demand;
mod endings;
mod execute;
mod flight;
mod guard;
mod hints;
mod inventory;
mod laps;
mod ledger;
mod notes;
mod notify;
mod observe;
mod open;
mod outcome;
mod rails;
mod reconcile;
mod record;
mod schedule;
mod sessions;
mod shapes;
mod stock;
mod tally;
mod watch;
mod watchdog;

use std::collections::VecDeque;
use std::time::Duration;

use bigfleet_engine::Engine;
use bigfleet_types::chance::Chance;
use bigfleet_types::{Machine, MachineId, MachineState, NeedKey, UnixNanos};

pub use board::WorkKey;
pub use config::{Config, StuckAfter};
pub use ledger::{Deficit, ProfileDeficit};

use crate::io::{Input, Output};
use crate::metrics::Metrics;
use schedule::{Call, Timer};

/// Reads a monotonic clock, for measurements only.
pub type Stopwatch = Box<dyn Fn() -> Duration + Send>;

/// The control core of one shard.
pub struct Control {
    config: Config,
    metrics: Metrics,
    chance: Box<dyn Chance>,
    stopwatch: Option<Stopwatch>,
    engine: Engine,
    fleet: inventory::Inventory,
    shapes: shapes::Shapes,
    cool: cooldown::CoolDowns,
    lists: reconcile::Lists,
    calls: schedule::Calls,
    gets: schedule::Gets,
    timers: schedule::Timers,
    sessions: sessions::Sessions,
    demand: demand::Demand,
    bootstraps: bootstraps::Bootstraps,
    board: board::Board,
    breaker: breaker::Breaker,
    fence: breaker::Fence,
    rails: rails::Rails,
    audits: audits::Audits,
    /// Of the last decision.
    open: open::Open,
    ledger: ledger::Ledger,
    hints: hints::Hints,
    seldom: schedule::Seldom,
    outputs: VecDeque<Output>,
    /// What the last cycle handed to the workers.
    posted: Vec<WorkKey>,
    cycle: u64,
    last_cycle: Option<UnixNanos>,
    /// When the engine has something to say without a change.
    deadline: Option<UnixNanos>,
    /// Something changed that a cycle should look at.
    dirty: bool,
    reconcile_time: Duration,
    pause_file: bool,
    stopping: bool,
}

impl Control {
    /// A core that knows nothing yet. `chance` makes the ids of requests to operators: it must not be guessable.
    #[must_use]
    pub fn new(config: Config, chance: Box<dyn Chance>, metrics: Metrics) -> Self {
        metrics.epoch.set(config.epoch);
        metrics.begin_at_zero();
        Self {
            engine: Engine::new(config.policy.clone()),
            config,
            metrics,
            chance,
            stopwatch: None,
            fleet: inventory::Inventory::default(),
            shapes: shapes::Shapes::default(),
            cool: cooldown::CoolDowns::default(),
            lists: reconcile::Lists::default(),
            calls: schedule::Calls::default(),
            gets: schedule::Gets::default(),
            timers: schedule::Timers::default(),
            sessions: sessions::Sessions::default(),
            demand: demand::Demand::default(),
            bootstraps: bootstraps::Bootstraps::default(),
            board: board::Board::default(),
            breaker: breaker::Breaker::default(),
            fence: breaker::Fence::default(),
            rails: rails::Rails::default(),
            audits: audits::Audits::default(),
            open: open::Open::default(),
            ledger: ledger::Ledger::default(),
            hints: hints::Hints::default(),
            seldom: schedule::Seldom::default(),
            outputs: VecDeque::new(),
            posted: Vec::new(),
            cycle: 0,
            last_cycle: None,
            deadline: None,
            dirty: false,
            reconcile_time: Duration::ZERO,
            pause_file: false,
            stopping: false,
        }
    }

    /// Measures cycles and their phases with this clock. Without it these histograms stay empty.
    #[must_use]
    pub fn measured_by(mut self, stopwatch: Stopwatch) -> Self {
        self.stopwatch = Some(stopwatch);
        self
    }

    /// Takes in what happened. Time never goes back.
    pub fn handle(&mut self, now: UnixNanos, input: Input) {
        match input {
            Input::Listed { call, known, result } => {
                if let Some(Call::List { generation }) = self.calls.close(call) {
                    self.timed(|core| core.listed(now, generation, known, result));
                }
            }
            Input::Got { call, result } => match self.calls.close(call) {
                Some(Call::Watch(id)) => self.timed(|core| core.watched(now, call, &id, result)),
                Some(Call::Recheck { id, generation }) => {
                    self.timed(|core| core.rechecked(now, &id, generation, result));
                }
                _ => {}
            },
            Input::Acked { call, result } => {
                if let Some(Call::Mutate(id)) = self.calls.close(call) {
                    self.acked(now, call, &id, result);
                }
            }
            Input::SessionOpened { session, cluster } => self.session_opened(now, session, &cluster),
            Input::HelloAgain { session } => self.hello_again(session),
            Input::SessionClosed { session } => self.session_closed(now, session),
            Input::Rollup { session, timestamp_unix_nanos, rows } => {
                self.rollup(now, session, timestamp_unix_nanos, rows);
            }
            Input::Blob { session, request_id, answer } => self.blob(now, session, &request_id, answer),
            Input::ReclaimAcked { session, instruction_id } => {
                self.reclaim_acked(now, session, &instruction_id);
            }
            Input::DecisionAudited { cycle, result } => self.decision_audited(cycle, result),
            Input::Paused(paused) => {
                let before = self.is_paused();
                self.pause_file = paused;
                if self.is_paused() {
                    self.board.clear();
                    self.abandon_waiting(now, "paused");
                }
                self.dirty |= before != self.is_paused();
            }
            Input::Stopping => {
                self.stopping = true;
                self.board.clear();
                self.abandon_waiting(now, "stopping");
            }
        }
    }

    /// Does what is due at `now`: timers, and at most one decision cycle.
    pub fn poll(&mut self, now: UnixNanos) {
        self.run_timers(now);
        if self.cycle_due().is_some_and(|at| at <= now) {
            self.run_cycle(now);
        }
        self.work(now);
    }

    /// Timers and the List, without a cycle.
    pub(crate) fn run_timers(&mut self, now: UnixNanos) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Stage(id) => self.stage_timed_out(now, &id),
                Timer::Cool(id) => self.rested(now, &id),
                Timer::Watchdog(id) => self.look_after(now, &id),
                Timer::Stock => self.rejudge(now, |record| record.state() == MachineState::Speculative),
                Timer::Wake => self.dirty = true,
            }
        }
        self.ask_for_list(now);
    }

    /// Lets free workers begin and sends the Gets that are due.
    pub(crate) fn work(&mut self, now: UnixNanos) {
        self.fill(now);
        self.send_gets(now);
    }

    /// When [`Control::poll`] has something to do if nothing else happens; may lie in the past.
    #[must_use]
    pub fn next_wake(&self, _now: UnixNanos) -> Option<UnixNanos> {
        if self.stopping {
            return None;
        }
        [self.timers.first(), self.lists.at, self.gets.next(), self.cycle_due()].into_iter().flatten().min()
    }

    /// Takes what is to be done, in order.
    pub fn drain_outputs(&mut self) -> impl Iterator<Item = Output> + '_ {
        self.outputs.drain(..)
    }

    /// Whether the first List has been applied. Never goes back.
    #[must_use]
    pub fn ready(&self) -> bool {
        self.lists.last.is_some()
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether actuation is paused, by flag or by file.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.config.actuation_paused || self.pause_file
    }

    /// How many cycles have run.
    #[must_use]
    pub fn cycle(&self) -> u64 {
        self.cycle
    }

    /// What the last cycle handed to the workers, in the engine's order.
    #[must_use]
    pub fn posted(&self) -> &[WorkKey] {
        &self.posted
    }

    /// One machine as the core knows it.
    #[must_use]
    pub fn machine(&self, id: &MachineId) -> Option<&Machine> {
        self.fleet.get(id).map(|record| &*record.machine)
    }

    /// All machines as the core knows them, by id.
    pub fn machines(&self) -> impl Iterator<Item = &Machine> {
        let mut machines: Vec<&Machine> = self.fleet.iter().map(|(_, record)| &*record.machine).collect();
        machines.sort_unstable_by(|a, b| a.id.cmp(&b.id));
        machines.into_iter()
    }

    /// The machines that a worker or a watch owns now, by id.
    pub fn in_flight(&self) -> impl Iterator<Item = &MachineId> {
        self.fleet.in_flight().map(|(id, _)| id)
    }

    /// How many questions to operators wait for an answer: bootstrap requests and reclaim instructions.
    #[must_use]
    pub fn questions(&self) -> usize {
        self.sessions.requests.len() + self.sessions.instructions.len()
    }

    /// The deficits that last, by key.
    pub fn shortfalls(&self) -> impl Iterator<Item = (&NeedKey, &Deficit)> {
        self.ledger.shortfalls()
    }

    /// The deficits that last by profile, as they are reported: by priority, then age, the greatest first; at most 100.
    #[must_use]
    pub fn reported_shortfalls(&self) -> Vec<ProfileDeficit> {
        self.ledger.report()
    }

    /// The metrics that this core feeds.
    #[must_use]
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }
}
