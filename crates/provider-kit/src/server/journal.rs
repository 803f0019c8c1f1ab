//! The writer thread: takes planned changes, makes all that wait durable with one append, applies them in order,
//! and tells their planners.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bigfleet_net::log_limit::LogLimit;
use tokio::sync::{oneshot, watch};

use crate::store::{Error, Store};
use crate::table::{Change, Table};

/// Changes in one append at most.
const BATCH: usize = 4096;

/// Why a change was not made. The text is the store's.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct NotStored(Arc<str>);

impl NotStored {
    fn new(reason: impl std::fmt::Display) -> Self {
        Self(reason.to_string().into())
    }
}

struct Entry {
    change: Change,
    done: oneshot::Sender<Result<(), NotStored>>,
}

/// The table and the thread that writes it.
#[derive(Debug)]
pub(super) struct Journal {
    table: Arc<Mutex<Table>>,
    sender: Mutex<Option<Sender<Entry>>>,
    waiting: Arc<AtomicUsize>,
    broken: watch::Receiver<Option<Arc<str>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A planned change on its way to the disk; awaiting it tells whether it arrived.
#[must_use = "a change is not made before it is durable"]
pub(super) struct Durable(Option<oneshot::Receiver<Result<(), NotStored>>>);

impl Durable {
    /// Waits until the change is durable and applied; at once when there was none.
    ///
    /// # Errors
    /// The store refused it: nothing has changed.
    pub(super) async fn wait(self) -> Result<(), NotStored> {
        match self.0 {
            None => Ok(()),
            Some(done) => done.await.unwrap_or_else(|_| Err(NotStored::new("the store's thread has ended"))),
        }
    }
}

impl Journal {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub(super) fn start(table: Table, store: Box<dyn Store>) -> std::io::Result<Self> {
        let table = Arc::new(Mutex::new(table));
        let waiting = Arc::new(AtomicUsize::new(0));
        let (sender, entries) = channel();
        let (breaks, broken) = watch::channel(None);
        let writer = Writer {
            table: Arc::clone(&table),
            store,
            entries,
            waiting: Arc::clone(&waiting),
            breaks,
            said: LogLimit::default(),
        };
        let thread = std::thread::Builder::new().name("provider-store".into()).spawn(move || writer.run())?;
        let (sender, thread) = (Mutex::new(Some(sender)), Mutex::new(Some(thread)));
        Ok(Self { table, sender, waiting, broken, thread })
    }

    /// Plans one change and queues it. The caller holds the gate of the machine that it concerns until the change
    /// is durable.
    pub(super) fn plan<R>(&self, plan: impl FnOnce(&mut Table) -> (R, Option<Change>)) -> (R, Durable) {
        // The lock is held over the queueing: changes must be queued in the order in which they were planned.
        let mut table = self.read();
        let (result, change) = plan(&mut table);
        let durable = Durable(change.map(|change| self.queue(change)));
        drop(table);
        (result, durable)
    }

    fn queue(&self, change: Change) -> oneshot::Receiver<Result<(), NotStored>> {
        let (done, receiver) = oneshot::channel();
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = sender.as_ref() {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            // When the thread is gone the entry is dropped with its sender, which tells the receiver.
            let _ = sender.send(Entry { change, done });
        }
        receiver
    }

    /// The table as readers may see it.
    pub(super) fn read(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes that are planned but not durable.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::SeqCst)
    }

    /// Becomes why, once the store will never take a change again.
    pub(super) fn broken(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.broken.clone()
    }

    /// Takes no more changes, writes those that wait, and closes the store.
    pub(super) async fn close(&self) {
        drop(self.sender.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            match tokio::task::spawn_blocking(move || thread.join()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => tracing::error!("the store's thread panicked"),
                Err(error) => tracing::error!(%error, "cannot wait for the store's thread"),
            }
        }
    }
}

struct Writer {
    table: Arc<Mutex<Table>>,
    store: Box<dyn Store>,
    entries: Receiver<Entry>,
    waiting: Arc<AtomicUsize>,
    breaks: watch::Sender<Option<Arc<str>>>,
    said: LogLimit,
}

impl Writer {
    fn run(mut self) {
        while let Ok(first) = self.entries.recv() {
            let mut batch = vec![first];
            batch.extend(self.entries.try_iter().take(BATCH - 1));
            self.write(batch);
            if self.store.wants_compaction() {
                self.compact();
            }
        }
    }

    fn write(&mut self, batch: Vec<Entry>) {
        let count = batch.len();
        let (changes, planners): (Vec<Change>, Vec<_>) =
            batch.into_iter().map(|e| (e.change, e.done)).unzip();
        let stored = self.store.append(&changes).map_err(|error: Error| {
            if let Some(unsaid) = self.said.pass() {
                tracing::error!(%error, changes = count, unsaid, "changes could not be stored and are refused");
            }
            NotStored::new(error)
        });
        self.look_for_breaks();
        let results: Vec<Result<(), NotStored>> = match stored {
            Err(error) => changes.iter().map(|_| Err(error.clone())).collect(),
            Ok(()) => {
                let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
                changes.into_iter().map(|change| table.apply(change).map_err(NotStored::new)).collect()
            }
        };
        self.waiting.fetch_sub(count, Ordering::SeqCst);
        for (planner, result) in planners.into_iter().zip(results) {
            // A planner that went away has no use for the answer.
            let _ = planner.send(result);
        }
    }

    fn compact(&mut self) {
        // Everything applied is durable and everything durable is applied: this thread does both. Taken whole, so that
        // nobody who reads the table waits for the disk.
        let snapshot: Vec<Change> = {
            let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            table.snapshot().collect()
        };
        if let Err(error) = self.store.compact(&mut snapshot.into_iter()) {
            tracing::error!(%error, "the store could not be rewritten");
        }
        self.look_for_breaks();
    }

    fn look_for_breaks(&self) {
        if let Some(reason) = self.store.broken() {
            self.breaks.send_if_modified(|known| {
                let new = known.is_none();
                if new {
                    tracing::error!(
                        reason,
                        "the store takes no change any more; restart the provider once the cause is removed"
                    );
                    *known = Some(reason.into());
                }
                new
            });
        }
    }
}
