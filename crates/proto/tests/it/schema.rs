//! Our schema against the public one and against what this repository promised before.

use bigfleet_proto::schema::{COMMITTED_FILE, Schema, Subject, check, compare};

use crate::golden::fixture;

/// Messages, enums and services that only we have. Everything else is public, number by number.
const OURS: [&str; 9] = [
    "bigfleet.v1alpha1.AssignmentSet",
    "bigfleet.v1alpha1.MachineSelector",
    "bigfleet.v1alpha1.NodeObservation",
    "bigfleet.v1alpha1.OpenTransfer",
    "bigfleet.v1alpha1.OpenTransfer.Role",
    "bigfleet.v1alpha1.OpenTransfer.State",
    "bigfleet.v1alpha1.PoolCount",
    "bigfleet.v1alpha1.QuotaSlice",
    "bigfleet.v1alpha1.TransferPhase",
];

/// Public messages are extended from this field number on.
const FIRST_EXTENSION: i32 = 100;

fn is_public(subject: &Subject) -> bool {
    let extension = matches!(subject, Subject::Field(_, number) if *number >= FIRST_EXTENSION);
    !extension && !OURS.contains(&subject.owner())
}

#[test]
fn without_our_own_parts_it_is_the_public_schema() {
    let public = Schema::decode(&fixture("wire-descriptor.binpb")).unwrap();
    let ours = Schema::built().unwrap();
    for name in OURS {
        assert!(
            ours.subjects().any(|subject| subject.owner() == name),
            "{name} is listed but does not exist"
        );
    }
    let differences: Vec<String> =
        compare(&public, &ours.filtered(is_public)).iter().map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn the_public_comparison_sees_our_extensions() {
    // Without the filter there must be differences, all of them additions: the comparison is not blind.
    let public = Schema::decode(&fixture("wire-descriptor.binpb")).unwrap();
    let changes = compare(&public, &Schema::built().unwrap());
    assert!(changes.iter().all(|change| !change.breaks_peers()), "{changes:?}");
    let text = changes.iter().map(|change| format!("{change}\n")).collect::<String>();
    for expected in [
        "field bigfleet.v1alpha1.MachineList 100 = removed_ids string repeated",
        "field bigfleet.v1alpha1.OperatorMessage 100 = node_observation bigfleet.v1alpha1.NodeObservation singular",
        "message bigfleet.v1alpha1.AssignmentSet",
    ] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
fn the_committed_schema_is_kept() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../");
    let committed = std::fs::read_to_string(format!("{root}{COMMITTED_FILE}")).unwrap();
    assert!(committed.contains("field bigfleet.v1alpha1.Machine 15 = shard_metadata map<string,string> map"));
    // Additions pass; anything else is an error that lists what broke.
    check(&committed).unwrap();
}
