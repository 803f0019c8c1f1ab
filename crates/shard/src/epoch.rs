//! The shard's epoch: the number that outranks every earlier process of this shard at the provider.
//!
//! `<data-dir>/epoch` holds the last one taken, in decimal. A start takes the larger of its successor and the Unix
//! time in milliseconds, so that even a shard that lost its directory outranks its predecessors. The directory is
//! locked through `<data-dir>/lock` for as long as the [`Epoch`] lives.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bigfleet_types::UnixNanos;

/// More than any decimal `i64` with blanks around it needs.
const MAX_FILE_BYTES: u64 = 64;
/// How much of a bad file a message shows.
const SHOWN_BYTES: usize = 32;

/// Why there is no epoch. The files are as they were before.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The data directory cannot be made, or nothing can be written in it.
    #[error(
        "cannot write {}: {source}; the shard does not start without a writable --data-dir, because it could not \
         tell itself from its predecessor",
        path.display()
    )]
    Unwritable {
        /// What was to be written.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process holds the directory.
    #[error(
        "another process uses the data directory {}; stop it, or give this shard a --data-dir and an --id of its own",
        dir.display()
    )]
    Locked {
        /// The directory.
        dir: PathBuf,
    },
    /// The epoch file is there and cannot be read.
    #[error(
        "cannot read the epoch file {}: {source}; the shard does not start, because guessing could revive a \
         superseded process; make the file readable",
        path.display()
    )]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The epoch file holds something else.
    #[error(
        "the epoch file {} holds {held}, which is {problem}; the shard does not start, because guessing could revive \
         a superseded process; restore the file, or delete it once no other process of this shard runs: the next \
         epoch is then taken from the clock",
        path.display()
    )]
    Garbage {
        /// The file.
        path: PathBuf,
        /// The beginning of its content, escaped.
        held: String,
        /// What is wrong with that.
        problem: &'static str,
    },
}

/// The epoch file no longer holds what this process wrote.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the epoch file {} holds {found} instead of this process's epoch {ours}: another process of this shard runs; \
     this one stops",
    path.display()
)]
pub struct Superseded {
    /// The file.
    pub path: PathBuf,
    /// What it holds.
    pub found: i64,
    /// What this process wrote.
    pub ours: i64,
}

/// An epoch taken by this process, with the lock of its data directory.
#[derive(Debug)]
pub struct Epoch {
    value: i64,
    path: PathBuf,
    _lock: File,
}

impl Epoch {
    /// Locks `dir`, made with mode 0755 if it is not there, takes the next epoch and writes it durably.
    ///
    /// # Errors
    /// Every variant of [`Error`].
    pub fn take(dir: &Path, now: UnixNanos) -> Result<Self, Error> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(dir)
            .map_err(|source| Error::Unwritable { path: dir.to_owned(), source })?;
        let lock = lock(dir)?;
        let path = dir.join("epoch");
        let clock_millis = now.0 / 1_000_000;
        let value = match read(&path)? {
            None => clock_millis.max(1),
            Some(i64::MAX) => {
                let problem = "the last possible epoch";
                return Err(Error::Garbage { path, held: i64::MAX.to_string(), problem });
            }
            Some(previous) => clock_millis.max(previous + 1),
        };
        write(dir, &path, value)?;
        Ok(Self { value, path, _lock: lock })
    }

    /// The epoch, above every one that this directory has seen; at least 1.
    #[must_use]
    pub fn value(&self) -> i64 {
        self.value
    }

    /// Whether the file still holds our epoch; blocks on the disk. A file that cannot be read says nothing about a
    /// successor and counts as ours, with the reason.
    ///
    /// # Errors
    /// The file holds another epoch.
    pub fn check(&self) -> Result<Option<Error>, Superseded> {
        match read(&self.path) {
            Ok(Some(found)) if found != self.value => {
                Err(Superseded { path: self.path.clone(), found, ours: self.value })
            }
            Ok(Some(_)) => Ok(None),
            Ok(None) => {
                let source = io::Error::new(io::ErrorKind::NotFound, "the file is gone");
                Ok(Some(Error::Unreadable { path: self.path.clone(), source }))
            }
            Err(error) => Ok(Some(error)),
        }
    }
}

fn lock(dir: &Path) -> Result<File, Error> {
    let path = dir.join("lock");
    let unwritable = |source| Error::Unwritable { path: path.clone(), source };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(unwritable)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::Locked { dir: dir.to_owned() }),
        Err(TryLockError::Error(source)) => Err(unwritable(source)),
    }
}

/// What the file holds; `None` when there is none.
fn read(path: &Path) -> Result<Option<i64>, Error> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)),
    }
    .map_err(|source| Error::Unreadable { path: path.to_owned(), source })?;
    parse(&bytes).map(Some).map_err(|problem| Error::Garbage {
        path: path.to_owned(),
        held: shown(&bytes),
        problem,
    })
}

fn parse(bytes: &[u8]) -> Result<i64, &'static str> {
    const NOT_A_NUMBER: &str = "not a decimal number";
    let text = std::str::from_utf8(bytes).map_err(|_| NOT_A_NUMBER)?.trim();
    if text.is_empty() {
        return Err("empty");
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.is_empty() {
        return Err(NOT_A_NUMBER);
    }
    if digits.len() < text.len() {
        return Err("negative");
    }
    text.parse().map_err(|_| "above the largest epoch")
}

fn shown(bytes: &[u8]) -> String {
    let head = &bytes[..bytes.len().min(SHOWN_BYTES)];
    let more = if bytes.len() > SHOWN_BYTES { " and more" } else { "" };
    format!("\"{}\"{more}", head.escape_ascii())
}

/// Replaces the file in one step that survives a power cut: before, the old epoch; after, the new one.
fn write(dir: &Path, path: &Path, value: i64) -> Result<(), Error> {
    let temporary = dir.join("epoch.new");
    let result = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            writeln!(file, "{value}")?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(dir)?.sync_all());
    result.map_err(|source| Error::Unwritable { path: path.to_owned(), source })
}
