//! `cargo xtask guards`: properties of the repository that no compiler checks.
//!
//! Each guard gives back what it found wrong, a line each. Each has a test that shows that it can fail.

mod cores;
mod docs;
mod files;
mod graph;
mod links;
mod purity;

use anyhow::{Result, bail};

/// What a guard looks for, and how.
type Guard = (&'static str, fn() -> Result<Vec<String>>);

const GUARDS: &[Guard] = &[
    ("arrows between crates point one way, and nothing pure reaches I/O", graph::check),
    ("clippy refuses clocks, files, threads and random order in pure crates", purity::check),
    ("the cores of shard and operator name no clock, file, thread, socket or chance", cores::check),
    ("files are short, well named and free of paths of one machine", files::check),
    ("every command in a document is exercised", docs::check),
    ("links between documents lead somewhere", links::check),
];

/// Runs every guard and prints what each found.
pub(crate) fn run() -> Result<()> {
    let mut failed = 0;
    for (name, check) in GUARDS {
        let found = check()?;
        println!("{} {name}", if found.is_empty() { "ok    " } else { "FAILED" });
        for line in &found {
            println!("         {line}");
        }
        failed += usize::from(!found.is_empty());
    }
    if failed > 0 {
        bail!("{failed} of {} guards failed", GUARDS.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_guard_holds() {
        for (name, check) in GUARDS {
            assert_eq!(check().unwrap(), Vec::<String>::new(), "{name}");
        }
    }
}
