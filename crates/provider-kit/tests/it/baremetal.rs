//! Inventories and their hooks: what is refused where, time limits, and what a hook learns.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bigfleet_net::listen;
use bigfleet_provider_kit::baremetal::{BareMetal, Broken, Inventory};
use bigfleet_provider_kit::{Handle, MemStore, Options, Provider};
use bigfleet_types::MachineState::{Configured, Failed, Idle, Speculative};
use tonic::Code;

use crate::fixture::{Client, PATIENCE, code, number, settled};

const GOOD: &str = "\
hooks:
  power_on:
    command: [sh, -c, 'true']
  boot:
    command: [sh, -c, 'true']
    timeout: 5m
  release:
    command: [sh, -c, 'true']
machines:
  - id: a
    instance_type: r740
    resources:
      cpu: \"64\"
  - id: b
    instance_type: r740
    price_per_hour: 0.5
    resources: {cpu: 32, memory: 64Gi}
    powered: true
";

fn parse(text: &str) -> Result<Inventory, Broken> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("rack.yaml");
    std::fs::write(&path, text).unwrap();
    Inventory::read(&path)
}

#[test]
fn a_broken_inventory_is_refused_with_file_line_and_field() {
    parse(GOOD).unwrap();
    for (from, to, line, field, words) in [
        ("  - id: b\n", "  - id: a\n", 14, "machines[1].id", "described twice"),
        ("  - id: b\n", "  - id: \"\"\n", 14, "machines[1].id", "id \"\""),
        ("price_per_hour: 0.5", "price_per_hour: -1", 16, "machines[1].price_per_hour", "at least 0"),
        ("price_per_hour: 0.5", "price_per_hour: dear", 16, "price_per_hour", ""),
        ("price_per_hour: 0.5", "prize_per_hour: 0.5", 16, "prize_per_hour", "unknown"),
        ("cpu: 32", "cpu: lots", 17, "machines[1].resources", "not a quantity"),
        ("timeout: 5m", "timeout: soon", 6, "hooks.boot.timeout", "no time above 0"),
        ("  release:\n", "  releases:\n", 7, "hooks.releases", "is no hook"),
        (
            "    command: [sh, -c, 'true']\n    timeout",
            "    command: []\n    timeout",
            5,
            "hooks.boot.command",
            "empty",
        ),
        ("    instance_type: r740\n    price", "    price", 17, "instance_type", "missing field"),
    ] {
        let text = GOOD.replace(from, to);
        assert_ne!(text, GOOD, "{from}");
        let error = parse(&text).unwrap_err();
        let shown = error.to_string();
        let Broken::Rule { line: at, field: named, .. } = error else { panic!("{shown}") };
        assert_eq!(at, line, "{to}: {shown}");
        assert!(shown.contains("rack.yaml:") && shown.contains(words), "{to}: {shown}");
        assert!(field.is_empty() || named == field, "{to}: {shown}");
    }
    let without = GOOD.replace("  release:\n    command: [sh, -c, 'true']\n", "");
    let missing = parse(&without).unwrap_err().to_string();
    assert!(missing.contains("hooks.release: is missing"), "{missing}");
    let nowhere = Inventory::read(Path::new("/nowhere/rack.yaml")).unwrap_err().to_string();
    assert!(nowhere.starts_with("/nowhere/rack.yaml: "), "{nowhere}");
}

fn inventory(dir: &Path, hooks: &[(&str, &str)], machines: &str) -> std::path::PathBuf {
    let mut text = "hooks:\n".to_owned();
    for name in ["power_on", "boot", "release"] {
        if !hooks.iter().any(|(hook, _)| hook.split(':').next() == Some(name)) {
            text += &format!("  {name}: {{command: [sh, -c, 'true']}}\n");
        }
    }
    for (hook, script) in hooks {
        let (name, limit) = hook.split_once(':').unwrap_or((hook, "5m"));
        std::fs::write(dir.join(name), script).unwrap();
        text += &format!("  {name}: {{command: [sh, {}], timeout: {limit}}}\n", dir.join(name).display());
    }
    let path = dir.join("rack.yaml");
    std::fs::write(&path, format!("{text}machines:\n{machines}")).unwrap();
    path
}

