//! Preemption through the whole core: the victim's operator, the provider, and the machine's way to its preemptor. Each
//! drill names the mutation that makes it fail.

use std::time::Duration;

use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_shard::io::{CallError, SessionId};
use bigfleet_types::{Attribution, Machine, MachineState, Need};

use crate::core_model::{Fault, Model, Op, bound, cluster, id, need};
use crate::core_world::{Lists, World, config};

use MachineState::{Configured, Draining, Failed, Idle};

/// What the victims serve, and what is worth more: a gap of 199,000, which gives two minutes.
fn batch(units: i64) -> Need {
    need(1_000, units)
}

fn train(units: i64) -> Need {
    need(200_000, units)
}

const GRACE: Duration = Duration::from_secs(120);

fn held(n: usize) -> Vec<Machine> {
    (0..n).map(|n| bound(&format!("m{n}"), Configured, "batch", &batch(1))).collect()
}

/// All machines serve batch, every transition takes `seconds`, and train has not spoken yet.
fn serving_batch(n: usize, seconds: u64) -> World {
    let mut model = Model::with(held(n));
    model.dwell = Some(Duration::from_secs(seconds));
    let mut world = World::new(config(), model);
    world.rollup("batch", vec![batch(i64::try_from(n).unwrap())]);
    world.seconds(5);
    world.frames.clear();
    world
}

fn owner(world: &World, name: &str) -> Option<String> {
    world.core.machine(&id(name)).unwrap().cluster.as_ref().map(ToString::to_string)
}

/// The machines that serve a cluster.
fn serve(world: &World, name: &str) -> Vec<String> {
    let name = cluster(name);
    let serving = |m: &&Machine| m.state == Configured && m.cluster.as_ref() == Some(&name);
    world.core.machines().filter(serving).map(|machine| machine.id.to_string()).collect()
}

/// What an operator was told of one machine: instructions and states, in order.
fn told(world: &World, session: SessionId, name: &str) -> Vec<String> {
    let line = |payload: &Payload| match payload {
        Payload::ReclaimInstruction(i) if i.machine_ids == [name] => {
            assert_eq!(i.nodes, [name]);
            Some(format!("leave in {} s for {}", i.grace_period_seconds, i.preemptor_priority))
        }
        Payload::NodeStateUpdate(update) if update.machine_id == name => {
            let state = MachineState::from_number(update.state).unwrap();
            Some(state.name().to_owned())
        }
        Payload::BootstrapRequest(request) if request.machine_id == name => Some("blob".to_owned()),
        _ => None,
    };
    let theirs = world.frames.iter().filter(|(to, _)| *to == session);
    theirs.filter_map(|(_, payload)| line(payload)).collect()
}

/// Control: give every drain the grace of a Reclaim: 600 s. Clear the binding with the DRAINING acknowledgement: the
/// preemptor's Bootstrap begins on a machine that still drains.
#[test]
fn preempt_goes_from_instruction_over_drain_to_the_preemptors_bootstrap() {
    let mut world = serving_batch(2, 20);
    world.rollup("train", vec![train(1)]);
    let (ours, theirs) = (world.sessions[&cluster("train")], world.sessions[&cluster("batch")]);
    assert_eq!(world.state("m0"), Draining);
    assert_eq!(owner(&world, "m0").as_deref(), Some("batch"), "theirs until it has left");
    for _ in 0..18 {
        world.seconds(1);
        assert_eq!((world.state("m0"), world.state("m1")), (Draining, Configured));
        assert_eq!(world.core.shortfalls().filter(|(key, _)| key.cluster == cluster("train")).count(), 0);
    }
    world.seconds(40);
    assert_eq!((serve(&world, "train"), serve(&world, "batch")), (vec!["m0".into()], vec!["m1".into()]));
    assert_eq!(world.core.machine(&id("m0")).unwrap().attribution, Attribution::of(&train(1)));
    assert_eq!(world.model.drains, [(id("m0"), GRACE)]);
    let instruction = "leave in 120 s for 200000";
    assert_eq!(told(&world, theirs, "m0"), [instruction, "Draining", "Idle"]);
    assert_eq!(told(&world, ours, "m0"), ["Configuring", "blob", "Configured"]);
    assert_eq!(
        world.outcomes(),
        [("Preempt", "m0".to_owned(), "success"), ("Bootstrap", "m0".to_owned(), "success")]
    );
    let preempt = &world.audit[0];
    assert_eq!((preempt.cluster.as_str(), preempt.grace_seconds), ("batch", GRACE.as_secs()));
}

