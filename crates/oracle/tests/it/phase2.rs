//! Victims (examples 42 to 50, but for 49: `looped`).

use std::time::Duration;

use bigfleet_engine::{UnmetReason, VictimPolicy};
use bigfleet_oracle::{grace, victim_score};
use bigfleet_types::Operator::In;
use bigfleet_types::keys::ZONE;
use bigfleet_types::{NanoDollars, StampedPenalty};

use crate::fleet::*;

/// Machines that `batch` keeps at a priority.
fn held(n: usize, prefix: &str, priority: i32) -> Vec<M> {
    many(n, prefix, |id| configured(id, "batch").priority(priority))
}

fn preempts(machines: Vec<M>, needs: &[N]) -> Vec<String> {
    let out = outcome(machines, needs);
    acts(&out).into_iter().filter_map(|act| act.strip_prefix("Preempt ").map(str::to_owned)).collect()
}

#[test]
fn ex42_an_inversion_is_undone() {
    let want = need("train", 1_000_000, 4);
    let out = outcome(held(4, "v", 400_000), std::slice::from_ref(&want));
    assert_eq!(acts(&out), ["Preempt v0", "Preempt v1", "Preempt v2", "Preempt v3"]);
    for action in &out.actions {
        assert_eq!((action.grace, action.preemptor_priority), (seconds(30), 1_000_000));
        assert_eq!((action.cluster.clone(), action.need.clone()), (Some(cluster("batch")), Some(want.key())));
        assert_eq!(action.reason, "phase2.inversion");
    }
    assert!(out.shortfalls.is_empty());

    let out = outcome(held(4, "v", 1_000_000), &[need("train", 1_000_000, 2)]);
    assert_eq!(out.actions.len(), 0);
    assert_eq!(
        (out.shortfalls[0].deficit.to_string().as_str(), out.shortfalls[0].preempted),
        ("gpu 16", false)
    );
}

#[test]
fn ex43_the_gap_sets_the_grace() {
    for (victims, expected) in [
        (&[0, 99_999][..], 10),
        (&[100_001, 499_999], 30),
        (&[500_001, 899_999], 120),
        (&[900_001, 999_999, 1_000_000], 600),
    ] {
        for victim in victims {
            assert_eq!(grace(1_000_000, *victim), Duration::from_secs(expected), "{victim}");
        }
    }
    assert_eq!(grace(i32::MAX, i32::MIN), Duration::from_secs(10));
}

#[test]
fn ex44_scores() {
    let dollars = |d: f64| StampedPenalty::Finite(NanoDollars::from_dollars(d).unwrap());
    let score = |gap, interruption, reclamation| {
        victim_score(&VictimPolicy::default(), gap, 0, interruption, reclamation)
    };
    // Nano-points; the text rounds to five places.
    assert_eq!(score(500_000, dollars(1.0), dollars(1.0)), 500_000_203_333_333);
    assert_eq!(score(500_000, dollars(100_000.0), dollars(1.0)), 500_000_103_334_333);
    assert_eq!(score(1000, dollars(0.0), dollars(0.0)), 1_020_003_333_333);
    assert_eq!(score(1015, dollars(8192.0), StampedPenalty::Infinite) / 100_000, 10_150_033);

    let of = |id: &str, priority, interruption, reclamation| {
        configured(id, "batch").priority(priority).penalties(interruption, reclamation)
    };
    let pair = vec![of("a", 500_000, 100_000.0, 1.0), of("b", 500_000, 1.0, 1.0)];
    assert_eq!(preempts(pair, &[need("x", 1_000_000, 1)]), ["b"]);
    let pair = vec![of("a", 1000, 0.0, 0.0), of("b", 985, 8192.0, f64::INFINITY)];
    assert_eq!(preempts(pair, &[need("x", 2000, 1)]), ["a"]);
}

#[test]
fn ex45_victims_cover_the_floor() {
    let mut machines: Vec<M> =
        held(4, "a", 400_000).into_iter().map(|machine| machine.cap(&[("gpu", "4")])).collect();
    machines.extend(held(1, "large", 400_000));
    let want = need("x", 1_000_000, 2);
    let out = outcome(machines, std::slice::from_ref(&want));
    assert_eq!(acts(&out), ["Preempt large0"]);
    assert_eq!(
        (out.shortfalls[0].deficit.to_string().as_str(), out.shortfalls[0].preempted),
        ("gpu 8", true)
    );
    assert_eq!(verdict(&out, &want).reason, UnmetReason::PreemptionExhausted);
    let preemption = verdict(&out, &want).preemption.as_ref().unwrap();
    assert_eq!((preemption.victims, preemption.freed.to_string().as_str()), (1, "gpu 8"));
}

fn in_zone(machines: Vec<M>, zone: &str) -> Vec<M> {
    machines.into_iter().map(|machine| machine.zone(zone)).collect()
}

