//! The audit log.

use std::fs;

use bigfleet_shard::audit::Audit;
use bigfleet_shard::io::AuditRecord;
use bigfleet_types::{ShardId, UnixNanos};
use prometheus_client::metrics::counter::Counter;
use serde_json::{Value, json};

fn record(cycle: u64) -> Box<AuditRecord> {
    Box::new(AuditRecord {
        cycle,
        decided_cycle: cycle - 1,
        kind: "Reclaim",
        machine: "m-1".into(),
        cluster: "c-1".into(),
        reason: "phase3.excess",
        grace_seconds: 600,
        outcome: "success",
        detail: String::new(),
        operation_id: "op-7".into(),
    })
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    fs::read_to_string(path).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn open(path: &std::path::Path, lost: &Counter) -> Audit {
    Audit::open(path, &ShardId::trusted("shard-0"), 42, lost.clone()).unwrap()
}

#[test]
fn a_line_is_one_object_with_every_field_and_files_are_appended_to() {
    let dir = tempfile::tempdir().unwrap();
    let (path, lost) = (dir.path().join("audit.jsonl"), Counter::default());
    let audit = open(&path, &lost);
    audit.record(UnixNanos(1_700_000_000_123_000_000), record(8));
    audit.close();
    let audit = open(&path, &lost);
    audit.record(UnixNanos(0), record(9));
    audit.close();
    let lines = lines(&path);
    assert_eq!(
        lines[0],
        json!({
            "time": "2023-11-14T22:13:20.123Z", "level": "INFO", "msg": "action", "cycle": 8, "decided_cycle": 7,
            "kind": "Reclaim", "machine": "m-1", "cluster": "c-1", "reason": "phase3.excess", "grace_seconds": 600,
            "outcome": "success", "detail": "", "operation_id": "op-7", "shard": "shard-0", "epoch": 42,
        })
    );
    assert_eq!((lines.len(), &lines[1]["cycle"], lost.get()), (2, &json!(9), 0));
}

#[test]
fn reopening_continues_in_a_new_file_after_the_old_one_was_moved() {
    let dir = tempfile::tempdir().unwrap();
    let (path, moved) = (dir.path().join("audit.jsonl"), dir.path().join("audit.1"));
    let lost = Counter::default();
    let audit = open(&path, &lost);
    audit.record(UnixNanos(0), record(1));
    fs::rename(&path, &moved).unwrap();
    assert!(audit.reopener().reopen());
    audit.record(UnixNanos(0), record(2));
    audit.close();
    assert_eq!((lines(&moved).len(), lines(&path).len(), lost.get()), (1, 1, 0));
    assert_eq!(lines(&path)[0]["cycle"], 2);
}

#[test]
fn a_log_that_cannot_be_opened_is_an_error_that_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("missing/audit.jsonl");
    let error = Audit::open(&path, &ShardId::trusted("s"), 1, Counter::default()).unwrap_err();
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
}

/// Drill 48, its audit half: every write to this device fails as on a full disk.
#[test]
fn drill48_records_that_a_full_disk_refuses_are_counted() {
    let lost = Counter::default();
    let audit = open("/dev/full".as_ref(), &lost);
    for cycle in 1..=3 {
        audit.record(UnixNanos(0), record(cycle));
    }
    audit.close();
    assert_eq!(lost.get(), 3);
}
