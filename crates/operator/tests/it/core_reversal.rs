//! Cordons that are taken back because their machine stays.

use std::sync::Arc;

use bigfleet_operator::io::{Input, Node, Phase, Write, WriteError};
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{Acknowledgement, MachineState};

use crate::core_kit::{Rig, node, pod};
use crate::core_reclaim::{cordons, instruct, last_put, rig};

const CORDONED_BY: &str = "bigfleet.lucy.sh/cordoned-by";

fn uncordons(writes: &[Write]) -> usize {
    writes.iter().filter(|write| matches!(write, Write::Uncordon { .. })).count()
}

/// The shard's process `epoch` answers a new session.
fn greeted(rig: &mut Rig, epoch: i64) {
    rig.input(Input::Connected);
    rig.frame(Down::Ack(Acknowledgement { echo: "hello".into(), shard_epoch: epoch, ..Default::default() }));
}

/// `m-1` is drained on the order of process 1, and its node shows our cordon.
fn drained() -> Rig {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    greeted(&mut rig, 1);
    rig.state("m-1", MachineState::Configured);
    instruct(&mut rig, "i", &["m-1"], 600);
    shows_cordon(&mut rig);
    rig
}

fn shows_cordon(rig: &mut Rig) {
    let annotations = cordons(&rig.take_writes())[0].1.clone();
    rig.input(Input::Node(Arc::new(Node { unschedulable: true, annotations, ..node("n-1", "m-1") })));
}

#[test]
fn a_cordon_of_ours_is_taken_back_when_the_machine_stays() {
    for (ours, expected) in [(true, 1), (false, 0)] {
        let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
        if !ours {
            rig.input(Input::Node(Arc::new(Node { unschedulable: true, ..node("n-1", "m-1") })));
        }
        instruct(&mut rig, "i", &["m-1"], 30);
        let writes = rig.take_writes();
        let annotations = cordons(&writes)[0].1.clone();
        assert_eq!(annotations.contains_key(CORDONED_BY), ours);
        rig.input(Input::Node(Arc::new(Node { unschedulable: true, annotations, ..node("n-1", "m-1") })));
        rig.seconds(90);
        assert_eq!(uncordons(&rig.take_writes()), 0, "not before 60 s after the deadline");
        rig.seconds(1);
        let writes = rig.take_writes();
        let phase = last_put(writes.clone()).map(|o| o.phase);
        assert_eq!((uncordons(&writes), phase), (expected, ours.then_some(Phase::Ready)));
        rig.seconds(300);
        assert_eq!(uncordons(&rig.take_writes()), 0, "once");
    }
}

#[test]
fn a_drain_that_the_provider_refused_is_off_at_once() {
    let mut rig = drained();
    rig.state("m-1", MachineState::Draining);
    assert_eq!(uncordons(&rig.take_writes()), 0);
    rig.state("m-1", MachineState::Configured);
    let writes = rig.take_writes();
    assert_eq!((uncordons(&writes), last_put(writes).map(|o| o.phase)), (1, Some(Phase::Ready)));
    assert_eq!(rig.core.counters().drains_active, 0);
    assert_eq!(rig.watched, Vec::<String>::new());
}

/// Killed between its order and its call to the provider, a shard comes back without memory of either.
#[test]
fn a_drain_whose_shard_died_is_off_when_its_successor_uses_the_machine() {
    let mut rig = drained();
    rig.input(Input::Disconnected);
    greeted(&mut rig, 2);
    rig.state("m-1", MachineState::Configured);
    assert_eq!(uncordons(&rig.take_writes()), 0, "not before the replay is complete");
    rig.ack("resync");
    assert_eq!(uncordons(&rig.take_writes()), 1);
    assert_eq!(rig.core.counters().drains_active, 0);
}

#[test]
fn a_drain_goes_on_when_its_shard_comes_back_or_its_machine_drains() {
    // The same process; a successor that sees the machine draining; a successor that ordered it anew.
    for (epoch, state, again) in [
        (1, MachineState::Configured, false),
        (2, MachineState::Draining, false),
        (2, MachineState::Configured, true),
    ] {
        let mut rig = drained();
        rig.input(Input::Disconnected);
        greeted(&mut rig, epoch);
        rig.state("m-1", state);
        if again {
            instruct(&mut rig, "j", &["m-1"], 600);
        }
        rig.ack("resync");
        rig.seconds(60);
        assert_eq!(uncordons(&rig.take_writes()), 0, "{epoch} {state:?} {again}");
        assert_eq!(rig.core.counters().drains_active, 1, "{epoch} {state:?} {again}");
    }
}

