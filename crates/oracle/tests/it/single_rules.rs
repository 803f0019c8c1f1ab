//! One rule each (examples 57 to 69).

use bigfleet_engine::UnmetReason;
use bigfleet_types::NeedKey;
use bigfleet_types::Operator::Same;

use crate::fleet::*;

fn cpu(machine: M, amount: &str) -> M {
    machine.cap(&[("cpu", amount)])
}

/// The key of the only verdict.
fn only_key(machines: Vec<M>, want: &N) -> NeedKey {
    outcome(machines, std::slice::from_ref(want)).verdicts[0].key.clone()
}

#[test]
fn ex57_a_gang_stays_folded_while_its_machine_is_made() {
    let want = any("a", 0).requires(RACK, Same, &[]).wants(&[("cpu", "8")], &[("cpu", "2")]).group("g");
    let small = many(4, "small", |id| cpu(speculative(id), "4").rack("r1").price(1.0));
    let with = |big: M| {
        let mut machines = small.clone();
        machines.push(cpu(big, "8").rack("r0").price(1.0));
        machines
    };
    let one = std::slice::from_ref(&want);
    assert_eq!(acts(&outcome(with(speculative("big")), one)), ["Provision big"]);
    let fold = only_key(with(speculative("big")), &want);
    assert!(fold.group.as_str().starts_with("fold/"));
    let made = with(creating("big").created_for(fold.clone()));
    assert_eq!(acts(&outcome(made, one)), Vec::<String>::new());
    let elsewhere = NeedKey { cluster: cluster("other"), ..fold };
    let out = outcome(with(creating("big").created_for(elsewhere)), one);
    assert_eq!(acts(&out), ["Provision small0", "Provision small1"]);
    assert!(verdict(&out, &want).same.is_some());
}

#[test]
fn ex58_some_machine_is_as_large_as_the_largest_pod() {
    let want = any("a", 0).wants(&[("cpu", "8")], &[("cpu", "4")]);
    let one = std::slice::from_ref(&want);
    let own = |n| many(n, "c", |id| cpu(configured(id, "a"), "2").price(0.1).stamped(&want));
    for n in [3, 4] {
        let out = outcome(own(n), one);
        assert_eq!((residual(&out, &want).as_str(), out.claimed.len()), ("cpu 4", n));
        let mut with_slot = own(n);
        with_slot.push(cpu(speculative("s"), "4"));
        assert_eq!(acts(&outcome(with_slot, one)), ["Provision s"]);
    }
    let mut with_large = own(4);
    with_large.push(cpu(configured("large", "a"), "4").price(1.0));
    let out = outcome(with_large.clone(), one);
    assert_eq!(claimed(&out), ["c0", "c1", "large"]);
    assert_eq!(acts(&out), ["Reclaim c3", "Reclaim c2"]);

    with_large.pop();
    with_large.push(cpu(configuring("large", "a"), "4").price(1.0));
    let out = outcome(with_large, one);
    assert_eq!((acts(&out), out.claimed.len()), (Vec::<String>::new(), 5));
}

#[test]
fn ex59_idle_before_slack() {
    let fleet = many(3, "ai", |id| idle(id).rack("a"))
        .into_iter()
        .chain(many(6, "as", |id| speculative(id).rack("a")))
        .chain(many(4, "bs", |id| speculative(id).rack("b")));
    let out = outcome(fleet, &[gang("c", 0, 3, RACK, "g")]);
    assert_eq!(acts(&out), ["Bootstrap ai0", "Bootstrap ai1", "Bootstrap ai2"]);
}

#[test]
fn ex61_a_gang_remembers_its_drains() {
    let want = gang("c", 1_000_000, 4, RACK, "g");
    let mut fleet = vec![configured("x0", "c").stamped(&want).rack("x"), idle("y0").rack("y")];
    for id in ["y1", "y2", "y3"] {
        fleet.push(draining(id, "batch").rack("y").preempted_for(want.key(), 1_000_000));
    }
    let out = outcome(fleet, &[want.clone(), need("batch", 0, 4)]);
    assert_eq!(acts(&out), ["Bootstrap y0", "Reclaim x0"]);
    let of = verdict(&out, &want);
    assert_eq!((domain(&out, &want).as_deref(), of.same.as_ref().unwrap().satisfiable), (Some("y"), true));
    assert_eq!((of.residual.to_string().as_str(), of.reason), ("gpu 24", UnmetReason::PriorityStarved));
    assert!(out.shortfalls.iter().all(|short| short.key != want.key()));
}

