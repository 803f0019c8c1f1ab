//! The report for people.

use super::{Finding, Outcome, Report};
use crate::behaviour::Series;

pub(super) fn write(report: &Report) -> String {
    let mut out = String::new();
    let mut say = |text: &str| {
        out.push_str(text);
        out.push('\n');
    };
    for finding in &report.findings {
        if let Outcome::Failed(what) = &finding.outcome {
            say(&failure(finding, what));
        }
    }
    for finding in &report.findings {
        match &finding.outcome {
            Outcome::Skipped(why) => say(&format!("skipped {}: {why}", finding.id)),
            Outcome::NotApplicable(why) => say(&format!("does not apply {}: {why}", finding.id)),
            Outcome::Passed | Outcome::Failed(_) => {}
        }
    }
    say("");
    let names: Vec<_> = report.profiles.iter().map(|p| p.name()).collect();
    say(&format!("provider   {}{}", report.subject, if report.tls { ", mutual TLS" } else { "" }));
    say(&format!("profiles   {}", names.join(", ")));
    let shown = |name: &str, found: Option<bool>| {
        found.map(|found| format!("{name} {}", if found { "yes" } else { "no" }))
    };
    let probes = report.probes;
    let probed: Vec<_> = [
        shown("Delete", probes.delete),
        shown("since_revision", probes.since_revision),
        shown("SPOT machines", probes.spot),
        shown("acknowledges before the work is done", probes.asynchronous),
    ]
    .into_iter()
    .flatten()
    .collect();
    say(&format!("features   {}", probed.join(", ")));
    for (series, [passed, failed, skipped, absent]) in report.counts() {
        let name = match series {
            Series::Baseline => "baseline  ",
            Series::Extension => "extension ",
            Series::Ours => "N-ids     ",
        };
        let informs = if series == Series::Ours { " (inform, decide nothing)" } else { "" };
        say(&format!(
            "{name} {passed} passed, {failed} failed, {skipped} skipped, {absent} do not apply{informs}"
        ));
    }
    if !report.left_behind.is_empty() {
        let some: Vec<_> = report.left_behind.iter().take(5).map(String::as_str).collect();
        say(&format!(
            "machines   {} are not where they were found: {}{}",
            report.left_behind.len(),
            some.join(", "),
            if report.left_behind.len() > some.len() { ", ..." } else { "" }
        ));
    }
    say(&format!("{}: {}", report.verdict.name(), report.reasons.join("; ")));
    out
}

/// What was sent, what came back, which clause that breaks, how it is mended.
fn failure(finding: &Finding, what: &str) -> String {
    let mut text = format!("\n{} FAILED\n  clause  {}\n  seen    {what}\n", finding.id, finding.clause);
    let shown = finding.calls.len().saturating_sub(8);
    for call in finding.calls.iter().skip(shown) {
        let times = if call.times > 1 { format!(" (x{})", call.times) } else { String::new() };
        text += &format!("  sent    {}{times}\n  got     {}\n", call.sent, call.received);
    }
    text += &format!("  mend    {}", finding.mend);
    text
}

#[cfg(test)]
mod tests {
    use crate::behaviour::Series;
    use crate::report::Outcome;
    use crate::report::tests::{finding, report};

    #[test]
    fn a_failure_shows_what_was_sent_and_how_it_is_mended() {
        let text = report(vec![
            finding("B101", Series::Extension, Outcome::Failed("cluster is left".into())),
            finding("B103", Series::Extension, Outcome::Passed),
        ])
        .text();
        for line in [
            "B101 FAILED",
            "  clause  It holds.",
            "  seen    cluster is left",
            "  got     INTERNAL",
            "  mend    Mend it.",
            "extension  1 passed, 1 failed, 0 skipped, 0 do not apply",
            "features   Delete yes",
            "FAILED: 1 required behaviours do not hold: B101",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} not in\n{text}");
        }
    }
}
