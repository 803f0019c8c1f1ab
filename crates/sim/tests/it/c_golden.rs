//! Traces that a person can review, compared byte for byte.

use std::path::Path;

use bigfleet_sim::closed_loop::ClosedLoop;

/// Compares a world's history with the committed trace; with `BIGFLEET_UPDATE_TRACES=1` it becomes the trace.
pub(crate) fn golden(name: &str, world: &ClosedLoop) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.jsonl"));
    let trace = world.history().trace(name);
    if std::env::var_os("BIGFLEET_UPDATE_TRACES").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, &trace).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_else(|error| {
        panic!("{}: {error}; BIGFLEET_UPDATE_TRACES=1 writes it", file.display());
    });
    assert_eq!(known, trace, "{} differs", file.display());
}
