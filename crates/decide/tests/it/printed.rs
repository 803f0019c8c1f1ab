//! The bytes of an answer where the examples do not show them.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_decide::{Input, Report};
use bigfleet_engine::{Action, ActionKind, Decisions, MatchingSupply, UnmetReason, Verdict};
use bigfleet_types::{ClusterId, Fingerprint, Group, MachineId, NeedKey, Resources, Rounding};

use crate::oracle::need;

fn key(cluster: &str, fingerprint: u8, group: &str) -> NeedKey {
    NeedKey {
        cluster: ClusterId::trusted(cluster),
        fingerprint: Fingerprint([fingerprint; 16]),
        group: Group::new(group),
    }
}

fn action(kind: ActionKind, machine: &str) -> Action {
    Action {
        kind,
        machine: MachineId::trusted(machine),
        cluster: None,
        need: None,
        need_key: None,
        grace: Duration::ZERO,
        preemptor_priority: 0,
    }
}

fn vector(pairs: &[(&str, &str)]) -> Resources {
    Resources::parse(pairs.iter().copied(), Rounding::Up).unwrap()
}

#[test]
fn nothing_prints_empty_lists() {
    let printed = Report::new(&Input::default(), Decisions::default(), vec![]).to_json().unwrap();
    let expected = "{\n  \"format\": \"bigfleet.decision/v1\",\n  \"actions\": [],\n  \"deferred\": [],\n  \"needs\": [],\n  \"shortfalls\": [],\n  \"claimedMachineIds\": []\n}\n";
    assert_eq!(printed, expected);
}

#[test]
fn only_quotes_backslashes_and_control_characters_are_escaped() {
    let id = "\"\\/\u{8}\u{c}\n\r\t\u{0}\u{1f}\u{7f}<>&'\u{e4}\u{2028}\u{1f600}";
    let claimed = vec![MachineId::trusted(id)];
    let printed = Report::new(&Input::default(), Decisions::default(), claimed).to_json().unwrap();
    let expected = "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u001f\u{7f}<>&'\u{e4}\u{2028}\u{1f600}\"";
    assert!(printed.contains(expected), "{printed}");
}

#[test]
fn lists_are_sorted_by_bytes_and_numbered_as_emitted() {
    let kinds = [
        ActionKind::Reclaim,
        ActionKind::Provision,
        ActionKind::Preempt,
        ActionKind::Delete,
        ActionKind::Bootstrap,
    ];
    let mut actions: Vec<Action> = kinds.iter().map(|kind| action(*kind, "gpu-2")).collect();
    actions.extend(["gpu-10", "\u{e4}", "z"].map(|id| action(ActionKind::Delete, id)));
    let decisions = Decisions { actions: actions.into(), ..Decisions::default() };
    let report = Report::new(&Input::default(), decisions, vec![]);

    let order: Vec<(u64, &str, &str)> =
        report.actions.iter().map(|a| (a.seq, a.kind.name(), a.machine.as_str())).collect();
    let expected = [
        (4, "Bootstrap", "gpu-2"),
        (5, "Delete", "gpu-10"),
        (3, "Delete", "gpu-2"),
        (7, "Delete", "z"),
        (6, "Delete", "\u{e4}"),
        (2, "Preempt", "gpu-2"),
        (1, "Provision", "gpu-2"),
        (0, "Reclaim", "gpu-2"),
    ];
    assert_eq!(order, expected);
}

#[test]
fn an_unmet_need_and_its_quantities() {
    let verdict = Verdict {
        need: need(&key("c", 0xab, "g\n"), i32::MIN),
        key: key("c", 0xab, "g\n"),
        arrival: Default::default(),
        gangs: Default::default(),
        satisfied: false,
        residual: vector(&[
            ("memory", "1.5Gi"),
            ("cpu", "2500m"),
            ("example.com/foo", "2000"),
            ("pods", "0"),
            ("storage", "1500"),
        ]),
        claimed: 3,
        bootstraps: 2,
        provisions: 1,
        same: None,
        reason: UnmetReason::PriorityStarved,
        supply: Some(MatchingSupply { idle: 1, configured: 256, speculative: 3, capped: true }),
        preemption: None,
    };
    let decisions = Decisions { verdicts: vec![Arc::new(verdict)].into(), ..Decisions::default() };
    let printed = Report::new(&Input::default(), decisions, vec![]).to_json().unwrap();
    let expected = r#"  "needs": [
    {
      "cluster": "c",
      "fingerprint": "abababababababababababababababab",
      "group": "g\n",
      "priority": -2147483648,
      "satisfied": false,
      "residual": {
        "cpu": "2500m",
        "example.com/foo": "2k",
        "memory": "1536Mi",
        "storage": "1500"
      },
      "claimed": 3,
      "bootstraps": 2,
      "provisions": 1,
      "unmetReason": "PRIORITY_STARVED",
      "matchingSupply": {
        "idle": 1,
        "configured": 256,
        "speculative": 3,
        "capped": true
      }
    }
  ],
"#;
    assert!(printed.contains(expected), "{printed}");
}
