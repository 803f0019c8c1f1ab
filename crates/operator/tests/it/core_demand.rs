//! When roll-ups go and what a confirmed one brings about.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_operator::io::{CapacityRequest, Input, Write, WriteError};
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{Acknowledgement, MachineState};
use bigfleet_types::UnixNanos;

use crate::core_kit::{Rig, cpu, request, strings, uid};

fn gone(name: &str) -> Input {
    Input::RequestGone(uid(name))
}

fn acknowledged(rig: &mut Rig) -> Vec<String> {
    let of = |write| match write {
        Write::AcknowledgeRequest { uid, .. } => Some(uid.to_string()),
        _ => None,
    };
    let mut all: Vec<_> = rig.take_writes().into_iter().filter_map(of).collect();
    all.sort();
    all
}

fn total_cpu(rig: &Rig) -> Option<&str> {
    let needs = &rig.rollups.last()?.1.needs;
    needs.first()?.aggregate_resources.get("cpu").map(String::as_str)
}

/// Seconds between the start and each roll-up.
fn times(rig: &Rig, start: UnixNanos) -> Vec<f64> {
    rig.rollups.iter().map(|(at, _)| at.since(start).as_secs_f64()).collect()
}

#[test]
fn ex01_no_demand_is_said_as_such() {
    let rig = Rig::running();
    assert_eq!(rig.rollups.len(), 1);
    assert_eq!(rig.rollups[0].1.needs, []);
    assert_eq!(rig.rollups[0].1.cluster_id, "prod-eu-1");
}

#[test]
fn ex02_unknown_demand_is_not_said() {
    let mut rig = Rig::new();
    rig.connect();
    rig.input(cpu("a", "1"));
    rig.seconds(60);
    assert_eq!(rig.rollups.len(), 0);
    rig.input(Input::Synced);
    assert_eq!(rig.rollups.len(), 1, "it goes the moment the gate opens");
    assert_eq!(total_cpu(&rig), Some("1"));
}

#[test]
fn the_first_rollup_follows_the_hello_and_does_not_wait_for_it_for_ever() {
    let mut rig = Rig::new();
    rig.input(Input::Synced);
    rig.input(Input::Connected);
    assert_eq!(rig.rollups.len(), 0);
    rig.ack("hello");
    assert_eq!(rig.rollups.len(), 1);
    rig.input(Input::Disconnected);
    rig.input(Input::Connected);
    rig.seconds(1);
    assert_eq!(rig.rollups.len(), 2, "a shard that does not answer the hello");
}

#[test]
fn ticks_are_fixed_and_missed_ones_are_skipped() {
    let mut rig = Rig::running();
    let start = rig.now;
    rig.seconds(30);
    assert_eq!(times(&rig, start), [0.0, 10.0, 20.0, 30.0]);
    // Nobody woke the core for 25 seconds.
    rig.now = rig.now.after(Duration::from_secs(25));
    rig.seconds(5);
    assert_eq!(times(&rig, start)[4..], [55.0, 60.0]);
}

#[test]
fn growth_goes_after_250_ms_and_shrinking_waits_for_the_tick() {
    let mut rig = Rig::running();
    let start = rig.now;
    rig.seconds(1);
    rig.input(cpu("a", "1"));
    rig.pass(Duration::from_millis(100));
    rig.input(cpu("b", "1"));
    rig.pass(Duration::from_millis(900));
    assert_eq!(times(&rig, start), [0.0, 1.25], "both in one");
    assert_eq!(total_cpu(&rig), Some("2"));
    rig.input(gone("a"));
    rig.seconds(7);
    assert_eq!(rig.rollups.len(), 2);
    rig.seconds(1);
    assert_eq!(times(&rig, start)[2], 10.0);
    assert_eq!(total_cpu(&rig), Some("1"));
}

#[test]
fn growth_is_limited_to_bursts_of_five_and_one_a_second() {
    let mut rig = Rig::with(|config| config.rollup_interval = Duration::from_secs(300));
    rig.input(Input::Synced);
    rig.connect();
    let start = rig.now;
    for i in 0..80 {
        rig.input(cpu(&i.to_string(), "1"));
        rig.pass(Duration::from_millis(125));
    }
    let early = times(&rig, start).len() - 1;
    assert!((13..=15).contains(&early), "{early} in ten seconds: {:?}", times(&rig, start));
    let by_second_two = times(&rig, start).iter().filter(|t| **t > 0.0 && **t <= 2.0).count();
    assert!((5..=6).contains(&by_second_two), "{by_second_two}");

    let mut off = Rig::with(|config| config.rollup_on_increase = false);
    off.input(Input::Synced);
    off.connect();
    off.input(cpu("a", "1"));
    off.seconds(9);
    assert_eq!(off.rollups.len(), 1);
}

