//! The report as JUnit XML, as build servers read it.

use std::fmt::Write as _;

use super::{Finding, Outcome, Report};
use crate::behaviour::Series;

pub(super) fn write(report: &Report) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    for (series, [passed, failed, skipped, absent]) in report.counts() {
        let of_series = || report.findings.iter().filter(|f| f.series == series);
        let seconds: f64 = of_series().map(|f| f.seconds).sum();
        let tests = passed + failed + skipped + absent;
        // Ours inform only: a build server must not turn red for them.
        let (failures, skips) =
            if series == Series::Ours { (0, failed + skipped + absent) } else { (failed, skipped + absent) };
        let name = match series {
            Series::Baseline => "baseline",
            Series::Extension => "extension",
            Series::Ours => "ours",
        };
        line(
            &mut out,
            &format!(
                "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" skipped=\"{skips}\" time=\"{seconds:.3}\">"
            ),
        );
        for finding in of_series() {
            case(&mut out, finding, name);
        }
        line(&mut out, "  </testsuite>");
    }
    line(&mut out, "</testsuites>");
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn case(out: &mut String, finding: &Finding, suite: &str) {
    let head = format!(
        "    <testcase classname=\"conformance.{suite}\" name=\"{} {}\" time=\"{:.3}\"",
        escape(finding.id),
        escape(finding.clause),
        finding.seconds
    );
    let body = match &finding.outcome {
        Outcome::Passed => return line(out, &format!("{head}/>")),
        Outcome::Failed(what) if finding.series == Series::Ours => skipped(&format!("does not hold: {what}")),
        Outcome::Failed(what) => {
            let mut text = format!("{what}\nmend: {}\n", finding.mend);
            for call in &finding.calls {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "> {} (x{})\n< {}", call.sent, call.times, call.received);
            }
            format!("<failure message=\"{}\">{}</failure>", escape(what), escape(&text))
        }
        Outcome::Skipped(why) => skipped(why),
        Outcome::NotApplicable(why) => skipped(&format!("does not apply: {why}")),
    };
    line(out, &format!("{head}>{body}</testcase>"));
}

fn skipped(why: &str) -> String {
    format!("<skipped message=\"{}\"/>", escape(why))
}

/// Text as XML; characters that XML cannot hold are shown as their escape.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push('\n'),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use crate::behaviour::Series;
    use crate::report::Outcome;
    use crate::report::tests::{finding, report};

    #[test]
    fn junit_is_well_formed_and_ours_are_no_failures() {
        let text = report(vec![
            finding("B101", Series::Extension, Outcome::Failed("got <1> & \"2\"\u{0}".into())),
            finding("B103", Series::Extension, Outcome::Passed),
            finding("N101", Series::Ours, Outcome::Failed("informs".into())),
            finding("B204", Series::Extension, Outcome::Skipped("no slots".into())),
        ])
        .junit();
        assert!(text.contains("name=\"extension\" tests=\"3\" failures=\"1\" skipped=\"1\""), "{text}");
        assert!(text.contains("name=\"ours\" tests=\"1\" failures=\"0\" skipped=\"1\""), "{text}");
        assert!(text.contains("got &lt;1&gt; &amp; &quot;2&quot;\\u{0}"), "{text}");
        assert!(text.contains("&gt; Create &lt;&amp;\\u{0}&gt; (x2)"), "{text}");
        assert_eq!(text.matches("<testcase").count(), 4);
        assert_eq!(text.matches("<testsuite ").count(), text.matches("</testsuite>").count());
    }
}
