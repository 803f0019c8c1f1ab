//! Crediting and acquiring, worked examples 16 to 27, 58, 65 and 68.

use bigfleet_engine::{Eligibility, Policy, UnmetReason};
use bigfleet_types::{MachineState, WhenUnsatisfiable, keys};

use crate::dsl::{
    GPU, M, claimed, count, decide, demand, engine, gpu, gpu_need, gpus, lines, machine, need, pass, secs,
    vector, verdict,
};
use crate::world::World;

#[test]
fn ex16_idle_machines_are_bootstrapped_up_to_the_demand() {
    let want = gpu_need(1_000_000, 3);
    let decisions = decide(&gpus(4, "m", |m| m), &[("a", &[want.clone()])]);
    assert_eq!(lines(&decisions), ["Bootstrap m00 a", "Bootstrap m01 a", "Bootstrap m02 a"]);
    let v = verdict(&decisions, "a", &want);
    assert!(v.satisfied && v.residual.is_empty());
    assert_eq!((v.claimed, v.bootstraps, v.provisions), (3, 3, 0));
    assert_eq!(decisions.actions[0].need_key, Some(want.key("a")));

    let want = gpu_need(1_000_000, 5);
    let decisions = decide(&gpus(2, "m", |m| m), &[("a", &[want.clone()])]);
    assert_eq!(count(&decisions, "Bootstrap"), 2);
    assert_eq!(verdict(&decisions, "a", &want).residual, vector("nvidia.com/gpu=24"));
}

#[test]
fn ex17_what_is_missing_is_one_shortfall() {
    let want = gpu_need(0, 64);
    let decisions = decide(&gpus(32, "m", |m| m), &[("a", &[want.clone()])]);
    assert_eq!(decisions.actions.len(), 32);
    assert_eq!(count(&decisions, "Bootstrap"), 32);
    assert_eq!(verdict(&decisions, "a", &want).residual.get(GPU), 256);
    assert_eq!(decisions.shortfalls.len(), 1);
    assert_eq!(decisions.shortfalls[0].deficit.get(GPU), 256);
}

#[test]
fn ex18_bound_machines_are_credited() {
    let want = gpu_need(1_000_000, 2);
    let decisions = decide(&gpus(2, "c", |m| m.configured("a")), &[("a", &[want])]);
    assert!(decisions.actions.is_empty());

    let mut fleet = gpus(5, "c", |m| m.configured("a"));
    fleet.extend(gpus(25, "i", |m| m));
    let rows: Vec<_> = (0..30).map(|i| gpu_need(1_000_000, 1).group(&format!("g{i}"))).collect();
    let decisions = decide(&fleet, &[("a", &rows)]);
    assert_eq!((decisions.actions.len(), count(&decisions, "Bootstrap")), (25, 25));
    assert_eq!(decisions.claimed.len(), 30);
}

#[test]
fn ex19_higher_priority_is_served_first() {
    let (low, high) = (gpu_need(0, 2), gpu_need(1_000_000, 2));
    let orders: [[(&str, &[_]); 2]; 2] = [
        [("low", &[low.clone()]), ("high", &[high.clone()])],
        [("high", &[high.clone()]), ("low", &[low.clone()])],
    ];
    for demands in orders {
        let decisions = decide(&gpus(2, "m", |m| m), &demands);
        assert_eq!(lines(&decisions), ["Bootstrap m00 high", "Bootstrap m01 high"]);
        assert!(!verdict(&decisions, "low", &low).satisfied);
    }
}

#[test]
fn ex20_each_dimension_must_be_covered() {
    let host = |id: &str| machine(id).has("cpu=16 memory=32Gi").configured("a");
    let want = need(0, "cpu=10 memory=40Gi").floor("cpu=1 memory=4Gi");
    let decisions = decide(&[host("c0")], &[("a", &[want.clone()])]);
    assert!(decisions.actions.is_empty());
    assert_eq!(verdict(&decisions, "a", &want).residual, vector("memory=8Gi"));
    assert_eq!(decisions.shortfalls.len(), 1);

    let want = need(0, "cpu=8 memory=32Gi").floor("cpu=1 memory=4Gi");
    let decisions = decide(&[host("c0"), host("c1")], &[("a", &[want.clone()])]);
    assert!(verdict(&decisions, "a", &want).satisfied);
    assert_eq!(lines(&decisions), ["Reclaim c1 a"]);
}

