//! The audit log: one JSON object a line for what became of each action, appended to a file by a thread of its own.
//!
//! Writing never holds anybody up: when the disk is slower than the decisions, or refuses, records are lost and
//! counted.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use bigfleet_net::log_limit::LogLimit;
use bigfleet_types::{ShardId, UnixNanos};
use prometheus_client::metrics::counter::Counter;
use serde::Serialize;

use crate::io::AuditRecord;

/// Records that may wait for the disk.
const QUEUE: usize = 8192;
/// Pause between two log lines about a disk that refuses.
const COMPLAINT_PAUSE: Duration = Duration::from_secs(60);

/// The file cannot be opened for appending.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot open the audit log {} for appending: {source}; the shard does not start without the log that --audit-log \
     asks for",
    path.display()
)]
pub struct OpenError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// An open audit log. Dropping it without [`Audit::close`] lets the thread finish what waits.
#[derive(Debug)]
pub struct Audit {
    queue: SyncSender<Message>,
    lost: Counter,
    writer: JoinHandle<()>,
}

/// A way to have the file opened anew, after it was moved aside.
#[derive(Debug, Clone)]
pub struct Reopen(SyncSender<Message>);

#[derive(Debug)]
enum Message {
    Record(UnixNanos, Box<AuditRecord>),
    Reopen,
    Close,
}

/// A line: what the shard adds to the record, in the order in which people read it.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    level: &'static str,
    msg: &'static str,
    #[serde(flatten)]
    record: &'a AuditRecord,
    shard: &'a str,
    epoch: i64,
}

impl Audit {
    /// Opens `path` for appending, made with mode 0644 if it is not there, and starts the thread that writes.
    /// Records that cannot be written are counted in `lost`.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path, shard: &ShardId, epoch: i64, lost: Counter) -> Result<Self, OpenError> {
        let failed = |source| OpenError { path: path.to_owned(), source };
        let file = append(path).map_err(failed)?;
        let (queue, messages) = sync_channel(QUEUE);
        let writer = Writer {
            path: path.to_owned(),
            file: Some(BufWriter::new(file)),
            unflushed: 0,
            shard: shard.clone(),
            epoch,
            lost: lost.clone(),
            complaints: LogLimit::every(COMPLAINT_PAUSE),
        };
        let writer = std::thread::Builder::new()
            .name("audit".into())
            .spawn(move || writer.run(&messages))
            .map_err(failed)?;
        Ok(Self { queue, lost, writer })
    }

    /// Hands a record to the thread; never waits.
    pub fn record(&self, time: UnixNanos, record: Box<AuditRecord>) {
        if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
            self.queue.try_send(Message::Record(time, record))
        {
            self.lost.inc();
        }
    }

    /// A handle that has the file opened anew.
    #[must_use]
    pub fn reopener(&self) -> Reopen {
        Reopen(self.queue.clone())
    }

    /// Writes what waits and ends the thread. Waits for the disk.
    pub fn close(self) {
        // The thread only ends on this message or by a panic, which the join reports.
        let _ = self.queue.send(Message::Close);
        if self.writer.join().is_err() {
            tracing::error!("the audit log's thread panicked; records may be missing");
        }
    }
}

impl Reopen {
    /// Has the file opened anew, after the records that wait already. Whether it was asked; not when the queue is
    /// full or the log is closed.
    #[must_use]
    pub fn reopen(&self) -> bool {
        self.0.try_send(Message::Reopen).is_ok()
    }
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o644).open(path)
}

struct Writer {
    path: PathBuf,
    /// `None` after a failed reopening: every record tries again.
    file: Option<BufWriter<File>>,
    /// Records handed to the buffer since it last reached the file.
    unflushed: u64,
    shard: ShardId,
    epoch: i64,
    lost: Counter,
    complaints: LogLimit,
}

impl Writer {
    fn run(mut self, messages: &Receiver<Message>) {
        loop {
            // Flush only when nothing more waits: one system call for a burst.
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => break,
                Err(TryRecvError::Empty) => {
                    self.flush();
                    match messages.recv() {
                        Ok(message) => message,
                        Err(_) => break,
                    }
                }
            };
            match message {
                Message::Record(time, record) => self.write(time, &record),
                Message::Reopen => {
                    self.flush();
                    self.file = None;
                    self.open();
                }
                Message::Close => break,
            }
        }
        self.flush();
    }

    fn open(&mut self) {
        if self.file.is_none() {
            match append(&self.path) {
                Ok(file) => self.file = Some(BufWriter::new(file)),
                Err(error) => self.complain(&error),
            }
        }
    }

    fn write(&mut self, time: UnixNanos, record: &AuditRecord) {
        self.open();
        let line = Line {
            time: jiff::Timestamp::from_nanosecond(i128::from(time.0)).unwrap_or_default().to_string(),
            level: "INFO",
            msg: "action",
            record,
            shard: self.shard.as_str(),
            epoch: self.epoch,
        };
        let Some(file) = &mut self.file else {
            self.lost.inc();
            return;
        };
        self.unflushed += 1;
        let written = serde_json::to_writer(&mut *file, &line).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| file.write_all(b"\n")) {
            self.fail(&error);
        }
    }

    fn flush(&mut self) {
        match self.file.as_mut().map(Write::flush) {
            Some(Err(error)) => self.fail(&error),
            _ => self.unflushed = 0,
        }
    }

    /// Drops the buffer with all that it holds; the next record opens the file again.
    fn fail(&mut self, error: &io::Error) {
        self.lost.inc_by(std::mem::take(&mut self.unflushed));
        if let Some(file) = self.file.take() {
            // Taking the buffer apart keeps its drop from trying the write once more.
            let _ = file.into_parts();
        }
        self.complain(error);
    }

    fn complain(&mut self, error: &io::Error) {
        if let Some(suppressed) = self.complaints.pass() {
            let path = self.path.display();
            tracing::error!(%path, %error, suppressed, "cannot write the audit log; records are lost and counted");
        }
    }
}
