//! Answers to bootstrap requests.

use bigfleet_operator::core::bootstrap::kubelet_version;
use bigfleet_operator::io::Input;
use bigfleet_proto::v1alpha1::operator_message::Payload as Up;
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{BootstrapBlobResponse, BootstrapRequest, NodeSelectorRequirement};

use crate::core_kit::{CLUSTER, Rig, frame};

fn ask(rig: &mut Rig, machine: &str, cluster: &str, versions: &[&str]) -> BootstrapBlobResponse {
    let before = rig.sent.len();
    let requirement = NodeSelectorRequirement {
        key: "bigfleet.lucy.sh/kubelet-version".to_owned(),
        operator: 1,
        values: versions.iter().map(|v| (*v).to_owned()).collect(),
    };
    rig.frame(Down::BootstrapRequest(BootstrapRequest {
        request_id: format!("r-{machine}"),
        machine_id: machine.to_owned(),
        cluster_id: cluster.to_owned(),
        requirements: if versions.is_empty() { Vec::new() } else { vec![requirement] },
        ..Default::default()
    }));
    assert_eq!(rig.sent.len(), before + 1, "exactly one answer");
    match &rig.sent[before].1 {
        Up::BootstrapResponse(response) => response.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_request_has_one_answer() {
    let mut rig = Rig::running();
    let good = ask(&mut rig, "m", CLUSTER, &[]);
    assert_eq!(
        (good.request_id.as_str(), &good.user_data[..], good.ttl_seconds, good.error.as_str()),
        ("r-m", &b"m"[..], 600, "")
    );
    assert_eq!(ask(&mut rig, "m", "", &[]).error, "");
    assert_eq!(ask(&mut rig, "m", "other", &[]).error, "cluster id mismatch");
    assert_eq!(ask(&mut rig, "empty", CLUSTER, &[]).error, "the bootstrap data is empty");
    let huge = ask(&mut rig, "huge", CLUSTER, &[]);
    assert_eq!(huge.error, "the bootstrap data has 307200 bytes, at most 262144 are taken");
    assert!(huge.user_data.is_empty());
}

#[test]
fn drill14_a_template_that_fails_while_rendering() {
    let mut rig = Rig::running();
    for _ in 0..3 {
        assert_eq!(
            ask(&mut rig, "broken", CLUSTER, &[]).error,
            "render: line 1, column 4: unknown field .Nope"
        );
    }
    assert_eq!(ask(&mut rig, "m", CLUSTER, &[]).error, "", "the operator stays up");
    assert_eq!(rig.core.counters().bootstrap, [("render_error", 3), ("rendered", 1)].into());
}

#[test]
fn kubelets_stay_within_the_skew() {
    let mut rig = Rig::running();
    let unknown = ask(&mut rig, "m", CLUSTER, &["v1.33.0"]).error;
    assert_eq!(
        unknown,
        "kubelet version v1.33.0 cannot be checked: the version of the API server is not known"
    );
    rig.input(Input::ServerVersion("v1.33.1".to_owned()));
    assert_eq!(
        ask(&mut rig, "m", CLUSTER, &["v1.29.4"]).error,
        "kubelet version v1.29.4 outside supported skew [v1.30, v1.33] of API server v1.33.1"
    );
    for good in ["v1.30.0", "v1.33.9", "1.31"] {
        assert_eq!(ask(&mut rig, "m", CLUSTER, &[good]).error, "", "{good}");
    }
    for bad in ["v1.34.0", "v2.33.0", "latest"] {
        assert!(ask(&mut rig, "m", CLUSTER, &[bad]).error.contains("outside supported skew"), "{bad}");
    }
    let requirement = NodeSelectorRequirement {
        key: "bigfleet.lucy.sh/kubelet-version".to_owned(),
        operator: 1,
        values: ["v1.29.9", "v1.31.2", "v1.31.10", "v1.34.0"].map(str::to_owned).to_vec(),
    };
    assert_eq!(kubelet_version(&[requirement], Some("v1.33.1-gke.3")), Ok(Some("v1.31.10".to_owned())));
    assert_eq!(kubelet_version(&[], None), Ok(None));
}

/// Security row 22: a shard that asks for very many does not get them all at once.
#[test]
fn bootstrap_requests_beyond_the_limit_wait_two_seconds_and_are_refused_then() {
    let mut rig = Rig::running();
    let burst = |rig: &mut Rig, from: usize, count: usize| {
        let request = |n| {
            frame(Down::BootstrapRequest(BootstrapRequest {
                request_id: format!("r-{n}"),
                machine_id: "m".to_owned(),
                ..Default::default()
            }))
        };
        rig.burst((from..from + count).map(request));
    };
    let answers = |rig: &mut Rig| -> Vec<(String, String)> {
        let of = |(_, up)| match up {
            Up::BootstrapResponse(response) => (response.request_id, response.error),
            other => panic!("{other:?}"),
        };
        rig.sent.drain(..).map(of).collect()
    };
    burst(&mut rig, 0, 700);
    let at_once = answers(&mut rig);
    let good: Vec<_> =
        at_once.iter().filter(|(_, error)| error.is_empty()).map(|(id, _)| id.as_str()).collect();
    assert_eq!((good.len(), good[499]), (500, "r-499"));
    let refused: Vec<_> = at_once.iter().filter(|(_, error)| !error.is_empty()).collect();
    assert_eq!(
        (refused.len(), refused[0].0.as_str()),
        (100, "r-600"),
        "those that could not be answered in time"
    );
    assert_eq!(
        refused[0].1,
        "too many bootstrap requests: at most 50 a second are answered, 500 at once; ask again later"
    );
    rig.seconds(1);
    assert_eq!(answers(&mut rig).len(), 50);
    rig.seconds(1);
    let late = answers(&mut rig);
    assert_eq!((late.len(), late[49].0.as_str(), late[49].1.as_str()), (50, "r-599", ""));
    assert_eq!(rig.core.counters().bootstrap, [("rendered", 600), ("rate_limited", 100)].into());

    // Nobody waits beyond a session, and a new session is no new burst.
    burst(&mut rig, 700, 50);
    rig.input(Input::Disconnected);
    rig.connect();
    rig.seconds(1);
    burst(&mut rig, 750, 1);
    rig.seconds(1);
    assert_eq!(answers(&mut rig), [("r-750".to_owned(), String::new())]);
    burst(&mut rig, 751, 60);
    assert_eq!(answers(&mut rig).len(), 49, "what came back since, of the burst of before");
    rig.seconds(60);
    answers(&mut rig);
    burst(&mut rig, 1000, 500);
    assert_eq!(answers(&mut rig).len(), 500);
}
