//! Our own providers are certified, and what could not be looked at never is.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use bigfleet_conformance::{
    Authority, Error, Event, Lane, Launch, Options, Outcome, Profile, Report, Series, Spec, Subject, Verdict,
    behaviours, run,
};
use bigfleet_net::tls::Tls;
use bigfleet_provider_kit::fakecloud::Latency;

use crate::double::{Double, failed, judged, options, skipped};

fn holds(report: &Report, id: &str) -> bool {
    report.findings.iter().any(|f| f.id == id && f.outcome == Outcome::Passed)
}

const CLOUD: [Profile; 3] = [Profile::Core, Profile::Cloud, Profile::Spot];

#[tokio::test(flavor = "multi_thread")]
async fn fakecloud_is_certified() {
    let report = judged(Double::default(), &options(&CLOUD, None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    let asked: BTreeSet<_> =
        behaviours().filter(|b| b.lane == Lane::Core && b.series != Series::Ours).map(|b| b.id).collect();
    let deciding = report.findings.iter().filter(|f| f.series != Series::Ours);
    assert_eq!(deciding.map(|f| f.id).collect::<BTreeSet<_>>(), asked, "all of them were run");
    assert_eq!(report.probes.delete, Some(true));
    assert_eq!(report.probes.since_revision, Some(true));
    assert_eq!(report.probes.asynchronous, Some(true));
    assert!(report.left_behind.is_empty(), "{:?}", report.left_behind);
    assert!(holds(&report, "N114"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instant_fakecloud_is_certified() {
    let double = Double { instant: true, latency: Latency { min_ms: 0, max_ms: 0 }, ..Double::default() };
    let report = judged(double, &options(&CLOUD, None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    assert_eq!(report.probes.asynchronous, Some(false));
}

#[tokio::test(flavor = "multi_thread")]
async fn owned_machines_are_certified_without_delete() {
    let double = Double { can_delete: false, ..Double::default() };
    let report = judged(double, &options(&[Profile::Core, Profile::BareMetal], None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    assert_eq!(report.probes.delete, Some(false));
    assert!(holds(&report, "N113"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn fakecloud_is_certified_under_tls_where_the_zero_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Arc::new(Authority::generate(folder.path()).unwrap());
    let tls = Some(Tls::load(authority.server().unwrap()).unwrap());
    let options = Options { authority: Some(authority), ..options(&CLOUD, None) };
    let report = judged(Double { tls, ..Double::default() }, &options).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    assert!(report.tls);
    let key = folder.path().join("leaf-0/tls.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "a minted key is for its owner alone");
    let b308 = report.findings.iter().find(|f| f.id == "B308").unwrap();
    assert!(matches!(b308.outcome, Outcome::NotApplicable(_)), "{b308:?}");
    assert!(holds(&report, "N308"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fault_provider_is_certified() {
    let report = judged(Double::default(), &options(&[Profile::Fault], None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    assert!(holds(&report, "N701"), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_durable_lane_certifies_the_file_store() {
    let report = judged(Double::default(), &options(&[Profile::Durable], None)).await;
    assert_eq!(report.verdict, Verdict::Certified, "{}", report.text());
    assert!(["N1001", "N1002", "N1003"].iter().all(|id| holds(&report, id)), "{}", report.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_alone_leaves_the_durable_lane_incomplete() {
    let spec = Spec { lane: Lane::Core, seed: 60, state: None, transition_timeout: None };
    let mut running = Double::default().start(&spec).await.unwrap();
    let subject = Subject::Address(running.addr().to_owned());
    let wanted = options(&[Profile::Durable], None);
    let report = run(&subject, &wanted, &mut |_: &Event<'_>| {}).await.unwrap();
    assert_eq!(report.verdict, Verdict::Incomplete, "{}", report.text());
    assert!(skipped(&report).contains("B1001"));

    let nothing = options(&[Profile::Core], Some("Z*"));
    let error = run(&subject, &nothing, &mut |_: &Event<'_>| {}).await.unwrap_err();
    assert!(matches!(error, Error::Nothing { .. }), "{error}");
    running.kill().await.unwrap();
    let silent = run(&subject, &options(&[Profile::Core], None), &mut |_: &Event<'_>| {}).await.unwrap_err();
    assert!(matches!(silent, Error::Silent { .. }), "{silent}");
}

#[tokio::test(flavor = "multi_thread")]
async fn too_few_slots_are_no_pass() {
    let double = Arc::new(Double { can_delete: false, ..Double::default() });
    let spec = Spec { lane: Lane::Core, seed: 24, state: None, transition_timeout: None };
    let running = double.start(&spec).await.unwrap();
    let subject = Subject::Address(running.addr().to_owned());
    let report = run(&subject, &options(&[Profile::Core], None), &mut |_: &Event<'_>| {}).await.unwrap();
    assert_eq!(report.verdict, Verdict::Incomplete, "{}", report.text());
    assert!(!skipped(&report).is_empty());
    assert_eq!(failed(&report), BTreeSet::new(), "{}", report.text());
}
