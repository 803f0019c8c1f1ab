//! What users of neighbouring systems met in the field, sections 4 and 5: capacity errors, spot and price; registration
//! and repair. Each name carries the number of its report.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_shard::io::CallError;
use bigfleet_types::{
    CapacityType, Machine, MachineState, NanoDollars, Need, Operator, PenaltyBucket, Profile, keys,
};

use crate::core_model::{
    Fault, Model, Op, ambiguous, bound, cluster, gpu, id, need, need_of, priced, profile, refused, reported,
    requires,
};
use crate::core_world::{Lists, World, config};
use crate::golden::stepper;

use MachineState::{Configured, Configuring, Creating, Failed, Idle, Speculative};

fn slot(name: &str, zone: &str, kind: CapacityType, dollars: f64) -> Machine {
    Machine { zone: zone.into(), ..priced(gpu(name, Speculative), kind, dollars, 0.0) }
}

fn slow(machines: Vec<Machine>, seconds: u64) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(seconds));
    model
}

fn exhausted() -> Fault {
    Fault::Refuse(CallError::Exhausted("no stock".to_owned()))
}

/// A row that any machine with such labels may serve.
fn wanting(requirements: &[(&str, &str)], units: i64) -> Need {
    let all = requirements.iter().map(|(key, value)| requires(key, Operator::In, &[value])).collect();
    let [interruption, reclamation] = [PenaltyBucket::ZERO, PenaltyBucket::PINNED];
    need_of(Arc::new(Profile::new(all, Vec::new(), 10, interruption, reclamation)), units)
}

/// Machines whose name begins so and of which a Create was asked.
fn created(world: &World, prefix: &str) -> usize {
    let creates = world.model.calls.iter().filter(|(_, op)| *op == Op::Create);
    creates.filter(|(machine, _)| machine.as_str().starts_with(prefix)).count()
}

#[test]
fn fr33_a_stock_out_does_not_starve_the_fallback() {
    let spot = |n: u32| slot(&format!("cheap-{n}"), "z1", CapacityType::Spot, 1.0);
    let mut machines: Vec<_> = (0..3).map(spot).collect();
    machines.extend((0..2).map(|n| slot(&format!("dear-{n}"), "z2", CapacityType::Spot, 5.0)));
    let mut world = World::new(config(), slow(machines, 2));
    for n in 0..3 {
        world.model.fault(&format!("cheap-{n}"), Op::Create, exhausted());
    }
    world.rollup("a", vec![need(10, 1)]);
    world.run(Duration::from_millis(500));
    assert_eq!((created(&world, "cheap"), world.state("dear-0")), (1, Creating), "in the next cycle");
    // More demand does not lead back to what is out of stock.
    world.rollup("a", vec![need(10, 2)]);
    world.seconds(25);
    assert_eq!((created(&world, "cheap"), world.state("dear-1")), (1, Configured));
    world.rollup("a", vec![need(10, 3)]);
    world.seconds(2);
    assert_eq!(created(&world, "cheap"), 1, "not within its 30 s");
    world.seconds(8);
    assert_eq!(created(&world, "cheap"), 2, "and again after them");
}

#[test]
fn fr35_what_is_out_of_stock_is_exactly_what_is_not_tried() {
    let kinds = [CapacityType::Reserved, CapacityType::OnDemand, CapacityType::Spot];
    let mut classes = Vec::new();
    for family in ["a3-highgpu-8g", "a2-highgpu-8g"] {
        for zone in ["z1", "z2"] {
            classes.extend(kinds.map(|kind| (family, zone, kind)));
        }
    }
    for out in 0..classes.len() {
        let mut machines = Vec::new();
        for (n, (family, zone, kind)) in classes.iter().enumerate() {
            for m in 0..2 {
                let machine = slot(&format!("c{n:02}-{m}"), zone, *kind, 1.0);
                machines.push(Machine { instance_type: (*family).into(), ..machine });
            }
        }
        let all = i64::try_from(machines.len()).unwrap();
        let mut world = World::new(config(), slow(machines, 2));
        for m in 0..2 {
            world.model.fault(&format!("c{out:02}-{m}"), Op::Create, exhausted());
            world.model.fault(&format!("c{out:02}-{m}"), Op::Create, exhausted());
        }
        world.rollup("a", vec![wanting(&[], all)]);
        world.seconds(20);
        for (n, class) in classes.iter().enumerate() {
            let own = format!("c{n:02}");
            let machines = [0, 1].map(|m| world.state(&format!("{own}-{m}")));
            if n == out {
                assert_eq!(machines, [Speculative; 2], "{class:?}");
                assert!((1..=2).contains(&created(&world, &own)), "{class:?} goes on being tried");
            } else {
                assert_eq!(machines, [Configured; 2], "{class:?} is in stock, {:?} is not", classes[out]);
            }
        }
    }
}

