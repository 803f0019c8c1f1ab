//! Which of several machines is taken.

use bigfleet_types::{CapacityType, Operator, keys};

use crate::dsl::{M, N, decide, lines, machine, need};

fn taken(machines: &[M], need: N) -> Vec<String> {
    lines(&decide(machines, &[("a", &[need])]))
}

#[test]
fn ex11_requirements_select_machines() {
    let fleet = [machine("m").kind("m5").zone("z1").label("team", "").label(keys::ZONE, "z9").has("cpu=1")];
    let table: &[(&str, Operator, &[&str], bool)] = &[
        (keys::INSTANCE_TYPE, Operator::In, &["m5"], true),
        (keys::INSTANCE_TYPE, Operator::In, &["M5"], false),
        ("rack", Operator::NotIn, &["r1"], true),
        ("team", Operator::Exists, &[], true),
        ("rack", Operator::DoesNotExist, &[], true),
        (keys::ZONE, Operator::In, &[], false),
        (keys::ZONE, Operator::In, &["z9"], false),
        (keys::ZONE_BETA, Operator::In, &["z1"], true),
        (keys::HOSTNAME, Operator::In, &["m"], true),
        (keys::HOSTNAME, Operator::In, &["n"], false),
    ];
    for (key, operator, values, expected) in table {
        let actions = taken(&fleet, need(0, "cpu=1").requires(key, *operator, values));
        assert_eq!(actions.len(), usize::from(*expected), "{key} {operator:?} {values:?}");
    }
}

#[test]
fn ex12_expected_interruptions_are_part_of_the_price() {
    let spot = || machine("a-spot").paid(CapacityType::Spot).price(1.8).interrupted(0.1).has("cpu=1");
    let on_demand = || machine("b-od").paid(CapacityType::OnDemand).price(6.0).has("cpu=1");
    // Buckets of $4, $8, $64 and pinned.
    for (bucket, expected) in [(5, "a-spot"), (6, "a-spot"), (9, "b-od"), (27, "b-od")] {
        let actions = taken(&[spot(), on_demand()], need(0, "cpu=1").buckets(bucket, 1));
        assert_eq!(actions, [format!("Bootstrap {expected} a")], "bucket {bucket}");
    }
    let only_spot = taken(&[spot()], need(0, "cpu=1").buckets(27, 1));
    assert_eq!(only_spot, ["Bootstrap a-spot a"], "infinite, yet taken when nothing else exists");
}

#[test]
fn infinite_costs_order_by_price() {
    let spot = |id: &str, price| machine(id).price(price).interrupted(0.5).has("cpu=1");
    let actions = taken(&[spot("a", 2.0), spot("b", 1.0)], need(0, "cpu=1").buckets(27, 1));
    assert_eq!(actions, ["Bootstrap b a"]);
}

#[test]
fn ex13_idle_before_cheaper_speculative() {
    let fleet = [
        machine("i").paid(CapacityType::OnDemand).price(6.0).has("cpu=1"),
        machine("s").paid(CapacityType::Spot).price(1.0).has("cpu=1").speculative(),
    ];
    assert_eq!(taken(&fleet, need(0, "cpu=1")), ["Bootstrap i a"]);
}

#[test]
fn ex14_a_precious_workload_avoids_idle_spot() {
    let fleet = [
        machine("a-spot").paid(CapacityType::Spot).price(0.3).interrupted(0.2).has("cpu=1"),
        machine("b-od").paid(CapacityType::OnDemand).price(1.0).has("cpu=1"),
    ];
    assert_eq!(taken(&fleet, need(0, "cpu=1").buckets(16, 1)), ["Bootstrap b-od a"]);
}

#[test]
fn ex15_devices_that_nobody_asked_for_come_last() {
    let gpu = machine("a-gpu").paid(CapacityType::BareMetal).has("cpu=8 nvidia.com/gpu=8");
    let cpu = machine("b-cpu").paid(CapacityType::BareMetal).has("cpu=8");
    assert_eq!(taken(&[gpu.clone(), cpu.clone()], need(0, "cpu=8")), ["Bootstrap b-cpu a"]);
    // Asked for in the floor alone, the device counts as requested.
    let asks = need(0, "cpu=8").floor("nvidia.com/gpu=1");
    assert_eq!(taken(&[gpu, cpu], asks), ["Bootstrap a-gpu a"]);
}

#[test]
fn equal_costs_go_by_the_bytes_of_the_id_across_classes() {
    let fleet = [
        machine("gpu-2").zone("z1").has("cpu=1"),
        machine("gpu-10").zone("z2").has("cpu=1"),
        machine("gpu-1").zone("z1").has("cpu=1"),
        machine("gpu-11").zone("z3").has("cpu=1"),
    ];
    let actions = taken(&fleet, need(0, "cpu=4"));
    assert_eq!(
        actions,
        ["Bootstrap gpu-1 a", "Bootstrap gpu-10 a", "Bootstrap gpu-11 a", "Bootstrap gpu-2 a"]
    );
}
