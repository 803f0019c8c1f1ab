//! Faults that were found and must not come back, each under its name.

use std::time::Duration;

use bigfleet_proto::v1alpha1::available_capacity_update::Confidence;
use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_shard::io::{CallError, Input, Note};
use bigfleet_types::{Machine, MachineState, UnixNanos};

use crate::core_model::{Fault, Model, Op, ambiguous, bound, cluster, gpu, id, need, rows};
use crate::core_world::{Blobs, World, config};

use MachineState::{Configured, Configuring, Idle};

fn idle(n: usize) -> Vec<Machine> {
    (0..n).map(|n| gpu(&format!("m{n:02}"), Idle)).collect()
}

fn held(n: usize, to: &str) -> Vec<Machine> {
    (0..n).map(|n| bound(&format!("{to}{n:03}"), Configured, to, &need(1000, 1))).collect()
}

fn slow(machines: Vec<Machine>, seconds: u64) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(seconds));
    model
}

fn instructions(world: &World) -> Vec<String> {
    let told = world.frames.iter().filter_map(|(_, payload)| match payload {
        Payload::ReclaimInstruction(instruction) => Some(instruction.machine_ids[0].clone()),
        _ => None,
    });
    told.collect()
}

/// A world in which one Reclaim waits for its operator's acknowledgement.
fn instructed() -> (World, String) {
    let mut world = World::new(config(), slow(held(3, "a"), 5));
    world.acks_reclaims = false;
    world.rollup("a", vec![need(1000, 2)]);
    world.seconds(1);
    let told = instructions(&world);
    assert_eq!(told.len(), 1);
    assert_eq!(world.calls(Op::Drain), 0);
    (world, told[0].clone())
}

#[test]
fn a_reclaim_does_not_go_on_without_its_operator() {
    let (mut world, name) = instructed();
    world.disconnect("a");
    world.seconds(60);
    assert_eq!((world.calls(Op::Drain), world.state(&name)), (0, Configured));
    assert!(world.outcomes().contains(&("Reclaim", name, "no_session")));
    assert!(world.metric("reclaims_deferred_no_session_total") >= 1.0);
    assert_eq!(world.core.in_flight().count(), 0);
}

#[test]
fn a_reclaim_does_not_go_on_when_its_session_is_replaced() {
    let (mut world, name) = instructed();
    world.frames.clear();
    let new = world.connect("a");
    assert!(world.outcomes().contains(&("Reclaim", name.clone(), "no_session")));
    assert_eq!(world.update_states(&name), [5], "the replay tells the new one, once");
    world.seconds(15);
    let again = |(session, payload): &_| *session == new && matches!(payload, Payload::ReclaimInstruction(_));
    assert!(world.frames.iter().any(again), "the new one is instructed afresh");
}

#[test]
fn an_unchanged_hint_is_sent_again_every_five_minutes() {
    let mut world = World::new(config(), Model::with(idle(2)));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(30);
    world.frames.clear();
    let hints = |world: &World| {
        let hint = |payload: &Payload| match payload {
            Payload::AvailableCapacity(hint) => Some((hint.available_count, hint.confidence())),
            _ => None,
        };
        world.frames.iter().filter_map(|(_, payload)| hint(payload)).collect::<Vec<_>>()
    };
    world.seconds(240);
    assert_eq!(hints(&world), []);
    world.seconds(70);
    assert_eq!(hints(&world), [(1, Confidence::High)]);
    world.seconds(1500);
    assert_eq!(hints(&world).len(), 6);
}

/// The last answer of InspectNeeds: for each row whether it counts as unmet by a note, its age and the cause.
fn notes(world: &World) -> Vec<(Note, u32)> {
    let published = world.published.as_ref().unwrap();
    published
        .notes
        .iter()
        .map(|(key, note)| (note.clone(), published.unmet_age.get(key).copied().unwrap_or(0)))
        .collect()
}

fn causes(world: &World) -> Vec<(String, bool)> {
    notes(world).into_iter().map(|(note, _)| (note.cause.to_string(), note.missing.is_some())).collect()
}

