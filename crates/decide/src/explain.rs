//! Why a decision is what it is, for somebody who is asked about it: one page of text per question.
//!
//! The page names Needs as a roll-up does, machines by class as each Need sees them, and every rule in plain words. The
//! same content gives the same bytes.

mod action;
mod need;
mod page;

use std::collections::{BTreeMap, BTreeSet};

use bigfleet_engine::{Decisions, Explanation, Question};
use bigfleet_types::ClusterId;

use self::page::Page;
use crate::input::Input;
use crate::report::Report;
use crate::run;

/// How many names a refusal lists.
const NAMES: usize = 10;

/// A question about something that is not in the file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotThere {
    /// No such cluster.
    #[error("no cluster {asked:?} in the file; {known}")]
    Cluster {
        /// What was asked for.
        asked: String,
        /// The clusters that are there, some of them if they are many.
        known: String,
    },
    /// The cluster has no such Need.
    #[error("no Need of cluster {cluster:?} has a fingerprint that begins with {asked:?}; {known}")]
    Need {
        /// The cluster.
        cluster: ClusterId,
        /// What was asked for.
        asked: String,
        /// The fingerprints that are there, some of them if they are many.
        known: String,
    },
}

/// Decides on the content of a file and explains what concerns `about`: `CLUSTER`, or `CLUSTER/FINGERPRINT` for Needs
/// whose fingerprint begins with these digits. A gang that is folded is found under its own fingerprint, too.
///
/// # Errors
/// The file has nothing of that name.
pub fn explain(input: &Input, about: &str) -> Result<String, NotThere> {
    let question = question(input, about)?;
    let (decisions, explanation) = run::engine(input).decide_explained(input.now, &question);
    let Some(cluster) = &question.cluster else { return Ok(String::new()) };
    if let (Some(asked), true) = (&question.fingerprint, explanation.needs.is_empty()) {
        let of_cluster = decisions.verdicts.iter().flat_map(|verdict| {
            let gangs = verdict.gangs.iter().map(|gang| gang.key);
            gangs.chain([verdict.key.clone()]).filter(|key| key.cluster == *cluster)
        });
        let known: BTreeSet<String> = of_cluster.map(|key| key.fingerprint.to_string()).collect();
        let (cluster, asked) = (cluster.clone(), asked.clone());
        return Err(NotThere::Need { cluster, asked, known: listed(&known, "it wants nothing") });
    }
    Ok(page(input, &question, cluster, &decisions, &explanation))
}

/// A cluster whose name is the whole text wins over one before a slash.
fn question(input: &Input, about: &str) -> Result<Question, NotThere> {
    let wanting = input.demand.iter().map(|(cluster, _)| cluster);
    let holding = input.fleet.iter().filter_map(|(machine, _)| machine.cluster.as_ref());
    let clusters: BTreeSet<&ClusterId> = wanting.chain(holding).chain(&input.ready).collect();
    let find = |name: &str| clusters.iter().find(|cluster| cluster.as_str() == name).copied();
    if let Some(cluster) = find(about) {
        return Ok(Question { cluster: Some(cluster.clone()), fingerprint: None });
    }
    let (name, digits) = about.rsplit_once('/').unwrap_or((about, ""));
    match find(name) {
        Some(cluster) => {
            Ok(Question { cluster: Some(cluster.clone()), fingerprint: Some(digits.to_ascii_lowercase()) })
        }
        None => {
            let known: BTreeSet<String> = clusters.iter().map(ToString::to_string).collect();
            let known = listed(&known, "it has no cluster at all");
            Err(NotThere::Cluster { asked: name.to_owned(), known })
        }
    }
}

fn listed(names: &BTreeSet<String>, nothing: &str) -> String {
    if names.is_empty() {
        return nothing.to_owned();
    }
    let first: Vec<&str> = names.iter().take(NAMES).map(String::as_str).collect();
    let more = names.len() - first.len();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("there are {}{more}", first.join(", "))
}

fn page(
    input: &Input,
    question: &Question,
    cluster: &ClusterId,
    decisions: &Decisions,
    explanation: &Explanation,
) -> String {
    let deferred: BTreeSet<u64> =
        Report::new(input, decisions.clone(), Vec::new()).deferred.iter().map(|action| action.seq).collect();
    let mut of_needs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut of_cluster = Vec::new();
    let positions: BTreeMap<_, _> =
        explanation.needs.iter().map(|need| (&decisions.verdicts[need.verdict].key, need.verdict)).collect();
    for (at, explained) in explanation.actions.iter().enumerate() {
        let action = &decisions.actions[explained.action];
        match action.need_key.as_ref().and_then(|key| positions.get(key)) {
            Some(verdict) => of_needs.entry(*verdict).or_default().push(at),
            None => of_cluster.push(at),
        }
    }
    let mut page = Page::default();
    let tell = |page: &mut Page, at: usize, for_other: bool| {
        let explained = &explanation.actions[at];
        let action = &decisions.actions[explained.action];
        let is_deferred = u64::try_from(explained.action).is_ok_and(|seq| deferred.contains(&seq));
        action::tell(page, action, explained, input.now, is_deferred, for_other);
    };
    if explanation.needs.is_empty() {
        page.line(0, format_args!("{cluster} wants nothing"));
    }
    for explained in &explanation.needs {
        page.gap();
        need::tell(&mut page, explained, decisions, input.fleet.len());
        let actions = of_needs.remove(&explained.verdict).unwrap_or_default();
        if !actions.is_empty() {
            page.gap();
            page.line(1, format_args!("what is done for it, and what would be done instead"));
        }
        actions.into_iter().for_each(|at| tell(&mut page, at, false));
    }
    if question.fingerprint.is_none() {
        page.gap();
        if of_cluster.is_empty() {
            page.line(0, format_args!("no machine is taken from {cluster}"));
        } else {
            page.line(0, format_args!("what is taken from {cluster}"));
        }
        of_cluster.into_iter().for_each(|at| tell(&mut page, at, true));
    }
    page.into_text()
}
