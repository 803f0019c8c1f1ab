//! Objects read and written: round trips, words of newer versions, conversions, names, patches.

use bigfleet_kubernetes::crd::{
    AvailableCapacity, CapacityRequest, CapacityRequestPhase, UpcomingNode, UpcomingNodePhase, convert, names,
};
use bigfleet_operator::io;
use bigfleet_types::{MachineId, UnixNanos};
use kube::api::ObjectList;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const REQUEST: &str = r#"
apiVersion: bigfleet.lucy.sh/v1alpha1
kind: CapacityRequest
metadata:
  name: cr-pod-trainer-worker-42-7d18762248
  namespace: training
  uid: 11111111-2222-3333-4444-555555555555
  labels: { bigfleet.lucy.sh/owned-by-pod: e8d3a7e1-0b3c-4f15-9c44-9d6f0d2b1c00 }
  ownerReferences:
    - { apiVersion: v1, kind: Pod, name: trainer-worker-42, uid: e8d3a7e1-0b3c-4f15-9c44-9d6f0d2b1c00, controller: true }
spec:
  requirements:
    - { key: node.kubernetes.io/instance-type, operator: In, values: [a3-highgpu-8g, p5.48xlarge] }
  resources: { cpu: "96", memory: 768Gi, nvidia.com/gpu: 8 }
  priority: 1000000
  topologySpread:
    - { topologyKey: topology.kubernetes.io/zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule }
  coLocation:
    labelSelector: { matchLabels: { job: trainer-7 } }
    topologyKey: topology.bigfleet/rack
  interruptionPenalty: "8000"
  reclamationPenalty: "0"
status:
  phase: Acknowledged
  acknowledgedAt: "2026-04-30T12:00:00Z"
"#;

const UPCOMING: &str = r#"
apiVersion: bigfleet.lucy.sh/v1alpha1
kind: UpcomingNode
metadata:
  name: un-research-049
  labels: { app.kubernetes.io/managed-by: bigfleet-operator, bigfleet.lucy.sh/machine-id: research-049 }
spec:
  labels: { node.kubernetes.io/instance-type: a3-highgpu-8g, topology.kubernetes.io/zone: us-east-1a }
  resources: { cpu: "96", memory: 768Gi, nvidia.com/gpu: "8" }
  taints: [{ key: nvidia.com/gpu, value: present, effect: NoSchedule }]
  machineID: research-049
status:
  phase: Registered
  nodeRef: { kind: Node, name: node-gpu-east-0291 }
  providerID: i-0abc
  provisioningStartTime: "2026-04-30T12:00:00Z"
"#;

const KEY: &str =
    "available:p=1000000|ipb=16|rpb=19|reqs=node.kubernetes.io/instance-type:1:a3-highgpu-8g;|spr=";

fn available() -> String {
    format!(
        r#"
apiVersion: bigfleet.lucy.sh/v1alpha1
kind: AvailableCapacity
metadata:
  name: ac-068bacd71e6b6f5f65ee7a599f28550e
  labels: {{ app.kubernetes.io/managed-by: bigfleet-operator }}
  annotations: {{ bigfleet.lucy.sh/supersedes-key: "{KEY}" }}
spec:
  requirements: [{{ key: node.kubernetes.io/instance-type, operator: In, values: [a3-highgpu-8g] }}]
  resources: {{}}
  availableCount: 200
  availability: High
  cost: "31.22"
"#
    )
}

fn read<T: DeserializeOwned>(yaml: &str) -> T {
    let value: Value = serde_saphyr::from_str(yaml).unwrap();
    serde_json::from_value(value).unwrap()
}

fn round_trip<T: Serialize + DeserializeOwned>(yaml: &str) {
    let first: T = read(yaml);
    let json = serde_json::to_string(&first).unwrap();
    let again: T = serde_json::from_str(&json).unwrap();
    assert_eq!(serde_json::to_string(&again).unwrap(), json);
    let text = serde_saphyr::to_string(&first).unwrap();
    let again: T = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(serde_saphyr::to_string(&again).unwrap(), text);
    assert_eq!(serde_json::to_string(&again).unwrap(), json);
}

