//! The decision scenarios that have a trace: first those that were handed to us, then ours.

use std::time::Duration;

use bigfleet_types::{
    CapacityType, Group, Machine, MachineState, Need, Operator, PenaltyBucket, Profile, Requirement,
    SpreadTerm, WhenUnsatisfiable, keys,
};

use crate::core_model::{
    Fault, GPU, Model, Op, RACK, bound, gpu, gpus, id, need, need_of, priced, profile, requires,
};
use crate::golden::Trace;

use MachineState::{Configured, Idle, Speculative};

const TRAIN: &str = "cluster-train";
const BATCH: &str = "cluster-batch";

fn idle(n: usize) -> Model {
    Model::with((0..n).map(|n| gpu(&format!("gpu-{n}"), Idle)))
}

/// No row for no units.
fn wants(units: i64) -> Vec<Need> {
    if units == 0 { Vec::new() } else { vec![need(1_000_000, units)] }
}

#[test]
fn s01_training_job_topology() {
    let mut trace = Trace::given("training-job-topology", idle(64));
    trace.rollup(TRAIN, wants(64));
    trace.cycle();
    trace.end();
    assert_eq!(trace.control().shortfalls().count(), 0);
}

#[test]
fn s02_capacity_stockout() {
    let mut trace = Trace::given("capacity-stockout", idle(32));
    trace.rollup(TRAIN, wants(64));
    trace.cycle();
    trace.cycle();
    trace.end();
    let shortfalls: Vec<_> = trace.control().shortfalls().collect();
    assert_eq!(shortfalls.len(), 1);
    assert_eq!(shortfalls[0].1.deficit.get(GPU), 256);
    assert_eq!(shortfalls[0].1.age, 2);
}

#[test]
fn s03_priority_inversion() {
    let mut trace = Trace::given("priority-inversion", idle(4));
    trace.rollup(BATCH, vec![need(100_000, 4)]);
    trace.cycle();
    trace.rollup(TRAIN, wants(4));
    trace.cycle();
    trace.cycle();
    trace.end();
    assert_eq!((trace.machines_of(TRAIN).len(), trace.machines_of(BATCH).len()), (4, 0));
    let graces: Vec<_> = trace.stepper.provider().drains.iter().map(|(_, grace)| *grace).collect();
    assert_eq!(graces, [Duration::from_secs(30); 4], "a gap of 900,000 is not above it");
}

#[test]
fn s04_withdrawal() {
    let mut trace = Trace::given("withdrawal", idle(32));
    trace.rollup(TRAIN, wants(32));
    trace.cycle();
    trace.rollup(TRAIN, wants(0));
    trace.cycle();
    trace.end();
}

#[test]
fn s05_provider_configure_failure() {
    let mut model = idle(4);
    model.fault("gpu-0", Op::Configure, Fault::Fail);
    let mut trace = Trace::given("provider-configure-failure", model);
    trace.rollup(TRAIN, wants(3));
    trace.cycle();
    trace.cycle();
    trace.end();
    assert_eq!(&*trace.machine("gpu-0").last_error, "it broke");
}

#[test]
fn s06_drain_failure_withdrawal() {
    let mut model = idle(8);
    model.fault("gpu-0", Op::Drain, Fault::Fail);
    let mut trace = Trace::given("drain-failure-withdrawal", model);
    trace.rollup(TRAIN, wants(8));
    trace.cycle();
    trace.rollup(TRAIN, wants(0));
    trace.cycle();
    trace.end();
    assert_eq!(&*trace.machine("gpu-0").last_error, "it broke");
}

/// A Need of `units` machines with requirements of its own.
fn shaped(priority: i32, requirements: Vec<Requirement>, units: i64) -> Need {
    let bucket = PenaltyBucket::from_wire(16).unwrap();
    need_of(Profile::new(requirements, Vec::new(), priority, bucket, PenaltyBucket::PINNED).into(), units)
}

