//! Audits of decisions: a full pass over a copy of what the engine knew, compared with what the engine answered.
//!
//! The copy is made on the deciding thread; all else happens elsewhere. A difference is a mistake of ours, never a matter of
//! the fleet: it is counted, told and kept in files, and the engine looks at everything anew.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bigfleet_engine::{Action, Content, Decisions, Mark, Marks, Shortfall, Verdict};
use bigfleet_types::{ClusterId, MachineId, NeedKey, UnixNanos};

use crate::io::Published;

mod files;

pub use files::KeepError;

/// How many of the rows that differ are told.
const TOLD: usize = 10;

/// One audit, to be carried out.
#[derive(Debug)]
pub struct DecisionAudit {
    /// The cycle whose decision is audited.
    pub cycle: u64,
    /// The time that it was decided for.
    pub now: UnixNanos,
    /// What the engine knew.
    pub content: Content,
    /// Where machines in transition are, as far as the engine does not keep it.
    pub homes: BTreeMap<MachineId, ClusterId>,
    /// What the decision left behind.
    pub marks: Marks,
    /// What was decided.
    pub answer: Arc<Published>,
}

/// What an audit found to be different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Divergence {
    /// How many actions, claims, clocks of excess, verdicts and shortfalls differ.
    pub rows: usize,
    /// The first of them, for people.
    pub first: Vec<String>,
    /// Where state and answers were written, or why they were not; `None` when nobody wanted files.
    pub kept: Option<Result<PathBuf, String>>,
}

/// A full pass over the content.
struct Full {
    decisions: Decisions,
    marks: Vec<Mark>,
}

impl DecisionAudit {
    /// Decides once more, on everything, and compares. Takes as long as a cold start does.
    #[must_use]
    pub fn check(&self) -> Option<Divergence> {
        self.compare().map(|(_, divergence)| divergence)
    }

    /// [`Self::check`], which leaves state and answers in files if they differ.
    #[must_use]
    pub fn check_and_keep(&self, data_dir: &Path) -> Option<Divergence> {
        let (full, divergence) = self.compare()?;
        let kept = files::keep(self, &full, data_dir).map_err(|error| error.to_string());
        Some(Divergence { kept: Some(kept), ..divergence })
    }

    fn compare(&self) -> Option<(Full, Divergence)> {
        let (decisions, marks) = self.content.decide(self.now);
        let full = Full { decisions, marks };
        let (live, live_marks) = (&self.answer.decisions, self.content.marked(&self.marks));
        if *live == full.decisions && live_marks == full.marks {
            return None;
        }
        let mut rows = Rows::default();
        let by_machine = |marks: &[Mark]| -> BTreeMap<MachineId, Mark> {
            marks.iter().map(|mark| (mark.machine.clone(), mark.clone())).collect()
        };
        rows.compare(
            "machine",
            &by_machine(&live_marks),
            &by_machine(&full.marks),
            ToString::to_string,
            mark,
        );
        let actions = |decisions: &'_ Decisions| -> BTreeMap<MachineId, Action> {
            decisions.actions.iter().map(|action| (action.machine.clone(), action.clone())).collect()
        };
        rows.compare("action on", &actions(live), &actions(&full.decisions), ToString::to_string, action);
        let verdicts = |decisions: &Decisions| -> BTreeMap<NeedKey, Arc<Verdict>> {
            decisions.verdicts.iter().map(|verdict| (verdict.key.clone(), verdict.clone())).collect()
        };
        rows.compare("verdict of", &verdicts(live), &verdicts(&full.decisions), key, |v| verdict(v));
        let shortfalls = |decisions: &Decisions| -> BTreeMap<NeedKey, Shortfall> {
            decisions.shortfalls.iter().map(|shortfall| (shortfall.key.clone(), shortfall.clone())).collect()
        };
        rows.compare("shortfall of", &shortfalls(live), &shortfalls(&full.decisions), key, shortfall);
        if rows.number == 0 {
            rows.add(|| "the order of actions, verdicts or shortfalls".to_owned());
        }
        Some((full, Divergence { rows: rows.number, first: rows.first, kept: None }))
    }
}

/// The rows that differ.
#[derive(Default)]
struct Rows {
    number: usize,
    first: Vec<String>,
}

impl Rows {
    fn add(&mut self, tell: impl FnOnce() -> String) {
        self.number += 1;
        if self.first.len() < TOLD {
            self.first.push(tell());
        }
    }

    fn compare<K: Ord, V: PartialEq>(
        &mut self,
        what: &str,
        live: &BTreeMap<K, V>,
        full: &BTreeMap<K, V>,
        name: impl Fn(&K) -> String,
        tell: impl Fn(&V) -> String,
    ) {
        let of = |value: Option<&V>| value.map_or_else(|| "nothing".to_owned(), &tell);
        for (key, value) in live {
            let other = full.get(key);
            if other != Some(value) {
                self.add(|| format!("{what} {}: {}, full pass {}", name(key), tell(value), of(other)));
            }
        }
        for (key, value) in full.iter().filter(|(key, _)| !live.contains_key(*key)) {
            self.add(|| format!("{what} {}: nothing, full pass {}", name(key), tell(value)));
        }
    }
}

fn key(key: &NeedKey) -> String {
    format!("{} {} {:?}", key.cluster, key.fingerprint, key.group.as_str())
}

fn mark(mark: &Mark) -> String {
    let claimed = if mark.claimed { "claimed" } else { "not claimed" };
    let since = mark.excess_since.map(|since| format!(", excess since {}", since.0)).unwrap_or_default();
    format!("{claimed}{since}")
}

fn action(action: &Action) -> String {
    let cluster = action.cluster.as_ref().map(|cluster| format!(" {cluster}")).unwrap_or_default();
    let need = action.need_key.as_ref().map(|need| format!(" for {}", key(need))).unwrap_or_default();
    format!("{}{cluster}{need} with {} s of grace", action.kind, action.grace.as_secs())
}

fn verdict(verdict: &Verdict) -> String {
    let Verdict { satisfied, residual, claimed, bootstraps, provisions, reason, supply, same, .. } = verdict;
    let domain = same.as_ref().and_then(|same| same.domain.as_deref()).unwrap_or("-");
    let gangs = verdict.gangs.iter().filter(|gang| gang.satisfied).count();
    let victims = verdict.preemption.as_ref().map_or(0, |preemption| preemption.victims);
    format!(
        "satisfied {satisfied}, residual {{{residual}}}, claimed {claimed}, bootstraps {bootstraps}, provisions \
         {provisions}, {reason:?}, supply {supply:?}, domain {domain}, gangs {gangs} of {}, victims {victims}",
        verdict.gangs.len()
    )
}

fn shortfall(shortfall: &Shortfall) -> String {
    format!("{{{}}}, preempted {}", shortfall.deficit, shortfall.preempted)
}