#[test]
fn ex21_the_good_ones_are_acknowledged_and_a_request_for_nothing_too() {
    let mut rig = Rig::new();
    for i in 0..9 {
        rig.input(cpu(&format!("good-{i}"), "1"));
    }
    let odd = CapacityRequest {
        requirements: vec![("generation".to_owned(), "Gt".to_owned(), vec!["4".to_owned()])],
        ..request("odd", &[("cpu", "1")])
    };
    rig.input(Input::Request(Arc::new(odd.clone())));
    rig.input(Input::Request(Arc::new(CapacityRequest { deleting: true, ..request("gone", &[]) })));
    rig.input(Input::Request(Arc::new(request("nothing", &[]))));
    rig.input(Input::Request(Arc::new(CapacityRequest { acknowledged: true, ..request("old", &[]) })));
    rig.input(Input::Request(Arc::new(odd)));
    rig.input(Input::Synced);
    rig.connect();
    assert_eq!(total_cpu(&rig), Some("9"));
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new(), "sent is not confirmed");
    rig.confirm();
    let mut expected: Vec<_> = (0..9).map(|i| format!("good-{i}")).collect();
    expected.push("nothing".to_owned());
    assert_eq!(acknowledged(&mut rig), expected);
    let counters = rig.core.counters();
    assert_eq!((counters.acknowledged, counters.requests), (10, 11));
    assert_eq!(counters.requests_skipped, [("bad_operator", 1), ("deleted", 1)].into());
    let told: Vec<_> = rig.events.iter().map(|e| (e.about.as_str(), e.reason)).collect();
    assert_eq!(
        told,
        [("CapacityRequest training/cr-odd", "InvalidCapacityRequest")],
        "once, and not for deletion"
    );
    assert!(rig.events[0].message.contains("spec.requirements[0].operator is \"Gt\""), "{:?}", rig.events);
}

#[test]
fn an_acknowledgement_names_what_it_is_for() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "1"));
    rig.seconds(1);
    rig.input(cpu("b", "1"));
    // A confirmation of the roll-up that knew only `a`.
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), ["a"]);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new(), "once");
    rig.seconds(1);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), ["b"]);
    // Seen in the watch, written once, for ever.
    for name in ["a", "b"] {
        rig.input(Input::Request(Arc::new(CapacityRequest {
            acknowledged: true,
            ..request(name, &[("cpu", "1")])
        })));
    }
    rig.seconds(30);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new());
}

#[test]
fn a_rejected_or_held_rollup_acknowledges_nothing() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "1"));
    rig.seconds(1);
    let timestamp = rig.rollups[1].1.timestamp_unix_nanos;
    let answer = |echo: &str, reason: &str| {
        Down::Ack(Acknowledgement {
            echo: echo.to_owned(),
            rollup_timestamp_unix_nanos: timestamp,
            reason: reason.to_owned(),
            ..Default::default()
        })
    };
    rig.frame(answer("rollup_rejected", "needs[0].priority"));
    rig.frame(answer("rollup", ""));
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new());
    assert_eq!(rig.core.counters().rollups_rejected, 1);

    let mut held = Rig::running();
    held.input(cpu("a", "1"));
    held.seconds(1);
    held.frame(answer("rollup", "held: 1 of 20 rows"));
    assert_eq!(acknowledged(&mut held), Vec::<String>::new());
    held.seconds(10);
    held.confirm();
    assert_eq!(acknowledged(&mut held), ["a"]);
}

#[test]
fn a_plain_shard_confirms_what_has_left() {
    let mut rig = Rig::running();
    rig.writes_rollups = false;
    rig.input(cpu("a", "1"));
    rig.seconds(1);
    rig.ack("rollup");
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new(), "the roll-up still waits in its slot");
    let timestamp_unix_nanos = rig.rollups[1].1.timestamp_unix_nanos;
    rig.input(Input::RollupWritten { timestamp_unix_nanos });
    rig.ack("rollup");
    assert_eq!(acknowledged(&mut rig), ["a"]);
}

#[test]
fn acknowledging_is_bounded_retries_and_stops_with_the_session() {
    let mut rig = Rig::running();
    rig.answer = Box::new(|_| None);
    for i in 0..40 {
        rig.input(cpu(&i.to_string(), "1"));
    }
    rig.seconds(1);
    rig.confirm();
    let first: Vec<_> = rig.writes.iter().map(|(_, id, _)| *id).collect();
    assert_eq!(first.len(), 16);
    rig.done(first[0], Err(WriteError::Gone));
    rig.done(first[1], Err(WriteError::Other("no".to_owned())));
    assert_eq!(rig.writes.len(), 18);
    rig.input(Input::Disconnected);
    for id in &first[2..] {
        rig.done(*id, Ok(()));
    }
    rig.seconds(60);
    assert_eq!(rig.writes.len(), 18, "nothing is written without a session");
    rig.answer = Box::new(|_| Some(Ok(())));
    rig.take_writes();
    rig.connect();
    assert_eq!(
        acknowledged(&mut rig),
        Vec::<String>::new(),
        "the new session has not confirmed anything yet"
    );
    rig.confirm();
    let rest = acknowledged(&mut rig);
    assert_eq!(rest.len(), 40 - 1 - 14 - 2, "{rest:?}");
}

