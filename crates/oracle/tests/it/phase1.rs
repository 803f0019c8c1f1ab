//! Credit and acquisition (examples 16 to 27, but for those that need several cycles: `looped`).

use bigfleet_engine::UnmetReason;
use bigfleet_types::keys::ZONE;
use bigfleet_types::{Operator, WhenUnsatisfiable};

use crate::fleet::*;

#[test]
fn ex16_takes_what_there_is() {
    let want = need("a", 1_000_000, 3);
    let out = outcome(many(4, "i", idle), std::slice::from_ref(&want));
    assert_eq!(acts(&out), ["Bootstrap i0", "Bootstrap i1", "Bootstrap i2"]);
    assert_eq!((out.claimed.len(), verdict(&out, &want).satisfied), (3, true));

    let want = need("a", 1_000_000, 5);
    let out = outcome(many(2, "i", idle), std::slice::from_ref(&want));
    assert_eq!((count(&out, "Bootstrap"), residual(&out, &want).as_str()), (2, "gpu 24"));
}

#[test]
fn ex17_half_of_a_large_demand() {
    let want = need("a", 1_000_000, 64);
    let out = outcome(many(32, "i", idle), std::slice::from_ref(&want));
    assert_eq!((out.actions.len(), count(&out, "Bootstrap")), (32, 32));
    assert_eq!(residual(&out, &want), "gpu 256");
    assert_eq!(out.shortfalls.len(), 1);
    assert_eq!(
        (out.shortfalls[0].deficit.to_string().as_str(), out.shortfalls[0].preempted),
        ("gpu 256", false)
    );
}

#[test]
fn ex18_bound_machines_are_the_fulfilment() {
    let out = outcome(many(2, "c", |id| configured(id, "a")), &[need("a", 1_000_000, 2)]);
    assert_eq!(acts(&out), Vec::<String>::new());

    let machines = many(5, "c", |id| configured(id, "a")).into_iter().chain(many(25, "i", idle));
    let needs: Vec<N> = (0..30).map(|i| need("a", 0, 1).group(&format!("g{i}"))).collect();
    let out = outcome(machines, &needs);
    assert_eq!((out.actions.len(), count(&out, "Bootstrap")), (25, 25));
    assert!(out.verdicts.iter().all(|verdict| verdict.satisfied));
}

#[test]
fn ex19_the_higher_priority_is_served_first() {
    let (low, high) = (need("low", 0, 2), need("high", 1_000_000, 2));
    for needs in [[low.clone(), high.clone()], [high.clone(), low.clone()]] {
        let out = outcome(many(2, "i", idle), &needs);
        assert!(out.actions.iter().all(|action| action.cluster == Some(cluster("high"))));
        assert!(verdict(&out, &high).satisfied && !verdict(&out, &low).satisfied);
    }
}

#[test]
fn ex20_vectors_are_met_dimension_by_dimension() {
    let node = |id: &str| configured(id, "a").cap(&[("cpu", "16"), ("memory", "32Gi")]);
    let unit = [("cpu", "1"), ("memory", "4Gi")];
    let ten = any("a", 0).wants(&[("cpu", "10"), ("memory", "40Gi")], &unit);
    let out = outcome([node("c0")], std::slice::from_ref(&ten));
    assert_eq!(residual(&out, &ten), "memory 8Gi");
    assert_eq!(out.shortfalls.len(), 1);

    let eight = any("a", 0).wants(&[("cpu", "8"), ("memory", "32Gi")], &unit);
    let out = outcome([node("c0"), node("c1")], std::slice::from_ref(&eight));
    assert!(verdict(&out, &eight).satisfied);
    assert_eq!(acts(&out), ["Reclaim c1"]);
}

#[test]
fn ex21_machines_in_creation_count_for_whom_they_are_made() {
    let want = any("a", 0).wants(&[("cpu", "4")], &[("cpu", "4")]);
    let made = |id: &str| creating(id).cap(&[("cpu", "4")]);
    let slot = speculative("s").cap(&[("cpu", "4")]);
    let one = std::slice::from_ref(&want);
    assert_eq!(acts(&outcome([made("m").created_for(want.key()), slot.clone()], one)), Vec::<String>::new());
    assert_eq!(acts(&outcome([made("m"), slot.clone()], one)), Vec::<String>::new());
    let other = want.clone().group("other");
    assert_eq!(acts(&outcome([made("m").created_for(other.key()), slot], one)), ["Provision s"]);
}

#[test]
fn ex23_a_resource_that_no_machine_has_takes_nothing() {
    let want = any("a", 0).wants(&[("example.com/foo", "1")], &[]);
    let out = outcome(many(100, "i", idle), std::slice::from_ref(&want));
    assert_eq!((out.actions.len(), out.claimed.len()), (0, 0));
    assert_eq!(verdict(&out, &want).reason, UnmetReason::NoMatchingSupply);
}