#[test]
fn ex21_creating_machines_count_for_their_need_alone() {
    let want = need(0, "cpu=4").floor("cpu=4");
    let other = need(0, "cpu=4").floor("cpu=4").group("other");
    let fleet = |creating: M| [creating.has("cpu=4"), machine("s").has("cpu=4").speculative()];
    for silent in [machine("cr").creating_for(want.key("a")), machine("cr").creating()] {
        let decisions = decide(&fleet(silent), &[("a", &[want.clone()])]);
        assert!(decisions.actions.is_empty());
        assert!(verdict(&decisions, "a", &want).satisfied);
    }
    for foreign in [other.key("a"), want.key("b")] {
        let decisions = decide(&fleet(machine("cr").creating_for(foreign)), &[("a", &[want.clone()])]);
        assert_eq!(lines(&decisions), ["Provision s a"]);
    }
}

#[test]
fn ex22_one_lost_machine_is_one_provision_whatever_a_create_takes() {
    let want = gpu_need(0, 3);
    let mut fleet = gpus(3, "c", |m| m.configured("a").of(&want.build()));
    fleet.extend(gpus(10, "s", M::speculative));
    let mut world = World::new(fleet, 5);
    world.wants("a", &[want]);
    assert!(world.step().actions.is_empty());
    world.put(gpu("c00").state(MachineState::Failed));
    assert_eq!(world.total(8, |decisions| count(decisions, "Provision")), 1);
}

#[test]
fn ex23_machines_that_help_nothing_are_left_alone() {
    let want = need(0, "example.com/foo=1");
    let mut fleet = gpus(100, "i", |m| m);
    fleet.extend(gpus(100, "s", M::speculative));
    let decisions = decide(&fleet, &[("a", &[want.clone()])]);
    assert!(decisions.actions.is_empty() && decisions.claimed.is_empty());
    assert_eq!(verdict(&decisions, "a", &want).reason, UnmetReason::NoMatchingSupply);
}

fn ratchet(big_price: f64) -> (World, usize) {
    let before = need(0, "cpu=100").floor("cpu=1");
    let small = |i| machine(&format!("c{i:02}")).has("cpu=4").price(0.2).configured("a").of(&before.build());
    let mut fleet: Vec<_> = (0..25).map(small).collect();
    fleet.push(machine("s").has("cpu=16").price(big_price).speculative());
    let mut world = World::new(fleet, 3);
    world.wants("a", &[before]);
    assert!(world.step().actions.is_empty());
    world.wants("a", &[need(0, "cpu=108").floor("cpu=8")]);
    let first = world.step();
    assert_eq!(lines(&first), ["Provision s a"]);
    let reclaims = world.total(10, |decisions| count(decisions, "Reclaim"));
    assert!(world.step().actions.is_empty());
    (world, reclaims)
}

#[test]
fn ex24_min_unit_ratchet() {
    let (world, reclaims) = ratchet(1.0);
    assert_eq!(reclaims, 0);
    assert_eq!(world.machines["s"].machine.state, MachineState::Configured);
    let (world, reclaims) = ratchet(0.1);
    assert_eq!(reclaims, 2, "116 of 108 cpu: two small ones are genuine excess");
    assert_eq!(world.machines["s"].machine.state, MachineState::Configured);
}

#[test]
fn ex25_trim_drops_what_the_last_machine_made_superfluous() {
    let fleet = [
        machine("s2").has("cpu=2").price(0.1).speculative(),
        machine("s8").has("cpu=8").price(0.3).speculative(),
    ];
    let decisions = decide(&fleet, &[("a", &[need(0, "cpu=8")])]);
    assert_eq!(lines(&decisions), ["Provision s8 a"]);
    assert_eq!(claimed(&decisions), ["s8"]);
}

#[test]
fn what_a_trim_gives_back_serves_the_next_need() {
    let fleet = [
        machine("s2").has("cpu=2").price(0.1).speculative(),
        machine("s8").has("cpu=8").price(0.3).speculative(),
    ];
    let decisions = decide(&fleet, &[("a", &[need(9, "cpu=8"), need(1, "cpu=2")])]);
    assert_eq!(lines(&decisions), ["Provision s8 a", "Provision s2 a"]);
}