/// A gang of `units` machines in one rack.
fn gang(name: &str, priority: i32, units: i64) -> Need {
    Need { group: Group::new(name), ..shaped(priority, vec![requires(RACK, Operator::Same, &[])], units) }
}

fn in_rack(rack: &str, mut machine: Machine) -> Machine {
    machine.labels.insert(RACK.into(), rack.into());
    machine
}

/// `n` Idle machines in a rack, named for it.
fn rack(name: &str, n: usize) -> Vec<Machine> {
    (0..n).map(|n| in_rack(name, gpu(&format!("{name}-{n}"), Idle))).collect()
}

#[test]
fn s11_a_gang_takes_the_rack_that_fits() {
    let mut trace = Trace::ours("s11-gang-takes-the-rack-that-fits", {
        [rack("five", 5), rack("four", 4), rack("three", 3)].concat()
    });
    trace.rollup(TRAIN, vec![gang("job", 1_000, 4)]);
    trace.cycle();
    trace.quiet(2);
    assert_eq!(trace.machines_of(TRAIN), ["four-0", "four-1", "four-2", "four-3"]);
    trace.end();
}

/// Two machines of the gang run in rack x; `spare` more are free there, and five in y.
fn incumbents(name: &'static str, spare: usize) -> Trace {
    let job = gang("job", 1_000, 4);
    let running = ["x-8", "x-9"].map(|name| in_rack("x", bound(name, Configured, TRAIN, &job)));
    let mut trace = Trace::ours(name, [running.to_vec(), rack("x", spare), rack("y", 5)].concat());
    trace.rollup(TRAIN, vec![job]);
    trace.cycle();
    trace.quiet(2);
    trace
}

#[test]
fn s12_a_gang_stays_where_it_can_be_completed() {
    let mut trace = incumbents("s12-gang-stays-where-it-can-be-completed", 2);
    assert_eq!(trace.machines_of(TRAIN), ["x-0", "x-1", "x-8", "x-9"]);
    trace.end();
}

#[test]
fn s12_a_gang_leaves_a_rack_that_cannot_complete_it() {
    let mut trace = incumbents("s12-gang-leaves-a-rack-that-cannot-complete-it", 1);
    assert_eq!(trace.machines_of(TRAIN), ["y-0", "y-1", "y-2", "y-3"]);
    trace.end();
}

#[test]
fn s13_an_impossible_gang_is_a_constant_shortfall_and_disturbs_nobody() {
    let mut trace = Trace::ours("s13-impossible-gang-beside-possible-ones", {
        [rack("p", 4), rack("q", 4), rack("r", 4)].concat()
    });
    trace.rollup(TRAIN, vec![gang("eight", 1_000, 8), gang("four", 900, 4), gang("three", 800, 3)]);
    assert_eq!(trace.cycle().len(), 4 + 4 + 3);
    for _ in 0..5 {
        trace.quiet(1);
        let deficits: Vec<i64> =
            trace.control().shortfalls().map(|(_, entry)| entry.deficit.get(GPU)).collect();
        assert_eq!(deficits, [4 * 8]);
    }
    trace.end();
}

#[test]
fn s14_gangs_that_fit_one_machine_share_machines_whole() {
    let large = |n| {
        let name = format!("host-{n}");
        Machine { resources: gpus(10), ..in_rack(&name, gpu(&name, Idle)) }
    };
    let mut trace = Trace::ours("s14-small-gangs-share-machines", (0..9).map(large));
    let small = |n| Need { aggregate: gpus(4), min_unit: gpus(1), ..gang(&format!("g{n:02}"), 1_000, 1) };
    trace.rollup(TRAIN, (0..12).map(small).collect());
    assert_eq!(trace.cycle().len(), 6, "two gangs of 4 on each machine of 10");
    trace.quiet(2);
    assert_eq!(trace.control().shortfalls().count(), 0);
    trace.end();
}

