//! Failure drills as lists of events. Each names the mutation that makes it fail.

use std::time::Duration;

use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_shard::io::{CallError, Input};
use bigfleet_types::{Attribution, CapacityType, Machine, MachineState, NanoDollars};

use crate::core_model::{
    Fault, Model, Op, bound, cluster, gpu, gpus, id, need, priced, refused, reported, rows,
};
use crate::core_world::{Blobs, Lists, World, config};
use crate::shell_logs;

use MachineState::{Configured, Configuring, Creating, Deleting, Draining, Failed, Idle, Speculative};

fn idle(n: usize) -> Vec<Machine> {
    (0..n).map(|n| gpu(&format!("m{n:02}"), Idle)).collect()
}

fn slots(n: usize) -> Vec<Machine> {
    let slot = |n| priced(gpu(&format!("s{n:02}"), Speculative), CapacityType::OnDemand, 1.0, 0.0);
    (0..n).map(slot).collect()
}

fn held(n: usize, to: &str) -> Vec<Machine> {
    (0..n).map(|n| bound(&format!("m{n:03}"), Configured, to, &need(1000, 1))).collect()
}

fn slow(machines: Vec<Machine>, seconds: u64) -> Model {
    let mut model = Model::with(machines);
    model.dwell = Some(Duration::from_secs(seconds));
    model
}

/// Control: treat a silent Configure as not done (roll back without a Get): a second machine is taken.
#[test]
fn drill02_configure_applied_ack_lost() {
    let mut world = World::new(config(), slow(idle(3), 20));
    world.model.fault("m00", Op::Configure, Fault::LoseAck);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(60);
    assert_eq!(world.state("m00"), Configured);
    assert_eq!(world.calls(Op::Configure), 1, "no second machine");
    assert_eq!(world.outcomes(), [("Bootstrap", "m00".to_owned(), "ctx_canceled")]);
    assert_eq!(world.core.shortfalls().count(), 0);
}

/// Control: as drill 2, for Create.
#[test]
fn drill03_create_applied_ack_lost() {
    let mut world = World::new(config(), slow(slots(3), 20));
    world.model.fault("s00", Op::Create, Fault::LoseAck);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(90);
    assert_eq!(world.state("s00"), Configured);
    assert_eq!((world.calls(Op::Create), world.calls(Op::Configure)), (1, 1));
}