#[test]
fn full_examples_survive_a_round_trip() {
    round_trip::<CapacityRequest>(REQUEST);
    round_trip::<UpcomingNode>(UPCOMING);
    round_trip::<AvailableCapacity>(&available());
    let written = serde_json::to_value(read::<CapacityRequest>(REQUEST)).unwrap();
    assert_eq!(written["status"]["acknowledgedAt"], json!("2026-04-30T12:00:00Z"));
    assert_eq!(written["spec"]["resources"]["nvidia.com/gpu"], json!("8"), "an integer reads like its text");
}

#[test]
fn unknown_words_and_an_empty_status_do_not_spoil_a_list() {
    let mut items: Vec<Value> = (0..100)
        .map(|i| json!({ "metadata": { "name": format!("good-{i}") }, "spec": { "resources": { "cpu": "1" } } }))
        .collect();
    items.push(json!({ "metadata": { "name": "newer" }, "spec": { "resources": {}, "shape": "round" }, "status": { "phase": "Queued" } }));
    items.push(json!({ "metadata": { "name": "empty" }, "spec": { "resources": {} }, "status": {} }));
    items.push(json!({ "metadata": { "name": "gt" }, "spec": { "resources": {}, "requirements": [{ "key": "a", "operator": "Gt", "values": ["4"] }] } }));
    let list = json!({ "apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequestList", "metadata": {}, "items": items });
    let list: ObjectList<CapacityRequest> = serde_json::from_value(list).unwrap();
    assert_eq!(list.items.len(), 103);
    let status = |at: usize| list.items[at].status.clone().unwrap();
    assert_eq!(status(100).phase, Some(CapacityRequestPhase::Unknown));
    assert_eq!(status(101).phase, None);
    assert_eq!(list.items[102].spec.requirements[0].operator, "Gt");

    let upcoming = json!({ "metadata": { "name": "un-a" }, "spec": { "resources": {}, "machineID": "a" }, "status": { "phase": "Hibernating" } });
    let upcoming: UpcomingNode = serde_json::from_value(upcoming).unwrap();
    assert_eq!(upcoming.status.unwrap().phase, Some(UpcomingNodePhase::Unknown));
    let hint = json!({ "metadata": {}, "spec": { "resources": {}, "availableCount": 1, "availability": "Soon", "cost": 3 } });
    assert!(serde_json::from_value::<AvailableCapacity>(hint).is_ok());
}

#[test]
fn a_request_reads_as_the_operator_core_takes_it() {
    let request = convert::capacity_request(&read(REQUEST)).unwrap();
    let expected = io::CapacityRequest {
        uid: "11111111-2222-3333-4444-555555555555".into(),
        namespace: "training".to_owned(),
        name: "cr-pod-trainer-worker-42-7d18762248".to_owned(),
        deleting: false,
        requirements: vec![(
            "node.kubernetes.io/instance-type".to_owned(),
            "In".to_owned(),
            vec!["a3-highgpu-8g".to_owned(), "p5.48xlarge".to_owned()],
        )],
        resources: [("cpu", "96"), ("memory", "768Gi"), ("nvidia.com/gpu", "8")]
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .into(),
        priority: 1_000_000,
        interruption_penalty: Some("8000".to_owned()),
        reclamation_penalty: Some("0".to_owned()),
        topology_spread: vec![("topology.kubernetes.io/zone".to_owned(), 1, "DoNotSchedule".to_owned())],
        co_location: Some(io::CoLocation {
            topology_key: "topology.bigfleet/rack".to_owned(),
            selector: Some(io::LabelSelector {
                match_labels: [("job".to_owned(), "trainer-7".to_owned())].into(),
                match_expressions: Vec::new(),
            }),
        }),
        acknowledged: true,
    };
    assert_eq!(request, expected);

    let mut object: CapacityRequest = read(REQUEST);
    object.metadata.uid = None;
    let refused = convert::capacity_request(&object).unwrap_err().to_string();
    assert!(refused.contains("metadata.uid is missing"), "{refused}");
}

