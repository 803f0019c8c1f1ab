//! Traces that a person can review, compared byte for byte.

use std::path::Path;

use bigfleet_sim::closed_loop::ClosedLoop;

/// Set to 1, it rewrites the traces instead of comparing them; `cargo xtask traces` does.
const UPDATE: &str = "BIGFLEET_UPDATE_TRACES";

/// Compares a trace with the committed one, or makes it the committed one.
pub(crate) fn compare(path: &Path, trace: &str) {
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, trace).unwrap();
    }
    let golden = std::fs::read_to_string(path)
        .unwrap_or_else(|error| panic!("{}: {error}; {UPDATE}=1 writes it", path.display()));
    for (n, (golden, found)) in golden.lines().zip(trace.lines()).enumerate() {
        assert_eq!(golden, found, "{}: line {}; {UPDATE}=1 rewrites it", path.display(), n + 1);
    }
    assert_eq!(golden, trace, "{}; {UPDATE}=1 rewrites it", path.display());
}

/// Compares a world's history with the trace of this name.
pub(crate) fn golden(name: &str, world: &ClosedLoop) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces").join(format!("{name}.jsonl"));
    compare(&file, &world.history().trace(name));
}