#[test]
fn a_refused_bootstrap_is_no_satisfied_need() {
    let mut world = World::new(config(), slow(idle(3), 2));
    world.blobs.insert(cluster("a"), Blobs::Refuse);
    world.rollup("a", vec![need(10, 2)]);
    let cause = "the operator refuses to bootstrap it: the template does not render";
    let mut last = 0;
    // Also while the operator is asked again, at 60 s and at 180 s.
    for _ in 0..300 {
        world.seconds(1);
        let noted = notes(&world);
        assert_eq!(noted.len(), 1, "at {:?}", world.now);
        assert_eq!(noted[0].0.cause.as_ref(), cause);
        assert_eq!(noted[0].0.missing.as_ref(), Some(&need(10, 2).aggregate));
        assert!(noted[0].1 >= last, "its age does not start again");
        last = noted[0].1;
        let (_, shortfall) = world.core.shortfalls().next().unwrap();
        assert_eq!(shortfall.age, last);
    }
    assert!(last >= 29, "{last}");
    assert_eq!(world.count(Idle), 3);
    world.blobs.insert(cluster("a"), Blobs::Give);
    world.seconds(600);
    assert_eq!((notes(&world), world.core.shortfalls().count()), (Vec::new(), 0));
    assert_eq!(world.count(Configured), 2);
}

#[test]
fn a_refused_need_keeps_what_it_has() {
    let mut world = World::new(config(), slow(idle(3), 2));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    world.blobs.insert(cluster("a"), Blobs::Refuse);
    world.rollup("a", vec![need(10, 3)]);
    world.seconds(10);
    assert_eq!(notes(&world)[0].0.missing.as_ref(), Some(&need(10, 2).aggregate));
}

#[test]
fn decided_machines_that_nobody_asked_for_have_a_note() {
    let mut world = World::new(config(), slow(idle(2), 2));
    world.handle(Input::Paused(true));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    assert_eq!(causes(&world), [("paused".to_owned(), false)]);
    world.disconnect("a");
    world.handle(Input::Paused(false));
    world.seconds(10);
    assert_eq!(causes(&world), [("no session of the cluster".to_owned(), false)]);
    world.connect("a");
    world.seconds(10);
    assert_eq!((causes(&world), world.count(Configured)), (Vec::new(), 1));

    let mut shard = config();
    shard.dry_run = true;
    let mut world = World::new(shard, slow(idle(2), 2));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    assert_eq!(causes(&world), [("dry run".to_owned(), false)]);

    let mut world = World::new(config(), slow(idle(9), 2));
    world.model.always.insert(Op::Configure, Fault::Refuse(ambiguous(false)));
    world.gets_fail = true;
    world.rollup("a", vec![need(10, 6)]);
    world.rollup("b", vec![need(9, 3)]);
    world.seconds(1);
    assert_eq!(world.metric("provider_circuit_open"), 1.0);
    assert!(
        causes(&world).contains(&("the provider does not answer".to_owned(), false)),
        "{:?}",
        causes(&world)
    );

    let mut world = World::new(config(), slow(idle(9), 2));
    world.model.always.insert(Op::Configure, Fault::Refuse(CallError::Fenced("stale".to_owned())));
    world.rollup("a", vec![need(10, 3)]);
    world.seconds(30);
    assert_eq!(world.metric("self_fenced"), 1.0);
    assert!(causes(&world)[0].0.contains("must be restarted"), "{:?}", causes(&world));
}

#[test]
fn a_pause_tells_once_that_the_drain_is_off() {
    let (mut world, name) = instructed();
    world.frames.clear();
    // What changes in between for show only says nothing: it would read as the end of the drain.
    world.model.machines.get_mut(&id(&name)).unwrap().labels.insert("team".into(), "blue".into());
    world.seconds(8);
    assert_eq!(world.update_states(&name), [0; 0]);
    world.handle(Input::Paused(true));
    world.seconds(60);
    assert_eq!(world.calls(Op::Drain), 0);
    // One says it in the lane of the instruction, behind it; the other is the label that comes with the next List.
    let key = format!("node:{name}");
    let told: Vec<bool> = world.lanes.iter().filter(|(of, _)| *of == key).map(|(_, fifo)| *fifo).collect();
    assert_eq!(told.iter().filter(|fifo| **fifo).count(), 1, "{told:?}");
    assert!(world.update_states(&name).iter().all(|state| *state == 5));
}

