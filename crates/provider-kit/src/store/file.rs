//! An append-only log in a directory of its own.
//!
//! `machines.log` holds all changes; `LOCK` keeps a second process out. An append is one write and one fsync, for
//! however many changes wait. When most of the log is history it is rewritten: a temporary file, fsync, rename,
//! fsync of the directory.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::frame::{self, End, HEADER};
use super::{Error, Store};
use crate::table::Change;

const LOG: &str = "machines.log";
const TEMPORARY: &str = "machines.log.new";
const LOCK: &str = "LOCK";
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
    dir: PathBuf,
    log: File,
    /// Bytes of the log that are durable.
    len: u64,
    /// Bytes of the log after it was last rewritten or opened.
    base: u64,
    compact_from: u64,
    loaded: Vec<Change>,
    recovered: Option<Recovered>,
    fsyncs: Fsyncs,
    broken: Option<String>,
    _lock: File,
}

impl FileStore {
    /// Opens the store in `dir`, made if missing, and locks it until dropped. A write that a crash cut short is
    /// removed from the end and logged.
    ///
    /// # Errors
    /// When the directory is locked or cannot be used, or the log is damaged before its end. The log is then
    /// unchanged.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self, Error> {
        let dir = dir.into();
        fs::create_dir_all(&dir).map_err(io("create", &dir))?;
        let lock = lock(&dir)?;
        let path = dir.join(LOG);
        remove_leftover(&dir.join(TEMPORARY))?;
        if !path.try_exists().map_err(io("look for", &path))? {
            stage(&dir, HEADER)?;
            put_in_place(&dir)?;
        }
        let mut log = open_log(&path)?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes).map_err(io("read", &path))?;
        if bytes.get(..HEADER.len()) != Some(HEADER) {
            let start = &bytes[..bytes.len().min(HEADER.len())];
            return Err(Error::Foreign { path, problem: format!("it begins with {start:02x?}") });
        }
        let read = frame::read(&bytes);
        let good = u64::try_from(read.good).unwrap_or(u64::MAX);
        let recovered = match read.end {
            End::Clean => None,
            End::Corrupt(problem) => return Err(Error::Corrupt { path, offset: good, problem }),
            End::Torn(problem) => {
                let cut = bytes.len() - read.good;
                tracing::warn!(path = %path.display(), bytes = cut, %problem, "cut an incomplete write from the end of the log");
                log.set_len(good).map_err(io("truncate", &path))?;
                log.sync_all().map_err(io("sync", &path))?;
                Some(Recovered { bytes: u64::try_from(cut).unwrap_or(u64::MAX), problem })
            }
        };
        log.seek(SeekFrom::Start(good)).map_err(io("seek in", &path))?;
        Ok(Self {
            dir,
            log,
            len: good,
            base: good,
            compact_from: COMPACT_FROM,
            loaded: read.changes,
            recovered,
            fsyncs: Fsyncs::default(),
            broken: None,
            _lock: lock,
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

    fn path(&self) -> PathBuf {
        self.dir.join(LOG)
    }

    /// After a failed write the file may hold part of it: cut it off, or give up for good.
    fn take_back(&mut self, error: Error) -> Error {
        let undone = self.log.set_len(self.len).and_then(|()| self.log.seek(SeekFrom::Start(self.len)));
        if let Err(undo) = undone {
            self.broken = Some(format!("{error}; and cutting it back failed: {undo}"));
        }
        error
    }
}

impl Store for FileStore {
    fn load(&mut self) -> Result<Vec<Change>, Error> {
        Ok(std::mem::take(&mut self.loaded))
    }

    fn append(&mut self, changes: &[Change]) -> Result<(), Error> {
        self.usable()?;
        let mut bytes = Vec::new();
        frame::write(&mut bytes, changes).map_err(|problem| Error::Io {
            what: "encode changes for",
            path: self.path(),
            source: std::io::Error::new(std::io::ErrorKind::InvalidInput, problem),
        })?;
        if let Err(source) = self.log.write_all(&bytes) {
            let path = self.path();
            return Err(self.take_back(Error::Io { what: "append to", path, source }));
        }
        self.fsyncs.0.fetch_add(1, Ordering::SeqCst);
        if let Err(source) = self.log.sync_data() {
            // The system may have dropped the pages: what the file holds now is not known before it is read again.
            let error = Error::Io { what: "sync", path: self.path(), source };
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
            frame::write(&mut bytes, &batch).map_err(|problem| Error::Io {
                what: "encode a snapshot for",
                path: self.path(),
                source: std::io::Error::new(std::io::ErrorKind::InvalidInput, problem),
            })?;
        }
        let before = self.len;
        stage(&self.dir, &bytes)?;
        let done = put_in_place(&self.dir).and_then(|()| {
            let path = self.path();
            let mut log = open_log(&path)?;
            log.seek(SeekFrom::End(0)).map_err(io("seek in", &path))?;
            Ok(log)
        });
        match done {
            Ok(log) => self.log = log,
            Err(error) => {
                // The rename may have happened, and the open file may be the old one: nothing more may be appended.
                self.broken = Some(error.to_string());
                return Err(error);
            }
        }
        self.len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.base = self.len;
        tracing::info!(path = %self.path().display(), before, after = self.len, "rewrote the log");
        Ok(())
    }
}

fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Io { what, path, source }
}

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join(LOCK);
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).open(&path).map_err(io("open", &path))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { path: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(Error::Io { what: "lock", path, source }),
    }
}

fn remove_leftover(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io("remove", path)(e)),
        _ => Ok(()),
    }
}

fn open_log(path: &Path) -> Result<File, Error> {
    OpenOptions::new().read(true).write(true).open(path).map_err(io("open", path))
}

/// Writes what is to become the log beside it.
fn stage(dir: &Path, bytes: &[u8]) -> Result<(), Error> {
    let new = dir.join(TEMPORARY);
    let mut file = private(&new)?;
    file.write_all(bytes).map_err(io("write", &new))?;
    file.sync_all().map_err(io("sync", &new))
}

/// Puts what was staged in the place of the log, whole or not at all.
fn put_in_place(dir: &Path) -> Result<(), Error> {
    let path = dir.join(LOG);
    fs::rename(dir.join(TEMPORARY), &path).map_err(io("put in place", &path))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(io("sync", dir))
}

/// Made for its owner only: `shard_metadata` is nobody else's business.
fn private(path: &Path) -> Result<File, Error> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut options = OpenOptions::new();
    options.create(true).write(true).truncate(true).mode(0o600);
    options.open(path).map_err(io("create", path))
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn change() -> Change {
        Change { removed: "m".into(), revision: 1, ..Change::default() }
    }

    #[test]
    fn a_failed_sync_breaks_the_store_for_good() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::open(dir.path()).unwrap();
        store.append(&[change()]).unwrap();
        assert_eq!(store.broken(), None);
        // A pipe takes writes and has nothing to sync.
        let (_reader, writer) = std::io::pipe().unwrap();
        store.log = File::from(OwnedFd::from(writer));
        let error = store.append(&[change()]).unwrap_err();
        assert!(matches!(error, Error::Io { what: "sync", .. }), "{error}");
        assert!(store.broken().unwrap().contains("machines.log"), "{:?}", store.broken());
        assert!(matches!(store.append(&[change()]).unwrap_err(), Error::Broken { .. }));
    }
}
