//! What a run found, and what that means.

mod junit;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::behaviour::{Lane, Profile, Series};
use crate::record::Exchange;

/// How one behaviour came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "reason")]
pub enum Outcome {
    /// It holds.
    Passed,
    /// It does not; the text says what was seen.
    Failed(String),
    /// It could not be looked at, and the text says why. For a required behaviour that leaves the run incomplete.
    Skipped(String),
    /// A probe found that the feature it speaks of is absent, which is allowed.
    NotApplicable(String),
}

/// One behaviour's outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The behaviour's id or name.
    pub id: &'static str,
    /// Where the id comes from.
    pub series: Series,
    /// Where it ran.
    pub lane: Lane,
    /// What must hold.
    pub clause: &'static str,
    /// How authors usually mend it.
    pub mend: &'static str,
    /// How it came out.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// How long it took.
    pub seconds: f64,
    /// The latest calls, when it failed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Exchange>,
}

/// Optional features of the provider, as far as they were looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Probes {
    /// Delete is implemented.
    pub delete: Option<bool>,
    /// List gives a revision that moves.
    pub since_revision: Option<bool>,
    /// Some machine is SPOT.
    pub spot: Option<bool>,
    /// Acknowledgements come before the work is done.
    pub asynchronous: Option<bool>,
}

/// What the run says of the provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Verdict {
    /// Every required behaviour was looked at and holds.
    Certified,
    /// A required behaviour does not hold.
    Failed,
    /// None was seen broken, but not all that is required was looked at.
    Incomplete,
}

impl Verdict {
    /// In capitals.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Certified => "CERTIFIED",
            Self::Failed => "FAILED",
            Self::Incomplete => "INCOMPLETE",
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The verdict.
    pub verdict: Verdict,
    /// What the verdict rests on, in sentences.
    pub reasons: Vec<String>,
    /// What was run against.
    pub subject: String,
    /// The profiles that were claimed.
    pub profiles: Vec<Profile>,
    /// The words of `--only`, if it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
    /// When it began, in seconds since 1970.
    pub unix_seconds: u64,
    /// Whether it ran under TLS.
    pub tls: bool,
    /// Where chance began.
    pub random_seed: u64,
    /// Optional features.
    pub probes: Probes,
    /// Every behaviour that was run, in the order of running.
    pub findings: Vec<Finding>,
    /// Machines that are not where they were found, by id.
    pub left_behind: Vec<String>,
}

impl Report {
    /// The verdict over findings, and what it rests on. A part of the suite alone never certifies.
    pub(crate) fn judge(
        findings: &[Finding],
        profiles: &[Profile],
        only: Option<&str>,
    ) -> (Verdict, Vec<String>) {
        let deciding: Vec<_> = findings.iter().filter(|f| f.series != Series::Ours).collect();
        let failed: Vec<_> =
            deciding.iter().filter(|f| matches!(f.outcome, Outcome::Failed(_))).map(|f| f.id).collect();
        let skipped: Vec<_> =
            deciding.iter().filter(|f| matches!(f.outcome, Outcome::Skipped(_))).map(|f| f.id).collect();
        let mut reasons = Vec::new();
        if !failed.is_empty() {
            reasons.push(format!("{} required behaviours do not hold: {}", failed.len(), failed.join(" ")));
        }
        if !skipped.is_empty() {
            reasons.push(format!(
                "{} required behaviours could not be looked at: {}",
                skipped.len(),
                skipped.join(" ")
            ));
        }
        if let Some(words) = only {
            reasons
                .push(format!("only {words} was asked for; a verdict needs all that the profiles require"));
        } else if deciding.is_empty() {
            reasons.push("no required behaviour was run".to_owned());
        }
        let verdict = if !failed.is_empty() {
            Verdict::Failed
        } else if reasons.is_empty() {
            let names: Vec<_> = profiles.iter().map(|p| p.name()).collect();
            reasons.push(format!("all {} behaviours of {} hold", deciding.len(), names.join(", ")));
            Verdict::Certified
        } else {
            Verdict::Incomplete
        };
        (verdict, reasons)
    }

