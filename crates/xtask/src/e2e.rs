//! `cargo xtask e2e`: BigFleet on a real Kubernetes, on loopback.
//!
//! Builds the Kubernetes programs once (`e2e/kubebox`), starts a control plane with fresh ports and certificates in a
//! folder of its own, runs our programs beside it with exactly the rights that `deploy/rbac` gives, and takes them
//! through [`suite`]. Every log stays in the folder; on failure their ends are printed.

pub(crate) mod boot;
mod certs;
mod fleet;
mod http;
mod kubebox;
mod kubectl;
mod plane;
mod process;
mod suite;
mod watch;
mod world;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::{self, cargo};
use kubebox::Kubebox;
use plane::Plane;
use process::{Reaper, tail};
use suite::Step;
use world::World;

/// Lines of each log that are printed after a failure.
const TAIL: usize = 30;
/// Characters of each of them.
const WIDTH: usize = 600;

/// What to run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Build the Kubernetes programs and ours, and stop there.
    #[arg(long)]
    build_only: bool,
    /// Leave everything up at the end, and print how to look at it and how to stop it.
    #[arg(long)]
    keep: bool,
    /// End after the first step whose name holds this text: with --keep, a cluster to play with.
    #[arg(long, value_name = "TEXT")]
    until: Option<String>,
    /// Of the steps after the first two, which everything needs, only those whose names hold this text. Steps that
    /// build on others fail then.
    #[arg(long, value_name = "TEXT", conflicts_with = "until")]
    only: Option<String>,
    /// For how many minutes all of BigFleet stays away in the step on static stability.
    #[arg(long, default_value_t = 1)]
    silent_minutes: u64,
    /// Also the steps that take long: 25,000 CapacityRequests, measured.
    #[arg(long)]
    long: bool,
    /// Use this `bigfleet` instead of building one.
    #[arg(long, value_name = "PATH")]
    bigfleet: Option<PathBuf>,
    /// Use this `scripted-shard` instead of building one.
    #[arg(long, value_name = "PATH")]
    scripted_shard: Option<PathBuf>,
    /// Print the steps and stop.
    #[arg(long)]
    list: bool,
}

/// Builds, starts, runs the steps, stops.
///
/// # Errors
/// A part cannot be built or started, or a step fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let mut steps = suite::steps();
    if !options.long {
        let long: Vec<Step> = steps.extract_if(.., |step| step.long).collect();
        long.iter().for_each(|step| println!("e2e: only with --long: {}", step.name));
    }
    if options.list {
        steps.iter().for_each(|step| println!("{}", step.name));
        return Ok(());
    }
    select(options, &mut steps, std::env::var_os("CI").is_some())?;
    let kubebox = Kubebox::find_or_build()?;
    let [executable, scripted_shard] = programs(options)?;
    if options.build_only {
        return Ok(());
    }
    let folder = working_folder()?;
    println!("e2e: everything of this run is in {}", folder.display());
    let executable = take_along(&executable, &folder, "bigfleet")?;
    let scripted_shard = take_along(&scripted_shard, &folder, "scripted-shard")?;
    take_along(&std::env::current_exe()?, &folder, "xtask")?;
    std::os::unix::fs::symlink(kubebox.program("kubectl"), folder.join("kubectl"))?;
    let reaper = Reaper::start()?;
    let start = Instant::now();
    let plane = match Plane::start(&kubebox, &folder, &reaper) {
        Ok(plane) => plane,
        Err(error) => {
            print_logs(&folder)?;
            return Err(error.context("the control plane did not come up"));
        }
    };
    println!("e2e: {:6.1} s  control plane", start.elapsed().as_secs_f64());
    let mut world = World {
        kubectl: plane.admin().clone(),
        executable,
        scripted_shard,
        kubebox,
        reaper: reaper.clone(),
        plane,
        fleet: None,
        recorder: None,
        silence: Duration::from_secs(60 * options.silent_minutes),
        deadline: Instant::now(),
        folder: folder.clone(),
    };
    let result = steps.iter().try_for_each(|step| take(step, &mut world));
    if result.is_err() {
        print_logs(&folder)?;
    }
    if options.keep {
        keep(world, &reaper)?;
    } else {
        let stopped = world.fleet.as_mut().map_or(Ok(()), fleet::Fleet::stop);
        world.plane.stop()?;
        if result.is_ok() {
            stopped?;
            std::fs::remove_dir_all(&folder)?;
        }
    }
    result?;
    println!("e2e: {:6.1} s  all {} steps passed", start.elapsed().as_secs_f64(), steps.len());
    Ok(())
}

/// Keeps the steps that were asked for. In CI that is all of them.
fn select(options: &Options, steps: &mut Vec<Step>, ci: bool) -> Result<()> {
    if ci && (options.until.is_some() || options.only.is_some() || options.build_only) {
        bail!(
            "--until, --only and --build-only leave steps out, which CI must not; unset CI to choose steps"
        );
    }
    let find = |flag: &str, text: &str| {
        let at = steps.iter().position(|step| step.name.contains(text));
        at.with_context(|| format!("{flag} {text:?} names no step; `cargo xtask e2e --list` prints them"))
    };
    if let Some(text) = &options.until {
        let end = find("--until", text)? + 1;
        steps.truncate(end);
    } else if let Some(text) = &options.only {
        find("--only", text)?;
        let first = steps.iter().take(2).copied().collect::<Vec<_>>();
        let rest = steps.iter().skip(2).filter(|step| step.name.contains(text.as_str())).copied();
        *steps = first.into_iter().chain(rest).collect();
    }
    Ok(())
}