async fn start(path: &Path) -> (Handle, Client) {
    let backend = Arc::new(BareMetal::open(path, None).unwrap());
    let options = Options { reconcile_interval: None, ..Options::default() };
    let listener = listen::bind("127.0.0.1:0").await.unwrap();
    let handle = Provider::start(listener, backend, options, Box::new(MemStore)).await.unwrap();
    let client = Client::connect(&handle.dial_addr().to_string(), "s", 1);
    (handle, client)
}

const ONE: &str = "  - {id: a, instance_type: r740, zone: z, address: 10.0.0.1, resources: {cpu: 4}}\n";

#[tokio::test]
async fn hooks_learn_their_machine_and_boot_gets_the_blob() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!(
        "echo $BIGFLEET_OPERATION $BIGFLEET_MACHINE_ID $BIGFLEET_ADDRESS $BIGFLEET_INSTANCE_TYPE $BIGFLEET_ZONE \
         ${{BIGFLEET_CLUSTER:-none}} ${{BIGFLEET_GRACE_SECONDS:-none}} $(cat) >> {}\n",
        log.display()
    );
    let hooks: Vec<(&str, &str)> =
        ["power_on", "boot", "ready", "release", "power_off"].map(|hook| (hook, script.as_str())).into();
    let (handle, client) = start(&inventory(dir.path(), &hooks, ONE)).await;
    client.create("a").await.unwrap();
    settled(&client, "a", Idle).await;
    client.configure("a", "c").await.unwrap();
    settled(&client, "a", Configured).await;
    client.drain("a", 9).await.unwrap();
    settled(&client, "a", Idle).await;
    client.delete("a").await.unwrap();
    settled(&client, "a", Speculative).await;
    assert_eq!(
        std::fs::read_to_string(&log).unwrap(),
        "power_on a 10.0.0.1 r740 z none none\nboot a 10.0.0.1 r740 z c none blob\n\
         ready a 10.0.0.1 r740 z c none\nrelease a 10.0.0.1 r740 z c 9\npower_off a 10.0.0.1 r740 z none none\n"
    );
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_hook_beyond_its_time_is_killed_with_its_whole_group() {
    let dir = tempfile::tempdir().unwrap();
    let pids = dir.path().join("pids");
    let slow = format!("sleep 1000 & echo $! >> {0}; echo $$ >> {0}; wait\n", pids.display());
    let hooks = [("power_on:300ms", slow.as_str()), ("boot", "echo no disk >&2; exit 4")];
    let machines = format!("{ONE}  - {{id: b, instance_type: r740, powered: true, resources: {{cpu: 4}}}}\n");
    let (handle, client) = start(&inventory(dir.path(), &hooks, &machines)).await;
    client.create("a").await.unwrap();
    let failed = settled(&client, "a", Failed).await;
    assert!(
        failed.last_error.contains("timeout: hook power_on took longer than 300ms"),
        "{}",
        failed.last_error
    );
    let begun = Instant::now();
    for pid in std::fs::read_to_string(&pids).unwrap().lines() {
        // A process that is gone, or a zombie of this test's init, runs no more.
        let stat = format!("/proc/{pid}/stat");
        while std::fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(begun.elapsed() < PATIENCE, "process {pid} outlives its hook");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    client.configure("b", "c").await.unwrap();
    let failed = settled(&client, "b", Failed).await;
    assert!(failed.last_error.contains("exit status: 4: no disk"), "{}", failed.last_error);
    assert_eq!(code(client.delete("b").await), Code::Unimplemented, "no power_off");
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn machines_come_and_go_with_the_inventory_but_not_with_a_broken_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = inventory(dir.path(), &[], ONE);
    let (handle, client) = start(&path).await;
    client.create("a").await.unwrap();
    settled(&client, "a", Idle).await;
    let provider = handle.provider();
    provider.reconcile().await.unwrap();
    assert_eq!(client.get("a").await.unwrap().state, number(Idle), "it does not know what is switched on");
    let good = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, good.replace("cpu: 4", "cpu: x")).unwrap();
    assert!(provider.reconcile().await.unwrap_err().contains("rack.yaml:"));
    assert_eq!(client.get("a").await.unwrap().state, number(Idle));
    std::fs::write(&path, good.replace("id: a", "id: b")).unwrap();
    provider.reconcile().await.unwrap();
    assert!(client.get("a").await.unwrap().last_error.contains("host gone"));
    assert_eq!(client.get("b").await.unwrap().state, number(Speculative));
    handle.shutdown().await.unwrap();
}