    /// How many findings there are by series and outcome: passed, failed, skipped, not applicable.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<Series, [usize; 4]> {
        let mut counts = BTreeMap::new();
        for finding in &self.findings {
            let row: &mut [usize; 4] = counts.entry(finding.series).or_default();
            let [passed, failed, skipped, absent] = row;
            *match finding.outcome {
                Outcome::Passed => passed,
                Outcome::Failed(_) => failed,
                Outcome::Skipped(_) => skipped,
                Outcome::NotApplicable(_) => absent,
            } += 1;
        }
        counts
    }

    /// For programs: everything, as JSON.
    ///
    /// # Errors
    /// Never, as far as is known: every field has a JSON form.
    pub fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self).map(|text| text + "\n")
    }

    /// For build servers: JUnit XML, a suite for each series.
    #[must_use]
    pub fn junit(&self) -> String {
        junit::write(self)
    }

    /// For people: what failed and how it is mended, then the counts and the verdict.
    #[must_use]
    pub fn text(&self) -> String {
        text::write(self)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn finding(id: &'static str, series: Series, outcome: Outcome) -> Finding {
        let calls = match outcome {
            Outcome::Failed(_) => {
                vec![Exchange { sent: "Create <&\u{0}>".into(), received: "INTERNAL".into(), times: 2 }]
            }
            _ => Vec::new(),
        };
        let (clause, mend) = ("It holds.", "Mend it.");
        Finding { id, series, lane: Lane::Core, clause, mend, outcome, seconds: 0.25, calls }
    }

    pub(crate) fn report(findings: Vec<Finding>) -> Report {
        let profiles = vec![Profile::Core, Profile::Cloud];
        let (verdict, reasons) = Report::judge(&findings, &profiles, None);
        Report {
            verdict,
            reasons,
            subject: "127.0.0.1:9000".into(),
            profiles,
            only: None,
            unix_seconds: 1_800_000_000,
            tls: false,
            random_seed: 1,
            probes: Probes { delete: Some(true), ..Probes::default() },
            findings,
            left_behind: vec!["m-1".into()],
        }
    }

    #[test]
    fn a_skip_is_no_pass_and_n_ids_decide_nothing() {
        use Outcome::{Failed, NotApplicable, Passed, Skipped};
        let of = |outcomes: &[(Series, Outcome)], only| {
            let findings: Vec<_> = outcomes.iter().map(|(s, o)| finding("B101", *s, o.clone())).collect();
            Report::judge(&findings, &[Profile::Core], only).0
        };
        let (b, n) = (Series::Extension, Series::Ours);
        let text = || "because".to_owned();
        assert_eq!(of(&[(b, Passed), (n, Failed(text()))], None), Verdict::Certified);
        assert_eq!(of(&[(b, Passed), (b, NotApplicable(text()))], None), Verdict::Certified);
        assert_eq!(of(&[(b, Passed), (b, Skipped(text()))], None), Verdict::Incomplete);
        assert_eq!(of(&[(b, Skipped(text())), (b, Failed(text()))], None), Verdict::Failed);
        assert_eq!(of(&[(Series::Baseline, Failed(text()))], None), Verdict::Failed);
        assert_eq!(of(&[(b, Passed)], Some("B1*")), Verdict::Incomplete);
        assert_eq!(
            of(&[(n, Passed)], None),
            Verdict::Incomplete,
            "nothing was required, so nothing is certified"
        );
        assert_eq!(of(&[], None), Verdict::Incomplete);
    }

    #[test]
    fn the_json_names_outcomes() {
        let report = report(vec![finding("B101", Series::Extension, Outcome::Failed("why".into()))]);
        let value: serde_json::Value = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(value["verdict"], "FAILED");
        let first = &value["findings"][0];
        assert_eq!((&first["outcome"], &first["reason"]), (&"failed".into(), &"why".into()));
        assert_eq!(first["calls"][0]["times"], 2);
    }
}
