//! The task that owns the core.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::Clock;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{ClusterShell, Note};
use crate::core::{Core, Counters};
use crate::io::{Input, Output, Write, WriteError, WriteId};
use crate::session;

/// How many inputs one round takes before outputs are carried out.
const BATCH: usize = 512;
/// The longest sleep: a clock of tests may jump while this task sleeps.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

pub(super) struct Runner<S> {
    core: Core,
    session: session::Handle,
    /// The session that the core knows to be up; 0 for none.
    session_number: u64,
    shell: Arc<S>,
    clock: Arc<dyn Clock>,
    counters: watch::Sender<Counters>,
    acknowledgements: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    done: mpsc::UnboundedSender<(WriteId, Result<(), WriteError>)>,
    answers: mpsc::UnboundedReceiver<(WriteId, Result<(), WriteError>)>,
}

impl<S: ClusterShell> Runner<S> {
    pub(super) fn new(
        core: Core,
        session: session::Handle,
        shell: Arc<S>,
        clock: Arc<dyn Clock>,
        counters: watch::Sender<Counters>,
    ) -> Self {
        // As many answers as writes under way, which the core bounds.
        let (done, answers) = mpsc::unbounded_channel();
        Self {
            core,
            session,
            session_number: 0,
            shell,
            clock,
            counters,
            acknowledgements: Arc::new(Semaphore::new(1)),
            writes: Arc::new(Semaphore::new(1)),
            done,
            answers,
        }
    }

    pub(super) fn with_concurrency(mut self, acknowledgements: usize, writes: usize) -> Self {
        let semaphore = |permits: usize| Arc::new(Semaphore::new(permits.clamp(1, Semaphore::MAX_PERMITS)));
        self.acknowledgements = semaphore(acknowledgements);
        self.writes = semaphore(writes);
        self
    }

    pub(super) async fn run(mut self, mut events: mpsc::Receiver<session::Event>, stop: CancellationToken) {
        for input in self.shell.first_inputs() {
            self.core.handle(self.clock.now(), input);
        }
        let mut inputs = self.shell.inputs();
        loop {
            let now = self.clock.now();
            let sleep = match self.core.next_wake(now) {
                Some(wake) => wake.since(now).min(LONGEST_SLEEP),
                None => LONGEST_SLEEP,
            };
            tokio::select! {
                input = inputs.recv() => match input {
                    Some(input) => self.core.handle(self.clock.now(), input),
                    None => {
                        tracing::error!("the cluster's watch has ended, so the operator ends");
                        stop.cancel();
                        return;
                    }
                },
                event = events.recv() => match event {
                    Some(event) => self.on_event(event),
                    None => return,
                },
                Some((write, result)) = self.answers.recv() => {
                    self.core.handle(self.clock.now(), Input::Done { write, result });
                }
                () = tokio::time::sleep(sleep) => {}
                () = stop.cancelled() => return,
            }
            self.take_what_waits(&mut inputs, &mut events);
            let began = Instant::now();
            let build = self.core.poll_rollup(self.clock.now()).then(|| began.elapsed());
            self.core.poll(self.clock.now());
            let enqueue = self.carry_out();
            if let Some(build) = build {
                self.shell.rollup_took(build, enqueue);
            }
            let counters = self.core.counters().clone();
            let unchanged = counters.upcoming_unchanged;
            let before = self.counters.send_replace(counters).upcoming_unchanged;
            if unchanged > before {
                self.shell.upcoming_unchanged(unchanged - before);
            }
        }
    }

    fn take_what_waits(
        &mut self,
        inputs: &mut mpsc::Receiver<Input>,
        events: &mut mpsc::Receiver<session::Event>,
    ) {
        for _ in 0..BATCH {
            let mut any = false;
            if let Ok(event) = events.try_recv() {
                self.on_event(event);
                any = true;
            }
            if let Ok(input) = inputs.try_recv() {
                self.core.handle(self.clock.now(), input);
                any = true;
            }
            if let Ok((write, result)) = self.answers.try_recv() {
                self.core.handle(self.clock.now(), Input::Done { write, result });
                any = true;
            }
            if !any {
                return;
            }
        }
    }

    fn on_event(&mut self, event: session::Event) {
        // What the core has put out so far belongs to the session before.
        if matches!(event.input, Input::Connected | Input::Disconnected) {
            self.carry_out();
        }
        match event.input {
            Input::Connected => self.session_number = event.session,
            Input::Disconnected => self.session_number = 0,
            _ => {}
        }
        self.core.handle(self.clock.now(), event.input);
    }

    /// Gives how long the queueing of roll-ups took.
    fn carry_out(&mut self) -> Duration {
        let mut queueing = Duration::ZERO;
        for output in self.core.drain_outputs() {
            match output {
                Output::Rollup(needs) => {
                    let began = Instant::now();
                    self.queued(self.session.rollup(self.session_number, *needs));
                    queueing += began.elapsed();
                }
                Output::Send(frame) => self.queued(self.session.send(self.session_number, *frame)),
                Output::Write { id, write } => self.write(id, write),
                Output::WatchPods { node } => self.shell.watch_pods(&node),
                Output::UnwatchPods { node } => self.shell.unwatch_pods(&node),
                Output::Event { about, warning, reason, message } => {
                    self.shell.note(Note { about, warning, reason, message });
                }
                Output::DropSession { reason } => self.session.drop_session(self.session_number, &reason),
            }
        }
        queueing
    }

    /// The session counts what it refuses, and the core does not wait for any of it.
    fn queued(&self, result: Result<(), session::QueueError>) {
        match result {
            Ok(()) => {}
            Err(error @ session::QueueError::Over(_)) => tracing::debug!("{error}"),
            Err(error) => tracing::warn!(session = self.session_number, "{error}"),
        }
    }

    /// Acknowledgements have permits of their own: thousands of them must not hold up a cordon.
    fn write(&self, id: WriteId, write: Write) {
        let pool = match write {
            Write::AcknowledgeRequest { .. } => &self.acknowledgements,
            _ => &self.writes,
        };
        let (pool, shell, done) = (Arc::clone(pool), Arc::clone(&self.shell), self.done.clone());
        tokio::spawn(async move {
            let result = match pool.acquire().await {
                Ok(_permit) => shell.write(write).await,
                Err(_) => Err(WriteError::Other("the operator has stopped".to_owned())),
            };
            // Nobody waits for the answer once the core is gone.
            let _ = done.send((id, result));
        });
    }
}
