//! Reasons, supply and shortfalls, worked example 56 without its gang.

use bigfleet_engine::UnmetReason;

use crate::dsl::{M, decide, gpu, gpu_need, gpus, machine, need, verdict};

#[test]
fn ex56_reasons_and_supply() {
    let (a, z) = (gpu_need(2_000_000, 1), gpu_need(1_000_000, 1));
    let decisions = decide(&[gpu("i")], &[("a", &[a.clone()]), ("z", &[z.clone()])]);
    let v = verdict(&decisions, "a", &a);
    assert!(v.satisfied && v.supply.is_none());
    assert_eq!((v.claimed, v.bootstraps, v.reason), (1, 1, UnmetReason::Unspecified));
    let v = verdict(&decisions, "z", &z);
    assert_eq!(v.reason, UnmetReason::PriorityStarved);
    let supply = v.supply.unwrap();
    assert_eq!((supply.idle, supply.configured, supply.speculative, supply.capped), (1, 0, 0, false));

    let empty = decide(&[], &[("a", &[a.clone()])]);
    assert_eq!(verdict(&empty, "a", &a).reason, UnmetReason::NoMatchingSupply);

    let two = decide(&[], &[("b", &[a.clone()]), ("a", &[a.clone()])]);
    let keys: Vec<_> = two.shortfalls.iter().map(|shortfall| shortfall.key.clone()).collect();
    assert_eq!(keys, [a.key("a"), a.key("b")], "one entry per cluster");
}

#[test]
fn supply_counts_whoever_holds_it_and_is_cut_at_256() {
    let mut fleet = gpus(257, "i", |m| m.facts(|f| f.eligibility.acquirable = false));
    fleet.extend(gpus(3, "c", |m| m.configured("other")));
    fleet.extend(gpus(2, "s", M::speculative));
    fleet.push(gpu("creating").creating());
    fleet.push(machine("small").kind("a3").has("nvidia.com/gpu=4"));
    fleet.push(machine("useless").kind("a3").has("cpu=4"));
    let want = gpu_need(0, 9);
    let decisions = decide(&fleet, &[("a", &[want.clone()])]);
    let supply = verdict(&decisions, "a", &want).supply.unwrap();
    assert_eq!((supply.idle, supply.configured, supply.speculative, supply.capped), (256, 3, 2, true));

    // Without a floor, what offers nothing of the demanded is no supply either.
    let bare = need(0, "example.com/x=1");
    let decisions = decide(&fleet, &[("a", &[bare.clone()])]);
    assert_eq!(verdict(&decisions, "a", &bare).reason, UnmetReason::NoMatchingSupply);
}

#[test]
fn exactly_256_is_not_cut() {
    let fleet = gpus(256, "i", |m| m.facts(|f| f.eligibility.acquirable = false));
    let want = gpu_need(0, 1);
    let supply = verdict(&decide(&fleet, &[("a", &[want.clone()])]), "a", &want).supply.unwrap();
    assert_eq!((supply.idle, supply.capped), (256, false));
}

#[test]
fn shortfalls_sort_by_priority_then_fingerprint_cluster_group() {
    let (x, y) = (need(5, "cpu=1"), need(5, "cpu=1").buckets(2, 1));
    let (low, grouped) = (need(1, "cpu=1"), need(5, "cpu=1").group("g"));
    let rows = [low.clone(), grouped.clone(), y.clone(), x.clone()];
    let decisions = decide(&[], &[("b", &rows), ("a", &[x.clone()])]);
    let keys: Vec<_> = decisions.shortfalls.iter().map(|shortfall| shortfall.key.clone()).collect();
    let mut expected = vec![x.key("a"), x.key("b"), grouped.key("b"), y.key("b")];
    expected.sort_by_key(|key| key.fingerprint);
    expected.push(low.key("b"));
    assert_eq!(keys, expected);
}
