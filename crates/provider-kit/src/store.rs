//! Where a provider's table survives a restart.

mod disk;
mod file;
mod frame;
mod memory;

use std::path::PathBuf;

use crate::table::Change;

pub use disk::Disk;
pub use file::{FileStore, Fsyncs, Recovered};
pub use memory::MemStore;

/// Why a store cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another process uses the directory.
    #[error(
        "data directory {path} is in use by another process; stop it first, or give this one a directory of its own"
    )]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The file system said no.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file does not hold what was written.
    #[error(
        "{path} is damaged at byte {offset} ({problem}), and whole records follow; nothing was changed. Restore the file from a backup, or move it away and start anew: machines are then described again, but bindings, fencing marks and operation ids are lost"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        problem: String,
    },
    /// The file is of another kind or version.
    #[error(
        "{path} is no provider store of a version that this program reads ({problem}); nothing was changed"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        problem: String,
    },
    /// An earlier failure left the store in doubt.
    #[error(
        "the store stopped after an earlier failure ({reason}); restart the provider once the cause is removed"
    )]
    Broken {
        /// The earlier failure.
        reason: String,
    },
}

/// Durable memory of a provider. Used from one thread.
pub trait Store: Send + 'static {
    /// Everything stored so far, oldest first. Called once, before anything else.
    ///
    /// # Errors
    /// When the stored state cannot be trusted; the provider does not start then.
    fn load(&mut self) -> Result<Vec<Change>, Error>;

    /// Makes changes durable, all or none of them. A success means that they survive a crash of the machine.
    ///
    /// # Errors
    /// When they do not; the caller acts as if they had never been asked for.
    fn append(&mut self, changes: &[Change]) -> Result<(), Error>;

    /// Why no change will ever be taken again; `None` while the next may be.
    fn broken(&self) -> Option<&str> {
        None
    }

    /// Whether the store would gain from being rewritten.
    fn wants_compaction(&self) -> bool {
        false
    }

    /// Replaces everything stored so far by an equivalent that is shorter.
    ///
    /// # Errors
    /// When that failed; the old content is still in force.
    fn compact(&mut self, snapshot: &mut dyn Iterator<Item = Change>) -> Result<(), Error> {
        let _ = snapshot;
        Ok(())
    }
}