#[test]
fn drill01_static_stability_while_the_shard_is_gone() {
    let mut rig = Rig::running();
    rig.state("m-1", MachineState::Configuring);
    rig.take_writes();
    rig.input(Input::Disconnected);
    rig.state("m-1", MachineState::Configured);
    rig.input(cpu("a", "1"));
    rig.seconds(60);
    assert_eq!(rig.take_writes(), []);
    assert_eq!(rig.rollups.len(), 1);
    rig.connect();
    assert_eq!(rig.rollups.len(), 2, "within a second of the hello");
    rig.seconds(5);
    assert_eq!(rig.take_writes(), [], "nothing is deleted before the replay is complete");
    rig.ack("resync");
    assert_eq!(rig.phases(), [("m-1".to_owned(), None)]);
}

#[test]
fn drill02_a_day_without_a_shard() {
    let mut rig = Rig::running();
    rig.input(Input::Disconnected);
    for i in 0..10_000 {
        rig.core.handle(rig.now, cpu(&i.to_string(), "1"));
    }
    rig.seconds(24 * 3600);
    rig.connect();
    assert_eq!(rig.rollups.len(), 2);
    assert_eq!(total_cpu(&rig), Some("10k"), "one roll-up carries all");
    rig.confirm();
    assert_eq!(acknowledged(&mut rig).len(), 10_000);
    let before = rig.rollups.len();
    rig.seconds(20);
    assert_eq!(rig.rollups.len(), before + 2, "the beat goes on");
}

#[test]
fn drill03_a_silent_watch_keeps_the_last_demand() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "3"));
    rig.seconds(3600);
    assert_eq!(total_cpu(&rig), Some("3"));
    assert!(rig.rollups.len() > 300);
}

#[test]
fn drill05_requests_that_cannot_be_read_any_more_close_the_gate() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "3"));
    rig.seconds(10);
    let before = rig.rollups.len();
    rig.input(Input::Unsynced);
    rig.seconds(120);
    assert_eq!(rig.rollups.len(), before, "above all no empty one");
    rig.input(Input::Listing);
    rig.input(cpu("b", "2"));
    rig.input(Input::Synced);
    rig.seconds(10);
    assert_eq!(total_cpu(&rig), Some("2"));
}

#[test]
fn fr56_a_request_that_lives_a_millisecond_leaves_nothing_behind() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "3"));
    rig.seconds(30);
    rig.input(cpu("short", "5"));
    rig.pass(Duration::from_millis(1));
    rig.input(gone("short"));
    rig.seconds(30);
    assert_eq!(total_cpu(&rig), Some("3"));
    // Seen in the wrong order, too, and several times.
    rig.burst([gone("late"), cpu("late", "7"), gone("late"), gone("late")]);
    rig.seconds(30);
    assert_eq!(total_cpu(&rig), Some("3"));
    rig.input(cpu("b", "2"));
    rig.seconds(30);
    assert_eq!(total_cpu(&rig), Some("5"), "and the next one counts as ever");
}

#[test]
fn drill07_what_no_shard_takes_is_not_sent() {
    let mut rig = Rig::with(|config| config.max_rollup_bytes = 2_000);
    rig.input(Input::Synced);
    rig.connect();
    for i in 0..100 {
        let request = CapacityRequest { priority: i, ..request(&i.to_string(), &[("cpu", "1")]) };
        rig.input(Input::Request(Arc::new(request)));
    }
    rig.seconds(20);
    let counters = rig.core.counters();
    assert_eq!((counters.rollups, counters.rollups_too_large > 0), (1, true));
    assert!(counters.rollup_bytes > 2_000 && counters.rollup_needs == 100, "{counters:?}");
    (10..100).for_each(|i| rig.input(gone(&i.to_string())));
    rig.seconds(10);
    assert_eq!(rig.rollups.last().map(|(_, rollup)| rollup.needs.len()), Some(10));
}