#[test]
fn s15_an_enforced_spread_waits_for_its_shortest_zone() {
    let zones = ["zone-a", "zone-b", "zone-c"];
    let machines = zones.iter().flat_map(|zone| {
        (0..3).map(move |n| Machine { zone: (*zone).into(), ..gpu(&format!("{zone}-{n}"), Idle) })
    });
    let mut trace = Trace::ours("s15-spread-keeps-its-skew", machines);
    let bucket = PenaltyBucket::from_wire(16).unwrap();
    let even = SpreadTerm {
        topology_key: keys::ZONE.into(),
        max_skew: 1,
        when_unsatisfiable: WhenUnsatisfiable::DoNotSchedule,
    };
    let web = need_of(Profile::new(Vec::new(), vec![even], 100, bucket, PenaltyBucket::PINNED).into(), 6);
    let all_of_c = shaped(1_000, vec![requires(keys::ZONE, Operator::In, &["zone-c"])], 3);
    trace.rollup("cluster-web", vec![all_of_c.clone(), web.clone()]);
    assert_eq!(trace.cycle().len(), 3 + 2, "one in each zone that is not the shortest");
    trace.quiet(2);
    let deficits: Vec<i64> = trace.control().shortfalls().map(|(_, entry)| entry.deficit.get(GPU)).collect();
    assert_eq!(deficits, [4 * 8]);
    // The higher Need leaves: what it held is credited, and the zones fill evenly.
    trace.rollup("cluster-web", vec![web]);
    trace.cycle();
    trace.quiet(2);
    assert_eq!(trace.control().shortfalls().count(), 0);
    trace.end();
}

/// Gaps on both sides of every border of the grace table, and what grace they give.
const GAPS: [(i32, u64); 7] =
    [(900_001, 10), (900_000, 30), (500_001, 30), (500_000, 120), (100_001, 120), (100_000, 600), (1, 600)];

#[test]
fn s16_the_cheapest_victim_and_the_grace_of_its_gap() {
    // By gap a kind of machine of its own: one serves what is cheap to disturb, one what is dear, and one what
    // matters a little more.
    let kind = |gap: i32| format!("kind-{gap:06}");
    let row = |gap: i32, priority: i32, interruption: i32, reclamation: PenaltyBucket| {
        let only = requires(keys::INSTANCE_TYPE, Operator::In, &[&kind(gap)]);
        let interruption = PenaltyBucket::from_wire(interruption).unwrap();
        need_of(Profile::new(vec![only], Vec::new(), priority, interruption, reclamation).into(), 1)
    };
    let cheap = PenaltyBucket::from_wire(3).unwrap();
    let (mut machines, mut held) = (Vec::new(), Vec::new());
    for (gap, _) in GAPS {
        let served = [
            ("dear", row(gap, 1_000, 16, PenaltyBucket::PINNED)),
            ("cheap", row(gap, 1_000, 3, cheap)),
            ("near", row(gap, 1_001, 3, cheap)),
        ];
        for (what, need) in served {
            let machine = bound(&format!("{}-{what}", kind(gap)), Configured, BATCH, &need);
            machines.push(Machine { instance_type: kind(gap).into(), ..machine });
            held.push(need);
        }
    }
    let mut trace = Trace::ours("s16-victims-and-graces", machines);
    trace.rollup(BATCH, held);
    trace.quiet(1);
    for (gap, _) in GAPS {
        trace.rollup(&format!("cluster-{gap:06}"), vec![row(gap, 1_000 + gap, 16, PenaltyBucket::PINNED)]);
    }
    let preempted = trace.cycle();
    assert!(preempted.iter().all(|(kind, machine)| *kind == "Preempt" && machine.ends_with("-cheap")));
    let given = |trace: &mut Trace| -> Vec<(String, u64)> {
        let drains = &trace.stepper.provider().drains;
        drains.iter().map(|(machine, grace)| (machine.to_string(), grace.as_secs())).collect()
    };
    let mut graces = given(&mut trace);
    graces.sort();
    let mut expected = GAPS.map(|(gap, grace)| (format!("{}-cheap", kind(gap)), grace));
    expected.sort();
    assert_eq!(graces, expected);
    assert!(trace.cycle().iter().all(|(kind, _)| *kind == "Bootstrap"));
    trace.quiet(1);
    // What is given back because nobody wants it has ten minutes.
    trace.rollup(BATCH, Vec::new());
    assert_eq!(trace.cycle().len(), 2 * GAPS.len());
    assert!(given(&mut trace)[GAPS.len()..].iter().all(|(_, grace)| *grace == 600));
    trace.end();
}

