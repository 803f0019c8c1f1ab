//! The two printed examples of the decide format, member by member.

use bigfleet_engine::{ActionKind, Candidate, MatchingSupply, Preemption, UnmetReason};
use bigfleet_oracle::{MemberVerdict, Shortfall};
use bigfleet_types::Operator::{In, Same};
use bigfleet_types::{CapacityType, Fingerprint, Group, Rounding};

use crate::fleet::*;

#[test]
fn a_preemption_and_an_idle_release() {
    let train = any("train", 1_000_000)
        .requires(TYPE, In, &["a3-highgpu-8g"])
        .wants(&[("nvidia.com/gpu", "24")], &[("nvidia.com/gpu", "8")])
        .arrival(1_699_999_990_000_000_000);
    let gpu = |machine: M| {
        let machine = machine.kind("a3-highgpu-8g").zone("z1").payment(CapacityType::BareMetal);
        machine.cap(&[("nvidia.com/gpu", "8")])
    };
    let spot = idle("spot-9").kind("m6i.large").zone("z2").payment(CapacityType::Spot).price(0.05);
    let fleet = [
        gpu(configured("gpu-0", "batch")).priority(100_000),
        gpu(idle("gpu-1")),
        spot.probability(0.1).cap(&[("cpu", "2"), ("memory", "8Gi")]).idle_for(100),
    ];
    let mut input = world(fleet, std::slice::from_ref(&train));
    input.heard.insert(cluster("batch"));
    let out = run(&input);

    assert_eq!(acts(&out), ["Bootstrap gpu-1", "Preempt gpu-0", "Delete spot-9"]);
    let fingerprint = Fingerprint::parse("7f965d2f2f2f500fe8c7f4137395a9fa").unwrap();
    assert_eq!(train.key().fingerprint, fingerprint);
    let preempt = &out.actions[1];
    assert_eq!((preempt.kind, preempt.cluster.clone()), (ActionKind::Preempt, Some(cluster("batch"))));
    assert_eq!((preempt.need.clone(), preempt.grace), (Some(train.key()), seconds(30)));
    assert_eq!((preempt.preemptor_priority, preempt.reason), (1_000_000, "phase2.inversion"));
    assert_eq!((out.actions[0].reason, out.actions[2].reason), ("phase1.idle", "phase3.release"));
    assert_eq!(out.actions[2].cluster, None);

    assert_eq!(out.verdicts.len(), 1);
    let of = verdict(&out, &train);
    assert_eq!((of.satisfied, of.machines.len(), of.bootstraps, of.provisions), (false, 1, 1, 0));
    assert_eq!(of.residual, amounts(&[("nvidia.com/gpu", "16")], Rounding::Up));
    assert_eq!(of.reason, UnmetReason::PreemptionExhausted);
    assert_eq!(of.supply, Some(MatchingSupply { idle: 1, configured: 1, speculative: 0, capped: false }));
    let freed = amounts(&[("nvidia.com/gpu", "8")], Rounding::Down);
    assert_eq!(of.preemption, Some(Preemption { victims: 1, freed: freed.clone() }));
    assert_eq!(of.same, None);
    let short = Shortfall { key: train.key(), priority: 1_000_000, deficit: freed, preempted: true };
    assert_eq!(out.shortfalls, [short]);
    assert_eq!(claimed(&out), ["gpu-1"]);
}

#[test]
fn a_fold_and_a_gang_that_cannot_be_completed() {
    const RACK: &str = "topology.bigfleet/rack";
    let node = |machine: M, rack: &str, price| {
        let machine = machine.kind("").payment(CapacityType::OnDemand).label(RACK, rack).price(price);
        machine.cap(&[("cpu", "16"), ("memory", "64Gi")])
    };
    let fleet = [
        node(configured("m0", "web"), "r1", 0.4),
        node(configured("m1", "web"), "r1", 0.8),
        node(speculative("s0"), "r2", 0.4),
        node(speculative("s1"), "r2", 0.1).payment(CapacityType::Spot).probability(0.2),
    ];
    let cache = |group: &str, arrival, cpu, memory| {
        let row = any("web", 1000).requires(RACK, Same, &[]).group(group).arrival(arrival);
        let row = row.wants(&[("cpu", cpu), ("memory", memory)], &[("cpu", "2"), ("memory", "8Gi")]);
        row.interruption("4").reclamation("4")
    };
    let db = any("db", 500)
        .requires(RACK, Same, &[])
        .group("db-0")
        .arrival(0)
        .interruption("4")
        .wants(&[("cpu", "48"), ("memory", "96Gi")], &[("cpu", "16"), ("memory", "32Gi")]);
    let needs = [cache("cache-a", 20, "8", "32Gi"), cache("cache-b", 10, "8000m", "34359738368"), db.clone()];
    let out = outcome(fleet, &needs);

    assert_eq!(acts(&out), ["Reclaim m1"]);
    assert_eq!(out.actions[0].grace, seconds(600));
    assert_eq!(out.verdicts.len(), 2);

    let fold = &out.verdicts[0];
    assert_eq!(fold.key.cluster, cluster("web"));
    assert_eq!(fold.key.group.as_str(), "fold/4cf83bd9851d40182368ce28887d88f2");
    assert_eq!(fold.key.fingerprint.to_string(), "86bb71f05656d88ad5980b94d3f28156");
    let member = |group: &str| MemberVerdict {
        fingerprint: Fingerprint::parse("cdbbc73f213ed22ae6d065bfe1278459").unwrap(),
        group: Group::new(group),
        satisfied: true,
    };
    assert_eq!(fold.members, [member("cache-b"), member("cache-a")]);
    assert_eq!((fold.satisfied, fold.residual.is_empty(), fold.machines.len()), (true, true, 1));
    assert_eq!((fold.same.clone(), fold.supply, fold.preemption.clone()), (None, None, None));

    let of = &out.verdicts[1];
    assert_eq!(of.key.fingerprint.to_string(), "318200306c086f2775f596f7f0da8527");
    assert_eq!((of.key.group.as_str(), of.priority, of.satisfied), ("db-0", 500, false));
    let all = amounts(&[("cpu", "48"), ("memory", "96Gi")], Rounding::Up);
    assert_eq!((of.residual.clone(), of.machines.len()), (all.clone(), 0));
    let same = of.same.as_ref().unwrap();
    assert_eq!((same.domain.as_deref(), same.satisfiable), (Some("r2"), false));
    let r2 = Candidate { domain: "r2".into(), per_mille: 666, satisfiable: false };
    assert_eq!(same.candidates, [r2]);
    assert_eq!(of.reason, UnmetReason::TopologyUnsatisfiable);
    assert_eq!(of.supply, Some(MatchingSupply { idle: 0, configured: 2, speculative: 2, capped: false }));
    let short = Shortfall { key: db.key(), priority: 500, deficit: all, preempted: false };
    assert_eq!(out.shortfalls, [short]);
    assert_eq!(claimed(&out), ["m0"]);
}
