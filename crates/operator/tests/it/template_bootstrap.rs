//! What bootstrap requests are answered with.

use std::time::Duration;

use bigfleet_operator::core::bootstrap::KUBELET_VERSION;
use bigfleet_operator::io::Render;
use bigfleet_operator::memory::blob::{self, Blob};
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_proto::v1alpha1::{BootstrapRequest, NodeSelectorRequirement, Taint};
use bigfleet_types::ClusterId;

const TTL: Duration = Duration::from_secs(600);

fn bootstrap(template: Option<&str>, statics: Statics) -> Bootstrap {
    let template = template.map(|source| Template::parse(source).unwrap());
    Bootstrap::new(ClusterId::trusted("prod-eu-1"), template, statics, TTL)
}

fn requirement(key: &str, operator: i32, values: &[&str]) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|v| (*v).to_owned()).collect(),
    }
}

fn request() -> BootstrapRequest {
    BootstrapRequest {
        request_id: "r-1".to_owned(),
        requirements: vec![
            requirement("node.kubernetes.io/instance-type", 1, &["a3-highgpu-8g"]),
            requirement("topology.bigfleet/rack", 5, &[]),
        ],
        cluster_id: "prod-eu-1".to_owned(),
        machine_id: "m-7".to_owned(),
        labels: [("pool", "gpu"), ("zone", "a")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
        taints: vec![Taint {
            key: "gpu".to_owned(),
            value: "yes".to_owned(),
            effect: "NoSchedule".to_owned(),
        }],
    }
}

fn rendered(bootstrap: &Bootstrap, request: &BootstrapRequest) -> Result<String, String> {
    bootstrap.render(request).map(|blob| {
        assert_eq!(blob.ttl, TTL);
        String::from_utf8(blob.user_data.to_vec()).unwrap()
    })
}

#[test]
fn ex48_cluster_and_requirements_reach_the_blob() {
    let source = "cluster: {{ .ClusterID }}\n{{ range .Requirements }}{{ .Key }} {{ .Operator }} {{ .Values }}\n{{ end }}";
    let text = rendered(&bootstrap(Some(source), Statics::default()), &request()).unwrap();
    assert!(text.contains("cluster: prod-eu-1"), "{text}");
    assert!(text.contains("node.kubernetes.io/instance-type In [a3-highgpu-8g]"), "{text}");
    assert!(text.contains("topology.bigfleet/rack Same []"), "{text}");
}

#[test]
fn every_field_of_a_request_and_every_static_can_be_used() {
    let source = "{{ .MachineID }} {{ .NodeLabels.pool }} {{ range .Taints }}{{ .Key }}={{ .Value }}:{{ .Effect }}{{ end }} \
        {{ .Token }} {{ .APIServerEndpoint }} {{ .CABundle }} {{ .CAHash }} {{ .KubernetesVersion }} {{ .KubeletVersion }}";
    let text = |t: &str| Some(t.to_owned());
    let statics = Statics {
        token: text("tok"),
        api_server_endpoint: text("https://api:6443"),
        ca_bundle: text("PEM"),
        ca_hash: text("sha256:1"),
        kubernetes_version: text("v1.33.1"),
    };
    assert_eq!(
        rendered(&bootstrap(Some(source), statics), &request()).unwrap(),
        "m-7 gpu gpu=yes:NoSchedule tok https://api:6443 PEM sha256:1 v1.33.1 v1.33.1"
    );
}

#[test]
fn what_has_no_source_is_a_clear_error() {
    for field in ["Token", "APIServerEndpoint", "CABundle", "CAHash", "KubernetesVersion", "KubeletVersion"] {
        let source = format!("{{{{ .{field} }}}}");
        let error = rendered(&bootstrap(Some(&source), Statics::default()), &request()).unwrap_err();
        assert!(error.starts_with(&format!("line 1, column 4: .{field} has no value: ")), "{error}");
    }
    let nameless = BootstrapRequest { machine_id: String::new(), ..request() };
    let error = rendered(&bootstrap(Some("{{ .MachineID }}"), Statics::default()), &nameless).unwrap_err();
    assert!(error.contains(".MachineID has no value"), "{error}");
    let error = rendered(&bootstrap(Some("{{ .Nope }}"), Statics::default()), &request()).unwrap_err();
    assert!(error.starts_with("line 1, column 4: unknown field .Nope"), "{error}");
}

#[test]
fn without_a_template_there_is_a_stub_of_two_lines() {
    let text = rendered(&bootstrap(None, Statics::default()), &request()).unwrap();
    assert!(text.starts_with("#cloud-config\n# ") && text.contains("prod-eu-1"), "{text}");
    assert_eq!(text.lines().count(), 2);
}

#[test]
fn the_newest_kubelet_within_the_skew_is_chosen() {
    let ask = |versions: &[&str], server: Option<&str>| {
        let statics = Statics { kubernetes_version: server.map(str::to_owned), ..Statics::default() };
        let requirements = vec![requirement(KUBELET_VERSION, 1, versions)];
        let request = BootstrapRequest { requirements, ..request() };
        rendered(&bootstrap(Some("{{ .KubeletVersion }}"), statics), &request)
    };
    for (versions, server, want) in [
        (&["v1.30.9", "v1.32.1", "v1.31.0"][..], Some("v1.33.1"), "v1.32.1"),
        (&["v1.33.9", "v1.34.0"], Some("v1.33.1"), "v1.33.9"),
        (&["1.9.0", "1.10.0"], Some("v1.11"), "1.10.0"),
        (&["v1.30.0-rc.1+x"], Some("v1.33.1"), "v1.30.0-rc.1+x"),
    ] {
        assert_eq!(ask(versions, server).as_deref(), Ok(want), "{versions:?}");
    }
    assert_eq!(
        ask(&["v1.29.4"], Some("v1.33.1")).unwrap_err(),
        "kubelet version v1.29.4 outside supported skew [v1.30, v1.33] of API server v1.33.1"
    );
    assert!(ask(&["v2.33.0"], Some("v1.33.1")).unwrap_err().contains("outside supported skew"));
    assert!(ask(&["v1.33.0"], None).unwrap_err().contains(".KubeletVersion has no value"));
}

#[test]
fn a_blob_above_the_limit_is_an_error() {
    let source = format!("{}{{{{ .ClusterID }}}}", "x".repeat(256 * 1024 - 4));
    let error = rendered(&bootstrap(Some(&source), Statics::default()), &request()).unwrap_err();
    assert!(error.contains("larger than 262144 bytes"), "{error}");
}

#[test]
fn the_blob_of_simulated_machines_reads_back() {
    let text = rendered(&bootstrap(Some(blob::TEMPLATE), Statics::default()), &request()).unwrap();
    let parsed = Blob::parse(text.as_bytes()).unwrap();
    assert_eq!(parsed.cluster.as_str(), "prod-eu-1");
    assert_eq!(parsed.machine.as_str(), "m-7");
    assert_eq!(
        parsed.labels.into_iter().collect::<Vec<_>>(),
        [("pool".to_owned(), "gpu".to_owned()), ("zone".to_owned(), "a".to_owned())]
    );
    for (bytes, problem) in [
        (&b"machine-id: m"[..], "no cluster-id line"),
        (b"cluster-id: c", "no machine-id line"),
        (b"cluster-id: c\nmachine-id: a b", "line 2"),
        (b"nonsense", "line 1"),
        (b"\n\nother: x", "line 3"),
        (b"label: novalue", "key=value"),
        (&[0xff], "not UTF-8"),
    ] {
        let shown = Blob::parse(bytes).unwrap_err().to_string();
        assert!(shown.contains(problem), "{shown}");
    }
}