#[test]
fn ex62_drains_of_others_count() {
    let (want, batch) = (need("a", 1_000_000, 2), need("batch", 0, 6));
    let gone = need("gone", 2_000_000, 2);
    let fleet = |priority| {
        let drains = many(2, "d", |id| draining(id, "batch").preempted_for(gone.key(), priority));
        drains.into_iter().chain(many(6, "c", |id| configured(id, "batch").stamped(&batch)))
    };
    let out = outcome(fleet(2_000_000), &[want.clone(), batch.clone()]);
    assert_eq!(acts(&out), Vec::<String>::new());
    assert!(out.shortfalls.is_empty());
    assert_eq!(residual(&out, &want), "gpu 16");

    let out = outcome(fleet(500_000), &[want.clone(), batch.clone()]);
    assert_eq!(count(&out, "Preempt"), 2);
    let out = outcome(fleet(2_000_000), &[want, batch, gone.clone()]);
    assert_eq!(count(&out, "Preempt"), 2);
}

#[test]
fn ex63_equals_do_not_take_each_others_machines() {
    let a = gang("c", 5, 5, RACK, "a").arrival(1);
    let b = gang("c", 5, 4, RACK, "b").arrival(2);
    let fleet =
        many(4, "m", |id| configured(id, "c").stamped(&b).rack("r1"))
            .into_iter()
            .chain(many(4, "i", |id| idle(id).rack("r0")));
    let out = outcome(fleet, &[a.clone(), b.clone()]);
    assert_eq!((domain(&out, &a).as_deref(), domain(&out, &b).as_deref()), (Some("r0"), Some("r1")));
    assert_eq!((out.actions.len(), count(&out, "Bootstrap")), (4, 4));
    assert_eq!(residual(&out, &a), "gpu 8");
}

#[test]
fn ex64_a_gang_moves_and_what_waits_for_it_is_kept() {
    let want = gang("c", 1_000_000, 4, RACK, "g");
    let batch = need("batch", 0, 4);
    let own = |id: &str, rack: &str| configured(id, "c").stamped(&want).rack(rack);
    let mut fleet = vec![own("x0", "x"), own("x1", "x"), own("y9", "y"), speculative("x7").rack("x")];
    fleet.extend(many(4, "y", |id| configured(id, "batch").stamped(&batch).rack("y")));
    let out = outcome(fleet, &[want.clone(), batch]);
    assert_eq!(acts(&out), ["Preempt y0", "Preempt y1", "Preempt y2"]);
    assert_eq!(residual(&out, &want), "gpu 16");
    assert!(out.shortfalls.iter().all(|short| short.key != want.key()));
}

#[test]
fn a_gang_that_moves_gives_back_what_it_acquired() {
    let want = gang("c", 1_000_000, 4, RACK, "g");
    let batch = need("batch", 0, 4);
    let mut fleet = vec![configured("x0", "c").stamped(&want).rack("x"), idle("x1").rack("x")];
    fleet.extend(many(4, "y", |id| configured(id, "batch").stamped(&batch).rack("y")));
    let out = outcome(fleet, &[want.clone(), batch]);
    assert_eq!(acts(&out), ["Preempt y0", "Preempt y1", "Preempt y2", "Preempt y3"]);
    let of = verdict(&out, &want);
    assert_eq!((of.bootstraps, of.machines.len(), of.residual.to_string().as_str()), (0, 1, "gpu 24"));
}

#[test]
fn ex65_siblings_last() {
    let (high, low) = (need("c", 10, 1), need("c", 0, 1));
    let fleet =
        [creating("made").created_for(high.key()), configured("bound", "c").stamped(&low), speculative("s")];
    let out = outcome(fleet, &[high.clone(), low.clone()]);
    assert_eq!(acts(&out), Vec::<String>::new());
    assert!(verdict(&out, &high).satisfied && verdict(&out, &low).satisfied);
}

#[test]
fn ex66_a_short_gang_keeps_its_own_rack() {
    let (big, low) = (gang("c", 5, 5, RACK, "big"), gang("c", 0, 3, RACK, "low"));
    let fleet = many(3, "x", |id| configured(id, "c").stamped(&big).rack("x")).into_iter().chain(many(
        3,
        "a",
        |id| configured(id, "c").stamped(&low).rack("a"),
    ));
    let out = outcome(fleet, &[big.clone(), low.clone()]);
    assert_eq!((domain(&out, &big).as_deref(), domain(&out, &low).as_deref()), (Some("x"), Some("a")));
    assert_eq!((residual(&out, &big).as_str(), acts(&out).len()), ("gpu 16", 0));
}