#[test]
fn series_of_a_cluster_that_is_away_for_a_day_are_removed() {
    let mut world = World::new(config(), Model::with(held(2, "a")));
    world.rollup("a", rows(2));
    let session = world.sessions[&cluster("a")];
    world.handle(Input::Rollup { session, timestamp_unix_nanos: 1, rows: Err("bad".to_owned()) });
    world.seconds(10);
    let series = |world: &World| world.lines().filter(|line| line.contains(r#"cluster="a""#)).count();
    assert_eq!(series(&world), 3);
    world.disconnect("a");
    world.seconds(23 * 3600);
    assert_eq!(series(&world), 3);
    world.seconds(2 * 3600);
    assert_eq!(series(&world), 0);
    assert_eq!((world.count(Configured), world.metric("demand_rows")), (2, 2.0), "its demand stays in force");
    world.rollup("a", rows(2));
    world.seconds(10);
    assert!(series(&world) >= 2);
}

#[test]
fn work_is_not_lost_while_the_breaker_is_probed() {
    let mut world = World::new(config(), slow(idle(12), 1));
    world.model.always.insert(Op::Configure, Fault::Refuse(ambiguous(false)));
    world.rollup("a", vec![need(10, 12)]);
    world.seconds(1);
    assert_eq!(world.metric("provider_circuit_open"), 1.0);
    world.model.always.clear();
    world.seconds(120);
    assert_eq!((world.count(Configured), world.metric("provider_circuit_open")), (12, 0.0));
}

#[test]
fn reclaims_of_a_silent_operator_leave_workers_for_others() {
    let mut shard = config();
    shard.execute_concurrency = 8;
    shard.reclaim_cap_fraction = 0.0;
    let mut world = World::new(shard, slow([held(20, "a"), idle(2)].concat(), 2));
    world.rollup("a", rows(20));
    world.rollup("b", Vec::new());
    world.acks_reclaims = false;
    world.rollup("a", rows(4));
    world.seconds(1);
    assert_eq!(instructions(&world).len(), 4, "half of the workers wait for it");
    world.rollup("b", vec![need(10, 2)]);
    world.seconds(5);
    assert_eq!(world.state("m00"), Configured);
}

#[test]
fn counters_with_known_labels_begin_at_zero() {
    let world = World::new(config(), Model::with(idle(1)));
    for line in [
        r#"actions_total{kind="Preempt"} 0"#,
        r#"actions_suppressed_total{kind="Delete"} 0"#,
        r#"machines_rejected_total{reason="price"} 0"#,
        r#"session_lifecycle_total{event="replaced"} 0"#,
    ] {
        let wanted = format!("bigfleet_shard_{line}");
        assert!(world.lines().any(|found| found == wanted), "{line}");
    }
}

#[test]
fn an_absurd_patience_overflows_nothing() {
    let mut shard = config();
    shard.stuck.configure = Duration::MAX;
    shard.stuck.drain = Duration::MAX;
    let mut world = World::new(shard, slow([idle(1), held(2, "b")].concat(), 2));
    world.model.fault("m00", Op::Configure, Fault::Hang);
    world.model.fault("b001", Op::Drain, Fault::Hang);
    world.rollup("b", rows(2));
    world.rollup("a", vec![need(10, 1)]);
    world.rollup("b", rows(1));
    world.seconds(3600);
    assert_eq!(world.state("m00"), Configuring);
    assert!(world.now > UnixNanos(0));
}

/// Example 10 of the engine.
#[test]
fn ex10_bad_row_changes_nothing() {
    let mut world = World::new(config(), Model::with(held(3, "a")));
    world.seconds(1);
    world.connect("a");
    let refused = |world: &mut World| {
        let session = world.sessions[&cluster("a")];
        for reason in ["needs[1].interruption_penalty_bucket: 28", "needs[0].aggregate_resources: cpu abc"] {
            let rows = Err(reason.to_owned());
            world.handle(Input::Rollup { session, timestamp_unix_nanos: 5, rows });
        }
        world.seconds(300);
    };
    // The gate stays closed: the cluster has not spoken.
    refused(&mut world);
    assert_eq!((world.metric("unreported_clusters"), world.metric("demand_rows")), (1.0, 0.0));
    world.rollup("a", rows(3));
    world.seconds(10);
    refused(&mut world);
    assert_eq!((world.metric("unreported_clusters"), world.metric("demand_rows")), (0.0, 3.0));
    assert_eq!(world.metric(r#"rollups_rejected_total{cluster="a"}"#), 4.0);
    assert_eq!((world.model.calls.len(), world.count(Configured)), (0, 3));
}

/// Example 56 of the engine, its last sentence.
#[test]
fn ex56_two_clusters_with_one_fingerprint_fall_short_apart() {
    let mut world = World::new(config(), Model::with(Vec::new()));
    world.rollup("a", vec![need(10, 1)]);
    world.rollup("b", vec![need(10, 2)]);
    world.seconds(21);
    let entries: Vec<_> = world
        .core
        .shortfalls()
        .map(|(key, entry)| (key.cluster.to_string(), entry.age, entry.deficit.clone()))
        .collect();
    let wanted = [("a", need(10, 1)), ("b", need(10, 2))];
    assert_eq!(entries, wanted.map(|(name, need)| (name.to_owned(), 3, need.aggregate)));
}
