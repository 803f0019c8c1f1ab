//! AvailableCapacities: what of a frame is written, and when a hint ends.

use bigfleet_operator::io::{AvailableCapacity, Input, Write};
use bigfleet_proto::v1alpha1::shard_message::Payload as Down;
use bigfleet_proto::v1alpha1::{AvailableCapacityUpdate, NodeSelectorRequirement, Resources};

use crate::core_kit::{Rig, strings};

fn hint(key: &str) -> AvailableCapacityUpdate {
    AvailableCapacityUpdate {
        supersedes_key: key.to_owned(),
        requirements: vec![
            NodeSelectorRequirement { key: "zone".to_owned(), operator: 1, values: vec!["a".to_owned()] },
            NodeSelectorRequirement { key: "rack".to_owned(), operator: 5, values: Vec::new() },
        ],
        resources: Some(Resources { resources: strings(&[("cpu", "8"), ("memory", "lots")]) }),
        available_count: -3,
        confidence: 4,
        cost_per_hour: 31.22,
    }
}

fn hints(rig: &mut Rig) -> Vec<Result<AvailableCapacity, String>> {
    rig.take_writes()
        .into_iter()
        .map(|write| match write {
            Write::PutAvailableCapacity(object) => Ok(*object),
            Write::DeleteAvailableCapacity { key } => Err(key),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn hints_are_copied_with_care() {
    let mut rig = Rig::running();
    rig.frame(Down::AvailableCapacity(hint("")));
    rig.frame(Down::AvailableCapacity(hint("k")));
    rig.frame(Down::AvailableCapacity(hint("k")));
    let object = AvailableCapacity {
        key: "k".to_owned(),
        requirements: vec![("zone".to_owned(), "In".to_owned(), vec!["a".to_owned()])],
        count: 0,
        confidence: "High",
        cost_per_hour: "31.22".to_owned(),
        resources: strings(&[("cpu", "8")]),
    };
    assert_eq!(hints(&mut rig), [Ok(object)]);
    assert_eq!(rig.core.counters().quantities_dropped, 2);
    for (dollars, text) in [
        (0.0, "0"),
        (f64::NAN, "0"),
        (-1.0, "0"),
        (f64::INFINITY, "0"),
        (2.5, "2.5"),
        (0.1234567, "0.123457"),
        (100.0, "100"),
    ] {
        rig.frame(Down::AvailableCapacity(AvailableCapacityUpdate {
            cost_per_hour: dollars,
            confidence: 99,
            ..hint(&format!("k-{dollars}"))
        }));
        let written = hints(&mut rig);
        assert!(
            matches!(&written[..], [Ok(o)] if o.cost_per_hour == text && o.confidence == "None"),
            "{written:?}"
        );
    }
}

#[test]
fn hints_end_when_nobody_refreshes_them() {
    let mut rig = Rig::running();
    rig.ack("resync");
    rig.frame(Down::AvailableCapacity(hint("a")));
    rig.frame(Down::AvailableCapacity(hint("b")));
    hints(&mut rig);
    rig.seconds(10 * 60);
    rig.frame(Down::AvailableCapacity(hint("a")));
    rig.input(Input::Disconnected);
    rig.seconds(3600);
    rig.connect();
    rig.ack("resync");
    rig.seconds(4 * 60);
    assert_eq!(hints(&mut rig), [], "only connected time counts");
    rig.seconds(2 * 60);
    assert_eq!(hints(&mut rig), [Err("b".to_owned())]);

    // A shard that does not refresh: what is not in its replay is over.
    let mut plain = Rig::running();
    plain.frame(Down::AvailableCapacity(hint("a")));
    plain.frame(Down::AvailableCapacity(hint("b")));
    plain.seconds(3600);
    hints(&mut plain);
    plain.input(Input::Disconnected);
    plain.connect();
    plain.frame(Down::AvailableCapacity(hint("a")));
    plain.seconds(115);
    assert_eq!(hints(&mut plain), []);
    plain.seconds(60);
    assert_eq!(hints(&mut plain), [Err("b".to_owned())]);
}

/// What is shown again every five minutes is there to stay.
#[test]
fn a_hint_that_is_sent_again_every_five_minutes_outlives_twenty() {
    for (refreshes, expected) in [(true, vec![]), (false, vec![Err("a".to_owned())])] {
        let mut rig = Rig::running();
        rig.ack("resync");
        rig.frame(Down::AvailableCapacity(hint("a")));
        assert_eq!(hints(&mut rig).len(), 1);
        for _ in 0..4 {
            rig.seconds(5 * 60);
            if refreshes {
                rig.frame(Down::AvailableCapacity(hint("a")));
            }
        }
        assert_eq!(hints(&mut rig), expected, "refreshed: {refreshes}");
    }
}