/// Control: refuse Configured -> Failed in `adopt` (accept commanded edges only): the machine stays credited.
#[test]
fn drill06_spot_reclaim() {
    let mut world = World::new(config(), slow(idle(2), 2));
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(10);
    assert_eq!(world.state("m00"), Configured);
    world.frames.clear();
    world.model.arrive(&id("m00"), Failed);
    world.seconds(25);
    assert_eq!((world.state("m00"), world.state("m01")), (Failed, Configured));
    assert_eq!(world.update_states("m00"), [8]);
    assert_eq!(world.updates("m00")[0].last_error, "it broke");
    let calls: Vec<_> = world.model.calls.iter().filter(|(machine, _)| *machine == id("m00")).collect();
    assert_eq!(calls.len(), 1, "no call to a failed machine");
    let labels = r#"observed_transitions_total{from="Configured",to="Failed",class="unexpected"}"#;
    assert_eq!(world.metric(labels), 1.0);
    assert_eq!(world.metric(r#"failed_machines{cause="Configured"}"#), 1.0);
}

/// Control: GUARD_LISTS = 1: everything is removed and bought again.
#[test]
fn drill08_list_returns_empty() {
    shell_logs::keep();
    let mut world = World::new(config(), slow([held(20, "a"), slots(40)].concat(), 2));
    world.rollup("a", rows(20));
    world.seconds(5);
    world.lists = Lists::Fixed(Vec::new());
    world.seconds(20);
    assert_eq!(world.core.machines().count(), 60);
    assert_eq!(world.metric("removals_quarantined"), 60.0);
    assert_eq!(world.model.calls, []);
    let logged = shell_logs::with(&["ERROR", "the List lacks many machines", "missing=60 inventory=60"]);
    assert!(!logged.is_empty(), "the quarantine is an error in the log");
    world.lists = Lists::Truth;
    world.seconds(10);
    assert_eq!((world.metric("removals_quarantined"), world.core.machines().count()), (0.0, 60));
    // Three Lists that agree are believed.
    world.lists = Lists::Fixed(Vec::new());
    world.seconds(30);
    assert_eq!(world.core.machines().count(), 0);
    assert_eq!(world.model.calls, []);
}

/// A few removals are believed at once, and the former owner hears of the end.
#[test]
fn drill07_configured_machine_vanishes() {
    let mut world = World::new(config(), slow([held(20, "a"), idle(1)].concat(), 2));
    world.rollup("a", rows(20));
    world.seconds(5);
    world.frames.clear();
    world.model.machines.remove(&id("m003"));
    world.seconds(15);
    assert!(world.core.machine(&id("m003")).is_none());
    assert_eq!(world.update_states("m003"), [1]);
    assert_eq!(world.state("m00"), Configured, "the deficit is met elsewhere");
}

/// Control: drop the in-flight and settled guards of `listed_one`: Configuring is overwritten with Idle.
#[test]
fn drill09_list_lags_behind_acks() {
    let mut world = World::new(config(), slow(idle(5), 12));
    world.lists = Lists::Lag(Duration::from_secs(30));
    world.seconds(1);
    world.rollup("a", vec![need(10, 3)]);
    for _ in 0..120 {
        world.seconds(1);
        let bound = world.core.machines().filter(|m| matches!(m.state, Configuring | Configured)).count();
        assert_eq!(bound, 3);
    }
    assert_eq!(world.calls(Op::Configure), 3);
    world.rollup("a", vec![need(10, 1)]);
    for _ in 0..120 {
        world.seconds(1);
        assert!(world.count(Configured) + world.count(Draining) <= 3);
    }
    assert_eq!(world.calls(Op::Drain), 2);
    assert_eq!((world.count(Idle), world.count(Configured)), (4, 1));
}

/// Control: count only accepted records as seen: the refused machines are removed.
#[test]
fn drill10_bad_records() {
    let mut machines = held(8, "a");
    machines[7].price = NanoDollars::ZERO;
    let mut world = World::new(config(), Model::with(machines.clone()));
    world.rollup("a", rows(8));
    world.seconds(5);
    let mut cheaper = machines[7].clone();
    cheaper.price = NanoDollars::from_dollars(2.5).unwrap();
    world.lists = Lists::Fixed(vec![
        refused(Some("m000"), "price"),
        refused(Some("m001"), "interruption_probability"),
        refused(Some("m002"), "price"),
        refused(Some("m003"), "structural"),
        refused(None, "structural"),
        refused(Some("m004"), "structural"),
        reported(machines[5].clone()),
        reported(machines[6].clone()),
        reported(machines[7].clone()),
        reported(cheaper.clone()),
    ]);
    world.seconds(15);
    assert_eq!(world.count(Configured), 8);
    assert_eq!(world.core.machine(&id("m000")), Some(&machines[0]), "the last good record stays");
    assert_eq!(world.core.machine(&id("m007")), Some(&cheaper), "the last record of an id counts");
    assert!(world.metric(r#"machines_rejected_total{reason="price"}"#) >= 2.0);
    assert!(world.metric(r#"machines_rejected_total{reason="interruption_probability"}"#) >= 1.0);
    assert!(world.metric(r#"machines_rejected_total{reason="structural"}"#) >= 3.0);
    assert!(world.metric(r#"provider_contract_violations_total{kind="duplicate_id"}"#) >= 1.0);
}

/// Control: FENCED_LATCH = 1: one provider mistake stops the shard.
#[test]
fn drill20_failed_precondition_for_one_machine() {
    let mut world = World::new(config(), slow(idle(3), 2));
    world.model.fault("m00", Op::Configure, Fault::Refuse(CallError::Fenced("stale".to_owned())));
    world.rollup("a", vec![need(10, 2)]);
    world.seconds(30);
    assert_eq!((world.state("m00"), world.state("m01"), world.state("m02")), (Idle, Configured, Configured));
    assert_eq!(world.metric("self_fenced"), 0.0);
    let fenced = r#"action_execute_outcomes_total{kind="Bootstrap",outcome="fenced"}"#;
    assert_eq!(world.metric(fenced), 1.0);
    // It rests for ten minutes.
    world.rollup("a", vec![need(10, 3)]);
    world.seconds(540);
    assert_eq!(world.state("m00"), Idle);
    world.seconds(60);
    assert_eq!(world.state("m00"), Configured);
}

/// Three in a row are no mistake of the provider: we are the zombie.
#[test]
fn drill18_three_fenced_machines_latch() {
    let mut world = World::new(config(), slow(idle(6), 2));
    world.model.always.insert(Op::Configure, Fault::Refuse(CallError::Fenced("stale".to_owned())));
    world.rollup("a", vec![need(10, 3)]);
    world.seconds(30);
    assert_eq!((world.metric("self_fenced"), world.epoch_checks), (1.0, 1));
    let calls = world.model.calls.len();
    assert_eq!(calls, 3);
    world.model.always.clear();
    world.rollup("a", vec![need(10, 4)]);
    world.seconds(1200);
    assert_eq!(world.model.calls.len(), calls, "nothing is sent any more");
    assert_eq!(world.count(Idle), 6);
    assert_eq!(world.acks().last().unwrap().0, "rollup", "but operators are heard");
}

/// Control: credit Creating machines found at the start to nobody: ten are bought twice (engine). Here: forget to watch
/// what is found in transition: the machines never settle.
#[test]
fn drill24_kill_in_the_middle_of_everything() {
    let wanted = need(10, 4);
    let build = || {
        let mut machines = vec![gpu("idle", Idle), gpu("spare", Idle)];
        machines.extend(slots(4));
        let mut model = Model::with(machines);
        model.dwell = Some(Duration::from_secs(30));
        model
    };
    // Killed before the ack of each call could be read, and after it.
    for at in [0, 1, 5, 29, 31, 45, 61, 75] {
        let mut world = World::new(config(), build());
        world.rollup("a", vec![wanted.clone()]);
        world.run(Duration::from_secs(at));
        let creates = world.calls(Op::Create);
        let mut world = world.restart(config());
        world.rollup("a", vec![wanted.clone()]);
        world.seconds(180);
        assert_eq!(world.count(Configured), 4, "killed after {at} s");
        assert_eq!(creates + world.calls(Op::Create), 2, "killed after {at} s: nothing is bought twice");
        assert_eq!(world.core.in_flight().count(), 0);
        let stamps = Attribution::of(&wanted);
        assert!(world.core.machines().filter(|m| m.state == Configured).all(|m| m.attribution == stamps));
        assert_eq!(world.calls(Op::Drain) + world.calls(Op::Delete), 0);
    }
    // Drain (by Reclaim) and Delete.
    for at in [0, 1, 10, 29, 31] {
        let mut model = slow([held(3, "a"), slots(0)].concat(), 30);
        let spot = priced(gpu("spot", Idle), CapacityType::Spot, 1.0, 0.1);
        model.machines.insert(id("spot"), spot);
        let mut world = World::new(config(), model);
        world.rollup("a", vec![need(1000, 2)]);
        world.seconds(58);
        world.run(Duration::from_secs(at));
        let drains = world.calls(Op::Drain);
        let mut world = world.restart(config());
        world.rollup("a", vec![need(1000, 2)]);
        world.seconds(200);
        assert_eq!(drains + world.calls(Op::Drain), 1, "killed {at} s in: drained once");
        assert_eq!((world.count(Configured), world.state("spot")), (2, Speculative));
        assert!(world.core.machines().all(|m| !m.state.is_transitional()));
    }
}

/// Control: ask for the pause only at dispatch: the blobs that arrive later are used.
#[test]
fn drill46_pause_file_in_the_middle_of_a_burst() {
    let mut shard = config();
    shard.execute_concurrency = 8;
    let mut world = World::new(shard, slow(idle(30), 5));
    world.rollup("b", Vec::new());
    world.blobs.insert(cluster("a"), Blobs::Silent);
    world.hold = true;
    world.rollup("a", vec![need(10, 10)]);
    world.rollup("b", vec![need(9, 10)]);
    world.run(Duration::from_millis(150));
    let sent = world.held.len();
    assert_eq!((sent, world.count(Configuring)), (4, 8));
    world.handle(Input::Paused(true));
    world.release();
    assert_eq!(world.model.calls.len(), sent, "calls on their way finish; nothing new");
    world.seconds(60);
    assert_eq!(world.model.calls.len(), sent);
    assert_eq!(world.count(Configured), sent, "what is in flight settles");
    assert_eq!((world.metric("actuation_paused"), world.core.in_flight().count()), (1.0, 0));
    assert!(world.metric(r#"actions_suppressed_total{kind="Bootstrap"}"#) >= 16.0);
    assert!(world.audit.iter().any(|record| record.outcome == "suppressed"));
    world.blobs.insert(cluster("a"), Blobs::Give);
    world.handle(Input::Paused(false));
    world.seconds(60);
    assert_eq!((world.count(Configured), world.metric("actuation_paused")), (20, 0.0));
}

/// A Create that ends during a pause is not followed by a Configure.
#[test]
fn drill46_no_further_stage_while_paused() {
    let mut world = World::new(config(), Model::with(slots(2)));
    world.hold = true;
    world.rollup("a", vec![need(10, 1)]);
    assert_eq!((world.held.len(), world.state("s00")), (1, Creating));
    world.handle(Input::Paused(true));
    world.release();
    world.seconds(30);
    assert_eq!((world.state("s00"), world.calls(Op::Configure)), (Idle, 0));
}

/// Control: `--dry-run=false`.
#[test]
fn drill47_dry_run_against_a_live_fleet() {
    let mut shard = config();
    shard.dry_run = true;
    let mut machines = [held(10, "a"), idle(2), slots(5)].concat();
    machines.push(priced(gpu("spot", Idle), CapacityType::Spot, 1.0, 0.1));
    let mut world = World::new(shard, Model::with(machines));
    world.rollup("a", rows(2));
    world.rollup("b", vec![need(50, 5)]);
    world.seconds(120);
    assert_eq!(world.model.calls, []);
    let instructs =
        |payload: &Payload| matches!(payload, Payload::BootstrapRequest(_) | Payload::ReclaimInstruction(_));
    assert!(!world.frames.iter().any(|(_, payload)| instructs(payload)));
    assert!(world.frames.iter().any(|(_, payload)| matches!(payload, Payload::NodeStateUpdate(_))));
    for kind in ["Bootstrap", "Provision", "Reclaim"] {
        let counted = world.metric(&format!(r#"actions_dryrun_total{{kind="{kind}"}}"#));
        let audited = world.audit.iter().filter(|r| r.kind == kind && r.outcome == "dryrun").count();
        assert!(counted > 0.0, "{kind}");
        assert_eq!(counted, f64::from(u32::try_from(audited).unwrap()), "{kind}");
        assert_eq!(world.metric(&format!(r#"actions_total{{kind="{kind}"}}"#)), 0.0);
    }
    assert!(world.audit.iter().all(|record| record.outcome == "dryrun"));
    assert_eq!((world.count(Configured), world.count(Deleting)), (10, 0));
}

/// A shape that promises more than its hosts deliver is bought by what is delivered.
#[test]
fn over_advertised_slots_count_for_what_their_hosts_deliver() {
    let mut world = World::new(config(), Model::with(slots(6)));
    let mut short = gpu("s00", Idle);
    short.capacity_type = CapacityType::OnDemand;
    short.price = NanoDollars::from_dollars(1.0).unwrap();
    short.allocatable = gpus(7);
    world.model.fault("s00", Op::Create, Fault::Answer(reported(short.clone())));
    world.model.always.insert(Op::Delete, Fault::Refuse(CallError::Unimplemented));
    world.rollup("a", vec![need(10, 1)]);
    short.state = Configured;
    short.cluster = Some(cluster("a"));
    short.attribution = Attribution::of(&need(10, 1));
    world.model.machines.insert(id("s00"), short);
    world.seconds(120);
    assert_eq!(world.metric("over_advertised_shapes"), 1.0);
    assert_eq!(world.calls(Op::Create), 1, "the other slots are of the same class and too small as well");
    assert_eq!(world.core.shortfalls().count(), 1);
}

/// Endings that happened while nobody was connected are told on return; a machine that serves again is not.
#[test]
fn drill40_drain_finishes_while_the_operator_is_away() {
    let mut world = World::new(config(), slow(held(3, "a"), 20));
    world.rollup("a", vec![need(1000, 2)]);
    world.seconds(5);
    assert_eq!(world.count(Draining), 1);
    let name = world.core.machines().find(|m| m.state == Draining).unwrap().id.to_string();
    world.disconnect("a");
    world.seconds(60);
    assert_eq!(world.state(&name), Idle);
    world.frames.clear();
    world.connect("a");
    assert_eq!(world.update_states(&name), [3]);
    let updates = world.frames.iter().filter(|(_, p)| matches!(p, Payload::NodeStateUpdate(_))).count();
    assert_eq!(updates, 3, "{:?}", world.frames);
}

/// Control: drop `look_after`'s withholding: demand waits for ever.
#[test]
fn drill41_transition_never_completes() {
    let mut world = World::new(config(), slow(idle(2), 2));
    world.model.fault("m00", Op::Configure, Fault::Hang);
    world.rollup("a", vec![need(10, 1)]);
    world.seconds(700);
    assert_eq!(world.metric(r#"stuck_transitions{state="Configuring"}"#), 1.0);
    assert_eq!(world.calls(Op::Configure), 2, "sent once more");
    assert_eq!(world.state("m01"), Idle);
    world.seconds(1200);
    assert_eq!((world.state("m00"), world.state("m01")), (Configuring, Configured));
    assert_eq!(world.calls(Op::Configure), 3);
}

/// Control: count the stock-out as a strike of the slot only.
#[test]
fn drill04_stock_out() {
    let other = Machine { zone: "us-east-1b".into(), ..slots(1).remove(0) };
    let other = Machine { id: id("z00"), price: NanoDollars::from_dollars(5.0).unwrap(), ..other };
    let mut machines = slots(20);
    machines.push(other);
    let mut world = World::new(config(), slow(machines, 2));
    for n in 0..20 {
        for _ in 0..50 {
            world.model.fault(
                &format!("s{n:02}"),
                Op::Create,
                Fault::Refuse(CallError::Exhausted("no stock".to_owned())),
            );
        }
    }
    world.rollup("a", vec![need(10, 2)]);
    world.seconds(60);
    assert_eq!(world.state("z00"), Configured, "another class is tried");
    assert!(world.calls(Op::Create) <= 5, "its slots are not tried one by one");
    assert_eq!(world.core.shortfalls().count(), 1);
    world.seconds(2 * 3600);
    let before = world.calls(Op::Create);
    world.seconds(3600);
    assert!(world.calls(Op::Create) - before <= 7, "one a class in ten minutes");
    assert_eq!(world.count(Failed), 0);
}

/// What is said twice is one record; a machine known only as Configuring without a cluster is refused.
#[test]
fn a_configuring_record_without_a_cluster_is_refused_unless_it_is_ours() {
    let mut lost = gpu("lost", Configuring);
    lost.cluster = None;
    let mut world = World::new(config(), Model::with(idle(1)));
    world.lists = Lists::Fixed(vec![reported(gpu("m00", Idle)), reported(lost)]);
    world.seconds(5);
    assert!(world.core.machine(&id("lost")).is_none());
    assert_eq!(world.metric(r#"machines_rejected_total{reason="structural"}"#), 1.0);
}

/// The mark at the end of a replay comes behind the machines, and not before the inventory is known.
#[test]
fn the_end_of_a_replay_is_marked_once_the_inventory_is_there() {
    let mut world = World::new(config(), Model::with(held(3, "a")));
    world.lists = Lists::Fail;
    world.connect("a");
    assert_eq!(world.acks(), [("hello".to_owned(), String::new())]);
    world.lists = Lists::Truth;
    world.seconds(5);
    let order = |world: &World| -> Vec<String> {
        let name = |payload: &Payload| match payload {
            Payload::Ack(ack) => Some(ack.echo.clone()),
            Payload::NodeStateUpdate(update) => Some(update.machine_id.clone()),
            _ => None,
        };
        world.frames.iter().filter_map(|(_, payload)| name(payload)).collect()
    };
    assert_eq!(order(&world), ["hello", "m000", "m001", "m002", "resync"]);
    world.frames.clear();
    world.connect("a");
    assert_eq!(order(&world), ["hello", "m000", "m001", "m002", "resync"]);
}