#[test]
fn ex26_a_stale_stamp_does_not_restrict() {
    let dead = gpu_need(77, 1).build();
    let fleet = [gpu("c").configured("a").of(&dead)];
    assert!(decide(&fleet, &[("a", &[need(0, "nvidia.com/gpu=8")])]).actions.is_empty());
    assert_eq!(lines(&decide(&fleet, &[("a", &[])])), ["Reclaim c a"]);
}

#[test]
fn ex27_one_machine_counts_once() {
    let (first, second) = (gpu_need(500, 1), gpu_need(100, 1));
    let decisions = decide(&[gpu("c").configured("a")], &[("a", &[second.clone(), first.clone()])]);
    assert!(verdict(&decisions, "a", &first).satisfied);
    assert_eq!(verdict(&decisions, "a", &second).residual, vector("nvidia.com/gpu=8"));
}

#[test]
fn ex58_floor_guarantee() {
    let want = need(0, "cpu=8").floor("cpu=4");
    let small = |n: usize| {
        let stamp = want.build();
        (0..n)
            .map(move |i| machine(&format!("c{i}")).has("cpu=2").price(0.1).configured("a").of(&stamp))
            .collect::<Vec<_>>()
    };
    let missing = vector("cpu=4");
    for n in [3, 4] {
        let decisions = decide(&small(n), &[("a", &[want.clone()])]);
        assert_eq!(verdict(&decisions, "a", &want).residual, missing, "{n} small ones");
        let mut fleet = small(n);
        fleet.push(machine("s").has("cpu=4").speculative());
        assert_eq!(lines(&decide(&fleet, &[("a", &[want.clone()])])), ["Provision s a"], "{n} small ones");
    }
    let mut fleet = small(4);
    fleet.push(machine("orphan").has("cpu=4").price(0.5).configured("a"));
    let decisions = decide(&fleet, &[("a", &[want.clone()])]);
    assert_eq!(claimed(&decisions), ["c0", "c1", "orphan"]);
    assert_eq!(lines(&decisions), ["Reclaim c3 a", "Reclaim c2 a"]);
    fleet.pop();
    fleet.push(machine("orphan").has("cpu=4").price(0.5).configuring("a"));
    let decisions = decide(&fleet, &[("a", &[want])]);
    assert_eq!(claimed(&decisions), ["c0", "c1", "c2", "c3", "orphan"]);
    assert!(decisions.actions.is_empty());
}

#[test]
fn ex65_siblings_come_last() {
    let (high, low) = (gpu_need(10, 1), gpu_need(0, 1));
    let fleet = [
        gpu("cr").creating_for(high.key("c")),
        gpu("c").configured("c").of(&low.build()),
        gpu("s").speculative(),
    ];
    let decisions = decide(&fleet, &[("c", &[high.clone(), low.clone()])]);
    assert!(decisions.actions.is_empty());
    assert!(decisions.verdicts.iter().all(|verdict| verdict.satisfied));
}

#[test]
fn ex68_creating_machines_of_unknown_destination_are_credited_last() {
    let mut fleet = gpus(3, "cr", M::creating);
    fleet.extend(gpus(9, "s", M::speculative));
    let (a, b) = (gpu_need(2, 3), gpu_need(1, 3));
    assert!(decide(&fleet, &[("a", &[a.clone()])]).actions.is_empty());
    let decisions = decide(&fleet, &[("a", &[a]), ("b", &[b])]);
    assert_eq!(lines(&decisions), ["Provision s00 b", "Provision s01 b", "Provision s02 b"]);
}

#[test]
fn equals_do_not_take_each_others_machines() {
    // Without the first round the earlier Need would take the later one's machine, which would buy another.
    let (first, second) = (gpu_need(0, 1).arrival(secs(1)), gpu_need(0, 1).group("g").arrival(secs(2)));
    let fleet = [gpu("c").configured("a").of(&second.build()), gpu("s").speculative()];
    let decisions = decide(&fleet, &[("a", &[first.clone(), second.clone()])]);
    assert_eq!(lines(&decisions), ["Provision s a"]);
    assert_eq!(decisions.actions[0].need_key, Some(first.key("a")));
}

