//! What an audit keeps of a decision that was wrong: the state, and both answers.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use bigfleet_decide::{Input, Report};
use bigfleet_engine::{Decisions, Mark};
use bigfleet_types::MachineId;

use super::{DecisionAudit, Full};

/// The folder of the data directory.
const FOLDER: &str = "decision-audit";
/// How many audits are kept; the oldest go.
const KEPT: usize = 4;

/// The files could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}: {source}", path.display())]
pub struct KeepError {
    /// What was to be written, or to go.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> KeepError {
    let path = path.to_owned();
    move |source| KeepError { path, source }
}

/// Writes a folder of its own: all of it, or nothing that has its name.
pub(super) fn keep(audit: &DecisionAudit, full: &Full, data_dir: &Path) -> Result<PathBuf, KeepError> {
    let folder = data_dir.join(FOLDER);
    let partial = folder.join(".partial");
    if partial.exists() {
        // Of a process that ended while it wrote.
        fs::remove_dir_all(&partial).map_err(at(&partial))?;
    }
    fs::create_dir_all(&partial).map_err(at(&partial))?;

    let input = input(audit);
    let path = partial.join("state.json");
    let mut state = BufWriter::new(File::create(&path).map_err(at(&path))?);
    let beside = input.write(&mut state).map_err(at(&path))?;
    state.flush().map_err(at(&path))?;
    let write = |name: &str, text: serde_json::Result<String>| {
        let path = partial.join(name);
        text.map_err(io::Error::from).and_then(|text| fs::write(&path, text)).map_err(at(&path))
    };
    write("beside.json", beside.to_json())?;
    let live = audit.content.marked(&audit.marks);
    write("live.json", report(&input, &audit.answer.decisions, &live))?;
    write("full.json", report(&input, &full.decisions, &full.marks))?;

    // Times have as many digits for the next two centuries: names sort by age.
    let kept = folder.join(format!("{}-cycle-{}", audit.now.0, audit.cycle));
    fs::rename(&partial, &kept).map_err(at(&kept))?;
    prune(&folder)?;
    Ok(kept)
}

/// The content as a file has it.
fn input(audit: &DecisionAudit) -> Input {
    let content = &audit.content;
    let mut fleet: Vec<_> = content.machines().collect();
    for (machine, _) in &mut fleet {
        if machine.cluster.is_none() && machine.state.is_bound() {
            machine.cluster = audit.homes.get(&machine.id).cloned();
        }
    }
    fleet.sort_unstable_by(|(a, _), (b, _)| a.id.cmp(&b.id));
    let demand = content.demand().iter();
    let mut demand: Vec<_> = demand
        .map(|(cluster, rows)| (cluster.clone(), rows.iter().map(|need| (**need).clone()).collect()))
        .collect();
    demand.sort_unstable_by(|(a, _): &(_, Vec<_>), (b, _)| a.cmp(b));
    Input {
        now: audit.now,
        fleet,
        demand,
        ready: content.heard().iter().cloned().collect(),
        policy: content.policy().clone(),
        // The cap is applied later; an answer is all that the engine decided.
        reclaim_cap: None,
    }
}

fn report(input: &Input, decisions: &Decisions, marks: &[Mark]) -> serde_json::Result<String> {
    let claimed: Vec<MachineId> =
        marks.iter().filter(|mark| mark.claimed).map(|mark| mark.machine.clone()).collect();
    Report::new(input, decisions.clone(), claimed).to_json()
}

/// Removes all but the newest.
fn prune(folder: &Path) -> Result<(), KeepError> {
    let entries = fs::read_dir(folder).map_err(at(folder))?;
    let mut kept: Vec<PathBuf> =
        entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>().map_err(at(folder))?;
    kept.sort();
    for old in kept.iter().rev().skip(KEPT) {
        fs::remove_dir_all(old).map_err(at(old))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        for at in 10..20 {
            let kept = dir.path().join(format!("{at}-cycle-1"));
            fs::create_dir(&kept).unwrap();
            fs::write(kept.join("state.json"), "{}").unwrap();
            prune(dir.path()).unwrap();
        }
        let mut left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["16-cycle-1", "17-cycle-1", "18-cycle-1", "19-cycle-1"]);
    }
}