#[test]
fn s17_a_gang_preempts_only_in_its_rack() {
    // The better victims are in the other rack.
    let low = |rack: &str| shaped(50, vec![requires(RACK, Operator::In, &[rack])], 4);
    let high = shaped(60, vec![requires(RACK, Operator::In, &["x"])], 2);
    let x = (2..4).map(|n| in_rack("x", bound(&format!("x-{n}"), Configured, BATCH, &high)));
    let y = (0..4).map(|n| in_rack("y", bound(&format!("y-{n}"), Configured, BATCH, &low("y"))));
    let mut trace = Trace::ours("s17-gang-preempts-in-its-rack", rack("x", 2).into_iter().chain(x).chain(y));
    trace.rollup(BATCH, vec![high.clone(), low("y")]);
    trace.quiet(1);
    trace.rollup(TRAIN, vec![gang("job", 1_000, 4)]);
    trace.cycle();
    trace.cycle();
    trace.quiet(2);
    assert_eq!(trace.machines_of(TRAIN), ["x-0", "x-1", "x-2", "x-3"]);
    assert_eq!(trace.machines_of(BATCH), ["y-0", "y-1", "y-2", "y-3"]);
    trace.end();
}

#[test]
fn s23_a_loss_is_bought_once_however_long_the_create_takes() {
    let wanted = need(1_000, 4);
    let serving = (0..4).map(|n| bound(&format!("gpu-{n}"), Configured, TRAIN, &wanted));
    let slots =
        (0..8).map(|n| priced(gpu(&format!("slot-{n}"), Speculative), CapacityType::OnDemand, 1.0, 0.0));
    let mut trace = Trace::ours("s23-a-loss-is-bought-once", serving.chain(slots));
    trace.stepper.provider().create_dwell = Some(5 * trace.stepper.step);
    trace.rollup(TRAIN, vec![wanted]);
    trace.quiet(1);
    trace.stepper.provider().arrive(&id("gpu-2"), MachineState::Failed);
    let mut seen = Vec::new();
    for _ in 0..9 {
        seen.push(trace.cycle().iter().map(|(kind, _)| *kind).collect::<Vec<_>>());
    }
    let bought = seen.iter().flatten().filter(|kind| **kind == "Provision").count();
    assert_eq!(bought, 1);
    assert_eq!(trace.machines_of(TRAIN).len(), 4 + 1, "the failed one is still theirs");
    assert_eq!(trace.stepper.provider().calls_of(Op::Create), 1);
    trace.end();
}

#[test]
fn s26_equals_are_served_in_the_order_of_their_arrival_and_stay_served() {
    let mut trace =
        Trace::ours("s26-equals-in-the-order-of-arrival", (0..3).map(|n| gpu(&format!("gpu-{n}"), Idle)));
    let row = || vec![need_of(profile(1_000, 16, PenaltyBucket::PINNED), 2)];
    trace.rollup("cluster-b", row());
    trace.stepper.wait(Duration::from_secs(1));
    trace.rollup("cluster-a", row());
    trace.cycle();
    assert_eq!(trace.machines_of("cluster-b"), ["gpu-0", "gpu-1"]);
    assert_eq!(trace.machines_of("cluster-a"), ["gpu-2"]);
    // Said again in another order, nothing changes.
    trace.rollup("cluster-a", row());
    trace.rollup("cluster-b", row());
    trace.quiet(2);
    // A machine that fails is missed by whom it served; who came first does not rob who came later.
    trace.stepper.provider().arrive(&id("gpu-0"), MachineState::Failed);
    trace.quiet(2);
    assert_eq!(trace.machines_of("cluster-a"), ["gpu-2"]);
    trace.end();
}
