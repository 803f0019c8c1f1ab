//! What a store needs of a file system: few enough steps that a double can fail at each of them.

use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use super::Error;

const LOCK: &str = "LOCK";

/// Files in one folder. Bytes are durable after [`Disk::sync`] of their file, names after [`Disk::sync_names`].
pub trait Disk: Send + fmt::Debug {
    /// All bytes of a file; `None` when there is none of that name.
    ///
    /// # Errors
    /// What the system says, as for all of these.
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>>;
    /// Makes a file of these bytes, in place of what it held.
    ///
    /// # Errors
    /// The file may hold a part then.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Adds bytes at the end of a file.
    ///
    /// # Errors
    /// A part may have been added then.
    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Shortens a file to this many bytes.
    ///
    /// # Errors
    /// It is as long as it was then.
    fn cut(&mut self, name: &str, len: u64) -> io::Result<()>;
    /// Makes what a file holds durable.
    ///
    /// # Errors
    /// What is durable is not known then, and asking again would not tell.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// Gives a file another name, in place of whatever had that name: wholly or not at all.
    ///
    /// # Errors
    /// Which of both is not known then.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file; one that is not there is no error.
    ///
    /// # Errors
    /// It may still be there then.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// Makes the names durable.
    ///
    /// # Errors
    /// What is durable is not known then.
    fn sync_names(&mut self) -> io::Result<()>;
}

/// A real folder, locked while this lives.
#[derive(Debug)]
pub(super) struct Folder {
    dir: PathBuf,
    /// The file that was written last, kept open.
    open: Option<(String, File)>,
    _lock: File,
}

impl Folder {
    /// Makes the folder if it is missing, and locks it.
    pub(super) fn lock(dir: &Path) -> Result<Self, Error> {
        let io = |what: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| Error::Io { what, path, source }
        };
        if !dir.is_dir() {
            fs::create_dir_all(dir).map_err(io("create", dir))?;
            // A new folder is nowhere before its parent is durable too.
            let parent =
                dir.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(io("sync", parent))?;
        }
        let path = dir.join(LOCK);
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).open(&path).map_err(io("open", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { dir: dir.to_owned(), open: None, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Error::Locked { path: dir.to_owned() }),
            Err(TryLockError::Error(source)) => Err(Error::Io { what: "lock", path, source }),
        }
    }

    /// The file open for adding to its end.
    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let open = match self.open.take() {
            Some((kept, file)) if kept == name => (kept, file),
            _ => (name.to_owned(), OpenOptions::new().append(true).open(self.dir.join(name))?),
        };
        Ok(&mut self.open.insert(open).1)
    }
}

impl Disk for Folder {
    fn read(&mut self, name: &str) -> io::Result<Option<Vec<u8>>> {
        match fs::read(self.dir.join(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.open = None;
        // For its owner only: `shard_metadata` is nobody else's business.
        let mut options = OpenOptions::new();
        let mut file =
            options.create(true).write(true).truncate(true).mode(0o600).open(self.dir.join(name))?;
        file.write_all(bytes)
    }

    fn append(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.file(name)?.write_all(bytes)
    }

    fn cut(&mut self, name: &str, len: u64) -> io::Result<()> {
        self.file(name)?.set_len(len)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        // An open file keeps its bytes, not its name.
        self.open = None;
        fs::rename(self.dir.join(from), self.dir.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.open = None;
        match fs::remove_file(self.dir.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }
}
