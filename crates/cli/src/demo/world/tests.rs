//! A whole world, quick, and what people do to it.

use bigfleet_provider_kit::fakecloud::Profile;

use super::*;

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(300);

async fn world(folder: &Path) -> World {
    let mut shard = ShardOptions::new("127.0.0.1:1").unwrap();
    shard.listen = "127.0.0.1:0".parse().unwrap();
    shard.metrics_addr = "127.0.0.1:0".parse().unwrap();
    shard.control.cycle_interval = Duration::from_millis(500);
    let quick = Duration::from_millis(100);
    let stage = Stage {
        classes: Profile::Demo.classes(),
        pace: Pace { create: quick, join: quick, drain: quick, repair: Duration::from_secs(2) },
        provider_listen: "127.0.0.1:0".parse().unwrap(),
        shard,
    };
    let world = World::start(stage, folder).await.unwrap();
    eventually("the opening", || world.at_rest()).await;
    world
}

async fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !look() {
        assert!(Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_machine_is_made_up_for_and_later_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let cluster = world.cluster("cluster-b").unwrap();
    let killed = world.kill(cluster).await.unwrap().unwrap();
    assert_eq!(world.control().state(&killed), Some(MachineState::Failed));
    assert!(!world.all_run(), "its pods went with it");
    eventually("every pod runs again", || world.at_rest()).await;
    assert_eq!(cluster.memory().view().disruptions.node_lost, 7);
    eventually("the cloud has replaced it", || world.control().state(&killed) == Some(MachineState::Idle))
        .await;
    // The replacement is as good as any: enough demand takes it too.
    world.cluster("cluster-c").unwrap().set_level(Tier::Batch, 6 + 14).unwrap();
    eventually("all 48 owned machines serve", || {
        let machines = world.control().machines();
        machines.iter().filter(|m| !is_bought(m)).all(|m| state(m) == Some(MachineState::Configured))
    })
    .await;
    eventually("every pod runs", || world.at_rest()).await;
    world.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_executed_while_paused_or_broken_and_everything_after() {
    let folder = tempfile::tempdir().unwrap();
    let world = world(folder.path()).await;
    let cluster = world.cluster("cluster-b").unwrap();
    let configured = || {
        let machines = world.control().machines();
        machines.iter().filter(|m| state(m) == Some(MachineState::Configured)).count()
    };
    assert_eq!(configured(), 34);

    world.pause(true).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let told_paused = async || {
        let page = scrape::metrics(world.places().metrics).await.unwrap();
        scrape::sum(&page, "bigfleet_shard_actuation_paused", |_| false) > 0.5
    };
    while !told_paused().await {
        assert!(Instant::now() < deadline, "the shard never saw the PAUSE file");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.set_level(Tier::Batch, 8).unwrap();
    let suppressed = || world.audit().unwrap().iter().any(|entry| entry.outcome == "suppressed");
    eventually("an action is suppressed", suppressed).await;
    assert_eq!(configured(), 34);
    world.pause(false).unwrap();
    eventually("every pod runs once it goes on", || world.at_rest()).await;
    assert_eq!(configured(), 36);

    world.control().break_provider();
    assert!(world.list().await.is_err());
    cluster.set_level(Tier::Batch, 9).unwrap();
    eventually("a call fails", || world.audit().unwrap().iter().any(|e| e.outcome.ends_with("_error"))).await;
    assert_eq!(configured(), 36);
    world.control().heal();
    eventually("every pod runs once it is healed", || world.at_rest()).await;
    assert_eq!(configured(), 37);
    assert!(world.control().machines().iter().all(|m| state(m) != Some(MachineState::Failed)));
    world.stop().await.unwrap();
}
