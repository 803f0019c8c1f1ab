//! What the process logs, for tests that assert on it.

use std::io::Write;
use std::sync::{Arc, Mutex, OnceLock};

static LINES: OnceLock<Arc<Mutex<Vec<u8>>>> = OnceLock::new();

struct Sink(Arc<Mutex<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// From now on all that the process logs is kept.
pub(crate) fn keep() {
    LINES.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = lines.clone();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(tracing::Level::INFO)
            .with_writer(move || Sink(kept.clone()))
            .init();
        lines
    });
}

/// The lines so far that hold every one of `parts`.
pub(crate) fn with(parts: &[&str]) -> Vec<String> {
    let lines = LINES.get().expect("keep() first").lock().unwrap();
    let text = String::from_utf8_lossy(&lines);
    text.lines().filter(|line| parts.iter().all(|part| line.contains(part))).map(str::to_owned).collect()
}
