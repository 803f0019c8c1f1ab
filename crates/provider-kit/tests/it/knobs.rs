//! Every knob of the fake cloud.

use std::time::Duration;

use bigfleet_provider_kit::fakecloud::{Corruption, Latency, ListFault, Options, Profile, Seeds, Shed};
use bigfleet_provider_kit::{Kind, Method};
use bigfleet_types::MachineState::{Configured, Configuring, Creating, Failed, Idle, Speculative};
use tonic::{Code, Status};

use crate::fixture::{code, eventually, number, options, start};

#[tokio::test]
async fn instant_calls_land_in_their_stable_state() {
    let cloud = start(Options { instant: true, ..options() }).await;
    let client = &cloud.client;
    assert_eq!(client.create("spec-0").await.unwrap().machine.unwrap().state, number(Idle));
    assert_eq!(client.configure("spec-0", "a").await.unwrap().machine.unwrap().state, number(Configured));
    assert_eq!(client.drain("spec-0", 0).await.unwrap().machine.unwrap().state, number(Idle));
    assert_eq!(client.delete("spec-0").await.unwrap().machine.unwrap().state, number(Speculative));
    cloud.stop().await;
}

#[tokio::test]
async fn staged_work_waits_for_one_call_or_for_all() {
    let cloud = start(options()).await;
    let control = cloud.control();
    control.stage(Kind::Create, true);
    for n in 0..4 {
        cloud.client.create(&format!("spec-{n}")).await.unwrap();
    }
    eventually("all wait", async || (control.staged(Kind::Create).len() == 4).then_some(())).await;
    control.complete(Kind::Create, "spec-2");
    cloud.settled("spec-2", Idle).await;
    assert_eq!(control.state("spec-0"), Some(Creating));
    assert_eq!(control.complete_all(Kind::Create), 3);
    cloud.settled("spec-0", Idle).await;
    cloud.settled("spec-3", Idle).await;
    cloud.stop().await;
}

#[tokio::test]
async fn a_lost_answer_has_had_its_effect_and_a_failed_call_has_not() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    control.drop_next_answer("spec-0", Method::Create);
    assert_eq!(code(client.create("spec-0").await), Code::Unavailable);
    cloud.settled("spec-0", Idle).await;
    assert_eq!(code(client.create("spec-0").await), Code::Ok);
    assert_eq!((control.actions("spec-0").create, control.calls(Method::Create, "spec-0")), (1, 2));

    control.fail_next("spec-1", Method::Create, Status::resource_exhausted("quota"));
    assert_eq!(code(client.create("spec-1").await), Code::ResourceExhausted);
    assert_eq!(control.state("spec-1"), Some(Speculative));
    client.create("spec-1").await.unwrap();

    control.fail_next_work("idle-0", Kind::Configure, "cable cut");
    client.configure("idle-0", "a").await.unwrap();
    assert_eq!(cloud.settled("idle-0", Failed).await.last_error, "cable cut");
    cloud.stop().await;
}

#[tokio::test]
async fn machines_break_vanish_and_come() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    client.configure("idle-0", "a").await.unwrap();
    cloud.settled("idle-0", Configured).await;
    assert!(control.fail_machine("idle-0", "spot reclaim").await.unwrap());
    let failed = client.get("idle-0").await.unwrap();
    assert_eq!((failed.last_error.as_str(), failed.cluster.as_str()), ("spot reclaim", "a"));

    // Work of a machine that fails meanwhile is stopped, and its result is not heard.
    control.stage(Kind::Create, true);
    client.create("spec-0").await.unwrap();
    assert!(control.fail_machine("spec-0", "gone").await.unwrap());
    control.stage(Kind::Create, false);
    client.create("spec-1").await.unwrap();
    cloud.settled("spec-1", Idle).await;
    assert_eq!(control.state("spec-0"), Some(Failed));

    assert!(control.remove_machine("idle-1").await.unwrap());
    assert_eq!(code(client.get("idle-1").await), Code::NotFound);
    let mut instance = Profile::Dev.instances().remove(0);
    assert!(control.add(instance.clone()).await.unwrap());
    cloud.settled("dev-gpu-0", Idle).await;
    instance.id = "bound".into();
    assert!(control.add_configured(instance, "b").await.unwrap());
    let bound = cloud.settled("bound", Configured).await;
    assert_eq!(bound.cluster, "b");
    assert_eq!(bound.shard_metadata["bigfleet.lucy.sh/assigned-priority"], "1000000");

    let edited = control
        .edit("spot-0", |i| {
            i.price_per_hour = 0.9;
            i.allocatable = [("cpu".to_owned(), "1".to_owned())].into();
        })
        .await
        .unwrap();
    let spot = client.get("spot-0").await.unwrap();
    assert!(edited && (spot.price_per_hour - 0.9).abs() < 1e-9 && spot.allocatable.is_some());
    assert_eq!(spot.state, number(Speculative));
    cloud.stop().await;
}