#[test]
fn read_backs_go_out_and_come_in_the_same() {
    let object: UpcomingNode = read(UPCOMING);
    let node = convert::read_upcoming_node(&object).unwrap();
    assert_eq!(node.machine, Some(MachineId::parse("research-049").unwrap()));
    assert_eq!(node.provisioning_start, Some(UnixNanos(1_777_550_400_000_000_000)));
    assert_eq!(convert::upcoming_node(&node), Some(object.clone()));

    let mut odd = object;
    odd.spec.machine_id = None;
    let refused = convert::read_upcoming_node(&odd).unwrap_err().to_string();
    assert!(refused.contains("un-research-049") && refused.contains("spec.machineID"), "{refused}");

    let object: AvailableCapacity = read(&available());
    let hint = convert::read_available_capacity(&object).unwrap();
    assert_eq!(
        (hint.key.as_str(), hint.count, hint.confidence, hint.cost_per_hour.as_str()),
        (KEY, 200, "High", "31.22")
    );
    assert_eq!(convert::available_capacity(&hint), object);

    let mut moved = object.clone();
    moved.metadata.name = Some("ac-00000000000000000000000000000000".to_owned());
    assert!(convert::read_available_capacity(&moved).is_err(), "a name that belongs to another key");
    let mut bare = object;
    bare.metadata.annotations = None;
    assert!(convert::read_available_capacity(&bare).is_err(), "no key at all");
}

#[test]
fn names_of_the_published_vectors() {
    let request = names::capacity_request;
    assert_eq!(
        request("trainer-worker-42", "e8d3a7e1-0b3c-4f15-9c44-9d6f0d2b1c00"),
        "cr-pod-trainer-worker-42-7d18762248"
    );
    let upcoming = |id: &str| names::upcoming_node(&MachineId::parse(id).unwrap());
    assert_eq!(upcoming("research-049"), "un-research-049");
    assert_eq!(upcoming("aws:///us-east-1a/i-0ABC"), "un-aws-us-east-1a-i-0abc-ec1bf617");
    assert_eq!(names::available_capacity(KEY), "ac-068bacd71e6b6f5f65ee7a599f28550e");
}

#[test]
fn names_of_long_and_ragged_pods_are_legal() {
    let legal = |name: &str| {
        name.len() <= 253
            && name.split('.').all(|part| {
                !part.is_empty()
                    && !part.starts_with('-')
                    && !part.ends_with('-')
                    && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            })
    };
    for pod in [
        "a".repeat(253),
        format!("{}.{}", "a".repeat(199), "b".repeat(53)),
        format!("{}-{}", "a".repeat(199), "b".repeat(53)),
        format!("{}---.{}", "a".repeat(197), "b".repeat(50)),
        "x".to_owned(),
    ] {
        let name = names::capacity_request(&pod, "uid");
        assert!(legal(&name), "{name}");
        assert_ne!(name, names::capacity_request(&pod, "another"), "another pod of that name");
    }
}

#[test]
fn patches_are_exactly_what_is_published() {
    assert_eq!(
        convert::acknowledge_patch(UnixNanos(1_777_550_400_987_654_321)).to_string(),
        json!({ "status": { "acknowledgedAt": "2026-04-30T12:00:00Z", "phase": "Acknowledged" } })
            .to_string()
    );
    let node =
        io::UpcomingNode { machine: Some(MachineId::parse("m").unwrap()), ..io::UpcomingNode::default() };
    let patch = convert::upcoming_node_status_patch(&convert::upcoming_node(&node).unwrap());
    assert_eq!(patch["status"]["lastError"], Value::Null);
    assert!(
        patch["status"].as_object().unwrap().contains_key("lastError"),
        "absent would leave the old error"
    );
    assert_eq!(patch["status"]["phase"], json!("Provisioning"));
}
