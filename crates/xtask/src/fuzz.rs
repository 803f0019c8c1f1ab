//! `cargo xtask fuzz`: lets libFuzzer drive a fuzz target. The compiler that builds everything else will do: the coverage
//! that libFuzzer steers by is a pass of LLVM, and no sanitizer is asked for, as there is next to no unsafe code.

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

/// What libFuzzer needs to see of a run, and checks that release builds leave out.
const FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "-Cdebug-assertions",
    "-Coverflow-checks",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Where committed inputs are.
const CORPUS: &str = "crates/decide/tests/corpus";

/// What to run, and for how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// A folder of the corpus: decide_file, world or sequence.
    target: String,
    /// For how many seconds; 0: until something is found.
    #[arg(long, default_value_t = 300)]
    seconds: u32,
}

/// Builds the target and lets it run. Inputs that reach something new are kept below `target/fuzz`; an input that fails
/// ends the run, and is named.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root();
    let (target, committed) = (&options.target, root.join(CORPUS).join(&options.target));
    if !committed.is_dir() {
        bail!("no fuzz target {target:?}: there is no folder {}", committed.display());
    }
    let (folder, host) = (root.join("target/fuzz"), host()?);
    let found = folder.join("corpus").join(target);
    std::fs::create_dir_all(&found).with_context(|| format!("cannot make {}", found.display()))?;
    // With a target named, build scripts and macros stay as they are.
    let mut build = cargo(["build", "--release", "--target", &host, "--bin", target]);
    build.arg("--manifest-path").arg(root.join("fuzz/Cargo.toml")).arg("--target-dir").arg(&folder);
    build.env_remove("RUSTFLAGS").env("CARGO_ENCODED_RUSTFLAGS", FLAGS.join("\u{1f}"));
    workspace::run(&mut build)?;
    let mut fuzz = std::process::Command::new(folder.join(host).join("release").join(target));
    fuzz.args([&found, &committed]).arg(format!("-max_total_time={}", options.seconds)).arg("-timeout=60");
    fuzz.arg(format!("-artifact_prefix={}", prefix(&folder, target)));
    workspace::run(&mut fuzz)
}

/// How the files begin into which libFuzzer writes inputs that fail.
fn prefix(folder: &Path, target: &str) -> String {
    folder.join(format!("{target}-")).display().to_string()
}

/// The platform that the compiler builds for unless told otherwise.
fn host() -> Result<String> {
    let mut rustc = std::process::Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    let told = rustc.arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&told.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("`rustc -vV` names no host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_folder_of_the_corpus_has_a_driver() {
        let manifest = std::fs::read_to_string(workspace::root().join("fuzz/Cargo.toml")).unwrap();
        let mut drivers: Vec<&str> = manifest.split("[[bin]]\nname = \"").skip(1).collect();
        drivers.iter_mut().for_each(|rest| *rest = rest.split('"').next().unwrap());
        let folders = std::fs::read_dir(workspace::root().join(CORPUS)).unwrap();
        let mut folders: Vec<String> =
            folders.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        folders.sort();
        drivers.sort_unstable();
        assert_eq!(folders, drivers);
        assert!(drivers.len() >= 2);
    }

    #[test]
    fn an_unknown_target_is_refused_by_name() {
        let refused = run(&Options { target: "nothing".to_owned(), seconds: 1 }).unwrap_err();
        assert!(refused.to_string().contains("no fuzz target \"nothing\""), "{refused}");
    }

    #[test]
    fn the_compiler_names_its_host() {
        assert!(host().unwrap().split('-').count() >= 3);
    }
}