#[test]
fn only_machines_that_cover_the_floor_are_acquired() {
    let fleet = [machine("small").has("cpu=4"), machine("large").has("cpu=8").price(9.0).speculative()];
    let decisions = decide(&fleet, &[("a", &[need(0, "cpu=8").floor("cpu=8")])]);
    assert_eq!(lines(&decisions), ["Provision large a"]);
}

#[test]
fn spread_over_hostnames_and_soft_spread_do_not_bind() {
    for (key, when) in
        [(keys::HOSTNAME, WhenUnsatisfiable::DoNotSchedule), (keys::ZONE, WhenUnsatisfiable::ScheduleAnyway)]
    {
        let fleet = [machine("a0").zone("a").has("cpu=1"), machine("a1").zone("a").has("cpu=1")];
        let decisions = decide(&fleet, &[("a", &[need(0, "cpu=2").spread(key, when)])]);
        assert_eq!(count(&decisions, "Bootstrap"), 2);
        assert!(decisions.verdicts[0].satisfied);
    }
}

#[test]
fn eligibility_is_obeyed_and_withheld_machines_are_not_seen() {
    let want = gpu_need(0, 1);
    let cooling = Eligibility { acquirable: false, ..Eligibility::ALL };
    let decisions = decide(&[gpu("i").facts(|f| f.eligibility = cooling)], &[("a", &[want.clone()])]);
    assert!(decisions.actions.is_empty());
    assert_eq!(verdict(&decisions, "a", &want).supply.unwrap().idle, 1, "seen, only not available now");

    let withheld = |m: M| m.facts(|f| f.eligibility = Eligibility::WITHHELD);
    let decisions =
        decide(&[withheld(gpu("i")), withheld(gpu("s").speculative())], &[("a", &[want.clone()])]);
    assert!(decisions.actions.is_empty());
    assert_eq!(verdict(&decisions, "a", &want).reason, UnmetReason::NoMatchingSupply);

    let no_credit = Eligibility { creditable: false, ..Eligibility::ALL };
    let fleet = [gpu("c").configuring("a").facts(|f| f.eligibility = no_credit), gpu("i")];
    assert_eq!(lines(&decide(&fleet, &[("a", &[want])])), ["Bootstrap i a"]);
}

#[test]
fn a_need_of_nothing_is_content() {
    let decisions = decide(&gpus(2, "i", |m| m), &[("a", &[need(0, "").floor("nvidia.com/gpu=8")])]);
    assert!(decisions.actions.is_empty() && decisions.verdicts[0].satisfied);
    assert_eq!(decisions.verdicts[0].claimed, 0);
}

#[test]
fn what_a_floor_gives_back_serves_the_next_need() {
    // `hungry` looks at the cluster's machines while `floored` holds them all; `small` must see what came back.
    let hungry = need(10, "example.com/foo=1").group("h").arrival(secs(1));
    let floored = need(10, "cpu=8").floor("cpu=4").arrival(secs(2));
    let small = need(1, "cpu=4");
    let stamp = floored.build();
    let mut fleet: Vec<_> =
        (0..4).map(|i| machine(&format!("c{i}")).has("cpu=2").configured("a").of(&stamp)).collect();
    fleet.push(machine("orphan").has("cpu=4").configured("a"));
    let decisions = decide(&fleet, &[("a", &[hungry, floored, small.clone()])]);
    assert!(verdict(&decisions, "a", &small).satisfied);
    assert!(decisions.actions.is_empty());
}

#[test]
fn the_machines_of_a_need_that_left_are_orphans() {
    // Orphans come before own purchases, siblings after them: the order tells which of the two `c` is.
    let (stays, leaves) = (gpu_need(0, 1), gpu_need(0, 1).group("leaves"));
    let fleet = [gpu("c").configured("a").of(&leaves.build()), gpu("cr").creating_for(stays.key("a"))];
    let mut engine = engine(Policy::default(), &fleet, &[("a", &[stays.clone(), leaves])]);
    assert_eq!(claimed(&pass(&mut engine, secs(0))), ["c", "cr"]);
    engine.apply(demand("a", &[stays]));
    assert_eq!(claimed(&pass(&mut engine, secs(0))), ["c"]);
}
