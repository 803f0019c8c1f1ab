//! Matching, cost and the order of acquisition (examples 11 to 15).

use bigfleet_oracle::World;
use bigfleet_types::Operator::{DoesNotExist, Exists, In, NotIn, Same};
use bigfleet_types::{CapacityType, Operator, keys};

use crate::fleet::*;

/// Whether a machine of type m5 in zone z1 serves a Need with one requirement.
fn serves(key: &str, operator: Operator, values: &[&str]) -> bool {
    let machine =
        idle("m").kind("m5").zone("z1").label("team", "").label(keys::ZONE, "z9").cap(&[("cpu", "4")]);
    let need = any("a", 0).wants(&[("cpu", "4")], &[("cpu", "4")]).requires(key, operator, values);
    acts(&outcome([machine], &[need])) == ["Bootstrap m"]
}

#[test]
fn ex11_every_operator_on_present_absent_and_empty_values() {
    assert!(serves(TYPE, In, &["m5"]));
    assert!(!serves(TYPE, In, &["M5"]));
    assert!(serves("rack", NotIn, &["r1"]));
    assert!(serves("team", Exists, &[]));
    assert!(serves("rack", DoesNotExist, &[]));
    assert!(!serves("rack", Same, &[]));
    assert!(serves(keys::ZONE, Same, &[]));
    assert!(!serves(keys::ZONE, Same, &["z2"]));
    assert!(!serves(keys::ZONE, In, &[]));
    // The field wins over the label of the same name.
    assert!(serves(keys::ZONE, In, &["z1"]) && !serves(keys::ZONE, In, &["z9"]));
}

fn spot_and_on_demand() -> [M; 2] {
    [
        idle("a-spot").payment(CapacityType::Spot).price(1.8).probability(0.1),
        idle("b-demand").payment(CapacityType::OnDemand).price(6.0),
    ]
}

#[test]
fn ex12_the_expected_interruption_counts() {
    for (dollars, taken) in [
        ("4", "Bootstrap a-spot"),
        ("5", "Bootstrap a-spot"),
        ("8", "Bootstrap a-spot"),
        ("50", "Bootstrap b-demand"),
        ("64", "Bootstrap b-demand"),
    ] {
        let need = need("a", 0, 1).interruption(dollars);
        assert_eq!(acts(&outcome(spot_and_on_demand(), &[need])), [taken], "${dollars}");
    }
    // The exact costs: $2.20, $2.60 and $8.20 lie on either side of these prices.
    for (dollars, below, above) in [("4", 2.19, 2.21), ("8", 2.59, 2.61), ("64", 8.19, 8.21)] {
        let [spot, demand] = spot_and_on_demand();
        let need = need("a", 0, 1).interruption(dollars);
        let against = |price: f64| {
            acts(&outcome([spot.clone(), demand.clone().price(price)], std::slice::from_ref(&need)))
        };
        assert_eq!(against(below), ["Bootstrap b-demand"]);
        assert_eq!(against(above), ["Bootstrap a-spot"]);
    }
}

#[test]
fn ex12_a_pinned_workload_takes_spot_only_if_there_is_nothing_else() {
    let pinned = need("a", 0, 1).pinned();
    let both = outcome(spot_and_on_demand(), std::slice::from_ref(&pinned));
    assert_eq!(acts(&both), ["Bootstrap b-demand"]);
    let [spot, _] = spot_and_on_demand();
    assert_eq!(acts(&outcome([spot], &[pinned])), ["Bootstrap a-spot"]);
}

#[test]
fn ex13_idle_before_speculative_at_any_price() {
    let machines = [idle("i").price(6.0), speculative("s").price(1.0)];
    assert_eq!(acts(&outcome(machines, &[need("a", 0, 1)])), ["Bootstrap i"]);
}

#[test]
fn ex14_effective_cost_counts_among_idle_machines_too() {
    let machines = [idle("a").price(0.3).probability(0.2), idle("b").price(1.0)];
    assert_eq!(acts(&outcome(machines, &[need("a", 0, 1).interruption("8192")])), ["Bootstrap b"]);
}

#[test]
fn ex15_devices_that_nobody_asked_for_are_spared() {
    let machines = [idle("a-gpu").cap(&[("cpu", "8"), ("gpu", "8")]), idle("b-cpu").cap(&[("cpu", "8")])];
    let need = any("a", 0).wants(&[("cpu", "8")], &[("cpu", "8")]);
    assert_eq!(acts(&outcome(machines, &[need])), ["Bootstrap b-cpu"]);
}

#[test]
fn an_empty_world_decides_nothing() {
    assert_eq!(bigfleet_oracle::decide(&World::default()), Default::default());
}