fn take(step: &Step, world: &mut World) -> Result<()> {
    let start = Instant::now();
    world.deadline = start + step.within;
    let result = (step.run)(world).and_then(|()| world.check());
    let seconds = start.elapsed().as_secs_f64();
    match result {
        Ok(()) => println!("e2e: {seconds:6.1} s  {}", step.name),
        Err(error) => {
            println!("e2e: {seconds:6.1} s  FAILED {}", step.name);
            return Err(error.context(format!("step `{}`", step.name)));
        }
    }
    Ok(())
}

/// `bigfleet` and `scripted-shard`: those that were named, the rest built.
fn programs(options: &Options) -> Result<[PathBuf; 2]> {
    if options.bigfleet.is_none() || options.scripted_shard.is_none() {
        build()?;
    }
    let program = |flag: &str, named: &Option<PathBuf>, name: &str| match named {
        Some(path) => std::path::absolute(path).with_context(|| format!("--{flag}")),
        None => built(name),
    };
    Ok([
        program("bigfleet", &options.bigfleet, "bigfleet")?,
        program("scripted-shard", &options.scripted_shard, "scripted-shard")?,
    ])
}

/// Builds both programs just as the test command does, so that nothing is compiled twice: it takes the whole workspace,
/// and naming a test makes cargo take the features that only tests ask for as well.
fn build() -> Result<()> {
    let what = ["--bin", "bigfleet", "--bin", "scripted-shard", "--test", "scripted-shard-speaks"];
    let how = ["build", "--quiet", "--workspace", "--locked"];
    workspace::run(&mut cargo(how.into_iter().chain(what)))
}

fn built(name: &str) -> Result<PathBuf> {
    let metadata = cargo_metadata::MetadataCommand::new()
        .current_dir(workspace::root())
        .other_options(["--locked".to_owned()])
        .no_deps()
        .exec()
        .context("cargo metadata failed")?;
    let program = metadata.target_directory.join("debug").join(name).into_std_path_buf();
    if !program.is_file() {
        bail!("cargo built no {}", program.display());
    }
    Ok(program)
}

/// Copies a program into the folder of the run, where a build beside the run does not reach it.
fn take_along(program: &Path, folder: &Path, name: &str) -> Result<PathBuf> {
    let own = folder.join(name);
    std::fs::copy(program, &own).with_context(|| format!("cannot copy {}", program.display()))?;
    Ok(own)
}

/// A new folder that only we can read: it holds keys.
fn working_folder() -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("bigfleet-e2e-").tempdir()?.keep();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
    Ok(folder)
}

/// The ends of all logs.
fn print_logs(folder: &Path) -> Result<()> {
    let mut logs: Vec<PathBuf> = std::fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::io::Result<_>>()?;
    // The API server's log of requests is long and told by the step that reads it.
    logs.retain(|path| {
        path.extension().is_some_and(|e| e == "log" || e == "jsonl") && !path.ends_with("api-audit.log")
    });
    // Ours last: what is wrong is most often there.
    let ours = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        !(name.starts_with("kube-") || name.starts_with("etcd") || name.starts_with("kwok"))
    };
    logs.sort_by_key(|path| (ours(path), path.clone()));
    for log in logs {
        let bytes = std::fs::read(&log)?;
        println!("---- the end of {}", log.display());
        let lines = if ours(&log) { TAIL } else { TAIL / 4 };
        for line in tail(&String::from_utf8_lossy(&bytes), lines).lines() {
            println!("{}", line.chars().take(WIDTH).collect::<String>());
        }
    }
    println!("---- all of it is in {}", folder.display());
    Ok(())
}

fn keep(mut world: World, reaper: &Reaper) -> Result<()> {
    let ours = world.fleet.as_mut().map(fleet::Fleet::let_go).unwrap_or_default();
    let ids: Vec<String> = ours.into_iter().chain(world.plane.let_go()).map(|id| id.to_string()).collect();
    reaper.let_go()?;
    let folder = world.folder.display();
    std::fs::write(world.folder.join("pids"), ids.join(" "))?;
    println!("\nThe cluster stays up. Look at it with\n");
    println!("  export KUBECONFIG={folder}/admin.kubeconfig");
    println!("  {folder}/kubectl get nodes,pods,fleet -A\n");
    println!("and when you have seen enough\n");
    println!("  kill -9 $(cat {folder}/pids); rm -r {folder}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        options: Options,
    }

    fn selected(args: &[&str], ci: bool) -> Result<Vec<&'static str>> {
        let line = Line::try_parse_from(["e2e"].iter().chain(args))?;
        let mut steps = suite::steps();
        select(&line.options, &mut steps, ci)?;
        Ok(steps.iter().map(|step| step.name).collect())
    }

    #[test]
    fn steps_are_chosen_by_their_names_and_ci_takes_all() {
        let all: Vec<&str> = suite::steps().iter().map(|step| step.name).collect();
        assert_eq!(selected(&[], true).unwrap(), all);
        assert_eq!(selected(&["--until", "rights"], false).unwrap(), all[..2]);
        let some = selected(&["--only", "drain"], false).unwrap();
        assert!(some.len() == 3 && some[..2] == all[..2] && some[2].contains("drain"), "{some:?}");
        for args in [["--until", "rights"], ["--only", "drain"]] {
            assert!(selected(&args, true).unwrap_err().to_string().contains("CI"));
        }
        assert!(selected(&["--only", "no such step"], false).is_err());
    }
}