#[tokio::test]
async fn a_failed_machine_is_repaired_only_from_inside() {
    let cloud = start(options()).await;
    let provider = cloud.control().provider();
    assert!(!provider.repair("idle-0").await.unwrap(), "not failed");
    cloud.control().fail_machine("idle-0", "broke").await.unwrap();
    assert!(provider.repair("idle-0").await.unwrap());
    assert_eq!(cloud.settled("idle-0", Idle).await.last_error, "");
    cloud.stop().await;
}

#[tokio::test]
async fn the_provider_breaks_hangs_and_misuses_codes_on_demand() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    control.break_provider();
    assert!(control.is_broken());
    assert_eq!(code(client.get("idle-0").await), Code::Unavailable);
    assert_eq!(code(client.create("spec-0").await), Code::Unavailable);
    control.heal();
    assert_eq!(control.state("spec-0"), Some(Speculative));

    control.hang(Method::Create, true);
    let hanging = tokio::spawn({
        let client = client.clone();
        async move { client.create("spec-0").await }
    });
    eventually("the call arrived", async || (control.calls(Method::Create, "spec-0") == 2).then_some(()))
        .await;
    client.get("idle-0").await.unwrap();
    assert!(!hanging.is_finished());
    control.hang(Method::Create, false);
    hanging.await.unwrap().unwrap();

    control.misuse_failed_precondition("spec-1", true);
    assert_eq!(code(client.create("spec-1").await), Code::FailedPrecondition);
    client.get("spec-1").await.unwrap();
    client.create("spec-2").await.unwrap();
    control.misuse_failed_precondition("spec-1", false);
    client.create("spec-1").await.unwrap();

    control.can_delete(false);
    assert_eq!(code(client.delete("idle-0").await), Code::Unimplemented);
    assert_eq!(control.state("idle-0"), Some(Idle));
    control.set_rpc_latency(Method::Get, Some(Latency::fixed(Duration::from_millis(30))));
    let begun = std::time::Instant::now();
    client.get("idle-0").await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(30));
    cloud.stop().await;
}

#[tokio::test]
async fn lists_and_records_are_spoiled_on_demand() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    for (fault, len) in [(ListFault::Empty, 0), (ListFault::Truncated(3), 3), (ListFault::Stale, 10)] {
        control.spoil_list(Some(fault));
        assert_eq!(client.list_since(b"", 0).await.machines.len(), len, "{fault:?}");
    }
    control.fail_machine("idle-3", "broke").await.unwrap();
    let stale = client.list_since(b"", 0).await;
    assert!(stale.machines.iter().all(|m| m.state != number(Failed)));
    control.spoil_list(None);
    let fresh = client.list_since(b"", 0).await;
    assert!(fresh.machines.iter().any(|m| m.state == number(Failed)));

    type Check = fn(&bigfleet_proto::v1alpha1::Machine) -> bool;
    let spoils: [(Corruption, Check); 7] = [
        (Corruption::Price(-1.0), |m| m.price_per_hour < 0.0),
        (Corruption::Price(f64::NAN), |m| m.price_per_hour.is_nan()),
        (Corruption::Probability(1.7), |m| m.interruption_probability > 1.0),
        (Corruption::State(99), |m| m.state == 99),
        (Corruption::CapacityType(77), |m| m.capacity_type == 77),
        (Corruption::Cluster("old".into()), |m| m.cluster == "old"),
        (Corruption::Quantity("many".into()), |m| {
            m.resources.as_ref().is_some_and(|r| r.resources.get("cpu").is_some_and(|q| q == "many"))
        }),
    ];
    for (corruption, spoiled) in spoils {
        control.corrupt("idle-0", Some(corruption.clone()));
        assert!(spoiled(&client.get("idle-0").await.unwrap()), "{corruption:?}");
        let list = client.list_since(b"", 0).await;
        assert_eq!(list.machines.iter().filter(|m| spoiled(m)).count(), 1, "{corruption:?}");
    }
    control.corrupt("idle-0", Some(Corruption::EmptyId));
    assert_eq!(client.list_since(b"", 0).await.machines.iter().filter(|m| m.id.is_empty()).count(), 1);
    control.corrupt("idle-0", None);
    control.stage(Kind::Configure, true);
    client.configure("idle-0", "a").await.unwrap();
    control.early_configured(true);
    assert_eq!(client.get("idle-0").await.unwrap().state, number(Configured));
    control.early_configured(false);
    assert_eq!(client.get("idle-0").await.unwrap().state, number(Configuring));
    cloud.stop().await;
}