#[test]
fn drill18_a_second_list_makes_no_dip() {
    let mut rig = Rig::running();
    for name in ["a", "b", "c"] {
        rig.input(cpu(name, "1"));
    }
    rig.seconds(10);
    rig.input(Input::Listing);
    rig.input(cpu("a", "1"));
    rig.seconds(30);
    assert_eq!(total_cpu(&rig), Some("3"), "half a list is nothing");
    rig.input(cpu("d", "4"));
    rig.input(Input::Synced);
    let at = rig.now;
    rig.seconds(1);
    assert_eq!(total_cpu(&rig), Some("5"), "growth is told early");
    assert_eq!(rig.rollups.last().map(|(t, _)| *t), Some(at.after(Duration::from_millis(250))));
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), ["a", "d"]);
}

#[test]
fn drill15_a_request_that_becomes_unreadable_keeps_its_demand_until_it_is_deleted() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "1"));
    rig.input(cpu("b", "2"));
    rig.seconds(10);
    rig.input(Input::RequestUnreadable("a".into()));
    rig.seconds(10);
    assert_eq!(total_cpu(&rig), Some("3"));
    // Nor does a list withdraw it, nor does one invent what was never read.
    for _ in 0..2 {
        rig.input(Input::Listing);
        rig.input(Input::RequestUnreadable("a".into()));
        rig.input(Input::RequestUnreadable("never".into()));
        rig.input(cpu("b", "2"));
        rig.input(Input::Synced);
        rig.seconds(10);
        assert_eq!(total_cpu(&rig), Some("3"));
    }
    rig.input(gone("a"));
    rig.seconds(10);
    assert_eq!(total_cpu(&rig), Some("2"));
}

/// Such as a restored backup of the cluster.
#[test]
fn a_list_that_shows_a_written_acknowledgement_lost_has_it_written_again() {
    let mut rig = Rig::running();
    rig.input(cpu("a", "1"));
    rig.input(cpu("b", "1"));
    rig.seconds(1);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), ["a", "b"]);
    let relist = |rig: &mut Rig| {
        rig.input(Input::Listing);
        rig.input(cpu("a", "1"));
        let there = CapacityRequest { acknowledged: true, ..request("b", &[("cpu", "1")]) };
        rig.input(Input::Request(Arc::new(there)));
        rig.input(Input::Synced);
    };
    relist(&mut rig);
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new(), "the shard has not confirmed it anew");
    rig.seconds(10);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), ["a"]);
    // A watch that is behind shows what was before the write, and a list that began before it may do so too.
    rig.input(cpu("a", "1"));
    rig.seconds(10);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new());
    rig.input(Input::Listing);
    rig.answer = Box::new(|_| None);
    rig.input(cpu("c", "1"));
    rig.input(Input::Synced);
    rig.seconds(10);
    rig.confirm();
    let (_, id, _) = rig.writes.pop().expect("c");
    rig.input(Input::Listing);
    rig.done(id, Ok(()));
    rig.input(cpu("c", "1"));
    rig.input(Input::Synced);
    rig.seconds(10);
    rig.confirm();
    assert_eq!(acknowledged(&mut rig), Vec::<String>::new(), "once in its life");
}

#[test]
fn drill19_timestamps_increase_when_the_clock_goes_back() {
    let mut rig = Rig::running();
    let start = rig.now;
    rig.seconds(20);
    rig.now = start;
    for i in 0..5 {
        rig.input(Input::Disconnected);
        rig.connect();
        rig.input(cpu(&i.to_string(), "1"));
    }
    let stamps: Vec<_> = rig.rollups.iter().map(|(_, rollup)| rollup.timestamp_unix_nanos).collect();
    assert_eq!(stamps.len(), 8);
    assert!(stamps.is_sorted_by(|a, b| a < b), "{stamps:?}");
}

#[test]
fn a_shard_that_stops_answering_is_dead() {
    let mut rig = Rig::running();
    rig.seconds(300);
    assert_eq!(rig.dropped, Vec::<String>::new(), "a shard that never answered may be one that does not");
    rig.confirm();
    rig.seconds(55);
    assert_eq!(rig.dropped, Vec::<String>::new());
    rig.confirm();
    rig.seconds(59);
    assert_eq!(rig.dropped, Vec::<String>::new(), "an answer starts the count anew");
    rig.seconds(30);
    assert_eq!(rig.dropped.len(), 1, "{:?}", rig.dropped);
    rig.input(Input::Disconnected);
    rig.connect();
    rig.seconds(120);
    assert_eq!(rig.dropped.len(), 1);
}

#[test]
fn demand_reads_like_the_requests() {
    let mut rig = Rig::running();
    rig.input(Input::Request(Arc::new(request("a", &[("memory", "1536Mi"), ("cpu", "0.5")]))));
    rig.seconds(1);
    let need = &rig.rollups[1].1.needs[0];
    assert_eq!(need.aggregate_resources, strings(&[("cpu", "500m"), ("memory", "1536Mi")]));
    assert_eq!(need.min_unit, need.aggregate_resources);
}
