//! Each seeded defect is seen by the behaviour that it breaks, and by no other than those that follow from it: once made
//! by a proxy in front of a sound provider, once by a switch in the kit.

use bigfleet_conformance::{Profile, Verdict};
use futures::{StreamExt as _, stream};

use bigfleet_provider_kit::defects::Defect;

use crate::double::{Double, failed, judged, options};

const CLOUD: &[Profile] = &[Profile::Core, Profile::Cloud, Profile::Spot];
const FAULT: &[Profile] = &[Profile::Fault];
const DURABLE: &[Profile] = &[Profile::Durable];

/// What asks for the operation id of a repeat.
const MINTED: &[&str] = &[
    "CreateIdempotent",
    "ConfigureIdempotent",
    "DrainIdempotent",
    "DeleteIdempotent",
    "B214",
    "B306",
    "B307",
    "B401",
    "B402",
    "B403",
    "B406",
    "B409",
];

/// The defect, the behaviour that it breaks, what may fail with it, and what else may if the kit itself has it.
const SEEDED: &[(Defect, &str, &[Profile], Ids, Ids)] = &[
    (Defect::RepeatsMintOperations, "B206", CLOUD, MINTED, &[]),
    (Defect::OperationsPerKind, "B214", CLOUD, &[], &[]),
    (Defect::LookupBeforeFence, "B301", CLOUD, &[], &[]),
    (Defect::MarkPerShard, "B302", CLOUD, &["FencingPerMachineIsolation", "B1204"], &[]),
    (Defect::NewEpochNeedsSequence, "B303", CLOUD, &["B312", "B1201", "B1204"], &[]),
    (Defect::RepeatBeforeFence, "B306", CLOUD, &[], &[]),
    (Defect::MarkMovesOnSuccess, "B311", CLOUD, &["B301"], &[]),
    (Defect::CreatesDoNotCollapse, "B401", CLOUD, &[], &["B406"]),
    (Defect::EmptyValuesDropped, "B501", CLOUD, &["B1202"], &[]),
    (Defect::MetadataOutliveDrain, "B502", CLOUD, &["MetadataClearedOnDrain", "B101", "B403", "B1202"], &[]),
    (Defect::MetadataShared, "B505", CLOUD, &["B407"], &[]),
    (Defect::LateSuccessWins, "B704", FAULT, &[], &[]),
    (Defect::FailedAccepts, "B705", FAULT, &[], &[]),
    (Defect::SpotNeverInterrupted, "B802", CLOUD, &[], &[]),
    (Defect::SlotsHaveHosts, "B803", CLOUD, &[], &["B107", "B807"]),
    (Defect::DeltaLacksNewest, "B903", CLOUD, &["B905", "B907"], &[]),
    (Defect::GarbageCursorIsAnError, "B906", CLOUD, &["B909"], &[]),
    (Defect::IdlingMovesRevision, "B908", CLOUD, &["B909"], &["B904", "B907"]),
    (Defect::MarksLostOverRestart, "B1001", DURABLE, &[], &[]),
    (Defect::OperationsReusedOverRestart, "B1005", DURABLE, &[], &[]),
];

type Ids = &'static [&'static str];

/// What it is called, who has the defect, the behaviour that it breaks, and what may fail with it.
type Run = (String, Double, &'static str, &'static [Profile], Vec<&'static str>);

/// Runs the suite against each double; gives those whose defect was not seen, or by others than are allowed.
async fn missed(runs: Vec<Run>) -> Vec<String> {
    let runs = runs.into_iter().map(|(name, double, broken, profiles, followers)| async move {
        let report = judged(double, &options(profiles, None)).await;
        let failed = failed(&report);
        let seen = failed.contains(broken) && report.verdict == Verdict::Failed;
        // What an author is told.
        let text = report.text();
        let told = text.split("\n\n").find(|part| part.trim_start().starts_with(&format!("{broken} FAILED")));
        for line in ["  clause  ", "  seen    ", "  sent    ", "  got     ", "  mend    "] {
            let there =
                told.is_some_and(|told| told.lines().any(|l| l.len() > line.len() && l.starts_with(line)));
            assert!(there, "{name}: {line:?} is not said of {broken}:\n{text}");
        }
        println!("{name}:\n{}\n", told.unwrap_or_default().trim_start());
        let others: Vec<_> = failed.iter().filter(|id| **id != broken && !followers.contains(id)).collect();
        (seen && others.is_empty()).then_some(()).ok_or_else(|| {
            format!("{name}: {broken} seen: {seen}; failed too: {others:?}\n{}", report.text())
        })
    });
    // A few at a time: they wait more than they work.
    stream::iter(runs).buffer_unordered(4).filter_map(async |seen| seen.err()).collect().await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_seeded_defect_is_seen() {
    let runs = SEEDED.iter().map(|(defect, broken, profiles, followers, _)| {
        let double = Double { proxied: true, defect: Some(*defect), ..Double::default() };
        (format!("{defect:?}"), double, *broken, *profiles, followers.to_vec())
    });
    let missed = missed(runs.collect()).await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_switch_of_the_kit_is_seen() {
    let switches: Vec<_> = SEEDED.iter().map(|(switch, ..)| *switch).collect();
    assert_eq!(switches, Defect::ALL, "none is left out");
    let runs = SEEDED.iter().map(|(switch, broken, profiles, followers, more)| {
        let double = Double { switch: Some(*switch), ..Double::default() };
        (format!("{switch:?}"), double, *broken, *profiles, [*followers, *more].concat())
    });
    let missed = missed(runs.collect()).await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_without_a_defect_changes_nothing() {
    let double = Double { proxied: true, ..Double::default() };
    let report = judged(double, &options(CLOUD, None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
}