#[tokio::test]
async fn quota_is_shed_and_machines_break_by_themselves() {
    let mut options = options();
    options.seeds = Seeds {
        speculative: 10,
        configured_per_cluster: 3,
        cluster_total: 2,
        cluster_stride: 1,
        ..Seeds::default()
    };
    options.shed = Some(Shed { at_seconds: 0, keep: 0.7 });
    options.failures_per_second = 1.0;
    let cloud = start(options).await;
    let control = cloud.control();
    eventually("slots are shed", async || {
        let left = control.machines().iter().filter(|m| m.state == number(Speculative)).count();
        (left == 7).then_some(())
    })
    .await;
    assert!(control.state("spec-2").is_none() && control.state("spec-3").is_some(), "in id order");
    eventually("a machine breaks", async || {
        control
            .machines()
            .iter()
            .any(|m| m.state == number(Failed) && m.last_error == "failed by chance")
            .then_some(())
    })
    .await;
    cloud.stop().await;
}

#[tokio::test]
async fn a_cloud_throttles_runs_out_and_lags_behind_by_itself() {
    use bigfleet_provider_kit::fakecloud::StockOuts;
    let mut slow = options();
    slow.calls_per_second = 0.001;
    let cloud = start(slow).await;
    let first: Vec<Code> =
        [code(cloud.client.create("spec-0").await), code(cloud.client.create("spec-1").await)].into();
    assert_eq!(first, [Code::Ok, Code::Unavailable], "one now, the next in a quarter of an hour");
    assert_eq!(cloud.control().state("spec-1"), Some(Speculative));
    assert_eq!(code(cloud.client.get("spec-1").await), Code::Ok, "reads are not throttled");
    cloud.stop().await;

    let mut empty = options();
    empty.stock_outs = Some(StockOuts { chance: 1.0, period_ms: 60_000 });
    let cloud = start(empty).await;
    eventually("everything is out", async || {
        let answers = [code(cloud.client.create("spec-0").await), code(cloud.client.create("spot-0").await)];
        (answers == [Code::ResourceExhausted; 2]).then_some(())
    })
    .await;
    cloud.stop().await;

    for (lag, knows) in [(3_600_000, false), (200, true)] {
        let mut late = options();
        late.list_lag_ms = lag;
        let cloud = start(late).await;
        eventually("there is a past to show", async || {
            cloud.client.list_since(b"", 0).await.revision.is_empty().then_some(())
        })
        .await;
        cloud.control().fail_machine("idle-0", "broke").await.unwrap();
        assert_eq!(cloud.client.get("idle-0").await.unwrap().state, number(Failed));
        let failed = async || {
            let list = cloud.client.list_since(b"", 0).await;
            list.machines.iter().any(|m| m.id == "idle-0" && m.state == number(Failed))
        };
        if knows {
            eventually("List knows", async || failed().await.then_some(())).await;
        } else {
            assert!(!failed().await, "List does not know for an hour");
        }
        cloud.stop().await;
    }
}

#[tokio::test]
async fn spot_prices_move_and_dear_hosts_are_taken_away() {
    use bigfleet_provider_kit::fakecloud::Market;
    let mut market = options();
    market.seeds.spot = 4;
    market.market = Some(Market { every_ms: 20, swing: 0.5, speed: 1e5 });
    let cloud = start(market).await;
    cloud.client.create("spot-0").await.unwrap();
    let taken = eventually("spot-0 is taken away", async || {
        Some(cloud.client.get("spot-0").await.unwrap()).filter(|m| m.state == number(Failed))
    })
    .await;
    assert!(taken.last_error.contains("taken away"), "{}", taken.last_error);
    let machines = cloud.client.list_since(b"", 0).await.machines;
    for machine in machines {
        let moves = machine.id.starts_with("spot");
        let (least, most) = if moves { (0.15 - 1e-9, 0.45 + 1e-9) } else { (0.0, 1.0) };
        assert!((least..=most).contains(&machine.price_per_hour), "{machine:?}");
        assert!(
            !moves || (machine.interruption_probability - machine.price_per_hour).abs() < 1e-9,
            "{machine:?}"
        );
    }
    let price = cloud.client.get("spot-1").await.unwrap().price_per_hour;
    eventually("prices go on", async || {
        ((cloud.client.get("spot-1").await.unwrap().price_per_hour - price).abs() > 1e-12).then_some(())
    })
    .await;
    assert_eq!(cloud.client.get("spec-0").await.unwrap().price_per_hour, 1.0, "on-demand stays");
    cloud.stop().await;
}
