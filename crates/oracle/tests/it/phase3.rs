//! Reclaim and release (examples 51, 52, 54, 55 and 70; 53 and the second half of 70: `looped`).

use bigfleet_types::CapacityType;
use bigfleet_types::keys::ZONE;

use crate::fleet::*;

#[test]
fn ex51_the_gate() {
    let mut fleet = world(many(4, "c", |id| configured(id, "a")), &[]);
    assert_eq!(acts(&run(&fleet)), Vec::<String>::new());
    fleet.heard.insert(cluster("a"));
    let out = run(&fleet);
    assert_eq!((out.actions.len(), count(&out, "Reclaim")), (4, 4));
    for action in &out.actions {
        assert_eq!((action.grace, action.preemptor_priority, action.need.clone()), (seconds(600), 0, None));
        assert_eq!((action.cluster.clone(), action.reason), (Some(cluster("a")), "phase3.excess"));
    }

    let mut two = world([configured("ma", "a"), configured("mb", "b")], &[]);
    two.heard.insert(cluster("b"));
    assert_eq!(acts(&run(&two)), ["Reclaim mb"]);
}

#[test]
fn ex52_the_dearest_goes() {
    let want = need("a", 0, 3);
    let priced = |prefix, n, dollars| many(n, prefix, |id| configured(id, "a").price(dollars));
    let equal = priced("dear", 3, 6.0).into_iter().chain(priced("free", 2, 0.0));
    assert_eq!(acts(&outcome(equal, std::slice::from_ref(&want))), ["Reclaim dear2", "Reclaim dear1"]);

    let own = priced("dear", 3, 6.0).into_iter().map(|machine| machine.stamped(&want));
    let out = outcome(own.chain(priced("free", 2, 0.0)), std::slice::from_ref(&want));
    assert_eq!(acts(&out), ["Reclaim free1", "Reclaim free0"]);
}

#[test]
fn ex52_then_the_least_valuable() {
    let valued = |id: &str, price, dollars| configured(id, "a").price(price).penalties(0.0, dollars);
    let pair = [valued("m0", 1.0, 0.0), valued("m1", 1.0, 5000.0)];
    assert_eq!(acts(&outcome(pair, &[need("a", 0, 1)])), ["Reclaim m0"]);

    let excess = [valued("x1", 1.0, 0.0), valued("x69", 6.0, 9.0), valued("x60", 6.0, 0.0)];
    let mut fleet = world(excess, &[]);
    fleet.heard.insert(cluster("a"));
    assert_eq!(acts(&run(&fleet)), ["Reclaim x60", "Reclaim x69", "Reclaim x1"]);
}

#[test]
fn ex54_what_is_paid_by_the_hour_is_released_after_its_hold() {
    let all = [
        ("bare", CapacityType::BareMetal),
        ("demand", CapacityType::OnDemand),
        ("reserved", CapacityType::Reserved),
        ("spot", CapacityType::Spot),
        ("unsaid", CapacityType::Unspecified),
    ];
    let fleet = |secs: i64| all.map(|(id, payment)| idle(id).payment(payment).idle_for(secs));
    assert_eq!(acts(&outcome(fleet(120), &[])), ["Delete spot"]);
    for secs in [660, 3_600_000] {
        let out = outcome(fleet(secs), &[]);
        assert_eq!(acts(&out), ["Delete demand", "Delete spot"]);
        for action in &out.actions {
            assert_eq!((action.cluster.clone(), action.grace, action.need.clone()), (None, seconds(0), None));
            assert_eq!(action.reason, "phase3.release");
        }
    }
    // Claimed, without a stamp, or with holds of zero: never.
    assert_eq!(count(&outcome(fleet(660), &[need("a", 0, 5)]), "Delete"), 0);
    assert_eq!(outcome([idle("i").payment(CapacityType::Spot)], &[]).actions.len(), 0);
    let mut zero = world(fleet(3_600_000), &[]);
    zero.policy.on_demand_idle_hold = seconds(0);
    zero.policy.spot_idle_hold = seconds(0);
    assert_eq!(run(&zero).actions.len(), 0);
}

#[test]
fn ex55_a_gang_keeps_one_zone() {
    let bound = |n, prefix, zone: &'static str| many(n, prefix, |id| configured(id, "x").zone(zone));
    let want = gang("x", 0, 3, ZONE, "g");
    let fleet = bound(3, "a", "zone-a").into_iter().chain(bound(2, "b", "zone-b"));
    assert_eq!(acts(&outcome(fleet, std::slice::from_ref(&want))), ["Reclaim b1", "Reclaim b0"]);
    let fleet = bound(2, "a", "zone-a").into_iter().chain(bound(2, "b", "zone-b"));
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(
        (acts(&out), claimed(&out)),
        (vec!["Reclaim b1".into(), "Reclaim b0".into()], vec!["a0", "a1"])
    );
}

#[test]
fn ex70_excess_must_last() {
    let after = |secs: i64| {
        let mut fleet = world([configured("c", "a").excess_for(secs)], &[]);
        fleet.heard.insert(cluster("a"));
        fleet.policy.reclaim_after = seconds(60);
        acts(&run(&fleet))
    };
    assert_eq!(after(59), Vec::<String>::new());
    assert_eq!(after(60), ["Reclaim c"]);
}
