//! 229 encoded messages, made by another implementation of protobuf or by hand.
//!
//! Each one either has to be refused, or has to decode, mean what its JSON says and encode to the recorded bytes again.
//! The exceptions are listed by name; one that no longer is an exception fails the test as well.

use std::path::PathBuf;

use bigfleet_proto::{FILE_DESCRIPTOR_SET, v1alpha1};
use prost::{DecodeError, Message};
use prost_reflect::{DescriptorPool, DynamicMessage};

/// Vectors that decode, but whose bytes come out differently, and why that is harmless.
const OTHER_BYTES: [(&str, &str); 9] = [
    ("map_default_entries", EMPTY_PARTS),
    ("machine_metadata_bytes", EMPTY_PARTS),
    ("shard_report_realistic", EMPTY_PARTS),
    ("hm_map_missing_parts", EMPTY_PARTS),
    ("machine_float_edges", "-0.0 is left out like 0.0; the gate makes no difference between them"),
    ("hm_old_need_count", UNKNOWN),
    ("hm_old_machine_field11", UNKNOWN),
    ("hm_old_summary_utilisation", UNKNOWN),
    ("hm_unknown_group_fixed32", UNKNOWN),
];
const EMPTY_PARTS: &str = "an empty key or value of a map entry is left out; absent means empty";
const UNKNOWN: &str = "unknown fields are dropped; we pass no message on";

/// Vectors with fields of ours. They are unknown to whoever wrote the JSON, and known to us.
const EXTENDED: [&str; 3] =
    ["hm_ext_acknowledgement", "hm_ext_bootstrap_request", "hm_ext_operator_unknown_payload"];

/// Others take a known field with a wrong wire type for an unknown one; we refuse the message. Both are safe.
const REFUSED_HERE: [&str; 1] = ["hm_wrong_wire_type"];

struct Vector {
    name: String,
    message: String,
    bytes: Vec<u8>,
    json: Option<String>,
    canonical: Vec<u8>,
    must_fail: bool,
}

pub(crate) fn fixture(name: &str) -> Vec<u8> {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", name].iter().collect();
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn vectors() -> Vec<Vector> {
    let manifest: serde_json::Value = serde_json::from_slice(&fixture("wire/manifest.json")).unwrap();
    let text = |entry: &serde_json::Value, key: &str| entry[key].as_str().map(str::to_owned);
    let read = |file: &String| fixture(&format!("wire/{file}"));
    let vectors: Vec<Vector> = manifest["vectors"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let file = text(entry, "file").unwrap();
            Vector {
                name: text(entry, "name").unwrap(),
                message: text(entry, "message").unwrap(),
                bytes: read(&file),
                json: text(entry, "json").map(|json| String::from_utf8(read(&json)).unwrap()),
                canonical: read(&text(entry, "canonical").unwrap_or(file)),
                must_fail: text(entry, "go_decode").unwrap() == "error",
            }
        })
        .collect();
    assert_eq!(vectors.len(), 229);
    vectors
}

macro_rules! generated {
    ($($message:ident)*) => {
        /// Decodes with the generated code of the named message and encodes again.
        fn reencode(message: &str, bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
            match message.strip_prefix("bigfleet.v1alpha1.").unwrap() {
                $(stringify!($message) => v1alpha1::$message::decode(bytes).map(|m| m.encode_to_vec()),)*
                other => panic!("the test does not know the message {other}"),
            }
        }
    };
}

generated! {
    Acknowledgement AssignDomain AssignDomainRequest AssignDomainResponse AvailableCapacityUpdate
    BootstrapBlobResponse BootstrapRequest CapacityNeed ClusterCapacityNeeds ConfigureRequest
    CoordinatorInstruction CreateRequest CrossShardDrain DeleteRequest DomainAssignment DomainCoverage
    DrainRequest Hello HostRef InspectNeedsHeader InspectNeedsRequest InspectNeedsResponse InstructAck
    JoinRaftClusterRequest JoinRaftClusterResponse ListDomainAssignmentsRequest ListDomainAssignmentsResponse
    ListFilter ListProvidersRequest ListProvidersResponse ListQuotasRequest ListQuotasResponse
    ListShardReportsRequest ListShardReportsResponse ListShardsRequest ListShardsResponse Machine MachineList
    MachineRef MatchingSupply NeedView NodeSelectorRequirement NodeStateUpdate OperatorMessage
    PreemptionSummary ProviderEntry QuotaAllocation ReassignSpeculative ReclaimAck ReclaimInstruction
    RemoveShardRequest RemoveShardResponse ReportAck Resources ShardMessage ShardRegistryEntry ShardReport
    ShardReportSnapshot ShardSummary Shortfall SnapshotSaveChunk SnapshotSaveRequest Taint TopologySpread
    TransferOwnership TransitionAck UnassignDomain UnassignDomainRequest UnassignDomainResponse
}

