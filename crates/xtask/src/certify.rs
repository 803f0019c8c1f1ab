//! `cargo xtask certify`: the whole conformance suite on every provider of ours, each with all that it claims, in
//! plaintext or under mutual TLS. The test command certifies them with less: see `docs/conformance.md`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{self, cargo};

/// What to certify.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Under mutual TLS.
    #[arg(long)]
    tls: bool,
    /// This one only; more than one may be named.
    #[arg(long = "provider")]
    providers: Vec<String>,
}

/// A provider, its command line (`{bigfleet}`, `{template}` and `{folder}` stand for what a run makes), and what it claims.
const CLAIMS: [(&str, &str, &str); 6] = [
    ("fakecloud", "'{bigfleet}' provider fakecloud", "core,cloud,spot,durable,scale"),
    ("fault", "'{bigfleet}' provider fault", "fault"),
    ("baremetal", "'{bigfleet}' provider baremetal", "core,bare-metal,durable,scale"),
    (
        "exec-sh",
        "'{bigfleet}' provider exec --command \"env MACHINES={folder}/sh sh examples/providers/directory.sh\"",
        "core,cloud",
    ),
    (
        "exec-py",
        "'{bigfleet}' provider exec --command \"env MACHINES={folder}/py python3 examples/providers/directory.py\"",
        "core,cloud",
    ),
    ("template", "'{template}'", "core,cloud,spot,durable,scale"),
];

/// Certifies them one after the other; every one is tried, and any without a certificate fails the command.
pub(crate) fn run(options: &Options) -> Result<()> {
    for name in &options.providers {
        if CLAIMS.iter().all(|(known, ..)| known != name) {
            let names: Vec<_> = CLAIMS.iter().map(|(name, ..)| *name).collect();
            bail!("--provider {name}: is none of {}", names.join(", "));
        }
    }
    let chosen = |name: &str| options.providers.is_empty() || options.providers.iter().any(|n| n == name);
    workspace::run(&mut cargo(["build", "--package", "bigfleet", "--locked"]))?;
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(workspace::root())
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let target = metadata.target_directory.into_std_path_buf();
    let bigfleet = target.join("debug/bigfleet");
    let folder = tempfile::tempdir().context("cannot make a folder for the run")?;
    let reports = target.join(if options.tls { "certify-tls" } else { "certify" });
    let mut without = Vec::new();
    for (name, exec, profiles) in CLAIMS.into_iter().filter(|(name, ..)| chosen(name)) {
        let template = match name {
            "template" => build_template(&bigfleet, &target, folder.path())?,
            _ => PathBuf::new(),
        };
        let exec = exec
            .replace("{bigfleet}", &bigfleet.display().to_string())
            .replace("{template}", &template.display().to_string())
            .replace("{folder}", &folder.path().display().to_string());
        println!("== {name}: {profiles}");
        let mut suite = Command::new(&bigfleet);
        suite
            .current_dir(workspace::root())
            .args(["conformance", "--exec", &exec, "--profile", profiles, "--out"])
            .arg(reports.join(name))
            .args(["--fault-exec", &format!("'{}' provider fault", bigfleet.display())])
            .args(options.tls.then_some("--tls"));
        if let Err(error) = workspace::run(&mut suite) {
            without.push(format!("{name}: {error:#}"));
        }
    }
    println!("reports: {}", reports.display());
    if without.is_empty() { Ok(()) } else { bail!("without a certificate:\n{}", without.join("\n")) }
}

/// A new provider, built as it was written.
fn build_template(bigfleet: &Path, target: &Path, folder: &Path) -> Result<PathBuf> {
    let made = folder.join("template");
    let mut new = Command::new(bigfleet);
    new.args(["provider", "new", "certified"]).arg(&made).arg("--kit").arg(workspace::root());
    workspace::run(&mut new)?;
    // The versions that were tested, without asking a registry.
    std::fs::copy(workspace::root().join("Cargo.lock"), made.join("Cargo.lock"))?;
    // With the workspace's profile, so that what both need is built once.
    let profile = ["profile.dev.debug='line-tables-only'", "profile.dev.package.'*'.debug=false"];
    let mut build = cargo(["build", "--offline", "--config", profile[0], "--config", profile[1]]);
    workspace::run(build.current_dir(&made).env("CARGO_TARGET_DIR", target))?;
    Ok(target.join("debug/bigfleet-provider-certified"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_refused_before_anything_is_built() {
        let options = Options { tls: false, providers: vec!["moon".into()] };
        let error = run(&options).unwrap_err().to_string();
        assert_eq!(
            error,
            "--provider moon: is none of fakecloud, fault, baremetal, exec-sh, exec-py, template"
        );
    }
}
