//! Reclaim and release, worked examples 51 to 54 and 70.

use std::time::Duration;

use bigfleet_engine::{Eligibility, Engine, Event, Policy};
use bigfleet_types::{CapacityType, MachineId};

use crate::dsl::{
    M, claimed, cluster, count, decide, demand, engine, gpu, gpu_need, gpus, lines, machine, need,
    reclaim_after, secs,
};

#[test]
fn ex51_excess_goes_once_the_cluster_has_spoken() {
    let fleet = gpus(4, "c", |m| m.configured("a"));
    let open = decide(&fleet, &[("a", &[])]);
    assert_eq!(open.actions.len(), 4);
    for action in &open.actions {
        assert_eq!(action.kind.name(), "Reclaim");
        assert_eq!((action.grace, action.preemptor_priority), (Duration::from_secs(600), 0));
        assert!(action.need.is_none() && action.need_key.is_none());
    }
    assert!(decide(&fleet, &[]).actions.is_empty(), "silence is not a demand of zero");

    let both = [gpu("x").configured("a"), gpu("y").configured("b")];
    let mut engine = engine(Policy::default(), &both, &[("b", &[])]);
    assert_eq!(lines(&engine.decide(secs(0))), ["Reclaim y b"]);
    assert!(engine.heard(&cluster("b")) && !engine.heard(&cluster("a")));
}

#[test]
fn ex52_the_dearest_and_least_valuable_go_first() {
    let want = gpu_need(0, 3);
    let dear = |id: &str| gpu(id).price(6.0).configured("a");
    let free = |id: &str| gpu(id).configured("a");
    let fleet = [dear("d0"), dear("d1"), dear("d2"), free("f0"), free("f1")];
    let decisions = decide(&fleet, &[("a", &[want.clone()])]);
    assert_eq!(lines(&decisions), ["Reclaim d2 a", "Reclaim d1 a"]);

    let own = want.build();
    let fleet = [dear("d0").of(&own), dear("d1").of(&own), dear("d2").of(&own), free("f0"), free("f1")];
    assert_eq!(claimed(&decide(&fleet, &[("a", &[want])])), ["d0", "d1", "d2"], "own before cheap");

    let fleet = [gpu("a").configured("a").worth(0.0), gpu("b").configured("a").worth(5000.0)];
    assert_eq!(lines(&decide(&fleet, &[("a", &[gpu_need(0, 1)])])), ["Reclaim a a"]);

    let fleet = [
        gpu("x").price(1.0).configured("a"),
        gpu("y").price(6.0).configured("a").worth(9.0),
        gpu("z").price(6.0).configured("a").worth(0.0),
    ];
    assert_eq!(lines(&decide(&fleet, &[("a", &[])])), ["Reclaim z a", "Reclaim y a", "Reclaim x a"]);
}

#[test]
fn ex53_the_engine_lists_all_excess_best_to_lose_first() {
    // The cap is a rail of the shard; it keeps the head of this list.
    let decisions = decide(&gpus(100, "c", |m| m.configured("a")), &[("a", &[])]);
    assert_eq!(count(&decisions, "Reclaim"), 100);
    assert_eq!(lines(&decisions)[..2], ["Reclaim c99 a", "Reclaim c98 a"]);
}

fn one_of_each_type() -> Vec<M> {
    [
        ("b-spot", CapacityType::Spot),
        ("a-od", CapacityType::OnDemand),
        ("c-bm", CapacityType::BareMetal),
        ("d-res", CapacityType::Reserved),
        ("e-none", CapacityType::Unspecified),
    ]
    .map(|(id, paid)| gpu(id).paid(paid).idle_since(secs(0)))
    .to_vec()
}

#[test]
fn ex54_idle_machines_are_released_when_their_hold_ends() {
    let at = |seconds| engine(Policy::default(), &one_of_each_type(), &[]).decide(secs(seconds));
    assert!(at(59).actions.is_empty());
    assert_eq!(lines(&at(120)), ["Delete b-spot -"]);
    assert_eq!(lines(&at(660)), ["Delete a-od -", "Delete b-spot -"]);
    let late = at(3_600_000);
    assert_eq!(lines(&late), ["Delete a-od -", "Delete b-spot -"]);
    assert!(late.actions.iter().all(|action| action.grace.is_zero() && action.cluster.is_none()));

    let claims =
        engine(Policy::default(), &one_of_each_type(), &[("a", &[gpu_need(0, 5)])]).decide(secs(3600));
    assert_eq!(count(&claims, "Delete"), 0);

    let zero =
        Policy { on_demand_idle_hold: Duration::ZERO, spot_idle_hold: Duration::ZERO, ..Policy::default() };
    assert!(engine(zero, &one_of_each_type(), &[]).decide(secs(3_600_000)).actions.is_empty());
    let unstamped = gpu("s").paid(CapacityType::Spot);
    assert!(engine(Policy::default(), &[unstamped], &[]).decide(secs(3_600_000)).actions.is_empty());
}