#[test]
fn ex25_trim_drops_what_became_superfluous() {
    let want = any("a", 0).wants(&[("cpu", "8")], &[]);
    let machines = [
        speculative("small").cap(&[("cpu", "2")]).price(0.1),
        speculative("large").cap(&[("cpu", "8")]).price(0.3),
    ];
    assert_eq!(acts(&outcome(machines, &[want])), ["Provision large"]);
}

#[test]
fn ex26_a_dead_stamp_orders_and_never_restricts() {
    let looser = any("a", 0).wants(&[("gpu", "8")], &[("gpu", "8")]);
    let machine = configured("c", "a").stamped(&need("a", 7, 1));
    let out = outcome([machine.clone()], &[looser]);
    assert_eq!((acts(&out), claimed(&out)), (Vec::<String>::new(), vec!["c"]));

    let mut nothing_wanted = world([machine], &[]);
    nothing_wanted.heard.insert(cluster("a"));
    assert_eq!(acts(&run(&nothing_wanted)), ["Reclaim c"]);
}

#[test]
fn ex27_within_a_cluster_the_higher_need_is_credited() {
    let (high, low) = (need("a", 500, 1), need("a", 100, 1));
    let out = outcome([configured("c", "a")], &[low.clone(), high.clone()]);
    assert!(verdict(&out, &high).satisfied);
    assert_eq!(residual(&out, &low), "gpu 8");
    assert_eq!(acts(&out), Vec::<String>::new());
}

#[test]
fn ex24_a_bigger_pod_keeps_the_smaller_machines() {
    let before = any("a", 0).wants(&[("cpu", "100")], &[("cpu", "1")]);
    let after = any("a", 0).wants(&[("cpu", "108")], &[("cpu", "8")]);
    let small: Vec<M> = (10..35)
        .map(|i| configured(&format!("c{i}"), "a").cap(&[("cpu", "4")]).price(0.2).stamped(&before))
        .collect();
    let large = |state: fn(&str) -> M, price: f64| state("large").cap(&[("cpu", "16")]).price(price);
    let with = |machine: M| outcome(small.iter().cloned().chain([machine]), std::slice::from_ref(&after));

    assert_eq!(acts(&with(large(speculative, 0.8))), ["Provision large"]);
    let made = large(creating, 0.8).created_for(after.key());
    assert_eq!(acts(&with(made)), Vec::<String>::new());
    for state in [configuring, configured] {
        let bound = large(|id| configured(id, "a"), 0.8).stamped(&after);
        let mut bound_as = bound.clone();
        bound_as.0.state = state("x", "a").0.state;
        assert_eq!(acts(&with(bound_as)), Vec::<String>::new());
    }
    let cheap = large(|id| configured(id, "a"), 0.1).stamped(&after);
    assert_eq!(acts(&with(cheap)), ["Reclaim c34", "Reclaim c33"]);
}

#[test]
fn what_a_trim_gives_back_serves_the_next_need_of_the_same_profile() {
    let want = |of: &str, cpu| any(of, 0).wants(&[("cpu", cpu)], &[]);
    let needs = [want("a", "8").arrival(1), want("b", "2").arrival(2)];
    for state in [idle, speculative] {
        let small = state("small").cap(&[("cpu", "2")]).price(0.1);
        let out = outcome([small, state("large").cap(&[("cpu", "8")]).price(0.3)], &needs);
        assert_eq!(claimed(&out), ["large", "small"]);
        assert_eq!(out.actions[0].need, Some(needs[0].key()));
        assert_eq!(out.actions[0].machine.as_str(), "large");
    }
}

/// What others took of some of the equals does not put those that are left out of order.
#[test]
fn equals_go_by_id_whoever_took_the_first_of_them() {
    let of = |id: &str, kind: &str| idle(id).kind(kind).zone("z");
    let fleet = || [of("m1", "x"), of("m2", "x"), of("m3", "y"), of("m4", "x")];
    for spread in [false, true] {
        let want = |of: &str, kinds: &[&str]| {
            let want = any(of, 0).wants(&[("gpu", "8")], &[]).requires(TYPE, Operator::In, kinds);
            if spread { want.spread(ZONE, WhenUnsatisfiable::DoNotSchedule) } else { want }
        };
        let needs = [
            want("a", &["x", "y"]).arrival(1),
            want("b", &["x"]).arrival(2),
            want("c", &["x", "y"]).arrival(3),
        ];
        let out = outcome(fleet(), &needs);
        let taken: Vec<_> = needs.iter().map(|need| verdict(&out, need).machines.clone()).collect();
        assert_eq!(acts(&out), ["Bootstrap m1", "Bootstrap m2", "Bootstrap m3"], "{taken:?}");
        assert_eq!(out.actions[2].need, Some(needs[2].key()));
    }
}
