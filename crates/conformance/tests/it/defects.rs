//! Each seeded defect is seen by the behaviour that it breaks, and by no other than those that follow from it.

use bigfleet_conformance::{Profile, Verdict};
use futures::{StreamExt as _, stream};

use crate::double::{Double, failed, judged, options};
use crate::proxy::Defect;

const CLOUD: &[Profile] = &[Profile::Core, Profile::Cloud, Profile::Spot];
const FAULT: &[Profile] = &[Profile::Fault];
const DURABLE: &[Profile] = &[Profile::Durable];

/// The defect, the behaviour that it breaks, and what may fail with it.
const SEEDED: &[(Defect, &str, &[Profile], &[&str])] = &[
    (
        Defect::RepeatsMintOperations,
        "B206",
        CLOUD,
        &[
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
        ],
    ),
    (Defect::OperationsPerKind, "B214", CLOUD, &[]),
    (Defect::LookupBeforeFence, "B301", CLOUD, &[]),
    (Defect::MarkPerShard, "B302", CLOUD, &["FencingPerMachineIsolation", "B1204"]),
    (Defect::NewEpochNeedsSequence, "B303", CLOUD, &["B312", "B1201", "B1204"]),
    (Defect::RepeatBeforeFence, "B306", CLOUD, &[]),
    (Defect::MarkMovesOnSuccess, "B311", CLOUD, &["B301"]),
    (Defect::CreatesDoNotCollapse, "B401", CLOUD, &[]),
    (Defect::EmptyValuesDropped, "B501", CLOUD, &["B1202"]),
    (Defect::MetadataOutliveDrain, "B502", CLOUD, &["MetadataClearedOnDrain", "B101", "B403", "B1202"]),
    (Defect::MetadataShared, "B505", CLOUD, &["B407"]),
    (Defect::LateSuccessWins, "B704", FAULT, &[]),
    (Defect::FailedAccepts, "B705", FAULT, &[]),
    (Defect::SpotNeverInterrupted, "B802", CLOUD, &[]),
    (Defect::SlotsHaveHosts, "B803", CLOUD, &[]),
    (Defect::DeltaLacksNewest, "B903", CLOUD, &["B905", "B907"]),
    (Defect::GarbageCursorIsAnError, "B906", CLOUD, &["B909"]),
    (Defect::IdlingMovesRevision, "B908", CLOUD, &["B909"]),
    (Defect::MarksLostOverRestart, "B1001", DURABLE, &[]),
    (Defect::OperationsReusedOverRestart, "B1005", DURABLE, &[]),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_seeded_defect_is_seen() {
    let runs = SEEDED.iter().map(|(defect, broken, profiles, followers)| async move {
        let double = Double { defect: Some(*defect), ..Double::default() };
        let report = judged(double, &options(profiles, None)).await;
        let failed = failed(&report);
        let seen = failed.contains(broken) && report.verdict == Verdict::Failed;
        let others: Vec<_> = failed.iter().filter(|id| *id != broken && !followers.contains(id)).collect();
        (seen && others.is_empty()).then_some(()).ok_or_else(|| {
            format!("{defect:?}: {broken} seen: {seen}; failed too: {others:?}\n{}", report.text())
        })
    });
    // A few at a time: they wait more than they work.
    let missed: Vec<_> =
        stream::iter(runs).buffer_unordered(4).filter_map(async |seen| seen.err()).collect().await;
    assert!(missed.is_empty(), "{}", missed.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_without_a_defect_changes_nothing() {
    let double = Double { defect: Some(Defect::None), ..Double::default() };
    let report = judged(double, &options(CLOUD, None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
}