#[test]
fn ex67_no_money_for_a_gang_that_cannot_start() {
    let one = [gang("c", 0, 3, RACK, "g")];
    let slots = many(2, "s", |id| speculative(id).rack("r2"));
    assert_eq!(acts(&outcome(slots.clone(), &one)), Vec::<String>::new());
    let free = many(2, "i", |id| idle(id).rack("r2"));
    assert_eq!(acts(&outcome(free, &one)), ["Bootstrap i0", "Bootstrap i1"]);
    let mixed = slots.into_iter().chain([idle("i").rack("r2")]);
    assert_eq!(acts(&outcome(mixed, &one)), ["Bootstrap i", "Provision s0", "Provision s1"]);
}

#[test]
fn ex68_machines_made_for_nobody_known() {
    let fleet = || many(3, "made", creating).into_iter().chain(many(9, "s", speculative));
    let (a, b) = (need("a", 2, 3), need("b", 1, 3));
    assert_eq!(acts(&outcome(fleet(), std::slice::from_ref(&a))), Vec::<String>::new());
    let out = outcome(fleet(), &[a, b.clone()]);
    assert_eq!(acts(&out), ["Provision s0", "Provision s1", "Provision s2"]);
    assert!(out.actions.iter().all(|action| action.need == Some(b.key())));
}

#[test]
fn ex69_an_empty_value_is_no_domain() {
    let want = gang("a", 0, 2, RACK, "g");
    let out = outcome(many(3, "i", |id| idle(id).rack("")), std::slice::from_ref(&want));
    assert_eq!((acts(&out).len(), domain(&out, &want)), (0, None));
}

#[test]
fn ex61_a_gangs_own_drains_count_where_it_looks_for_a_place() {
    let (want, other) = (gang("c", 1_000_000, 4, RACK, "g"), need("other", 1_000_000, 3));
    let drains = |for_: &N, rack: &'static str| {
        let key = for_.key();
        many(3, rack, move |id| draining(id, "batch").rack(rack).preempted_for(key.clone(), 1_000_000))
    };
    let unfit = drains(&want, "z").into_iter().map(|machine| machine.kind("b3"));
    let fleet = drains(&want, "y").into_iter().chain(drains(&other, "x")).chain(unfit);
    let free = [idle("y9").rack("y"), idle("x8").rack("x"), idle("x9").rack("x")];
    let out = outcome(fleet.chain(free), &[want.clone(), other]);
    let same = verdict(&out, &want).same.as_ref().unwrap();
    let told: Vec<_> = same.candidates.iter().map(|c| (&*c.domain, c.per_mille)).collect();
    assert_eq!((same.domain.as_deref(), told), (Some("y"), vec![("y", 1000), ("x", 500)]));
}

#[test]
fn a_drain_that_is_too_small_for_the_pods_of_today_does_not_count() {
    let (want, batch) = (need("a", 1_000_000, 2), need("batch", 0, 6));
    let drains =
        many(2, "d", |id| draining(id, "batch").preempted_for(want.key(), 1_000_000).cap(&[("gpu", "4")]));
    let fleet = drains.into_iter().chain(many(6, "c", |id| configured(id, "batch").stamped(&batch)));
    assert_eq!(count(&outcome(fleet, &[want.clone(), batch]), "Preempt"), 2);
}

#[test]
fn what_drains_for_a_gang_elsewhere_does_not_count() {
    let (want, batch) = (gang("c", 1_000_000, 4, RACK, "g"), need("batch", 0, 4));
    let mut fleet = vec![draining("x1", "batch").rack("x").preempted_for(want.key(), 1_000_000)];
    fleet.extend(many(3, "own", |id| configured(id, "c").stamped(&want).rack("y")));
    fleet.extend(many(4, "y", |id| configured(id, "batch").stamped(&batch).rack("y")));
    let out = outcome(fleet, &[want.clone(), batch]);
    assert_eq!((domain(&out, &want).as_deref(), acts(&out)), (Some("y"), vec!["Preempt y0".to_owned()]));
}

/// What the gang may use where it moves to counts whomever it was bound for.
#[test]
fn ex64_a_gang_moves_to_where_its_cluster_has_something() {
    let (want, batch) = (gang("c", 1_000_000, 4, RACK, "g"), need("batch", 0, 4));
    let mut fleet =
        vec![configured("x0", "c").stamped(&want).rack("x"), configured("x1", "c").stamped(&want).rack("x")];
    fleet.push(configured("y9", "c").rack("y"));
    fleet.extend(many(4, "y", |id| configured(id, "batch").stamped(&batch).rack("y")));
    assert_eq!(acts(&outcome(fleet, &[want, batch])), ["Preempt y0", "Preempt y1", "Preempt y2"]);
}
