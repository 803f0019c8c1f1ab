use bigfleet_proto::gate::machine::{
    Known, Listing, MAX_LAST_ERROR_BYTES, Reason, Record, Violation, acknowledged, record,
};
use bigfleet_proto::gate::metadata;
use bigfleet_proto::v1alpha1::{
    CapacityType, HostRef, Machine, MachineList, MachineState, Resources, TransitionAck,
};
use bigfleet_types::{Attribution, MachineId, StampedPenalty};
use bytes::Bytes;
use prost::Message as _;

use super::map;
use crate::golden::fixture;

const STATES: [MachineState; 8] = [
    MachineState::Speculative,
    MachineState::Creating,
    MachineState::Idle,
    MachineState::Configuring,
    MachineState::Configured,
    MachineState::Draining,
    MachineState::Deleting,
    MachineState::Failed,
];

/// The first List of a provider.
fn list(message: &MachineList) -> Listing {
    let listing = Known::default().read(&message.encode_to_vec()).unwrap();
    assert!(listing.records.whole && listing.records.gone.is_empty());
    listing
}

/// A record that breaks no rule, in the given state.
fn machine(state: MachineState) -> Machine {
    use MachineState::{Configured, Configuring, Creating, Draining, Failed, Speculative};
    let bound = matches!(state, Configuring | Configured | Draining);
    Machine {
        id: "m-1".to_owned(),
        state: state.into(),
        host: (!matches!(state, Speculative | Creating))
            .then(|| HostRef { provider: "p".to_owned(), r#ref: "i-1".to_owned() }),
        instance_type: "m6i.large".to_owned(),
        zone: "z1".to_owned(),
        capacity_type: CapacityType::Spot.into(),
        price_per_hour: 0.096,
        interruption_probability: 0.25,
        resources: Some(Resources { resources: map(&[("cpu", "2"), ("memory", "8Gi")]) }),
        labels: map(&[("k", "v")]),
        last_error: if state == Failed { "boot timed out".to_owned() } else { String::new() },
        allocatable: Some(Resources { resources: map(&[("cpu", "1900m")]) }),
        cluster: if bound { "c1".to_owned() } else { String::new() },
        shard_metadata: if bound { map(&[(metadata::PRIORITY, "9")]) } else { map(&[]) },
    }
}

fn edited(state: MachineState, edit: impl FnOnce(&mut Machine)) -> Record {
    let mut wire = machine(state);
    edit(&mut wire);
    record(&wire)
}

#[test]
fn good_records_go_both_ways_in_every_state() {
    for state in STATES {
        let wire = machine(state);
        let passed = record(&wire);
        assert_eq!(passed.violations, [], "{state:?}");
        assert_eq!(passed.id, Some(MachineId::trusted("m-1")));
        let domain = passed.machine.unwrap();
        assert_eq!(i32::from(domain.state.number()), i32::from(state));
        assert_eq!(domain.price.nano(), 96_000_000);
        assert_eq!(domain.capacity().to_string(), "cpu 1900m");
        assert_eq!(Machine::from(&*domain), wire, "{state:?}");
    }
}

#[test]
fn every_rule_refuses_the_record_with_its_reason_and_field() {
    type Edit = fn(&mut Machine);
    let table: Vec<(MachineState, Edit, Reason, &str)> = vec![
        (
            MachineState::Idle,
            |m| m.price_per_hour = f64::NAN,
            Reason::Price,
            "price_per_hour: NaN is not a price",
        ),
        (
            MachineState::Idle,
            |m| m.price_per_hour = f64::INFINITY,
            Reason::Price,
            "price_per_hour: inf is not a price",
        ),
        (
            MachineState::Idle,
            |m| m.price_per_hour = f64::NEG_INFINITY,
            Reason::Price,
            "price_per_hour: -inf is not a price",
        ),
        (
            MachineState::Idle,
            |m| m.price_per_hour = -0.01,
            Reason::Price,
            "price_per_hour: -0.01 is not a price",
        ),
        (
            MachineState::Idle,
            |m| m.interruption_probability = f64::NAN,
            Reason::InterruptionProbability,
            "interruption_probability: NaN is not a probability",
        ),
        (
            MachineState::Idle,
            |m| m.interruption_probability = 1.5,
            Reason::InterruptionProbability,
            "interruption_probability: 1.5 is not a probability",
        ),
        (
            MachineState::Idle,
            |m| m.interruption_probability = -0.5,
            Reason::InterruptionProbability,
            "interruption_probability: -0.5 is not a probability",
        ),
        (MachineState::Idle, |m| m.state = 0, Reason::Structural, "state: must be specified"),
        (MachineState::Idle, |m| m.state = 9, Reason::Structural, "state: 9 is not a known number"),
        // 259 is 3, Idle, in its lowest byte.
        (MachineState::Idle, |m| m.state = 259, Reason::Structural, "state: 259 is not a known number"),
        (
            MachineState::Idle,
            |m| m.capacity_type = 5,
            Reason::Structural,
            "capacity_type: 5 is not a known number",
        ),
        (
            MachineState::Idle,
            |m| m.resources = Some(Resources { resources: map(&[("cpu", "two")]) }),
            Reason::Structural,
            "resources.resources[\"cpu\"]: \"two\" is not a number",
        ),
        (
            MachineState::Idle,
            |m| m.allocatable = Some(Resources { resources: map(&[("memory", "-1Gi")]) }),
            Reason::Structural,
            "allocatable.resources[\"memory\"]: \"-1Gi\" is negative",
        ),
        (
            MachineState::Idle,
            |m| m.labels = (0..65).map(|i| (i.to_string(), String::new())).collect(),
            Reason::Structural,
            "labels: has 65 elements, at most 64 are allowed",
        ),
        (
            MachineState::Configured,
            |m| m.shard_metadata = map(&[("k", &"v".repeat(16 << 10))]),
            Reason::Structural,
            "shard_metadata: has 16385 bytes, at most 16384 are allowed",
        ),
        (
            MachineState::Configured,
            |m| m.host = None,
            Reason::Structural,
            "host: is missing, although the machine has a cluster",
        ),
        (
            MachineState::Configuring,
            |m| m.host = Some(HostRef::default()),
            Reason::Structural,
            "host: is missing, although the machine has a cluster",
        ),
        (
            MachineState::Failed,
            |m| {
                m.cluster = "c1".to_owned();
                m.host = None;
            },
            Reason::Structural,
            "host: is missing, although the machine has a cluster",
        ),
        (
            MachineState::Configured,
            |m| m.cluster.clear(),
            Reason::Structural,
            "cluster: is missing, although the state says that it has one",
        ),
        (
            MachineState::Draining,
            |m| m.cluster.clear(),
            Reason::Structural,
            "cluster: is missing, although the state says that it has one",
        ),
        (
            MachineState::Configured,
            |m| m.cluster = "c 1".to_owned(),
            Reason::Structural,
            "cluster: must be printable ASCII without blanks",
        ),
    ];
    for (state, edit, reason, message) in table {
        let refused = edited(state, edit);
        let error = refused.machine.unwrap_err();
        assert_eq!(error.reason, reason, "{error}");
        assert!(error.to_string().starts_with(message), "{error:?} is not {message:?}");
        // A refused record was still seen, and nothing of it counts as repaired.
        assert_eq!((refused.id, refused.violations), (Some(MachineId::trusted("m-1")), vec![]));
    }
    for (id, message) in [
        ("", "id: must not be empty"),
        ("m\n1", "id: must be printable"),
        (&"m".repeat(254), "id: has 254 bytes"),
    ] {
        let refused = edited(MachineState::Idle, |m| id.clone_into(&mut m.id));
        let error = refused.machine.unwrap_err();
        assert_eq!((refused.id, error.reason), (None, Reason::Structural));
        assert!(error.to_string().starts_with(message), "{error}");
    }
    assert_eq!(
        [Reason::Price, Reason::InterruptionProbability, Reason::Structural].map(Reason::label),
        ["price", "interruption_probability", "structural"]
    );
}

#[test]
fn bounds_are_inclusive() {
    type Edit = fn(&mut Machine);
    let edits: [Edit; 8] = [
        |m| m.price_per_hour = -0.0,
        |m| m.price_per_hour = f64::MAX,
        |m| m.price_per_hour = f64::MIN_POSITIVE,
        |m| m.interruption_probability = -0.0,
        |m| m.interruption_probability = 1.0,
        |m| m.labels = (0..64).map(|i| (i.to_string(), String::new())).collect(),
        |m| m.capacity_type = 0,
        |m| (m.resources, m.allocatable, m.host) = (None, None, None),
    ];
    for (i, edit) in edits.into_iter().enumerate() {
        let passed = edited(MachineState::Idle, edit);
        assert!(passed.machine.is_ok(), "edit {i}: {passed:?}");
    }
    let full =
        edited(MachineState::Configured, |m| m.shard_metadata = map(&[("k", &"v".repeat((16 << 10) - 1))]));
    assert!(full.machine.is_ok());
}

#[test]
fn supply_rounds_down() {
    let passed = edited(MachineState::Idle, |m| {
        m.allocatable = Some(Resources { resources: map(&[("cpu", "1.9999"), ("memory", "1500m")]) });
    });
    assert_eq!(passed.machine.unwrap().allocatable.to_string(), "cpu 1999m, memory 1");
}

#[test]
fn unbound_machines_lose_cluster_and_metadata() {
    for state in
        [MachineState::Speculative, MachineState::Creating, MachineState::Idle, MachineState::Deleting]
    {
        // Without a host, too: there is no cluster left that would need one.
        for host in [true, false] {
            let passed = edited(state, |m| {
                m.cluster = "old".to_owned();
                m.shard_metadata = map(&[(metadata::PRIORITY, "9")]);
                if !host {
                    m.host = None;
                }
            });
            assert_eq!(
                passed.violations,
                [Violation::UnboundCluster, Violation::UnboundMetadata],
                "{state:?}"
            );
            let machine = passed.machine.unwrap();
            assert_eq!((&machine.cluster, &machine.attribution), (&None, &Attribution::default()));
        }
        let passed = edited(state, |m| m.cluster = "old".to_owned());
        assert_eq!(passed.violations, [Violation::UnboundCluster]);
    }
}

#[test]
fn other_repairs_are_counted() {
    let failed = edited(MachineState::Failed, |m| m.last_error.clear());
    assert_eq!(failed.violations, [Violation::FailedWithoutError]);
    assert_eq!(&*failed.machine.unwrap().last_error, "the provider reports FAILED without an error");

    let configuring = edited(MachineState::Configuring, |m| m.cluster.clear());
    assert_eq!(configuring.violations, [Violation::ConfiguringWithoutCluster]);
    let machine = configuring.machine.unwrap();
    assert_eq!((&machine.cluster, machine.attribution.priority), (&None, Some(9)));

    let long = edited(MachineState::Failed, |m| m.last_error = "\u{e4}".repeat(3_000));
    assert_eq!(long.violations, [Violation::LongError]);
    let text = &long.machine.unwrap().last_error;
    assert!(text.len() <= MAX_LAST_ERROR_BYTES && text.ends_with("\u{e4} [cut]"), "{}", text.len());

    let stamped = edited(MachineState::Configured, |m| {
        m.shard_metadata = map(&[
            (metadata::PRIORITY, "high"),
            (metadata::INTERRUPTION, "NaN"),
            (metadata::RECLAMATION, "+Inf"),
        ]);
    });
    assert_eq!(stamped.violations, [Violation::MalformedMetadata, Violation::MalformedMetadata]);
    let attribution = &stamped.machine.unwrap().attribution;
    assert_eq!(
        *attribution,
        Attribution { reclamation: Some(StampedPenalty::Infinite), ..Attribution::default() }
    );
}

#[test]
fn failed_machines_may_keep_their_cluster() {
    let bound = edited(MachineState::Failed, |m| {
        m.cluster = "c1".to_owned();
        m.shard_metadata = map(&[(metadata::PRIORITY, "9")]);
    });
    let machine = bound.machine.unwrap();
    assert_eq!((machine.cluster.as_ref().unwrap().as_str(), machine.attribution.priority), ("c1", Some(9)));
    let free = edited(MachineState::Failed, |m| m.shard_metadata = map(&[(metadata::PRIORITY, "9")]));
    assert!(free.machine.unwrap().attribution.is_empty());
}

#[test]
fn a_bad_record_costs_only_itself_and_the_last_duplicate_counts() {
    let with = |id: &str, price: f64| Machine {
        id: id.to_owned(),
        price_per_hour: price,
        ..machine(MachineState::Idle)
    };
    let message = MachineList {
        machines: vec![
            with("a", 1.0),
            with("b", f64::NAN),
            with("", 1.0),
            with("a", 2.0),
            with("", 3.0),
            with("c", 1.0),
        ],
        revision: Bytes::from_static(b"7"),
        removed_ids: vec!["gone".to_owned(), String::new()],
    };
    let listing = list(&message);
    let seen: Vec<Option<&str>> =
        listing.records.changed.iter().map(|record| record.id.as_ref().map(MachineId::as_str)).collect();
    assert_eq!(seen, [Some("b"), None, Some("a"), None, Some("c")]);
    let error = listing.records.changed[0].machine.as_ref().unwrap_err();
    assert!(error.to_string().starts_with("machines[1].price_per_hour: NaN"), "{error}");
    let error = listing.records.changed[3].machine.as_ref().unwrap_err();
    assert_eq!(error.to_string(), "machines[4].id: must not be empty");
    assert!((listing.records.changed[2].machine.as_ref().unwrap().price.dollars() - 2.0).abs() < 1e-9);
    assert_eq!(listing.removed, [MachineId::trusted("gone")]);
    assert_eq!(listing.records.violations, [Violation::DuplicateId, Violation::BadRemovedId]);
    assert_eq!(listing.revision.as_deref(), Some(b"7".as_slice()));

    let long = MachineList { revision: Bytes::from(vec![0; 4097]), ..MachineList::default() };
    assert_eq!((list(&long).revision, list(&long).records.violations), (None, vec![Violation::LongRevision]));
    assert_eq!(list(&MachineList::default()).revision, None);
}

#[test]
fn acknowledgements_need_a_machine() {
    let ack =
        TransitionAck { operation_id: "op-1".to_owned(), machine: Some(machine(MachineState::Creating)) };
    let passed = acknowledged(&ack);
    assert_eq!(passed.operation_id, "op-1");
    assert!(passed.record.machine.is_ok());

    let without = acknowledged(&TransitionAck { machine: None, ..ack.clone() }).record;
    let error = without.machine.unwrap_err();
    assert_eq!((without.id, error.reason, error.error.field.as_str()), (None, Reason::Structural, "machine"));

    let mut bad = ack;
    bad.machine.as_mut().unwrap().state = 0;
    let error = acknowledged(&bad).record.machine.unwrap_err();
    assert_eq!(error.to_string(), "machine.state: must be specified");
}

#[test]
fn golden_machines_pass_or_are_refused() {
    let read = |name: &str| fixture(&format!("wire/{name}.bin"));
    for state in
        ["speculative", "creating", "idle", "configuring", "configured", "draining", "deleting", "failed"]
    {
        let wire = Machine::decode(read(&format!("machine_{state}")).as_slice()).unwrap();
        let passed = record(&wire);
        let domain = passed.machine.unwrap_or_else(|error| panic!("{state}: {error}"));
        assert_eq!(domain.state.name().to_lowercase(), state);
        assert_eq!(passed.violations, [], "{state}");
    }
    // 0, -0.0, 0.1, a denormal, the largest double, inf, -inf, nan, -1: the first four are fine as price and probability.
    let edges = MachineList::decode(read("machine_float_edges").as_slice()).unwrap();
    let reasons: Vec<Option<Reason>> = list(&edges)
        .records
        .changed
        .into_iter()
        .map(|record| record.machine.err().map(|error| error.reason))
        .collect();
    assert_eq!(reasons.len(), edges.machines.len());
    // Whoever wrote the vector set no state, which alone refuses each record.
    assert!(reasons.iter().all(|reason| *reason == Some(Reason::Structural)), "{reasons:?}");
    let with_state = |mut machine: Machine| {
        machine.state = MachineState::Idle.into();
        record(&machine).machine.err().map(|error| error.reason)
    };
    let reasons: Vec<Option<Reason>> = edges.machines.into_iter().map(with_state).collect();
    assert_eq!(reasons[..4], [None, None, None, None]);
    assert_eq!(reasons[4], Some(Reason::InterruptionProbability));
    assert_eq!(reasons[5..], [Some(Reason::Price); 4]);

    for provider in ["aws", "azure", "gcp", "hetzner", "libvirt", "proxmox"] {
        let message = MachineList::decode(read(&format!("real_{provider}_List")).as_slice()).unwrap();
        let listing = list(&message);
        assert_eq!(listing.records.changed.len(), message.machines.len());
        for passed in &listing.records.changed {
            assert!(passed.machine.is_ok() && passed.violations.is_empty(), "{provider}: {passed:?}");
        }
    }
}
