//! Whatever decodes goes through the gate without a panic, and what passes keeps the promises of the domain types.

use std::collections::BTreeMap;

use bigfleet_proto::gate::machine::{Violation, acknowledged, record};
use bigfleet_proto::gate::rollup::{Heading, Ingest};
use bigfleet_proto::gate::shardread::Inspect;
use bigfleet_proto::gate::{MAX_AMOUNT, rollup, session};
use bigfleet_proto::v1alpha1::{
    BootstrapBlobResponse, CapacityNeed, ClusterCapacityNeeds, Hello, HostRef, InspectNeedsRequest, Machine,
    NodeSelectorRequirement, Resources, TopologySpread, TransitionAck,
};
use bigfleet_types::{ClusterId, MachineState, Need};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use prost::Message as _;

use super::rollup_of;
use crate::golden::fixture;

/// Numbers around the ones that enums have.
fn number() -> impl Strategy<Value = i32> {
    prop_oneof![4 => 0..10i32, 1 => 20..30i32, 1 => any::<i32>()]
}

/// Texts that are sometimes ids, quantities or keys.
pub(super) fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("c1".to_owned()),
        "[a-z]{1,3}",
        "[-+]?[0-9]{0,22}(\\.[0-9]{0,12})?(m|k|Mi|Ei|E|e[-+]?[0-9]{1,10})?",
        "bigfleet.lucy.sh/assigned-(priority|group|interruption-penalty-dollars)",
        any::<String>(),
    ]
}

fn texts(most: usize) -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..most)
}

prop_compose! {
    fn need()(
        requirements in vec((text(), number(), vec(text(), 0..3)), 0..4),
        aggregate_resources in texts(4),
        priority in any::<i32>(),
        spread in vec((text(), number(), number()), 0..3),
        penalties in (number(), number()),
        min_unit in texts(2),
        group in text(),
    ) -> CapacityNeed {
        CapacityNeed {
            requirements: requirements
                .into_iter()
                .map(|(key, operator, values)| NodeSelectorRequirement { key, operator, values })
                .collect(),
            aggregate_resources,
            priority,
            spread: spread
                .into_iter()
                .map(|(topology_key, max_skew, when_unsatisfiable)| TopologySpread {
                    topology_key,
                    max_skew,
                    when_unsatisfiable,
                })
                .collect(),
            interruption_penalty_bucket: penalties.0,
            reclamation_penalty_bucket: penalties.1,
            min_unit,
            group,
        }
    }
}

