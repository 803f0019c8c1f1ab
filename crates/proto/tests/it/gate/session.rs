use std::time::Duration;

use bigfleet_proto::gate::saturating_count;
use bigfleet_proto::gate::session::{Blob, NoBlob, blob, hello};
use bigfleet_proto::gate::shardread::Inspect;
use bigfleet_proto::v1alpha1::{BootstrapBlobResponse, Hello, InspectNeedsRequest};
use bigfleet_types::ClusterId;
use bytes::Bytes;

#[test]
fn hello_names_a_cluster_and_a_version() {
    let say = |cluster_id: &str, protocol_version: &str| {
        hello(&Hello { cluster_id: cluster_id.to_owned(), protocol_version: protocol_version.to_owned() })
            .map_err(|error| error.to_string())
    };
    assert_eq!(say("c1", "v1alpha1"), Ok(ClusterId::trusted("c1")));
    assert_eq!(say("c1", ""), Ok(ClusterId::trusted("c1")));
    for (cluster, version, error) in [
        ("", "v1alpha1", "cluster_id: must not be empty"),
        ("a b", "v1alpha1", "cluster_id: must be printable ASCII without blanks"),
        ("c1", "v2", "protocol_version: \"v2\" is not spoken here; known is \"v1alpha1\""),
    ] {
        assert_eq!(say(cluster, version), Err(error.to_owned()));
    }
    assert!(say(&"c".repeat(254), "v1alpha1").is_err());
}

fn response(bytes: usize, ttl_seconds: i64, error: &str) -> BootstrapBlobResponse {
    BootstrapBlobResponse {
        request_id: "r".to_owned(),
        user_data: Bytes::from(vec![7; bytes]),
        ttl_seconds,
        error: error.to_owned(),
    }
}

#[test]
fn blobs_have_a_size_and_a_life() {
    for (bytes, ttl, expected) in [(1, 60, 60), (256 << 10, 1, 1), (5, 0, 600)] {
        let passed = blob(response(bytes, ttl, "")).unwrap();
        assert_eq!((passed.user_data.len(), passed.ttl), (bytes, Duration::from_secs(expected)));
    }
    for (bytes, ttl, expected) in [
        (0, 60, "user_data: must not be empty"),
        ((256 << 10) + 1, 60, "user_data: has 262145 bytes, at most 262144 are allowed"),
        (1, -1, "ttl_seconds: is -1, at least 0 is needed"),
    ] {
        let refused = blob(response(bytes, ttl, "")).unwrap_err();
        assert!(matches!(refused, NoBlob::Invalid(_)));
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn an_operators_error_wins_over_its_data() {
    let refused = blob(response(10, -5, "no template")).unwrap_err();
    assert_eq!(refused, NoBlob::Operator("no template".to_owned()));
    assert_eq!(refused.to_string(), "the operator answered: no template");
    let NoBlob::Operator(text) = blob(response(0, 0, &"\u{e4}".repeat(9_000))).unwrap_err() else { panic!() };
    assert_eq!(text.len(), 4096);
}

#[test]
fn blobs_do_not_print() {
    let secret = Blob { user_data: Bytes::from_static(b"canary"), ttl: Duration::from_secs(5) };
    assert_eq!(format!("{secret:?}"), "Blob(6 secret bytes, ttl 5s)");
}

#[test]
fn inspectors_may_narrow_what_they_see() {
    let ask = |cluster_id: &str, limit: i32| {
        Inspect::try_from(&InspectNeedsRequest { cluster_id: cluster_id.to_owned(), limit })
            .map_err(|error| error.to_string())
    };
    assert_eq!(ask("", 0), Ok(Inspect { cluster: None, limit: None }));
    assert_eq!(ask("c1", 5), Ok(Inspect { cluster: Some(ClusterId::trusted("c1")), limit: Some(5) }));
    assert_eq!(ask("", -1), Err("limit: is -1, at least 0 is needed".to_owned()));
    assert_eq!(ask("c 1", 0), Err("cluster_id: must be printable ASCII without blanks".to_owned()));
}

#[test]
fn counts_saturate() {
    assert_eq!(saturating_count(7usize), 7);
    assert_eq!(saturating_count(usize::MAX), i32::MAX);
    assert_eq!(saturating_count(u32::MAX), i32::MAX);
}

/// A shard's frames are those of the schema: a roll-up as its bytes, the rest as messages, an unknown kind as none.
#[test]
fn frames_are_operator_messages_with_their_rollups_as_bytes() {
    use bigfleet_proto::frames::{OperatorFrame, Payload as Frame};
    use bigfleet_proto::v1alpha1::operator_message::Payload;
    use bigfleet_proto::v1alpha1::{
        BootstrapBlobResponse, ClusterCapacityNeeds, Hello, NodeObservation, OperatorMessage, ReclaimAck,
    };
    use prost::Message as _;

    let hello = Hello { cluster_id: "c".to_owned(), protocol_version: "v".to_owned() };
    let rollup =
        ClusterCapacityNeeds { cluster_id: "c".to_owned(), timestamp_unix_nanos: 5, needs: Vec::new() };
    let response = BootstrapBlobResponse { request_id: "r".to_owned(), ..BootstrapBlobResponse::default() };
    let ack = ReclaimAck { instruction_id: "i".to_owned(), nodes_started: 2 };
    let seen = NodeObservation { machine_id: "m".to_owned(), ready: true, ..NodeObservation::default() };
    for (said, read) in [
        (Payload::Hello(hello.clone()), Frame::Hello(hello)),
        (Payload::Rollup(rollup.clone()), Frame::Rollup(rollup.encode_to_vec().into())),
        (Payload::BootstrapResponse(response.clone()), Frame::BootstrapResponse(response)),
        (Payload::ReclaimAck(ack.clone()), Frame::ReclaimAck(ack)),
        (Payload::NodeObservation(seen.clone()), Frame::NodeObservation(seen)),
    ] {
        let bytes = OperatorMessage { payload: Some(said) }.encode_to_vec();
        let frame = OperatorFrame::decode(bytes.as_slice()).unwrap();
        assert_eq!(frame, OperatorFrame { payload: Some(read) });
        assert_eq!(frame.encode_to_vec(), bytes);
    }
    assert_eq!(OperatorFrame::decode([0xc2, 0x3e, 0].as_slice()).unwrap().payload, None);
}
