//! The choice of a gang's domain (examples 32 to 40).

use bigfleet_types::keys::ZONE;

use crate::fleet::*;

fn zone(machines: Vec<M>, zone: &str) -> impl Iterator<Item = M> + use<'_> {
    machines.into_iter().map(move |machine| machine.zone(zone))
}

fn rack(machines: Vec<M>, rack: &str) -> impl Iterator<Item = M> + use<'_> {
    machines.into_iter().map(move |machine| machine.rack(rack))
}

#[test]
fn ex32_one_zone_or_another() {
    let fleet = |a, b| zone(many(a, "a", idle), "zone-a").chain(zone(many(b, "b", idle), "zone-b"));
    let three = gang("c", 0, 3, ZONE, "g");
    assert_eq!(acts(&outcome(fleet(3, 3), &[three])), ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2"]);
    let five = gang("c", 0, 5, ZONE, "g");
    let out = outcome(fleet(3, 3), std::slice::from_ref(&five));
    assert_eq!(acts(&out), ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2"]);
    assert_eq!(residual(&out, &five), "gpu 16");
    let out = outcome(fleet(4, 2), &[gang("c", 0, 4, ZONE, "g")]);
    assert_eq!(acts(&out), ["Bootstrap a0", "Bootstrap a1", "Bootstrap a2", "Bootstrap a3"]);
}

#[test]
fn ex33_two_gangs_find_two_zones_at_once() {
    let fleet = zone(many(3, "a", idle), "a").chain(zone(many(3, "b", idle), "b"));
    let (first, second) = (gang("x", 2_000_000, 3, ZONE, "g"), gang("y", 1_000_000, 3, ZONE, "g"));
    let out = outcome(fleet, &[second.clone(), first.clone()]);
    assert_eq!(domain(&out, &first).as_deref(), Some("a"));
    assert_eq!(domain(&out, &second).as_deref(), Some("b"));
    assert_eq!(count(&out, "Bootstrap"), 6);
}

#[test]
fn ex34_own_machines_decide_then_the_smaller_total() {
    let (want, sibling) = (gang("c", 0, 3, RACK, "g"), gang("c", 0, 3, RACK, "sibling"));
    let bound = |n, prefix, by: &N| many(n, prefix, |id| configured(id, "c").stamped(by));
    let fleet = rack(bound(3, "own", &want), "rack-x")
        .chain(rack(bound(3, "sib", &sibling), "rack-x"))
        .chain(rack(bound(3, "other", &sibling), "rack-y"));
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(domain(&out, &want).as_deref(), Some("rack-x"));

    let bare = |n, prefix| many(n, prefix, |id| configured(id, "c"));
    let fleet = rack(bare(6, "x"), "rack-x").chain(rack(bare(3, "y"), "rack-y"));
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(domain(&out, &want).as_deref(), Some("rack-y"));
}

#[test]
fn ex34_more_credit_beats_more_of_its_own() {
    let want = gang("c", 0, 4, RACK, "g");
    let fleet = rack(many(4, "x", |id| configured(id, "c")), "x")
        .chain(rack(many(2, "y", |id| configured(id, "c").stamped(&want)), "y"))
        .chain(rack(many(2, "z", idle), "y"));
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(domain(&out, &want).as_deref(), Some("x"));
}

#[test]
fn a_gang_leaves_its_siblings_machines_to_them_where_it_can() {
    let (want, sibling) = (gang("c", 0, 3, RACK, "g"), gang("c", -1, 3, RACK, "sibling"));
    let siblings = |n, prefix| many(n, prefix, |id| configured(id, "c").stamped(&sibling));
    let needs = [want.clone(), sibling.clone()];
    let nobodys = rack(many(4, "y", |id| configured(id, "c")), "rack-y");
    let out = outcome(rack(siblings(3, "x"), "rack-x").chain(nobodys), &needs);
    assert_eq!(domain(&out, &want).as_deref(), Some("rack-y"));
    assert_eq!(domain(&out, &sibling).as_deref(), Some("rack-x"));

    // How many machines siblings have there moves no gang that they serve.
    for (x, y) in [(3, 6), (6, 3)] {
        let fleet = rack(siblings(x, "x"), "rack-x").chain(rack(siblings(y, "y"), "rack-y"));
        assert_eq!(domain(&outcome(fleet, &needs), &want).as_deref(), Some("rack-x"));
    }
}

#[test]
fn every_machine_is_a_domain_for_a_gang_that_wants_one_host() {
    let want = gang("c", 0, 2, bigfleet_types::keys::HOSTNAME, "g");
    let fleet = [idle("m1").cap(&[("gpu", "8")]), idle("m2").cap(&[("gpu", "12")]), idle("m3")];
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!((acts(&out), domain(&out, &want).as_deref()), (vec!["Bootstrap m2".to_owned()], Some("m2")));
    assert_eq!(residual(&out, &want), "gpu 4");
}

#[test]
fn ex35_bindings_before_free_machines() {
    let fleet =
        zone(many(3, "c", |id| configured(id, "x")), "zone-a").chain(zone(many(2, "i", idle), "zone-b"));
    assert_eq!(acts(&outcome(fleet, &[gang("x", 0, 2, ZONE, "g")])), ["Reclaim c2"]);
}

#[test]
fn ex37_the_second_gang_stays_with_what_it_has() {
    let fleet = [configured("ma", "x").zone("a"), configured("mb", "x").zone("b")]
        .into_iter()
        .chain(zone(many(2, "mc", idle), "c"));
    let (first, second) = (gang("x", 0, 2, ZONE, "g1"), gang("x", 0, 2, ZONE, "g2").arrival(2));
    let out = outcome(fleet, &[first.clone(), second.clone()]);
    assert_eq!(domain(&out, &first).as_deref(), Some("c"));
    assert_eq!(domain(&out, &second).as_deref(), Some("a"));
    assert_eq!(acts(&out), ["Bootstrap mc0", "Bootstrap mc1", "Reclaim mb"]);
}

#[test]
fn ex38_a_maturing_machine_pushes_no_incumbent_out() {
    let want = gang("x", 0, 2, RACK, "g");
    let own = ["m5", "m6"].map(|id| configured(id, "x").stamped(&want).rack("r"));
    for new in [configuring("m1", "x"), configured("m1", "x")] {
        let out = outcome(own.clone().into_iter().chain([new.rack("r")]), std::slice::from_ref(&want));
        assert_eq!(claimed(&out), ["m5", "m6"]);
    }
}

#[test]
fn ex39_candidates_are_explained() {
    let want = gang("c", 0, 1, RACK, "g").wants(&[("gpu", "8")], &[]);
    let of = |id: &str, gpu: &str, rack: &str| idle(id).cap(&[("gpu", gpu)]).rack(rack);
    let fleet = [
        of("m1", "4", "r1"),
        of("m2", "4", "r2"),
        of("m3", "4", "r2"),
        of("m4", "6", "r3"),
        idle("m5").cap(&[("cpu", "1")]).rack("r4"),
    ];
    let out = outcome(fleet, std::slice::from_ref(&want));
    let candidates = &verdict(&out, &want).same.as_ref().unwrap().candidates;
    let seen: Vec<(&str, u16, bool)> =
        candidates.iter().map(|c| (&*c.domain, c.per_mille, c.satisfiable)).collect();
    assert_eq!(seen, [("r2", 1000, true), ("r3", 750, false), ("r1", 500, false)]);
}

#[test]
fn ex39_the_scarcest_dimension_governs() {
    let want = gang("c", 0, 1, RACK, "g").wants(&[("cpu", "8"), ("gpu", "4")], &[]);
    let out = outcome([idle("m").cap(&[("cpu", "8"), ("gpu", "1")]).rack("r")], std::slice::from_ref(&want));
    assert_eq!(verdict(&out, &want).same.as_ref().unwrap().candidates[0].per_mille, 250);
}

#[test]
fn ex40_slack_does_not_move_a_served_gang() {
    let want = gang("x", 0, 2, RACK, "g");
    let own = |prefix, rack_| rack(many(2, prefix, |id| configured(id, "x").stamped(&want)), rack_);
    for slack in [idle("i").rack("a"), idle("i").rack("b"), idle("i")] {
        let out = outcome(own("ca", "a").chain(own("cb", "b")).chain([slack]), std::slice::from_ref(&want));
        assert_eq!(domain(&out, &want).as_deref(), Some("a"));
        assert_eq!(acts(&out), ["Reclaim cb1", "Reclaim cb0"]);
    }
}

#[test]
fn of_served_places_the_one_with_more_machines() {
    let want = gang("c", 0, 3, RACK, "g");
    let bound =
        |n, prefix, gpu: &'static str| many(n, prefix, move |id| configured(id, "c").cap(&[("gpu", gpu)]));
    let fleet = rack(bound(2, "x", "12"), "x").chain(rack(bound(3, "y", "8"), "y"));
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(domain(&out, &want).as_deref(), Some("y"));
}

/// Only what counts as credit makes a gang one that has its own, and such a one goes first.
#[test]
fn machines_that_do_not_count_serve_no_gang_before_its_equals() {
    let (first, second) = (gang("c", 5, 2, RACK, "a").arrival(1), gang("c", 5, 2, RACK, "b").arrival(2));
    let of = |want: &N, prefix| many(2, prefix, |id| configured(id, "c").stamped(want).rack("r"));
    let lost = of(&first, "lost").into_iter().map(|mut machine| {
        machine.1.eligibility.creditable = false;
        machine
    });
    let out = outcome(lost.chain(of(&second, "own")), &[first.clone(), second.clone()]);
    assert_eq!((residual(&out, &first).as_str(), residual(&out, &second).as_str()), ("gpu 16", "nothing"));
}

/// All machines of a place count, those that the gang has there and those that are free.
#[test]
fn of_equal_places_the_one_with_more_machines() {
    let want = gang("c", 0, 6, RACK, "g").wants(&[("gpu", "48")], &[("gpu", "6")]);
    let own = |n, prefix, gpu: &'static str| {
        many(n, prefix, |id| configured(id, "c").cap(&[("gpu", gpu)]).stamped(&want))
    };
    let free = |n, prefix, gpu: &'static str| many(n, prefix, move |id| idle(id).cap(&[("gpu", gpu)]));
    let few = own(2, "ao", "12").into_iter().chain(free(2, "ai", "12"));
    let more = own(4, "bo", "6").into_iter().chain(free(1, "bi", "24"));
    let fleet = rack(few.collect(), "a").chain(rack(more.collect(), "b"));
    assert_eq!(domain(&outcome(fleet, std::slice::from_ref(&want)), &want).as_deref(), Some("b"));
}
