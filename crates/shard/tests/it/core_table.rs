//! What becomes of each answer of the provider and of the operator, row by row.

use std::time::Duration;

use bigfleet_proto::v1alpha1::{available_capacity_update::Confidence, shard_message::Payload};
use bigfleet_shard::io::{CallError, Input};
use bigfleet_types::{CapacityType, Machine, MachineState, PenaltyBucket};

use crate::core_model::{
    Fault, Model, Op, ambiguous, bound, cluster, gpu, id, need, need_of, priced, profile, refused, reported,
};
use crate::core_world::{Blobs, World, config};

use MachineState::{Configured, Configuring, Creating, Draining, Failed, Idle, Speculative};

fn slow(machines: Vec<Machine>) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(20));
    model
}

/// One Bootstrap of `m0` with a fault; gives the world right after the answer was settled.
fn bootstrap(fault: Option<Fault>) -> World {
    let mut world = World::new(config(), slow(vec![gpu("m0", Idle)]));
    if let Some(fault) = fault {
        world.model.fault("m0", Op::Configure, fault);
    }
    world.rollup("a", vec![need(10, 1)]);
    world.run(Duration::from_millis(50));
    world
}

fn outcome(world: &World) -> (&'static str, String) {
    let record = world.audit.first().expect("an outcome");
    (record.outcome, record.detail.clone())
}

/// Calls within the next seconds: tells a cool-down of 5 s from none and from a long one.
fn retried_within(world: &mut World, seconds: u64) -> bool {
    let before = world.model.calls.len();
    world.seconds(seconds);
    world.model.calls.len() > before
}

#[test]
fn ack_transitional_is_watched_to_its_end() {
    let mut world = bootstrap(None);
    assert_eq!((outcome(&world).0, world.state("m0")), ("success", Configuring));
    assert_eq!(world.audit[0].operation_id, "op-1");
    world.run(Duration::from_millis(19_900));
    assert_eq!(world.state("m0"), Configuring, "never inferred from the ack");
    world.seconds(11);
    assert_eq!((world.state("m0"), world.audit.len()), (Configured, 1));
    assert_eq!(world.metric("configure_phase_seconds_count"), 1.0);
    assert_eq!(world.metric("provisioning_latency_seconds_count"), 1.0);
}

#[test]
fn ack_stable_is_final_at_once() {
    let mut world = World::new(config(), Model::with([gpu("m0", Idle)]));
    world.rollup("a", vec![need(10, 1)]);
    assert_eq!((outcome(&world).0, world.state("m0")), ("success", Configured));
    assert_eq!(world.core.in_flight().count(), 0);
}

#[test]
fn ack_failed_is_adopted() {
    let mut broken = gpu("m0", Failed);
    broken.last_error = "no image".into();
    let mut world = bootstrap(Some(Fault::Answer(reported(broken))));
    assert_eq!(outcome(&world), ("configure_error", "no image".to_owned()));
    assert_eq!(world.state("m0"), Failed);
    assert_eq!(world.core.machine(&id("m0")).unwrap().cluster, Some(cluster("a")), "its cluster is told");
    assert_eq!(world.update_states("m0").last(), Some(&8));
    world.model.arrive(&id("m0"), Failed);
    assert!(!retried_within(&mut world, 120));
}