/// Control: drop the roll-back to Configured: the node stays cordoned for ever. Drop the strike: the same machine is
/// tried again at once.
#[test]
fn preempt_that_the_provider_refuses_is_called_off_and_another_machine_goes() {
    let mut world = serving_batch(2, 5);
    world.model.fault("m0", Op::Drain, Fault::Refuse(CallError::Rejected("busy".to_owned())));
    world.rollup("train", vec![train(1)]);
    world.seconds(30);
    let theirs = world.sessions[&cluster("batch")];
    let heard = told(&world, theirs, "m0");
    assert_eq!(heard.last().unwrap(), "Configured", "the drain is off: {heard:?}");
    assert_eq!((serve(&world, "train"), serve(&world, "batch")), (vec!["m1".into()], vec!["m0".into()]));
    assert_eq!(world.outcomes()[0], ("Preempt", "m0".to_owned(), "transition_error"));
    assert_eq!(world.calls(Op::Drain), 2);
}

/// Control: count a FAILED machine as freed: train waits for ever.
#[test]
fn preempt_whose_machine_breaks_is_made_up_for() {
    let mut world = serving_batch(2, 5);
    world.model.fault("m0", Op::Drain, Fault::Fail);
    world.rollup("train", vec![train(1)]);
    world.seconds(60);
    assert_eq!((world.state("m0"), serve(&world, "train")), (Failed, vec!["m1".to_owned()]));
    let theirs = world.sessions[&cluster("batch")];
    assert_eq!(told(&world, theirs, "m0"), ["leave in 120 s for 200000", "Draining", "Failed"]);
}

/// Control: forget to subtract pending drains from a deficit: a second machine is preempted in the next cycle.
#[test]
fn preempt_is_not_repeated_while_the_provider_is_slow_or_silent() {
    for silent in [false, true] {
        let mut world = serving_batch(4, 100);
        if silent {
            world.model.fault("m0", Op::Drain, Fault::LoseAck);
        }
        world.rollup("train", vec![train(1)]);
        for _ in 0..99 {
            world.seconds(1);
            assert!(world.calls(Op::Drain) == 1, "silent: {silent}");
        }
        world.seconds(150);
        assert_eq!((serve(&world, "train").len(), serve(&world, "batch").len()), (1, 3));
        assert_eq!(world.calls(Op::Drain), 1);
    }
}

/// The provider answers nothing, and did nothing. Control: take silence for success: m0 is taken for Draining for ever.
#[test]
fn preempt_that_the_provider_never_heard_of_is_called_off_and_decided_anew() {
    let mut world = serving_batch(2, 5);
    world.hold = true;
    world.rollup("train", vec![train(1)]);
    assert_eq!((world.held.len(), world.state("m0")), (1, Draining));
    world.fail_held(&crate::core_model::ambiguous(true));
    world.seconds(60);
    assert_eq!((serve(&world, "train").len(), serve(&world, "batch").len()), (1, 1));
    assert_eq!(world.calls(Op::Drain), 1, "what was never heard does not count");
    let theirs = world.sessions[&cluster("batch")];
    assert_eq!(&told(&world, theirs, "m0")[..3], ["leave in 120 s for 200000", "Draining", "Configured"]);
}

/// Control: wait for the acknowledgement of the instruction for ever.
#[test]
fn preempt_goes_on_without_an_operator_that_does_not_answer() {
    let mut world = serving_batch(2, 5);
    world.acks_reclaims = false;
    world.rollup("train", vec![train(1)]);
    world.seconds(9);
    assert_eq!((world.state("m0"), world.calls(Op::Drain)), (Configured, 0), "it has ten seconds to cordon");
    world.seconds(30);
    assert_eq!(serve(&world, "train"), ["m0"]);
}