/// `m-1` is shown in use, then ordered to be drained, by a shard that marks the end of its replay or does not. Its node
/// shows our cordon.
fn instructed(marks: bool) -> Rig {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1"), pod("b", "n-1")]);
    greeted(&mut rig, 1);
    rig.state("m-1", MachineState::Configured);
    if marks {
        rig.ack("resync");
    }
    rig.answer = Box::new(|write| match write {
        Write::Evict { .. } => Some(Err(WriteError::TooMany { retry_after: None, message: "budget".into() })),
        _ => Some(Ok(())),
    });
    instruct(&mut rig, "i", &["m-1"], 600);
    shows_cordon(&mut rig);
    rig
}

fn evictions(writes: &[Write]) -> usize {
    writes.iter().filter(|write| matches!(write, Write::Evict { .. })).count()
}

#[test]
fn a_reclaim_called_off_while_only_instructed_evicts_nobody_any_more() {
    let mut rig = instructed(true);
    rig.seconds(10);
    assert!(evictions(&rig.take_writes()) > 0, "refused evictions are asked for again");
    rig.state("m-1", MachineState::Configured);
    let writes = rig.take_writes();
    assert_eq!((uncordons(&writes), last_put(writes).map(|o| o.phase)), (1, Some(Phase::Ready)));
    assert_eq!((rig.core.counters().drains_active, rig.watched.len()), (0, 0));
    rig.seconds(120);
    assert_eq!(evictions(&rig.take_writes()), 0);
}

#[test]
fn a_plain_shard_that_repeats_configured_calls_nothing_off() {
    let mut rig = instructed(false);
    rig.state("m-1", MachineState::Configured);
    rig.seconds(10);
    let writes = rig.take_writes();
    assert_eq!((uncordons(&writes), rig.core.counters().drains_active), (0, 1));
    assert!(evictions(&writes) > 0);
}

/// An instruction may overtake the frame that told of the machine, or come again in a session whose replay is not over.
#[test]
fn the_first_configured_of_a_session_does_not_call_its_instruction_off() {
    let mut rig = instructed(true);
    rig.input(Input::Disconnected);
    greeted(&mut rig, 1);
    rig.ack("resync");
    instruct(&mut rig, "again", &["m-1"], 600);
    rig.state("m-1", MachineState::Configured);
    assert_eq!((uncordons(&rig.take_writes()), rig.core.counters().drains_active), (0, 1));
    rig.state("m-1", MachineState::Configured);
    assert_eq!((uncordons(&rig.take_writes()), rig.core.counters().drains_active), (1, 0));
}

/// Whichever of the two is carried out last, counts.
#[test]
fn a_cordon_is_not_overtaken_by_the_uncordon_of_the_drain_before() {
    let mut rig = instructed(true);
    rig.answer = Box::new(|write| (!matches!(write, Write::Uncordon { .. })).then_some(Ok(())));
    rig.take_writes();
    rig.state("m-1", MachineState::Configured);
    let uncordon = rig.writes.iter().find(|(.., write)| matches!(write, Write::Uncordon { .. }));
    let uncordon = uncordon.expect("called off").1;
    instruct(&mut rig, "j", &["m-1"], 600);
    rig.seconds(1);
    assert_eq!(cordons(&rig.take_writes()).len(), 0, "the uncordon is under way");
    rig.done(uncordon, Err(WriteError::Conflict));
    rig.seconds(1);
    let writes = rig.take_writes();
    assert_eq!((cordons(&writes).len(), uncordons(&writes)), (1, 0), "and is not tried again");
    assert_eq!(rig.core.counters().drains_active, 1);
}

/// The cordon's write was still under way when the drain was called off.
#[test]
fn a_cordon_that_comes_late_is_taken_back_too() {
    let mut rig = rig(&["m-1"], vec![pod("a", "n-1")]);
    instruct(&mut rig, "i", &["m-1"], 600);
    rig.state("m-1", MachineState::Draining);
    rig.state("m-1", MachineState::Configured);
    shows_cordon(&mut rig);
    assert_eq!(uncordons(&rig.take_writes()), 1);
}