#[test]
fn ex46_a_gang_preempts_in_one_domain_or_not_at_all() {
    let want = gang("x", 1_000_000, 3, ZONE, "g");
    let batch = need("batch", 0, 5);
    let mut machines = vec![configured("own", "x").zone("b").stamped(&want)];
    machines.extend(in_zone(many(3, "b", |id| configured(id, "batch").stamped(&batch)), "b"));
    machines.extend(in_zone(many(2, "a", |id| configured(id, "batch").stamped(&batch)), "a"));
    let out = outcome(machines, &[want.clone(), batch.clone()]);
    assert_eq!(domain(&out, &want).as_deref(), Some("b"));
    assert_eq!(acts(&out), ["Preempt b0", "Preempt b1"]);

    let batch = need("batch", 0, 4);
    let machines: Vec<M> = ["a", "b"]
        .into_iter()
        .flat_map(|zone| in_zone(many(2, zone, |id| configured(id, "batch").stamped(&batch)), zone))
        .collect();
    let out = outcome(machines, &[want.clone(), batch]);
    assert_eq!(out.actions.len(), 0);
    assert_eq!(domain(&out, &want), None);
    assert_eq!(out.shortfalls.len(), 1);
    assert_eq!(
        (out.shortfalls[0].deficit.to_string().as_str(), out.shortfalls[0].preempted),
        ("gpu 24", false)
    );
}

#[test]
fn ex47_victims_where_the_gang_already_is() {
    let want = gang("x", 2000, 4, ZONE, "g");
    let mut machines = in_zone(many(2, "own", |id| configured(id, "x").stamped(&want)), "a");
    machines.extend(in_zone(held(2, "a", 1000), "a"));
    machines.extend(in_zone(held(4, "b", 1000), "b"));
    assert_eq!(preempts(machines, &[want]), ["a0", "a1"]);
}

#[test]
fn ex48_one_victim_goes_to_the_highest() {
    let (high, low) = (need("x", 1_000_000, 1), need("y", 500_000, 1));
    let out = outcome(held(1, "v", 100_000), &[low.clone(), high.clone()]);
    assert_eq!(out.actions.len(), 1);
    assert_eq!(out.actions[0].need, Some(high.key()));
    assert_eq!(out.shortfalls.iter().map(|s| s.key.clone()).collect::<Vec<_>>(), [low.key()]);
}

#[test]
fn ex50_a_machine_is_worth_what_claims_it() {
    let production = need("y", 2_000_000, 1);
    let machine = configured("c", "y").priority(100);
    assert_eq!(preempts(vec![machine], &[need("x", 1_000_000, 1), production]), Vec::<String>::new());

    let batch = need("batch", 0, 1);
    let machines = vec![
        configured("z-claimed", "batch").stamped(&batch),
        configured("a-silent", "silent").priority(500),
    ];
    assert_eq!(preempts(machines, &[need("x", 1000, 1), batch]), ["z-claimed"]);
}

#[test]
fn a_machine_without_stamps_is_safe_until_its_cluster_spoke() {
    let mut fleet = world([configured("v", "batch")], &[need("x", 1000, 1)]);
    assert_eq!(acts(&run(&fleet)), Vec::<String>::new());
    fleet.heard.insert(cluster("batch"));
    assert_eq!(acts(&run(&fleet)), ["Preempt v"]);
}

#[test]
fn what_nobody_claims_goes_first_once_its_cluster_spoke() {
    let batch = need("batch", 0, 1);
    let claimed = configured("claimed", "batch").stamped(&batch);
    let left = configured("left", "batch").priority(500);
    let silent = configured("silent", "silent").priority(0);
    let want = need("x", 1000, 1);
    let needs = [want.clone(), batch.clone()];
    assert_eq!(preempts(vec![claimed.clone(), left.clone()], &needs), ["left"]);
    assert_eq!(preempts(vec![silent.clone(), left], &needs[..1]), ["silent"], "both are silent");
    let mut heard = world([silent, configured("left", "batch").priority(500)], &[want]);
    heard.heard.insert(cluster("batch"));
    assert_eq!(acts(&run(&heard)), ["Preempt left"]);
}

/// What others took of some of the equals does not put those that are left out of order.
#[test]
fn equal_victims_go_by_id_whoever_took_the_first_of_them() {
    let of = |id: &str, kind: &str| configured(id, "batch").kind(kind).priority(0);
    let fleet = [of("m1", "x"), of("m2", "x"), of("m3", "y"), of("m4", "x")];
    let want = |of: &str, kinds: &[&str]| any(of, 9).wants(&[("gpu", "8")], &[]).requires(TYPE, In, kinds);
    let needs =
        [want("a", &["x", "y"]).arrival(1), want("b", &["x"]).arrival(2), want("c", &["x", "y"]).arrival(3)];
    let out = outcome(fleet, &needs);
    let by: Vec<_> = out.actions.iter().map(|a| (a.machine.as_str(), a.need.clone().unwrap())).collect();
    assert_eq!(by, [("m1", needs[0].key()), ("m2", needs[1].key()), ("m3", needs[2].key())]);
}

/// Its own cluster's machines are no victims of a Need, whether any are left or not.
#[test]
fn equals_find_victims_behind_those_that_are_used_up() {
    let mut own = configured("m1", "c").priority(0);
    own.1.eligibility.creditable = false;
    let fleet = [own, configured("m2", "d").priority(0), configured("m3", "d").priority(0)];
    let needs = [need("a", 9, 1).arrival(1), need("b", 9, 1).arrival(2), need("c", 9, 1).arrival(3)];
    let mut heard = world(fleet, &needs);
    heard.heard.insert(cluster("d"));
    let out = run(&heard);
    let by: Vec<_> = out.actions.iter().map(|a| (a.machine.as_str(), a.need.clone().unwrap())).collect();
    assert_eq!(by, [("m1", needs[0].key()), ("m2", needs[1].key()), ("m3", needs[2].key())]);
}
