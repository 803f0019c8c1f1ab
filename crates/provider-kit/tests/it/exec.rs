//! Programs as back ends: answers that are none, reasons, and what they are given.

use std::path::Path;
use std::sync::Arc;

use bigfleet_net::listen;
use bigfleet_provider_kit::exec::Exec;
use bigfleet_provider_kit::program::Program;
use bigfleet_provider_kit::{Handle, MemStore, Options, Provider, StartError};
use bigfleet_types::MachineState::{Configured, Failed, Idle, Speculative};

use crate::fixture::{Client, settled};

/// A program that describes slots `a` and `b`, and for the rest runs `script`.
async fn start(dir: &Path, describe: &str, script: &str) -> Result<(Handle, Client), StartError> {
    let path = dir.join("back-end");
    let text = format!("if [ $BIGFLEET_OPERATION = describe ]; then\n{describe}\nelse\n{script}\nfi\n");
    std::fs::write(&path, text).unwrap();
    let program = Program { program: "/bin/sh".into(), args: vec![path.display().to_string()] };
    let options = Options { reconcile_interval: None, ..Options::default() };
    let listener = listen::bind("127.0.0.1:0").await.unwrap();
    let backend = Arc::new(Exec::new(program, Some("p".into()), 3, true));
    let handle = Provider::start(listener, backend, options, Box::new(MemStore)).await?;
    let client = Client::connect(&handle.dial_addr().to_string(), "s", 1);
    Ok((handle, client))
}

const SLOTS: &str = r#"printf '{"can_delete":true,"confirms_ready":true,"machines":['
for id in a b; do
  [ $id = a ] || printf ,
  printf '{"id":"%s","instance_type":"t","capacity_type":"on-demand","resources":{"cpu":"1"}}' $id
done
echo ']}'"#;

#[tokio::test]
async fn a_program_is_given_everything_and_the_blob_only_on_its_input() {
    let dir = tempfile::tempdir().unwrap();
    let script = format!(
        r#"cat > {0}/$BIGFLEET_OPERATION.json; env > {0}/$BIGFLEET_OPERATION.env
        if [ $BIGFLEET_OPERATION = create ]; then
            echo '{{"host":{{"reference":"r"}},"allocatable":{{"cpu":"900m"}}}}'
        else echo '{{}}'; fi"#,
        dir.path().display()
    );
    let (handle, client) = start(dir.path(), SLOTS, &script).await.unwrap();
    let operation = client.create("a").await.unwrap().operation_id;
    let idle = settled(&client, "a", Idle).await;
    assert_eq!(idle.host.unwrap().provider, "p");
    assert_eq!(idle.allocatable.unwrap().resources["cpu"], "900m");
    client.configure_with("a", "c", b"very secret", crate::fixture::metadata()).await.unwrap();
    settled(&client, "a", Configured).await;
    client.drain("a", 7).await.unwrap();
    settled(&client, "a", Idle).await;
    client.delete("a").await.unwrap();
    settled(&client, "a", Speculative).await;
    let request = |name: &str| -> serde_json::Value {
        serde_json::from_str(&std::fs::read_to_string(dir.path().join(format!("{name}.json"))).unwrap())
            .unwrap()
    };
    let create = request("create");
    assert_eq!((&create["version"], &create["operation"]), (&1.into(), &"create".into()));
    assert_eq!(create["operation_id"], operation.as_str());
    assert_eq!((&create["seed_count"], &create["fake"]), (&3.into(), &true.into()));
    let configure = request("configure");
    assert_eq!(configure["machine"]["cluster"], "c");
    assert_eq!(configure["machine"]["shard_metadata"]["empty"], "");
    assert_eq!(configure["blob_base64"], "dmVyeSBzZWNyZXQ=");
    assert_eq!(request("confirm_ready")["machine"]["host"]["reference"], "r");
    assert_eq!(request("drain")["grace_seconds"], 7);
    assert!(create.get("grace_seconds").is_none() && request("delete").get("blob_base64").is_none());
    let environment = std::fs::read_to_string(dir.path().join("configure.env")).unwrap();
    assert!(
        environment.contains("BIGFLEET_CLUSTER=c\n") && !environment.contains("dmVyeSBz"),
        "{environment}"
    );
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn answers_that_are_none_fail_the_machine_and_say_what_came() {
    for (script, words) in [
        (":", "no answer"),
        ("echo done", "\"done\\n\""),
        ("echo '{\"hots\":1}'", "unknown field"),
        ("echo '{}'", "has no host"),
        ("echo '{\"error\":\"quota of 5 reached\"}'", "quota of 5 reached"),
        ("echo '{\"error\":\"why\"}'; exit 9", "why"),
        ("echo half >&2; echo the disk died >&2; exit 2", "exit status: 2: the disk died"),
        ("echo '{\"host\":{\"reference\":\"r\"}}'; exit 1", "exit status: 1"),
        ("kill -9 $$", "signal: 9"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let (handle, client) = start(dir.path(), SLOTS, script).await.unwrap();
        client.create("a").await.unwrap();
        let failed = settled(&client, "a", Failed).await;
        assert!(failed.last_error.contains(words), "{script}: {}", failed.last_error);
        handle.shutdown().await.unwrap();
    }
    // Where nothing was made, the next look brings the slot back.
    let dir = tempfile::tempdir().unwrap();
    let script = "echo '{\"error\":\"no quota\",\"untouched\":true}'";
    let (handle, client) = start(dir.path(), SLOTS, script).await.unwrap();
    client.create("a").await.unwrap();
    settled(&client, "a", Failed).await;
    handle.provider().reconcile().await.unwrap();
    settled(&client, "a", Speculative).await;
    handle.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_program_that_cannot_describe_stops_the_start() {
    for (describe, words) in [
        ("echo '{\"error\":\"not logged in\"}'", "not logged in"),
        ("exit 3", "exit status: 3"),
        ("echo '{\"machines\":[{\"id\":\"a\"}]}'", "missing field"),
        (
            "echo '{\"machines\":[{\"id\":\"a\",\"instance_type\":\"\",\"capacity_type\":\"spot\"}]}'",
            "instance_type",
        ),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let refused = start(dir.path(), describe, ":").await.map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(words), "{describe}: {refused}");
    }
}
