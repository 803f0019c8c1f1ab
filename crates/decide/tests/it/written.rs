//! Inputs that are written and read again.

use std::path::Path;
use std::time::Duration;

use bigfleet_decide::{Beside, Input, ReclaimCap, decide};
use bigfleet_engine::Eligibility;
use bigfleet_types::{MachineState, NanoDollars};
use proptest::prelude::*;

use crate::fuzzed::bytes::{Bytes, CLUSTERS, machine, need};

fn write(input: &Input) -> (String, Beside) {
    let mut text = Vec::new();
    let beside = input.write(&mut text).unwrap();
    (String::from_utf8(text).unwrap(), beside)
}

#[test]
fn files_say_the_same_when_they_are_written_again() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for name in ["fold.json", "preemption.json"] {
        let read = crate::read(&std::fs::read_to_string(fixtures.join(name)).unwrap());
        let (text, beside) = write(&read);
        assert!(beside.is_empty(), "{beside:?}");
        assert_eq!(crate::read(&text), read, "{name}: {text}");
    }
}

/// The policy has all that it can have, and the smallest cap.
#[test]
fn a_policy_is_written_whole() {
    let mut input = Input::default();
    for seconds in [0, 1, 77] {
        let hold = Duration::from_secs(seconds);
        let policy = &mut input.policy;
        (policy.on_demand_idle_hold, policy.reclaim_after, policy.victims.drain_estimate) =
            (hold, hold * 2, hold * 3);
        policy.victims.drain_weight = 123_456_789;
        for fraction in [0.0, 0.000_000_2, 0.000_001, 0.05, 1.0] {
            input.reclaim_cap = ReclaimCap::of_fraction(fraction);
            let (text, beside) = write(&input);
            assert!(beside.is_empty(), "{beside:?}");
            assert_eq!(crate::read(&text), input, "{text}");
        }
    }
}

#[test]
fn what_a_file_cannot_say_is_listed_beside_it() {
    let (mut bytes, demand) = (Bytes(&[]), [(bigfleet_types::ClusterId::trusted("a"), Vec::new())]);
    let mut input = Input::default();
    input.policy.reclaim_after = Duration::from_millis(1500);
    input.policy.victims.priority_weight = u64::MAX;
    let (mut held, facts) = machine(&mut bytes, 0, &demand);
    held.state = MachineState::Idle;
    let partly = Eligibility { acquirable: false, ..Eligibility::ALL };
    input.fleet.push((held, bigfleet_engine::Facts { eligibility: partly, ..facts.clone() }));
    let (mut homeless, _) = machine(&mut bytes, 1, &demand);
    (homeless.state, homeless.cluster, homeless.price) =
        (MachineState::Draining, None, NanoDollars::from_nano((1 << 60) + 1));
    input.fleet.push((homeless, bigfleet_engine::Facts::default()));
    let (text, beside) = write(&input);
    assert_eq!(crate::read(&text).fleet.len(), 1, "{text}");
    let listed = beside.to_json().unwrap();
    for part in [
        "reclaimAfterSeconds is 1.5s",
        "victimWeights.priority",
        "\"acquirable\": false",
        "left out",
        "its price is",
    ] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    assert_eq!((beside.machines.len(), beside.other.len()), (2, 2), "{listed}");
}

/// The same without what the format has no words for.
fn sayable(mut input: Input) -> Input {
    for (machine, facts) in &mut input.fleet {
        if facts.eligibility != Eligibility::WITHHELD || machine.state == MachineState::Configured {
            facts.eligibility = Eligibility::ALL;
        }
        machine.price = machine.price.min(NanoDollars::from_nano(1 << 50));
    }
    input
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever there is, the file can be read; and what it says is decided alike, to the byte.
    #[test]
    fn random_inputs(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let mut bytes = Bytes(&bytes);
        let mut input = Input { now: bigfleet_types::UnixNanos(bytes.pick(&[0, 1, i64::MAX])), ..Input::default() };
        for name in CLUSTERS {
            let cluster = bigfleet_types::ClusterId::trusted(name);
            let rows = (0..bytes.byte() % 5).map(|_| need(&mut bytes)).collect();
            input.demand.push((cluster.clone(), rows));
            if !bytes.one_in(4) {
                input.ready.insert(cluster);
            }
        }
        for number in 0..bytes.byte() % 25 {
            let entry = machine(&mut bytes, number, &input.demand);
            input.fleet.push(entry);
        }
        crate::read(&write(&input).0);
        let input = sayable(input);
        let (text, beside) = write(&input);
        let read = crate::read(&text);
        prop_assert!(beside.is_empty(), "{:?}", beside);
        prop_assert_eq!(&read.demand, &input.demand);
        prop_assert_eq!(decide(&read).to_json().unwrap(), decide(&input).to_json().unwrap());
    }
}