#[test]
fn fr36_zone_and_kind_of_one_offering_count_together() {
    let offered = [slot("one", "a", CapacityType::Spot, 1.0), slot("two", "b", CapacityType::OnDemand, 1.0)];
    let mut world = World::new(config(), slow(offered.to_vec(), 2));
    world.rollup("a", vec![wanting(&[(keys::ZONE, "b"), (keys::CAPACITY_TYPE, "spot")], 1)]);
    world.seconds(60);
    assert_eq!(world.model.calls, [], "no offering is both");
    assert_eq!(world.core.shortfalls().count(), 1);
    assert_eq!(unmet(&world), [("no_matching_supply", 1.0)]);
    for (zone, kind, serves) in [("a", "spot", "one"), ("b", "on-demand", "two")] {
        let mut world = World::new(config(), slow(offered.to_vec(), 2));
        world.rollup("a", vec![wanting(&[(keys::ZONE, zone), (keys::CAPACITY_TYPE, kind)], 1)]);
        world.seconds(60);
        assert_eq!(world.state(serves), Configured);
    }
}

/// Unmet Needs by reason, without zeros.
fn unmet(world: &World) -> Vec<(&'static str, f64)> {
    let reasons = [
        "unspecified",
        "priority_starved",
        "no_matching_supply",
        "topology_unsatisfiable",
        "preemption_exhausted",
    ];
    let of = |reason| (reason, world.metric(&format!(r#"unmet_needs{{reason="{reason}"}}"#)));
    reasons.map(of).into_iter().filter(|(_, n)| *n > 0.0).collect()
}

#[test]
fn fr38_a_provider_that_is_down_is_not_one_that_is_out_of_stock() {
    let create = |fault: fn() -> CallError| {
        let slots = (0..8).map(|n| slot(&format!("s{n}"), "z1", CapacityType::OnDemand, 1.0));
        let mut model = slow(slots.collect(), 2);
        model.always.insert(Op::Create, Fault::Refuse(fault()));
        let mut world = World::new(config(), model);
        world.gets_fail = matches!(fault(), CallError::Ambiguous { .. });
        world.rollup("a", vec![need(10, 8)]);
        world.seconds(20);
        let outcomes: Vec<_> = world.audit.iter().map(|r| (r.outcome, r.detail.clone())).collect();
        (world, outcomes)
    };
    let (world, outcomes) = create(|| ambiguous(false));
    assert_eq!(world.metric("provider_circuit_open"), 1.0, "no calls while it is down");
    assert_eq!(world.metric("cooled_down_machines"), 0.0, "nothing counts as out of stock");
    assert!(outcomes.iter().all(|o| *o == ("transition_error", "no answer".to_owned())), "{outcomes:?}");

    let (world, outcomes) = create(|| CallError::Exhausted("quota of 8 reached".to_owned()));
    assert_eq!(world.metric("provider_circuit_open"), 0.0);
    assert_eq!(world.metric("cooled_down_machines"), 1.0, "the class");
    assert!(
        outcomes.iter().all(|o| *o == ("transition_error", "quota of 8 reached".to_owned())),
        "{outcomes:?}"
    );
    assert_eq!(world.core.shortfalls().count(), 1);
}

#[test]
fn fr39_spot_that_is_dearer_is_never_chosen() {
    for bucket in 1..=27 {
        let mut stepper = stepper(Model::with([
            priced(gpu("a-spot", Speculative), CapacityType::Spot, 1.2, 0.05),
            priced(gpu("b-od", Speculative), CapacityType::OnDemand, 1.0, 0.0),
        ]));
        stepper.rollup(&cluster("a"), vec![need_of(profile(10, bucket, PenaltyBucket::ZERO), 1)]);
        let machines: Vec<_> = stepper.cycle().iter().map(|action| action.machine.to_string()).collect();
        assert_eq!(machines, ["b-od"], "penalty {bucket}");
    }
}

#[test]
fn fr40_without_a_list_the_last_good_prices_stay_and_their_age_shows() {
    let machine = |n: u32| priced(gpu(&format!("m{n}"), Idle), CapacityType::Reserved, 2.5, 0.0);
    let mut world = World::new(config(), Model::with((0..4).map(machine)));
    world.rollup("a", Vec::new());
    let dollars = r#"capacity_dollars_per_hour{state="Idle",capacity_type="Reserved"}"#;
    assert_eq!(world.metric(dollars), 10.0);
    world.lists = Lists::Fail;
    world.seconds(600);
    assert_eq!(world.metric(dollars), 10.0);
    let price = |world: &World| world.core.machine(&id("m0")).unwrap().price;
    assert_eq!(price(&world), NanoDollars::from_dollars(2.5).unwrap());
    assert!(world.metric("inventory_age_seconds") >= 590.0, "{}", world.metric("inventory_age_seconds"));
    // A List that answers again, with prices that are none: refused, and the old ones stay.
    world.lists = Lists::Fixed((0..4).map(|n| refused(Some(&format!("m{n}")), "price")).collect());
    world.seconds(60);
    assert_eq!((world.metric(dollars), price(&world)), (10.0, NanoDollars::from_dollars(2.5).unwrap()));
    assert!(world.metric(r#"machines_rejected_total{reason="price"}"#) >= 4.0);
    assert!(world.metric("inventory_age_seconds") <= 20.0);
}

#[test]
fn fr42_a_bad_record_is_put_aside_with_its_reason_and_the_others_count() {
    let mut world = World::new(config(), slow(vec![gpu("good", Idle)], 2));
    world.lists = Lists::Fixed(vec![
        refused(Some("bad-price"), "price"),
        reported(gpu("good", Idle)),
        refused(Some("bad-chance"), "interruption_probability"),
        refused(None, "structural"),
    ]);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(2);
    assert!(world.core.machine(&id("bad-price")).is_none());
    for reason in ["price", "interruption_probability", "structural"] {
        assert_eq!(world.metric(&format!(r#"machines_rejected_total{{reason="{reason}"}}"#)), 1.0);
    }
    world.lists = Lists::Truth;
    world.seconds(5);
    assert_eq!(world.state("good"), Configured);
}

#[test]
fn fr46_the_cells_of_the_cost_metric_add_up_and_are_few() {
    let kinds = [CapacityType::OnDemand, CapacityType::Spot, CapacityType::Reserved];
    let machines: Vec<_> = (0..60_i32)
        .zip(kinds.into_iter().cycle())
        .map(|(n, kind)| {
            let chance = if kind == CapacityType::Spot { 0.1 } else { 0.0 };
            priced(gpu(&format!("m{n:02}"), Speculative), kind, f64::from(n) * 0.123_457, chance)
        })
        .collect();
    let mut world = World::new(config(), slow(machines, 3));
    let mut cells = 0;
    for units in [5, 40, 12, 60, 0, 0] {
        world.rollup("a", vec![need(10, units)]);
        for _ in 0..40 {
            world.seconds(7);
            let lines: Vec<_> = world
                .lines()
                .filter(|l| l.starts_with("bigfleet_shard_capacity_dollars_per_hour{"))
                .collect();
            let values: Vec<f64> =
                lines.iter().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect();
            assert!(values.iter().all(|value| *value >= 0.0), "{lines:?}");
            let shown: f64 = values.iter().sum();
            let total: f64 = world.core.machines().map(|machine| machine.price.dollars()).sum();
            assert!((shown - total).abs() < 1e-6, "{shown} of {total}: {lines:?}");
            cells = lines.len();
        }
    }
    assert!((3..=40).contains(&cells), "{cells} cells: states by kinds, however many machines");
}

/// Its budget never lets the machine go, so that its drain never ends.
#[test]
fn fr47_a_drain_that_never_ends_costs_one_replacement_at_most() {
    let mut model = slow((0..6).map(|n| gpu(&format!("m{n}"), Idle)).collect(), 2);
    model.fault("m0", Op::Drain, Fault::Hang);
    let mut world = World::new(config(), model);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    assert_eq!(world.state("m0"), Configured);
    // The demand goes and comes back while its machine drains.
    world.rollup("a", Vec::new());
    world.seconds(5);
    assert_eq!(world.state("m0"), MachineState::Draining);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(6 * 3600);
    assert_eq!((world.state("m0"), world.count(Configured)), (MachineState::Draining, 1));
    assert_eq!(world.calls(Op::Configure), 2, "one replacement");
    let drained = |(machine, op): &(_, Op)| *op == Op::Drain && *machine != id("m0");
    assert!(!world.model.calls.iter().any(drained), "repeats of its own drain at most");
    assert_eq!(world.metric(r#"stuck_transitions{state="Draining"}"#), 1.0, "and somebody is told");
}

#[test]
fn fr51_a_node_that_is_late_is_waited_for_and_never_deleted() {
    for (limit, late) in [(600, 590), (7200, 7190)] {
        let mut config = config();
        config.stuck.configure = Duration::from_secs(limit);
        let slots = (0..3).map(|n| slot(&format!("s{n}"), "z1", CapacityType::OnDemand, 1.0)).collect();
        let mut model = slow(slots, late);
        model.create_dwell = Some(Duration::from_secs(5));
        let mut world = World::new(config, model);
        world.rollup("a", vec![need(10, 1)]);
        world.seconds(late);
        assert_eq!(world.state("s0"), Configuring, "as long as --stuck-configure-after allows");
        world.seconds(60);
        assert_eq!(world.state("s0"), Configured);
        assert!(world.model.calls.iter().all(|(machine, _)| *machine == id("s0")), "{:?}", world.model.calls);
        assert_eq!((world.calls(Op::Delete), world.calls(Op::Drain)), (0, 0));
    }
    // One that comes even later finds a machine in its place, and is kept or given back, but not killed on its way.
    let mut model = slow((0..3).map(|n| gpu(&format!("m{n}"), Idle)).collect(), 900);
    model.fault("m1", Op::Configure, Fault::Hang);
    let mut world = World::new(config(), model);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(899);
    assert_eq!(
        (world.state("m0"), world.metric(r#"stuck_transitions{state="Configuring"}"#)),
        (Configuring, 1.0)
    );
    world.seconds(600);
    assert_eq!(world.state("m0"), Configured);
    assert_eq!((world.calls(Op::Delete), world.calls(Op::Drain)), (0, 0));
}

#[test]
fn fr52_a_machine_that_fails_on_the_way_is_replaced_once() {
    let mut world = World::new(config(), slow((0..6).map(|n| gpu(&format!("m{n}"), Idle)).collect(), 30));
    world.model.fault("m0", Op::Configure, Fault::Fail);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(29);
    assert_eq!((world.state("m0"), world.calls(Op::Configure)), (Configuring, 1), "no replacement before");
    world.seconds(600);
    assert_eq!((world.state("m0"), world.state("m1")), (Failed, Configured));
    assert_eq!(world.calls(Op::Configure), 2);
}

#[test]
fn fr53_broken_machines_of_others_do_not_halt_what_is_sound() {
    let mut machines: Vec<_> =
        (0..60).map(|n| bound(&format!("theirs-{n:02}"), Failed, "b", &need(1000, 1))).collect();
    machines.extend((0..40).map(|n| gpu(&format!("m{n:02}"), Idle)));
    let mut world = World::new(config(), slow(machines, 2));
    world.rollup("a", vec![need(10, 40)]);
    world.seconds(120);
    assert_eq!((world.count(Configured), world.count(Failed)), (40, 60));
    world.rollup("a", vec![need(10, 20)]);
    world.seconds(3600);
    assert_eq!((world.count(Configured), world.count(Failed)), (20, 60), "nor what is given back");
    assert!(world.model.calls.iter().all(|(machine, _)| machine.as_str().starts_with('m')));
}

#[test]
fn fr56_demand_that_comes_and_goes_in_one_millisecond_leaves_nothing_stuck() {
    let mut world = World::new(config(), slow((0..3).map(|n| gpu(&format!("m{n}"), Idle)).collect(), 2));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    let mut both = vec![need(10, 1)];
    both.push(Need { group: bigfleet_types::Group::new("short"), ..need(20, 1) });
    let session = world.sessions[&cluster("a")];
    for rows in [both, vec![need(10, 1)]] {
        let timestamp_unix_nanos = world.now.0;
        world.handle(bigfleet_shard::io::Input::Rollup {
            session,
            timestamp_unix_nanos,
            rows: Ok(rows.into()),
        });
        world.now = world.now.after(Duration::from_millis(1));
    }
    world.settle();
    world.seconds(60);
    assert_eq!((world.count(Configured), world.core.in_flight().count()), (1, 0));
    assert_eq!((world.core.shortfalls().count(), world.metric("demand_rows")), (0, 1.0));
    // The cycle after it is like any other.
    world.rollup("a", vec![need(10, 2)]);
    world.seconds(10);
    assert_eq!(world.count(Configured), 2);
}
