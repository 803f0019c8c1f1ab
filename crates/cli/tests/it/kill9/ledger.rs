//! What the provider's List showed over time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bigfleet_proto::v1alpha1::{Machine, MachineState};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::demand::{Demand, Workload};
use crate::peers::machines;

/// How often the provider is looked at.
const LOOK: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
struct Book {
    /// Machines that were bought for the workload that only grows.
    bought: BTreeSet<String>,
    /// What must never happen to them, did.
    wrongs: BTreeSet<String>,
    /// Whether there ever were more of them than pods.
    beyond: bool,
    /// Whether ever more contested machines were taken than are wanted urgently.
    taken_beyond: bool,
    latest: BTreeMap<&'static str, usize>,
}

/// Looks at the provider whenever it answers.
pub(super) struct Ledger {
    book: Arc<Mutex<Book>>,
    _stop: DropGuard,
}

impl Ledger {
    pub(super) fn start(provider: SocketAddr, demand: Demand) -> Self {
        let (book, stop) = (Arc::new(Mutex::new(Book::default())), CancellationToken::new());
        let writer = Arc::clone(&book);
        tokio::spawn(stop.clone().run_until_cancelled_owned(async move {
            loop {
                if let Some(machines) = machines(provider).await {
                    // Read after the List: this demand only grows, so that a purchase beyond it was one too many.
                    let mut book = writer.lock().unwrap();
                    book.note(&machines, demand.total(Workload::Growing));
                    book.note_contested(&machines, demand.total(Workload::Urgent));
                }
                tokio::time::sleep(LOOK).await;
            }
        }));
        Self { book, _stop: stop.drop_guard() }
    }

    /// Machines ever bought for the workload that only grows.
    pub(super) fn bought(&self) -> BTreeSet<String> {
        self.book.lock().unwrap().bought.clone()
    }

    /// What went wrong with them.
    pub(super) fn wrongs(&self) -> BTreeSet<String> {
        self.book.lock().unwrap().wrongs.clone()
    }

    /// Machines by state, as last seen.
    pub(super) fn latest(&self) -> String {
        format!("{:?}", self.book.lock().unwrap().latest)
    }
}

impl Book {
    fn note(&mut self, machines: &[Machine], wanted: u32) {
        self.latest.clear();
        let mut useful = Vec::new();
        for machine in machines {
            let state = machine.state();
            *self.latest.entry(state.as_str_name().trim_start_matches("MACHINE_STATE_")).or_default() += 1;
            if machine.instance_type != Workload::Growing.instance_type()
                || state == MachineState::Speculative
            {
                continue;
            }
            self.bought.insert(machine.id.clone());
            if state != MachineState::Failed {
                useful.push(format!("{} {}", machine.id, state.as_str_name()));
            }
            if matches!(state, MachineState::Draining | MachineState::Deleting) {
                self.wrongs.insert(format!("{} was {}", machine.id, state.as_str_name()));
            }
        }
        if u32::try_from(useful.len()).unwrap() > wanted && !self.beyond {
            // Once: the machine stays, and so would the complaint.
            self.beyond = true;
            self.wrongs.insert(format!("{} machines were there for {wanted} pods: {useful:?}", useful.len()));
        }
    }

    /// Machines that drain for whom they are wanted urgently, or serve it already: never more than it wants, or one was
    /// preempted twice over. And what serves it is not taken away again.
    fn note_contested(&mut self, machines: &[Machine], wanted: u32) {
        let mut taken = Vec::new();
        for machine in machines.iter().filter(|m| m.instance_type == Workload::Urgent.instance_type()) {
            let (state, urgent) =
                (machine.state(), Some(machine.cluster.as_str()) == Workload::Urgent.home());
            if urgent && state == MachineState::Draining {
                self.wrongs.insert(format!("{} was taken from whom it had been freed for", machine.id));
            }
            let serves = matches!(state, MachineState::Configuring | MachineState::Configured);
            if state == MachineState::Draining || (urgent && serves) {
                taken.push(format!("{} {} for {}", machine.id, state.as_str_name(), machine.cluster));
            }
        }
        if u32::try_from(taken.len()).unwrap() > wanted && !self.taken_beyond {
            self.taken_beyond = true;
            self.wrongs.insert(format!("{} machines were taken for {wanted} pods: {taken:?}", taken.len()));
        }
    }
}
