//! The shard's audit log as the demo reads it: what became of each action, and why it was decided.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Deserialize;

/// One action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Entry {
    /// When it ended, RFC 3339.
    pub(crate) time: String,
    pub(crate) kind: String,
    pub(crate) machine: String,
    /// The destination, or for a Reclaim the source; empty for none.
    pub(crate) cluster: String,
    /// The tag of the engine's phase.
    pub(crate) reason: String,
    /// The grace of a drain; 0 for other actions.
    pub(crate) grace_seconds: u64,
    pub(crate) outcome: String,
    pub(crate) detail: String,
}

impl Entry {
    /// The reason in words.
    pub(crate) fn why(&self) -> &str {
        match self.reason.as_str() {
            "phase1.idle" => "a Need lacks it; the cheapest Idle machine that fits",
            "phase1.speculative" => "a Need lacks it and nothing Idle fits; the cheapest that can be bought",
            "phase2.inversion" => "a more important Need waits",
            "phase3.excess" => "no Need of its cluster claims it any more",
            "phase3.release" => "nobody wanted it while it was held",
            other => other,
        }
    }

    /// The hour, minute and second of its end.
    pub(crate) fn clock(&self) -> &str {
        self.time.get(11..19).unwrap_or(&self.time)
    }

    /// `Bootstrap onprem-3 for cluster-a`.
    pub(crate) fn headline(&self) -> String {
        let Self { kind, machine, cluster, .. } = self;
        match (kind.as_str(), cluster.as_str()) {
            (_, "") => format!("{kind} {machine}"),
            ("Reclaim" | "Preempt", _) => format!("{kind} {machine} from {cluster}"),
            _ => format!("{kind} {machine} for {cluster}"),
        }
    }
}

/// A reader that follows the growing file.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    at: u64,
}

impl Tail {
    /// Reads from the byte `at` on.
    pub(crate) fn new(path: &Path, at: u64) -> Self {
        Self { path: path.to_owned(), at }
    }

    /// The whole lines that came since the last call.
    ///
    /// # Errors
    /// When the file cannot be read or a line is no record of an action.
    pub(crate) fn read(&mut self) -> anyhow::Result<Vec<Entry>> {
        let context = || format!("reading the audit log {}", self.path.display());
        let mut file = File::open(&self.path).with_context(context)?;
        file.seek(SeekFrom::Start(self.at)).with_context(context)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).with_context(context)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines = bytes[..whole].split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let entries = lines.map(serde_json::from_slice).collect::<Result<_, _>>().with_context(context)?;
        self.at += u64::try_from(whole)?;
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    const LINE: &str = r#"{"time":"2026-01-02T03:04:05.6Z","level":"INFO","msg":"action","cycle":7,"decided_cycle":7,"kind":"Reclaim","machine":"m-1","cluster":"a","reason":"phase3.excess","grace_seconds":600,"outcome":"success","detail":"","operation_id":"op-1","shard":"shard-0","epoch":1}"#;

    #[test]
    fn a_tail_gives_each_whole_line_once() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::new(file.path(), 0);
        assert!(tail.read().unwrap().is_empty());
        let (first, rest) = LINE.split_at(40);
        file.write_all(first.as_bytes()).unwrap();
        assert!(tail.read().unwrap().is_empty());
        writeln!(file, "{rest}").unwrap();
        let entries = tail.read().unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].headline(), "Reclaim m-1 from a");
        assert_eq!((entries[0].clock(), entries[0].outcome.as_str()), ("03:04:05", "success"));
        assert!(tail.read().unwrap().is_empty());
        writeln!(file, "nonsense").unwrap();
        assert!(tail.read().unwrap_err().to_string().contains("audit log"));
    }
}
