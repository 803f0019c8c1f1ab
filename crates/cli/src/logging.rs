//! Logs go to standard error, as text for people or JSON for machines; a program that draws on the terminal sends them
//! to a file instead.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;

use crate::config::{Flag, Kind, Values};

/// The flags of every program that runs for long.
pub(crate) const FLAGS: &[Flag] = &[
    Flag {
        name: "log-format",
        kind: Kind::Choice(&["text", "json"]),
        default: Some("text"),
        help: "How log lines look: text or json",
    },
    Flag {
        name: "log-level",
        kind: Kind::Choice(&["error", "warn", "info", "debug", "trace"]),
        default: Some("info"),
        help: "The least severe level that is logged",
    },
];

/// Where log lines go in place of standard error, once there is such a file.
static INSTEAD: OnceLock<File> = OnceLock::new();

fn sink() -> Box<dyn Write> {
    match INSTEAD.get() {
        Some(file) => Box::new(file),
        None => Box::new(io::stderr()),
    }
}

/// Appends log lines to this file from here on, for the rest of the process.
///
/// # Errors
/// The file cannot be opened; log lines go where they went before.
pub(crate) fn into_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    // A second call in one process (tests) keeps the first file.
    let _ = INSTEAD.set(file);
    Ok(())
}

/// Sends log lines to standard error from here on.
pub(crate) fn start(values: &Values) {
    let filter = tracing_subscriber::EnvFilter::new(values.text("log-level"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sink);
    // A second call in one process (tests) keeps the first subscriber.
    let _ = match values.text("log-format") {
        "json" => builder.json().try_init(),
        _ => builder.with_ansi(false).with_target(false).try_init(),
    };
}
