//! Machine states: every pair of states, for commands, rollbacks and observations.

use bigfleet_types::MachineState::{
    self, Configured, Configuring, Creating, Deleting, Draining, Failed, Idle, Speculative,
};
use bigfleet_types::{Observed, Rollback};

const COMMANDED: [(MachineState, MachineState); 13] = [
    (Speculative, Creating),
    (Creating, Idle),
    (Creating, Failed),
    (Idle, Configuring),
    (Idle, Deleting),
    (Configuring, Configured),
    (Configuring, Failed),
    (Configuring, Idle),
    (Configured, Draining),
    (Draining, Idle),
    (Draining, Failed),
    (Deleting, Speculative),
    (Deleting, Failed),
];

#[test]
fn commands_take_thirteen_edges_and_no_other() {
    let legal: std::collections::BTreeSet<_> = COMMANDED.into_iter().collect();
    assert_eq!(legal.len(), 13);
    for from in MachineState::ALL {
        for to in MachineState::ALL {
            assert_eq!(from.command(to).is_ok(), legal.contains(&(from, to)), "{from} -> {to}");
        }
    }
    let error = Configured.command(Configuring).unwrap_err();
    assert_eq!(error.to_string(), "a machine cannot go from Configured to Configuring");
}

#[test]
fn rollbacks_lead_back_to_where_a_transition_began() {
    for (from, to) in [
        (Creating, Some(Speculative)),
        (Configuring, Some(Idle)),
        (Draining, Some(Configured)),
        (Deleting, Some(Idle)),
        (Speculative, None),
        (Idle, None),
        (Configured, None),
        (Failed, None),
    ] {
        assert_eq!(from.roll_back(Rollback).ok(), to, "{from}");
    }
}

#[test]
fn observations_are_classified_for_every_pair() {
    for from in MachineState::ALL {
        for to in MachineState::ALL {
            let expected = match (from, to) {
                _ if from == to => Observed::Unchanged,
                (Creating | Draining, Idle) | (Configuring, Configured) | (Deleting, Speculative) => {
                    Observed::Expected
                }
                (Creating | Configuring | Draining | Deleting, Failed) => Observed::Expected,
                (Creating, Speculative) | (Configuring | Deleting, Idle) | (Draining, Configured) => {
                    Observed::Regression
                }
                _ => Observed::Unexpected,
            };
            assert_eq!(from.observe(to), expected, "{from} -> {to}");
        }
    }
}

#[test]
fn numbers_are_those_of_the_wire() {
    for (number, state) in (1..).zip(MachineState::ALL) {
        assert_eq!(MachineState::from_number(number), Some(state));
        assert_eq!(i32::from(state.number()), number);
    }
    for number in [0, 9, -1, i32::MAX] {
        assert_eq!(MachineState::from_number(number), None, "{number}");
    }
}