/// Control: defer a Preempt like a Reclaim when there is no session.
#[test]
fn drill39_operator_away_during_a_preempt() {
    let mut world = serving_batch(2, 5);
    world.disconnect("batch");
    world.rollup("train", vec![train(1)]);
    assert_eq!(world.state("m0"), Draining, "at once");
    world.seconds(30);
    assert_eq!(serve(&world, "train"), ["m0"]);
    // It hears of the end when it comes back.
    world.frames.clear();
    let theirs = world.connect("batch");
    assert_eq!(told(&world, theirs, "m0"), ["Idle"]);
    // The session ends between the instruction and its acknowledgement: the same.
    let mut world = serving_batch(2, 5);
    world.acks_reclaims = false;
    world.rollup("train", vec![train(1)]);
    assert_eq!(world.state("m0"), Configured);
    world.disconnect("batch");
    assert_eq!(world.state("m0"), Draining);
    world.seconds(30);
    assert_eq!((serve(&world, "train"), world.calls(Op::Drain)), (vec!["m0".to_owned()], 1));
}

/// The preemptor goes away while its victim drains. Control: cancel the drain: the machine never becomes Idle.
#[test]
fn preempt_ends_even_if_nobody_wants_the_machine_any_more() {
    let mut world = serving_batch(2, 20);
    world.rollup("train", vec![train(1)]);
    assert_eq!(world.state("m0"), Draining);
    world.rollup("train", Vec::new());
    world.seconds(60);
    assert_eq!(serve(&world, "batch"), ["m0", "m1"], "batch has it back");
    assert_eq!((world.calls(Op::Drain), world.calls(Op::Configure)), (1, 1));
}

/// Control: credit Draining machines of unknown purpose to nobody: two more are preempted after the restart. Forget to
/// watch what is found in transition: the machine never becomes Idle.
#[test]
fn drill24_kill_in_the_middle_of_a_preempt() {
    // Who speaks first after the restart, and whether the victims' cluster speaks at all.
    let orders: [&[&str]; 3] = [&["batch", "train"], &["train", "batch"], &["train"]];
    for order in orders {
        // Before the operator has acknowledged, in the drain, at its end, in the bootstrap, at its end, and at rest.
        for (acks, at) in [
            (false, 0),
            (false, 9),
            (true, 0),
            (true, 1),
            (true, 29),
            (true, 31),
            (true, 45),
            (true, 59),
            (true, 70),
        ] {
            let context = format!("killed after {at} s, acknowledged: {acks}, heard again: {order:?}");
            let mut world = serving_batch(5, 30);
            world.acks_reclaims = acks;
            world.rollup("train", vec![train(2)]);
            world.seconds(at);
            let drained = world.model.drains.clone();
            assert_eq!(drained.len(), if acks { 2 } else { 0 }, "{context}");
            let mut world = world.restart(config());
            // All speak before the first decision: a machine that is Idle before train has spoken is free for batch.
            world.lists = Lists::Fail;
            for name in order {
                world.rollup(name, vec![if *name == "train" { train(2) } else { batch(5) }]);
            }
            world.lists = Lists::Truth;
            world.seconds(200);
            assert_eq!(world.model.drains.len(), 2, "{context}: preempted once each");
            assert!(world.model.drains.iter().all(|(_, grace)| *grace == GRACE), "{context}");
            let went: Vec<String> =
                world.model.drains.iter().map(|(machine, _)| machine.to_string()).collect();
            let mut there = serve(&world, "train");
            there.sort_by_key(|name| went.iter().position(|machine| machine == name));
            assert_eq!(there, went, "{context}: what was preempted serves its preemptor");
            assert_eq!(serve(&world, "batch").len(), 3, "{context}");
            assert_eq!(world.core.in_flight().count(), 0, "{context}");
            assert_eq!(world.count(Idle), 0, "{context}");
            let stamps = Attribution::of(&train(2));
            assert!(there.iter().all(|name| world.core.machine(&id(name)).unwrap().attribution == stamps));
        }
    }
}

/// A kill of the provider's memory and of ours at once: it still shows the machine Draining, and the drain is not sent
/// again before the watchdog's time.
#[test]
fn drill24_a_drain_that_outlives_the_shard_is_watched_and_not_repeated() {
    let mut world = serving_batch(3, 500);
    world.rollup("train", vec![train(1)]);
    world.seconds(10);
    let mut world = world.restart(config());
    world.rollup("train", vec![train(1)]);
    world.rollup("batch", vec![batch(3)]);
    world.seconds(480);
    assert_eq!((world.state("m0"), world.model.drains.len()), (Draining, 1));
    world.seconds(600);
    assert_eq!((serve(&world, "train"), world.model.drains.len()), (vec!["m0".to_owned()], 1));
}