prop_compose! {
    pub(super) fn machine()(
        id in text(),
        numbers in (number(), number()),
        host in proptest::option::of((text(), text())),
        class in (text(), text()),
        price_per_hour in any::<f64>(),
        interruption_probability in prop_oneof![0.0..=1.0, any::<f64>()],
        vectors in (proptest::option::of(texts(3)), proptest::option::of(texts(3))),
        labels in texts(3),
        words in (text(), text()),
        shard_metadata in texts(4),
    ) -> Machine {
        let vector = |resources: Option<BTreeMap<String, String>>| resources.map(|resources| Resources { resources });
        Machine {
            id,
            state: numbers.0,
            host: host.map(|(provider, r#ref)| HostRef { provider, r#ref }),
            instance_type: class.0,
            zone: class.1,
            capacity_type: numbers.1,
            price_per_hour: price_per_hour.abs(),
            interruption_probability,
            resources: vector(vectors.0),
            labels,
            last_error: words.0,
            allocatable: vector(vectors.1),
            cluster: words.1,
            shard_metadata,
        }
    }
}

/// Sends a roll-up through; what passes is within bounds and passes again with the same meaning.
fn try_rollup(message: &ClusterCapacityNeeds) {
    let session = ClusterId::trusted(message.cluster_id.clone());
    let Ok(passed) = rollup::accept(&session, message) else { return };
    for need in &passed.needs {
        assert!(need.aggregate.covers(&need.min_unit));
        assert!(need.min_unit.iter().all(|(_, amount)| amount <= MAX_AMOUNT));
    }
    let summed = passed.needs.iter().any(|need| need.aggregate.iter().any(|(_, amount)| amount > MAX_AMOUNT));
    if !summed {
        let needs = passed.needs.iter().map(Into::into).collect();
        let again = rollup::accept(&session, &ClusterCapacityNeeds { needs, ..message.clone() }).unwrap();
        assert_eq!(again, passed);
    }
}

/// Bytes read where they lie say what the generated decoder and the gate say, and once more they say nothing new.
fn try_rollup_bytes(session: &str, bytes: &[u8]) {
    let session = ClusterId::trusted(session.to_owned());
    let slow = ClusterCapacityNeeds::decode(bytes)
        .map_err(|error| error.to_string())
        .and_then(|message| rollup::accept(&session, &message).map_err(|error| error.to_string()));
    let mut ingest = Ingest::default();
    let fast = ingest.accept(&session, bytes).map_err(|error| error.to_string());
    match (slow, fast) {
        (Ok(slow), Ok(fast)) => {
            assert!(fast.whole && fast.removed.is_empty());
            assert_eq!(fast.changed.iter().map(|need| Need::clone(need)).collect::<Vec<_>>(), slow.needs);
            assert_eq!(Heading::of(bytes).timestamp_unix_nanos, slow.timestamp_unix_nanos);
            let again = ingest.accept(&session, bytes).unwrap();
            assert_eq!((again.whole, again.changed.len(), again.removed.len()), (false, 0, 0));
        }
        (slow, fast) => assert_eq!(slow.err(), fast.err()),
    }
}

/// Sends a record through; what passes is consistent and passes again as it is.
fn try_machine(wire: &Machine) {
    let passed = record(wire);
    let Ok(machine) = passed.machine else {
        assert_eq!(passed.violations, []);
        return;
    };
    let homeless = passed.violations.contains(&Violation::ConfiguringWithoutCluster);
    if machine.state.is_bound() && !homeless {
        assert!(machine.cluster.is_some() && machine.host.is_some());
    }
    if !machine.state.is_bound() && machine.state != MachineState::Failed {
        assert!(machine.cluster.is_none() && machine.attribution.is_empty());
    }
    assert!(machine.state != MachineState::Failed || !machine.last_error.is_empty());
    if !homeless {
        let again = record(&Machine::from(&*machine));
        assert_eq!((again.machine.unwrap(), again.violations), (machine, vec![]));
    }
}

proptest! {
    #[test]
    fn rollups(needs in vec(need(), 0..4), cluster_id in text()) {
        let message = ClusterCapacityNeeds { cluster_id, timestamp_unix_nanos: 0, needs };
        try_rollup(&message);
        try_rollup_bytes(&message.cluster_id, &message.encode_to_vec());
    }

    #[test]
    fn machines(machine in machine()) {
        try_machine(&machine);
        let _ = acknowledged(&TransitionAck { operation_id: String::new(), machine: Some(machine) });
    }

    #[test]
    fn session_frames(words in (text(), text(), text()), number in any::<i64>(), limit in any::<i32>()) {
        let (cluster_id, protocol_version, error) = words;
        let response = BootstrapBlobResponse { error, ttl_seconds: number, ..BootstrapBlobResponse::default() };
        prop_assert!(session::blob(response).is_err());
        let asked = Inspect::try_from(&InspectNeedsRequest { cluster_id: cluster_id.clone(), limit });
        prop_assert!(asked.is_err() || limit >= 0);
        prop_assert_eq!(session::hello(&Hello { cluster_id: String::new(), protocol_version }).is_ok(), false);
    }

    /// Real messages with a few bytes changed reach corners that made-up ones do not.
    #[test]
    fn damaged_real_messages(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        if let Some(message) = rollup_of(&damaged("rollup_235_rows", &changes)) {
            try_rollup(&message);
        }
        for name in ["rollup_235_rows", "rollup_all_buckets_signed_priority"] {
            let whole = damaged(name, &[]);
            let message = rollup_of(&whole).or_else(|| ClusterCapacityNeeds::decode(whole.as_slice()).ok()).unwrap();
            let mut bytes = message.encode_to_vec();
            for (index, byte) in &changes {
                let at = index.index(bytes.len());
                bytes[at] = *byte;
            }
            try_rollup_bytes(&message.cluster_id, &bytes);
        }
        let bytes = damaged("rollup_all_buckets_signed_priority", &changes);
        if let Ok(message) = ClusterCapacityNeeds::decode(bytes.as_slice()) {
            try_rollup(&message);
        }
        for name in ["machine_configured", "machine_failed", "full_Machine"] {
            if let Ok(message) = Machine::decode(damaged(name, &changes).as_slice()) {
                try_machine(&message);
            }
        }
    }
}

pub(super) fn damaged(name: &str, changes: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    let mut bytes = fixture(&format!("wire/{name}.bin"));
    for (index, byte) in changes {
        let at = index.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes
}
