//! An append-only log in a folder of its own.
//!
//! `machines.log` holds all changes; `LOCK` keeps a second process out. An append is one write and one fsync, for
//! however many changes wait. When most of the log is history it is rewritten: a temporary file, fsync, rename,
//! fsync of the folder.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use super::disk::{Disk, Folder};
use super::frame::{self, End, HEADER};
use super::{Error, Store};
use crate::table::Change;

const LOG: &str = "machines.log";
const TEMPORARY: &str = "machines.log.new";
/// A log shorter than this is never rewritten, in bytes.
const COMPACT_FROM: u64 = 16 * 1024 * 1024;
/// The log is rewritten when it is this many times as long as after the last rewrite.
const COMPACT_FACTOR: u64 = 4;
/// Changes per frame in a rewritten log.
const SNAPSHOT_BATCH: usize = 1000;

/// How often a store waited for the disk. Clones share the count.
#[derive(Debug, Clone, Default)]
pub struct Fsyncs(Arc<AtomicU64>);

impl Fsyncs {
    /// Appends that reached the disk so far; rewriting is not counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// What opening a store cut from its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Bytes of a write that had not completed.
    pub bytes: u64,
    /// What was wrong with them.
    pub problem: String,
}

/// The durable store.
#[derive(Debug)]
pub struct FileStore {
    disk: Box<dyn Disk>,
    /// The folder, for texts.
    dir: PathBuf,
    /// Bytes of the log that are durable.
    len: u64,
    /// Bytes of the log after it was last rewritten or opened.
    base: u64,
    compact_from: u64,
    loaded: Vec<Change>,
    recovered: Option<Recovered>,
    fsyncs: Fsyncs,
    broken: Option<String>,
}