#[test]
fn ack_that_makes_no_sense_is_not_believed() {
    let elsewhere = bound("m0", Configuring, "b", &need(1, 1));
    let answers = [
        refused(Some("m0"), "price"),
        reported(bound("other", Configuring, "a", &need(10, 1))),
        reported(elsewhere),
        reported(gpu("m0", Speculative)),
    ];
    for answer in answers {
        let mut world = bootstrap(Some(Fault::Answer(answer.clone())));
        assert_eq!(outcome(&world).0, "configure_error", "{answer:?}");
        assert_eq!(world.state("m0"), Configuring, "Get says what is");
        let labels = |reason| format!(r#"machines_rejected_total{{reason="{reason}"}}"#);
        assert_eq!(world.metric(&labels("price")) + world.metric(&labels("structural")), 1.0);
        world.seconds(40);
        assert_eq!((world.state("m0"), world.calls(Op::Configure)), (Configured, 1));
    }
}

#[test]
fn fenced_rests_ten_minutes() {
    let mut world = bootstrap(Some(Fault::Refuse(CallError::Fenced("old token".to_owned()))));
    assert_eq!((outcome(&world).0, world.state("m0")), ("fenced", Idle));
    assert!(!retried_within(&mut world, 598));
    assert!(retried_within(&mut world, 5));
}

#[test]
fn not_found_is_confirmed_by_get_and_removed() {
    let mut world = World::new(config(), slow(vec![gpu("m0", Idle), gpu("m1", Idle)]));
    world.hold = true;
    world.rollup("a", vec![need(10, 1)]);
    world.model.machines.remove(&id("m0"));
    world.release();
    assert_eq!(outcome(&world), ("configure_error", "not_found".to_owned()));
    assert_eq!(world.core.machine(&id("m0")), None);
    assert_eq!(world.update_states("m0"), [4, 1], "the binding is over");
    world.seconds(1);
    assert_eq!(world.state("m1"), Configuring);

    // A Get that knows it better: nothing is removed.
    let mut world = bootstrap(Some(Fault::Refuse(CallError::NotFound)));
    assert_eq!(world.state("m0"), Idle);
    assert!(retried_within(&mut world, 11));
}

#[test]
fn unimplemented_is_remembered_for_the_capacity_type() {
    let mut machines: Vec<Machine> = Vec::new();
    for n in 0..3 {
        machines.push(priced(gpu(&format!("od{n}"), Idle), CapacityType::OnDemand, 1.0, 0.0));
    }
    machines.push(priced(gpu("spot", Idle), CapacityType::Spot, 1.0, 0.0));
    let mut model = slow(machines);
    for n in 0..3 {
        model.fault(&format!("od{n}"), Op::Delete, Fault::Refuse(CallError::Unimplemented));
    }
    let mut shard = config();
    shard.execute_concurrency = 1;
    let mut world = World::new(shard, model);
    world.seconds(3000);
    let of = |name: &str| world.model.calls.iter().filter(|(m, _)| m.as_str().starts_with(name)).count();
    assert_eq!((of("od"), of("spot")), (1, 1), "once for the type");
    assert_eq!(world.count(Idle), 3);
    assert_eq!(world.state("spot"), Speculative);
    assert_eq!(world.metric("cooled_down_machines"), 0.0, "no strike");
    assert_eq!(world.metric("idle_releases_total"), 1.0);
}

#[test]
fn exhausted_cools_the_class_on_create_and_the_machine_elsewhere() {
    let exhausted = || Fault::Refuse(CallError::Exhausted("quota".to_owned()));
    let mut world = bootstrap(Some(exhausted()));
    assert_eq!((outcome(&world), world.state("m0")), (("configure_error", "quota".to_owned()), Idle));
    assert!(!retried_within(&mut world, 4));
    assert!(retried_within(&mut world, 2));

    let slot = |name: &str, zone: &str| Machine {
        zone: zone.into(),
        ..priced(gpu(name, Speculative), CapacityType::Spot, 1.0, 0.0)
    };
    let mut world = World::new(config(), slow(vec![slot("s0", "z1"), slot("s1", "z1"), slot("s2", "z2")]));
    world.model.fault("s0", Op::Create, exhausted());
    world.rollup("a", vec![need(10, 1)]);
    world.run(Duration::from_millis(500));
    assert_eq!(
        (world.state("s0"), world.state("s1"), world.state("s2")),
        (Speculative, Speculative, Creating)
    );
    assert_eq!(world.metric("cooled_down_machines"), 1.0, "the class");
}

#[test]
fn rejected_is_rolled_back_with_a_strike() {
    let mut world = bootstrap(Some(Fault::Refuse(CallError::Rejected("bad blob".to_owned()))));
    assert_eq!((outcome(&world), world.state("m0")), (("configure_error", "bad blob".to_owned()), Idle));
    assert_eq!(world.update_states("m0"), [4, 3]);
    assert!(!retried_within(&mut world, 4));
    assert!(retried_within(&mut world, 2));

    // A drain that is refused is off: the node is told to stay.
    let mut world = World::new(config(), slow(vec![bound("m0", Configured, "a", &need(10, 1))]));
    world.model.fault("m0", Op::Drain, Fault::Refuse(CallError::Rejected("busy".to_owned())));
    world.rollup("a", Vec::new());
    world.run(Duration::from_millis(50));
    assert_eq!((outcome(&world).0, world.state("m0")), ("transition_error", Configured));
    assert_eq!(world.update_states("m0"), [5, 6, 5]);
    assert_eq!(world.core.machine(&id("m0")).unwrap().attribution.priority, Some(10), "stamps stay");
}

#[test]
fn denied_opens_the_breaker_at_once() {
    let mut world = bootstrap(Some(Fault::Refuse(CallError::Denied("who are you".to_owned()))));
    assert_eq!((outcome(&world).0, world.state("m0")), ("configure_error", Idle));
    world.rollup("a", vec![need(10, 1)]);
    assert_eq!(world.metric("provider_circuit_open"), 1.0);
    assert!(!retried_within(&mut world, 4));
    assert!(retried_within(&mut world, 2), "one probe, without a strike");
    assert_eq!(world.metric("provider_circuit_open"), 0.0);
}

#[test]
fn silence_assumes_nothing() {
    for (deadline, label) in [(true, "ctx_canceled"), (false, "configure_error")] {
        let mut world = World::new(config(), slow(vec![gpu("m0", Idle)]));
        world.hold = true;
        world.rollup("a", vec![need(10, 1)]);
        world.gets_fail = true;
        world.fail_held(&ambiguous(deadline));
        world.seconds(100);
        assert_eq!((outcome(&world).0, world.state("m0")), (label, Configuring), "nothing is known yet");
        world.gets_fail = false;
        world.seconds(11);
        assert_ne!(world.state("m0"), Failed);
        assert_eq!(
            world.calls(Op::Configure),
            1,
            "Get shows that it did not happen, so it may be tried again"
        );
        world.seconds(30);
        assert_eq!(world.state("m0"), Configured);
    }
}

#[test]
fn five_silent_calls_open_the_breaker_and_one_probe_closes_it() {
    let machines = (0..30).map(|n| gpu(&format!("m{n:02}"), Idle)).collect();
    let mut world = World::new(config(), slow(machines));
    world.model.always.insert(Op::Configure, Fault::Refuse(ambiguous(true)));
    world.rollup("a", vec![need(10, 4)]);
    world.seconds(600);
    let calls = world.calls(Op::Configure);
    assert!((5..40).contains(&calls), "{calls} calls in ten minutes of outage");
    assert_eq!(world.metric("provider_circuit_open"), 1.0);
    assert_eq!(world.count(Failed), 0);
    world.model.always.clear();
    world.seconds(100);
    assert_eq!((world.count(Configured), world.metric("provider_circuit_open")), (4, 0.0));
}

#[test]
fn strikes_grow_and_a_success_clears_them() {
    let mut world = World::new(config(), Model::with([gpu("m0", Idle)]));
    for _ in 0..3 {
        world.model.fault("m0", Op::Configure, Fault::Refuse(CallError::Rejected("no".to_owned())));
    }
    world.rollup("a", vec![need(10, 1)]);
    let mut at = Vec::new();
    for second in 0..60 {
        let before = world.calls(Op::Configure);
        world.seconds(1);
        if world.calls(Op::Configure) > before {
            at.push(second);
        }
    }
    assert_eq!(world.state("m0"), Configured);
    assert_eq!(at, [4, 14, 34], "5, 10 and 20 seconds after each other");
}

#[test]
fn a_provision_goes_on_when_the_create_is_done_at_once() {
    let mut world = World::new(config(), Model::with([gpu("s0", Speculative)]));
    world.rollup("a", vec![need(10, 1)]);
    assert_eq!(world.outcomes(), [("Provision", "s0".to_owned(), "success")]);
    assert_eq!(world.state("s0"), Configured);
    assert_eq!(world.update_states("s0"), [2, 4, 5], "no IDLE while it is meant for the cluster");
}

#[test]
fn a_machine_that_was_created_for_a_cluster_and_goes_elsewhere_is_taken_back() {
    let mut world = World::new(config(), slow(vec![gpu("s0", Speculative)]));
    world.rollup("b", Vec::new());
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(5);
    assert_eq!(world.update_states("s0"), [2]);
    world.rollup("a", Vec::new());
    world.rollup("b", vec![need(10, 1)]);
    world.seconds(60);
    let told: Vec<(String, i32)> =
        world.updates("s0").iter().map(|update| (update.cluster_id.clone(), update.state)).collect();
    let expected = [("a", 2), ("b", 4), ("a", 3), ("b", 5)].map(|(to, state)| (to.to_owned(), state));
    assert_eq!(told, expected);
}

// Blobs.

fn asking(blobs: Blobs) -> World {
    let mut world = World::new(config(), slow(vec![gpu("m0", Idle), gpu("m1", Idle)]));
    world.blobs.insert(cluster("a"), blobs);
    world.rollup("a", vec![need(10, 1)]);
    world
}

fn requests(world: &World) -> usize {
    world.frames.iter().filter(|(_, payload)| matches!(payload, Payload::BootstrapRequest(_))).count()
}

#[test]
fn no_session_no_bootstrap() {
    let mut world = World::new(config(), slow(vec![gpu("m0", Idle)]));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(40);
    world.model.arrive(&id("m0"), Failed);
    world.model.machines.insert(id("m1"), gpu("m1", Idle));
    world.disconnect("a");
    world.seconds(60);
    assert_eq!((world.state("m1"), world.calls(Op::Configure)), (Idle, 1));
    assert!(world.metric(r#"action_execute_outcomes_total{kind="Bootstrap",outcome="no_session"}"#) > 0.0);
    world.connect("a");
    world.seconds(40);
    assert_eq!(world.state("m1"), Configured);
}

#[test]
fn an_operator_that_does_not_answer_is_left_alone_for_a_while() {
    let mut world = asking(Blobs::Silent);
    world.seconds(29);
    assert_eq!((world.state("m0"), requests(&world)), (Configuring, 1));
    world.seconds(70);
    assert_eq!(world.calls(Op::Configure), 0);
    assert!(world.audit.iter().all(|record| record.outcome == "ctx_canceled"));
    assert_eq!(requests(&world), 4, "three in a row, then a pause of 5 s");
    world.blobs.insert(cluster("a"), Blobs::Give);
    world.seconds(100);
    assert_eq!((world.count(Configured), world.metric("cooled_down_machines")), (1, 0.0));
}

/// Drill 37.
#[test]
fn drill37_an_operator_that_refuses_makes_a_shortfall_and_costs_no_machine() {
    let mut world = asking(Blobs::Refuse);
    assert_eq!((outcome(&world).0, world.count(Idle)), ("blob_error", 2));
    world.seconds(50);
    assert_eq!((requests(&world), world.count(Idle)), (1, 2), "not asked again for a minute");
    assert_eq!(world.core.shortfalls().count(), 1);
    assert_eq!(world.metric("shortfalls"), 1.0);
    world.seconds(1000);
    assert!((4..=5).contains(&requests(&world)), "60, 120, 240, 480 s: {}", requests(&world));
    assert_eq!((world.count(Idle), world.calls(Op::Configure)), (2, 0));
    world.blobs.insert(cluster("a"), Blobs::Give);
    world.seconds(700);
    assert_eq!((world.count(Configured), world.core.shortfalls().count()), (1, 0));
}

/// Drill 38.
#[test]
fn drill38_an_expired_blob_is_fetched_once_more_and_never_used() {
    let world = asking(Blobs::GiveFor(Duration::from_secs(1)));
    assert_eq!((outcome(&world).0, world.calls(Op::Configure)), ("blob_error", 0));
    assert_eq!(requests(&world) % 2, 0, "each attempt asks twice");
    // A late answer is dropped.
    let mut world = asking(Blobs::Silent);
    let session = world.sessions[&cluster("a")];
    let request_id = world
        .frames
        .iter()
        .find_map(|(_, payload)| match payload {
            Payload::BootstrapRequest(request) => Some(request.request_id.clone()),
            _ => None,
        })
        .unwrap();
    assert!(request_id.len() == 16 && request_id.bytes().all(|b| b.is_ascii_hexdigit()));
    world.run(Duration::from_millis(30_050));
    let blob = bigfleet_shard::io::Blob {
        user_data: bytes::Bytes::from("late").into(),
        ttl: Duration::from_secs(600),
    };
    world.handle(Input::Blob { session, request_id, answer: Ok(blob) });
    world.settle();
    assert_eq!(world.calls(Op::Configure), 0);
}

/// Drill 39.
#[test]
fn drill39_a_reclaim_waits_for_its_operator() {
    let mut world = World::new(config(), slow(vec![bound("m0", Configured, "a", &need(10, 1))]));
    world.rollup("a", Vec::new());
    world.disconnect("a");
    let drained = world.calls(Op::Drain);
    let mut world = World::new(config(), slow(vec![bound("m0", Configured, "a", &need(10, 1))]));
    world.lists = crate::core_world::Lists::Fail;
    world.rollup("a", vec![need(10, 1)]);
    world.rollup("a", Vec::new());
    world.disconnect("a");
    world.lists = crate::core_world::Lists::Truth;
    world.seconds(60);
    assert_eq!(world.calls(Op::Drain), 0);
    assert!(world.metric("reclaims_deferred_no_session_total") > 0.0);
    world.connect("a");
    world.seconds(60);
    assert_eq!((drained, world.calls(Op::Drain), world.state("m0")), (1, 1, Idle));
}

#[test]
fn a_drain_waits_for_the_cordon_but_not_for_ever() {
    let mut world = World::new(config(), slow(vec![bound("m0", Configured, "a", &need(10, 1))]));
    world.acks_reclaims = false;
    world.rollup("a", Vec::new());
    world.seconds(9);
    assert_eq!((world.calls(Op::Drain), world.state("m0")), (0, Configured));
    world.seconds(2);
    assert_eq!((world.calls(Op::Drain), world.state("m0")), (1, Draining));
    assert_eq!(world.core.machine(&id("m0")).unwrap().cluster, Some(cluster("a")), "bound until it is Idle");
}

#[test]
fn one_slow_operator_does_not_hold_the_workers() {
    let mut shard = config();
    shard.execute_concurrency = 16;
    let machines = (0..40).map(|n| gpu(&format!("m{n:02}"), Idle)).collect();
    let mut world = World::new(shard, slow(machines));
    world.blobs.insert(cluster("slow"), Blobs::Silent);
    world.rollup("slow", vec![need(100, 20)]);
    world.rollup("quick", vec![need(10, 20)]);
    world.seconds(1);
    assert_eq!(world.calls(Op::Configure), 20, "all of the quick cluster's");
    assert_eq!(requests(&world), 20 + 4, "at most a quarter of the workers, at least 4");
}

#[test]
fn operators_hear_how_much_there_is() {
    let mut world = World::new(
        config(),
        slow(vec![gpu("m0", Idle), priced(gpu("s0", Speculative), CapacityType::Spot, 0.5, 0.1)]),
    );
    let other = need_of(profile(10, 5, PenaltyBucket::ZERO), 3);
    world.rollup("a", vec![other.clone()]);
    world.seconds(3);
    let hints = |world: &World| -> Vec<(i32, Confidence, f64)> {
        let hint = |payload: &Payload| match payload {
            Payload::AvailableCapacity(hint) => {
                assert_eq!(hint.supersedes_key, format!("available:{}", other.profile.fingerprint()));
                Some((hint.available_count, hint.confidence(), hint.cost_per_hour))
            }
            _ => None,
        };
        world.frames.iter().filter_map(|(_, payload)| hint(payload)).collect()
    };
    assert_eq!(hints(&world), [(2, Confidence::High, 0.0)]);
    world.seconds(10);
    assert_eq!(hints(&world).last(), Some(&(0, Confidence::Low, 0.0)), "both are taken");
    let sent = hints(&world).len();
    world.seconds(5);
    assert_eq!(hints(&world).len(), sent, "nothing new, nothing said");
}
