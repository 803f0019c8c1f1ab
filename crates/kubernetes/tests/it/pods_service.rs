//! The pod controller as a whole against the API server in this process. Time is real: its clock is.

use std::time::Duration;

use bigfleet_kubernetes::client::Limits;
use bigfleet_kubernetes::pods::core::Rules;
use bigfleet_kubernetes::pods::service::{Options, start};
use serde_json::json;

use crate::fake_api::{Fake, status};

fn options() -> Options {
    Options {
        metrics_addr: None,
        limits: Limits::default(),
        leader_elect: false,
        rules: Rules::default(),
        defaults_file: None,
        unmanaged_node_selector: String::new(),
    }
}

fn put_pod(fake: &Fake, name: &str) {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "training" },
        "spec": { "containers": [{ "name": "main", "resources": { "requests": { "cpu": "1" } } }] },
    });
    fake.put(&format!("namespaces/training/pods/{name}"), pod, false);
}

/// Waits until a CapacityRequest of the pod has been written.
async fn requested(fake: &Fake, pod: &str) {
    let written = async {
        while fake.calls("PATCH", &format!("cr-pod-{pod}-")).is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), written).await.expect("no CapacityRequest was written");
}

/// A watch that cannot even begin, because its version is too old, must not be tried again from that version for ever.
#[tokio::test]
async fn drill18_a_watch_that_may_not_begin_is_begun_with_a_list() {
    let fake = Fake::default();
    fake.answer("watch", "pods", 410, status(410, "Expired", "too old resource version"), usize::MAX);
    put_pod(&fake, "a");
    let mut running = start(fake.client(), options()).unwrap();
    requested(&fake, "a").await;
    // Nobody watches: only another list can show it.
    put_pod(&fake, "b");
    requested(&fake, "b").await;
    running.shutdown();
    running.wait().await.unwrap();
}