/// The message that a JSON text describes, by reflection over `pool`.
fn from_json(pool: &DescriptorPool, vector: &Vector) -> DynamicMessage {
    let descriptor = pool.get_message_by_name(&vector.message).unwrap();
    let json = vector.json.as_ref().unwrap();
    let mut reader = serde_json::Deserializer::from_str(json);
    let message = DynamicMessage::deserialize(descriptor, &mut reader)
        .unwrap_or_else(|error| panic!("{}: {error}", vector.name));
    reader.end().unwrap();
    message
}

/// What reflection over `pool` reads in the bytes, as JSON; not-a-number equals itself there.
fn described(pool: &DescriptorPool, message: &str, bytes: &[u8]) -> serde_json::Value {
    let descriptor = pool.get_message_by_name(message).unwrap();
    serde_json::to_value(DynamicMessage::decode(descriptor, bytes).unwrap()).unwrap()
}

#[test]
fn bad_bytes_are_refused() {
    let bad: Vec<Vector> = vectors().into_iter().filter(|vector| vector.must_fail).collect();
    assert_eq!(bad.len(), 8);
    for vector in bad {
        assert!(reencode(&vector.message, &vector.bytes).is_err(), "{} was accepted", vector.name);
    }
    for name in REFUSED_HERE {
        let vector = vectors().into_iter().find(|vector| vector.name == name).unwrap();
        assert!(reencode(&vector.message, &vector.bytes).is_err(), "{name} is no exception any more");
    }
}

#[test]
fn good_bytes_mean_what_their_json_says() {
    let ours = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
    let public = DescriptorPool::decode(fixture("wire-descriptor.binpb").as_slice()).unwrap();
    let mut compared = 0;
    for vector in vectors() {
        let name = &vector.name;
        if vector.must_fail || REFUSED_HERE.contains(&name.as_str()) {
            continue;
        }
        let pool = if EXTENDED.contains(&name.as_str()) { &public } else { &ours };
        let expected = from_json(pool, &vector);

        // The generated code and the JSON lead to the same message, and reflection finds every field of it.
        let typed =
            reencode(&vector.message, &vector.bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        if pool == &ours {
            let of_json = reencode(&vector.message, &expected.encode_to_vec()).unwrap();
            let (left, right) =
                (described(&ours, &vector.message, &typed), described(&ours, &vector.message, &of_json));
            assert_eq!(left, right, "{name}: generated code against JSON");
        }
        let expected = serde_json::to_value(&expected).unwrap();
        assert_eq!(described(pool, &vector.message, &vector.bytes), expected, "{name}: bytes against JSON");
        // The sign of a zero is the one thing that the generated code may lose.
        if name != "machine_float_edges" {
            assert_eq!(described(pool, &vector.message, &typed), expected, "{name}: encoded again");
        }
        compared += 1;
    }
    assert_eq!(compared, 220);

    // The extended vectors mean more to us than to their authors.
    for vector in vectors().iter().filter(|vector| EXTENDED.contains(&vector.name.as_str())) {
        let (here, there) = (
            described(&ours, &vector.message, &vector.bytes),
            described(&public, &vector.message, &vector.bytes),
        );
        assert_ne!(here, there, "{} is no exception any more", vector.name);
    }
}

#[test]
fn good_bytes_come_out_as_they_went_in() {
    let mut wrong = Vec::new();
    for vector in vectors() {
        if vector.must_fail || REFUSED_HERE.contains(&vector.name.as_str()) {
            continue;
        }
        let listed = OTHER_BYTES.iter().find(|(name, _)| *name == vector.name);
        let same = reencode(&vector.message, &vector.bytes).unwrap() == vector.canonical;
        match listed {
            None if !same => wrong.push(format!("{}: other bytes", vector.name)),
            Some((name, reason)) if same => {
                wrong.push(format!("{name}: identical, yet listed as exception ({reason})"));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (name, _) in OTHER_BYTES {
        assert!(vectors().iter().any(|vector| vector.name == name), "{name} does not exist");
    }
}