impl FileStore {
    /// Opens the store in `dir`, made if missing, and locks it until dropped. A write that a crash cut short is
    /// removed from the end and logged.
    ///
    /// # Errors
    /// When the folder is locked or cannot be used, or the log is damaged before its end. The log is then unchanged.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let dir = dir.into();
        let disk = Folder::lock(&dir)?;
        Self::open_on(Box::new(disk), dir)
    }

    /// As [`FileStore::open`], on a disk of one's own; `dir` is what error texts call it.
    ///
    /// # Errors
    /// As [`FileStore::open`].
    pub fn open_on(mut disk: Box<dyn Disk>, dir: PathBuf) -> Result<Self, Error> {
        let io = |what: &'static str, name: &str| {
            let path = dir.join(name);
            move |source| Error::Io { what, path, source }
        };
        disk.remove(TEMPORARY).map_err(io("remove", TEMPORARY))?;
        let bytes: Bytes = match disk.read(LOG).map_err(io("read", LOG))? {
            Some(bytes) => bytes.into(),
            None => {
                disk.write(TEMPORARY, HEADER).map_err(io("write", TEMPORARY))?;
                disk.sync(TEMPORARY).map_err(io("sync", TEMPORARY))?;
                disk.rename(TEMPORARY, LOG).map_err(io("put in place", LOG))?;
                Bytes::from_static(HEADER)
            }
        };
        // Also for a log that is there: its name may come from a process that was killed before it did this.
        disk.sync_names().map_err(io("sync", ""))?;
        if bytes.get(..HEADER.len()) != Some(HEADER) {
            let start = &bytes[..bytes.len().min(HEADER.len())];
            return Err(Error::Foreign {
                path: dir.join(LOG),
                problem: format!("it begins with {start:02x?}"),
            });
        }
        let read = frame::read(&bytes);
        let good = u64::try_from(read.good).unwrap_or(u64::MAX);
        let recovered = match read.end {
            End::Clean => None,
            End::Corrupt(problem) => {
                return Err(Error::Corrupt { path: dir.join(LOG), offset: good, problem });
            }
            End::Torn(problem) => {
                let cut = bytes.len() - read.good;
                let path = dir.join(LOG);
                tracing::warn!(path = %path.display(), bytes = cut, %problem, "cut an incomplete write from the end of the log");
                disk.cut(LOG, good).map_err(io("truncate", LOG))?;
                Some(Recovered { bytes: u64::try_from(cut).unwrap_or(u64::MAX), problem })
            }
        };
        // What was read may be in memory only, if the process before this one was killed in the middle: nobody may act on
        // what a crash of the machine could still take back.
        disk.sync(LOG).map_err(io("sync", LOG))?;
        Ok(Self {
            disk,
            dir,
            len: good,
            base: good,
            compact_from: COMPACT_FROM,
            loaded: read.changes,
            recovered,
            fsyncs: Fsyncs::default(),
            broken: None,
        })
    }

    /// Rewrites the log from this many bytes on (default 16 MiB), once it has grown fourfold.
    #[must_use]
    pub fn compact_from(mut self, bytes: u64) -> Self {
        self.compact_from = bytes;
        self
    }

    /// What opening cut away, if anything.
    #[must_use]
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// The count of waits for the disk.
    #[must_use]
    pub fn fsyncs(&self) -> Fsyncs {
        self.fsyncs.clone()
    }

    /// Bytes of the log.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether nothing was ever stored.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len <= HEADER.len() as u64
    }

    fn usable(&self) -> Result<(), Error> {
        match &self.broken {
            Some(reason) => Err(Error::Broken { reason: reason.clone() }),
            None => Ok(()),
        }
    }

    fn io(&self, what: &'static str, name: &str, source: io::Error) -> Error {
        Error::Io { what, path: self.dir.join(name), source }
    }

    fn frame<'a>(
        &self,
        what: &'static str,
        out: &mut Vec<u8>,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Result<(), Error> {
        frame::write(out, changes)
            .map_err(|problem| self.io(what, LOG, io::Error::new(io::ErrorKind::InvalidInput, problem)))
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        Ok(std::mem::take(&mut self.loaded))
    }

    fn append(&mut self, changes: &[Change]) -> Result<(), Error> {
        self.usable()?;
        let mut bytes = Vec::new();
        self.frame("encode changes for", &mut bytes, changes)?;
        if let Err(source) = self.disk.append(LOG, &bytes) {
            let error = self.io("append to", LOG, source);
            // The file may hold a part of it: cut it off, or give up for good.
            if let Err(undo) = self.disk.cut(LOG, self.len) {
                self.broken = Some(format!("{error}; and cutting it back failed: {undo}"));
            }
            return Err(error);
        }
        self.fsyncs.0.fetch_add(1, Ordering::SeqCst);
        if let Err(source) = self.disk.sync(LOG) {
            // The system may have dropped the pages: what the file holds now is not known before it is read again.
            let error = self.io("sync", LOG, source);
            self.broken = Some(error.to_string());
            return Err(error);
        }
        self.len += u64::try_from(bytes.len()).unwrap_or(0);
        Ok(())
    }

    fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    fn wants_compaction(&self) -> bool {
        self.broken.is_none() && self.len >= self.compact_from && self.len / COMPACT_FACTOR >= self.base
    }

    fn compact(&mut self, snapshot: &mut dyn Iterator<Item = Change>) -> Result<(), Error> {
        self.usable()?;
        // Whatever comes of it, do not try again before the log has grown once more.
        self.base = self.len;
        let mut bytes = HEADER.to_vec();
        let mut batch: Vec<Change> = Vec::with_capacity(SNAPSHOT_BATCH);
        loop {
            batch.clear();
            batch.extend(snapshot.take(SNAPSHOT_BATCH));
            if batch.is_empty() {
                break;
            }
            self.frame("encode a snapshot for", &mut bytes, &batch)?;
        }
        let before = self.len;
        self.disk.write(TEMPORARY, &bytes).map_err(|source| self.io("write", TEMPORARY, source))?;
        self.disk.sync(TEMPORARY).map_err(|source| self.io("sync", TEMPORARY, source))?;
        let placed = self.disk.rename(TEMPORARY, LOG).and_then(|()| self.disk.sync_names());
        if let Err(source) = placed {
            // Which of both files has the name is not known: nothing more may be appended.
            let error = self.io("put in place", LOG, source);
            self.broken = Some(error.to_string());
            return Err(error);
        }
        self.len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.base = self.len;
        tracing::info!(path = %self.dir.join(LOG).display(), before, after = self.len, "rewrote the log");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A real folder whose syncs fail once told to.
    #[derive(Debug)]
    struct NoSync(Folder, Arc<std::sync::atomic::AtomicBool>);

    impl Disk for NoSync {
        fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
            self.0.read(name)
        }
        fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
            self.0.write(name, bytes)
        }
        fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
            self.0.append(name, bytes)
        }
        fn cut(&mut self, name: &str, len: u64) -> io::Result<()> {
            self.0.cut(name, len)
        }
        fn sync(&mut self, name: &str) -> io::Result<()> {
            if self.1.load(Ordering::SeqCst) { Err(io::Error::other("no")) } else { self.0.sync(name) }
        }
        fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
            self.0.rename(from, to)
        }
        fn remove(&mut self, name: &str) -> io::Result<()> {
            self.0.remove(name)
        }
        fn sync_names(&mut self) -> io::Result<()> {
            self.0.sync_names()
        }
    }

    #[test]
    fn a_failed_sync_breaks_the_store_for_good() {
        let change = || Change { removed: "m".into(), revision: 1, ..Change::default() };
        let dir = tempfile::tempdir().unwrap();
        let fails = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let disk = NoSync(Folder::lock(dir.path()).unwrap(), Arc::clone(&fails));
        let mut store = FileStore::open_on(Box::new(disk), dir.path().to_owned()).unwrap();
        store.append(&[change()]).unwrap();
        assert_eq!(store.broken(), None);
        fails.store(true, Ordering::SeqCst);
        let error = store.append(&[change()]).unwrap_err();
        assert!(matches!(error, Error::Io { what: "sync", .. }), "{error}");
        assert!(store.broken().unwrap().contains("machines.log"), "{:?}", store.broken());
        assert!(matches!(store.append(&[change()]).unwrap_err(), Error::Broken { .. }));
    }
}