#[test]
fn ex70_excess_must_last() {
    let mut engine = engine(reclaim_after(60), &[gpu("c").configured("a")], &[("a", &[])]);
    assert!(engine.decide(secs(100)).actions.is_empty());
    assert_eq!(engine.next_deadline(secs(100)), Some(secs(160)));
    assert!(engine.decide(secs(159)).actions.is_empty());
    // A new record of the same state is no news.
    engine.apply(gpu("c").configured("a").label("rack", "r1").event());
    assert_eq!(lines(&engine.decide(secs(160))), ["Reclaim c a"]);

    engine.apply(demand("a", &[gpu_need(0, 1)]));
    assert!(engine.decide(secs(161)).actions.is_empty());
    engine.apply(demand("a", &[]));
    assert!(engine.decide(secs(162)).actions.is_empty(), "claimed in between: the clock starts again");
    assert!(engine.decide(secs(221)).actions.is_empty());
    assert_eq!(lines(&engine.decide(secs(222))), ["Reclaim c a"]);
}

#[test]
fn the_clock_of_excess_ends_with_the_binding_and_can_be_carried_over() {
    let mut engine = engine(reclaim_after(60), &[gpu("c").configured("a")], &[("a", &[])]);
    engine.decide(secs(0));
    engine.apply(gpu("c").event());
    engine.apply(gpu("c").configured("a").event());
    assert!(engine.decide(secs(100)).actions.is_empty(), "it was elsewhere in between");
    engine.apply(gpu("d").configured("a").facts(|f| f.excess_since = Some(secs(10))).event());
    assert_eq!(lines(&engine.decide(secs(101))), ["Reclaim d a"]);
}

#[test]
fn the_clock_of_excess_waits_for_the_first_roll_up() {
    let mut engine = engine(reclaim_after(60), &[gpu("c").configured("a")], &[]);
    engine.decide(secs(0));
    engine.apply(Event::Heard(cluster("a")));
    assert!(engine.decide(secs(100)).actions.is_empty());
    assert_eq!(lines(&engine.decide(secs(160))), ["Reclaim c a"]);
}

#[test]
fn next_deadline_is_the_earliest_end_of_a_wait() {
    let mut engine = engine(reclaim_after(60), &one_of_each_type(), &[]);
    assert_eq!(engine.next_deadline(secs(0)), None);
    engine.decide(secs(10));
    assert_eq!(engine.next_deadline(secs(10)), Some(secs(60)));
    assert_eq!(engine.next_deadline(secs(70)), Some(secs(70)), "overdue means at once");
    engine.decide(secs(70));
    assert_eq!(engine.next_deadline(secs(70)), Some(secs(600)));
}

/// Nobody waits until excess is due that goes now.
#[test]
fn excess_that_is_preempted_has_no_deadline() {
    let excess = gpu("m").configured("a").of(&gpu_need(0, 1).build());
    let wants = [("a", &[][..]), ("b", &[gpu_need(1_000_000, 1)])];
    let mut engine = engine(reclaim_after(60), &[excess], &wants);
    assert_eq!(lines(&engine.decide(secs(1))), ["Preempt m a"]);
    assert_eq!(engine.next_deadline(secs(1)), None);
}

#[test]
fn what_may_not_be_released_stays() {
    let stuck = Eligibility { releasable: false, ..Eligibility::ALL };
    let fleet = [
        gpu("c").configured("a").facts(|f| f.eligibility = stuck),
        gpu("i").paid(CapacityType::Spot).idle_since(secs(0)).facts(|f| f.eligibility = stuck),
        gpu("w")
            .paid(CapacityType::Spot)
            .idle_since(secs(0))
            .facts(|f| f.eligibility = Eligibility::WITHHELD),
    ];
    assert!(engine(Policy::default(), &fleet, &[("a", &[])]).decide(secs(3600)).actions.is_empty());
}

#[test]
fn configuring_excess_matures_first() {
    assert!(decide(&[gpu("c").configuring("a")], &[("a", &[])]).actions.is_empty());
}

#[test]
fn reclaims_go_by_cluster_id_and_removed_machines_are_forgotten() {
    let mut engine = Engine::new(Policy::default());
    for (id, name) in [("m0", "b"), ("m1", "a"), ("m2", "c")] {
        engine.apply(machine(id).configured(name).event());
        engine.apply(Event::Heard(cluster(name)));
    }
    assert_eq!(lines(&engine.decide(secs(0))), ["Reclaim m1 a", "Reclaim m0 b", "Reclaim m2 c"]);
    engine.apply(Event::Removed(MachineId::trusted("m1")));
    engine.apply(Event::Removed(MachineId::trusted("unknown")));
    assert_eq!(engine.machines(), 2);
    assert_eq!(lines(&engine.decide(secs(0))), ["Reclaim m0 b", "Reclaim m2 c"]);
    engine.apply(machine("m1").configured("c").event());
    engine.apply(demand("c", &[need(0, "cpu=1")]));
    assert_eq!(lines(&engine.decide(secs(0))), ["Reclaim m0 b", "Reclaim m2 c", "Reclaim m1 c"]);
}
