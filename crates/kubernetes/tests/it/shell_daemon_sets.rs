//! DaemonSets as the operator's shell lists them.

use std::time::Duration;

use bigfleet_kubernetes::shell::KubernetesShell;
use bigfleet_operator::io::{Amounts, DaemonSet, Input, NodeCondition, NodeTerm, Toleration};
use bigfleet_operator::service::ClusterShell as _;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;

use crate::fake_api::{Fake, status};
use crate::shell_watch::{metrics, shell_with};

const CORE: i128 = 1_000_000_000;

fn put(fake: &Fake, name: &str, pod: &Value) {
    let object = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "a", "uid": format!("uid-{name}") },
        "spec": { "selector": {}, "template": { "metadata": {}, "spec": pod } },
    });
    fake.put(&format!("namespaces/a/daemonsets/{name}"), object, false);
}

fn containers(cpu: &str) -> Value {
    json!([{ "name": "c", "image": "x:1", "resources": { "requests": { "cpu": cpu, "memory": "1Mi" } } }])
}

fn cpus(sets: &[DaemonSet]) -> Vec<i128> {
    sets.iter().map(|set| set.requests.cpu).collect()
}

async fn listed(inputs: &mut Receiver<Input>) -> Vec<DaemonSet> {
    loop {
        let input = tokio::time::timeout(Duration::from_secs(300), inputs.recv()).await;
        if let Input::DaemonSets(sets) = input.expect("no list came").expect("the shell ended") {
            return sets;
        }
    }
}

async fn begun(shell: &KubernetesShell) -> Receiver<Input> {
    shell.prime().await;
    shell.inputs()
}

#[tokio::test(start_paused = true)]
async fn a_daemon_set_is_read_as_its_controller_reads_it() {
    let fake = Fake::default();
    put(
        &fake,
        "x",
        &json!({
            "nodeSelector": { "os": "linux" },
            "hostNetwork": true,
            "overhead": { "cpu": "250m" },
            "containers": containers("1"),
            "initContainers": [{ "name": "i", "image": "x:1", "resources": { "requests": { "memory": "3Mi" } } }],
            "tolerations": [{ "key": "gpu", "operator": "Exists", "effect": "NoSchedule" }],
            "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "cores", "operator": "Gt", "values": ["4"] }],
                  "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["n"] }] },
            ] } } },
        }),
    );
    let shell = shell_with(&fake, true);
    let mut inputs = begun(&shell.shell).await;
    let condition = |key: &str, operator: &str, value: &str| NodeCondition {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: vec![value.to_owned()],
    };
    let expected = DaemonSet {
        requests: Amounts { cpu: CORE * 5 / 4, memory: (3 << 20) * CORE },
        node: None,
        selector: [("os".to_owned(), "linux".to_owned())].into(),
        terms: Some(vec![NodeTerm {
            labels: vec![condition("cores", "Gt", "4")],
            fields: vec![condition("metadata.name", "In", "n")],
        }]),
        tolerations: vec![Toleration {
            key: "gpu".to_owned(),
            operator: "Exists".to_owned(),
            value: String::new(),
            effect: "NoSchedule".to_owned(),
        }],
        host_network: true,
    };
    assert_eq!(listed(&mut inputs).await, [expected]);
    assert!(fake.calls("watch", "daemonsets").is_empty(), "they are listed, not watched");
}

#[tokio::test(start_paused = true)]
async fn a_list_that_fails_and_a_set_that_cannot_be_read_leave_what_is_known() {
    let fake = Fake::default();
    let denied = status(403, "Forbidden", "no");
    fake.answer("list", "daemonsets", 403, denied, 2);
    put(&fake, "x", &json!({ "containers": containers("1") }));
    put(&fake, "y", &json!({ "containers": containers("2") }));
    let shell = shell_with(&fake, true);
    let mut inputs = begun(&shell.shell).await;
    assert_eq!(cpus(&listed(&mut inputs).await), [CORE, 2 * CORE], "nothing is said before it is known");
    assert_eq!(fake.calls("list", "daemonsets").len(), 3);
    while !shell.readiness.is_ready() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    put(&fake, "x", &json!({ "containers": containers("plenty") }));
    put(&fake, "z", &json!({ "containers": "none" }));
    put(&fake, "y", &json!({ "containers": containers("3") }));
    assert_eq!(cpus(&listed(&mut inputs).await), [CORE, 3 * CORE], "x is what it was, z is nothing");
    let said = metrics(&shell.registry);
    assert!(said.contains(r#"bigfleet_operator_invalid_objects_total{kind="DaemonSet"} 2"#), "{said}");
    fake.answer("list", "daemonsets", 404, status(404, "NotFound", "no"), 1);
    fake.remove("namespaces/a/daemonsets/y", false);
    assert_eq!(cpus(&listed(&mut inputs).await), [CORE]);
}

#[tokio::test(start_paused = true)]
async fn pages_are_put_together() {
    let fake = Fake::default();
    put(&fake, "y", &json!({ "containers": containers("2") }));
    let first = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSetList", "metadata": { "continue": "more" },
        "items": [{ "metadata": { "name": "x", "namespace": "a", "uid": "u" },
                    "spec": { "selector": {}, "template": { "spec": { "containers": containers("1") } } } }],
    });
    fake.answer("list", "daemonsets", 200, first, 1);
    let shell = shell_with(&fake, true);
    let mut inputs = begun(&shell.shell).await;
    assert_eq!(cpus(&listed(&mut inputs).await), [CORE, 2 * CORE]);
}

#[tokio::test(start_paused = true)]
async fn unless_asked_for_daemon_sets_are_not_read() {
    let fake = Fake::default();
    let shell = shell_with(&fake, false);
    let _inputs = begun(&shell.shell).await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(fake.calls("list", "daemonsets").is_empty());
    assert!(!metrics(&shell.registry).contains("DaemonSet"));
}
