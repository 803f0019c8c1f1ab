//! The epoch file and the lock of the data directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use bigfleet_shard::epoch::{Epoch, Error};
use bigfleet_types::UnixNanos;

const NOW: UnixNanos = UnixNanos(1_700_000_000_123_999_999);
const NOW_MILLIS: i64 = 1_700_000_000_123;

/// Set for the child process of `drill23_second_process_fails_on_the_lock`.
const CHILD: &str = "BIGFLEET_TEST_EPOCH_DIR";

fn file(dir: &tempfile::TempDir) -> std::path::PathBuf {
    dir.path().join("epoch")
}

#[test]
fn epochs_follow_the_clock_and_never_fall() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(Epoch::take(dir.path(), NOW).unwrap().value(), NOW_MILLIS);
    assert_eq!(fs::read_to_string(file(&dir)).unwrap().trim(), NOW_MILLIS.to_string());
    assert_eq!(fs::metadata(file(&dir)).unwrap().permissions().mode() & 0o777, 0o600);
    // A clock that stands still or went back.
    assert_eq!(Epoch::take(dir.path(), NOW).unwrap().value(), NOW_MILLIS + 1);
    assert_eq!(Epoch::take(dir.path(), UnixNanos(5)).unwrap().value(), NOW_MILLIS + 2);
    assert!(!dir.path().join("epoch.new").exists(), "the temporary file stayed");
}

#[test]
fn blanks_around_the_number_are_ignored_and_a_replaced_file_gets_its_mode() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(file(&dir), format!(" \t{}\r\n\n", NOW_MILLIS * 2)).unwrap();
    assert_eq!(Epoch::take(dir.path(), NOW).unwrap().value(), NOW_MILLIS * 2 + 1);
    assert_eq!(fs::metadata(file(&dir)).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Control, tried: garbage counts as a missing file: the shard starts over existing data.
#[test]
fn drill21_garbage_in_the_epoch_file_refuses_and_stays() {
    let long = "9".repeat(5000);
    for (held, shown, problem) in [
        ("", "\"\"", "empty"),
        ("  \n", "\"  \\n\"", "empty"),
        ("seven", "\"seven\"", "not a decimal number"),
        ("7 8", "\"7 8\"", "not a decimal number"),
        ("1.5", "\"1.5\"", "not a decimal number"),
        ("+7", "\"+7\"", "not a decimal number"),
        ("-", "\"-\"", "not a decimal number"),
        ("-3", "\"-3\"", "negative"),
        ("9223372036854775808", "\"9223372036854775808\"", "above the largest epoch"),
        ("9223372036854775807", "9223372036854775807", "the last possible epoch"),
        (long.as_str(), "and more", "above the largest epoch"),
        ("\u{0}\u{1}\u{fffd}", "\\x00\\x01", "not a decimal number"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(file(&dir), held).unwrap();
        let error = Epoch::take(dir.path(), NOW).unwrap_err();
        assert!(matches!(error, Error::Garbage { .. }), "{held:?}: {error:?}");
        let message = error.to_string();
        let path = file(&dir).display().to_string();
        for part in [path.as_str(), shown, problem, "does not start", "restore the file"] {
            assert!(message.contains(part), "{held:?}: {part:?} is missing in {message:?}");
        }
        assert!(message.len() < 600, "{}", message.len());
        assert_eq!(fs::read_to_string(file(&dir)).unwrap(), held, "the file was touched");
    }
}

#[test]
fn drill21_a_volume_that_cannot_be_written_refuses_and_keeps_the_old_epoch() {
    // Read-only for everybody, root included: the name that the new epoch needs is taken by a directory.
    let dir = tempfile::tempdir().unwrap();
    fs::write(file(&dir), "41").unwrap();
    fs::create_dir(dir.path().join("epoch.new")).unwrap();
    let error = Epoch::take(dir.path(), NOW).unwrap_err();
    assert!(matches!(error, Error::Unwritable { .. }), "{error:?}");
    assert!(error.to_string().contains("writable --data-dir"), "{error}");
    assert_eq!(fs::read_to_string(file(&dir)).unwrap(), "41");

    // The directory itself cannot be made, because a file is in its place.
    let blocked = dir.path().join("file");
    fs::write(&blocked, "").unwrap();
    let error = Epoch::take(&blocked.join("data"), NOW).unwrap_err();
    assert!(matches!(error, Error::Unwritable { .. }), "{error:?}");
}

#[test]
fn drill21_an_epoch_file_that_cannot_be_read_refuses() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(file(&dir)).unwrap();
    let error = Epoch::take(dir.path(), NOW).unwrap_err();
    assert!(matches!(error, Error::Unreadable { .. }), "{error:?}");
    assert!(error.to_string().contains(&file(&dir).display().to_string()), "{error}");
}

#[test]
fn drill22_a_lost_data_dir_gives_an_epoch_above_every_earlier_one() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("lost/data");
    let before = Epoch::take(&data, NOW).unwrap().value();
    fs::remove_dir_all(dir.path().join("lost")).unwrap();
    let later = NOW.after(std::time::Duration::from_millis(1));
    assert_eq!(Epoch::take(&data, later).unwrap().value(), before + 1);
    assert_eq!(fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o755);
}

/// Control, tried: take no lock: the second start succeeds.
#[test]
fn drill23_a_second_start_in_one_process_fails_on_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let first = Epoch::take(dir.path(), NOW).unwrap();
    let error = Epoch::take(dir.path(), NOW).unwrap_err();
    assert!(matches!(error, Error::Locked { .. }), "{error:?}");
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    assert_eq!(first.check().unwrap().map(|e| e.to_string()), None, "the loser wrote");
    drop(first);
    Epoch::take(dir.path(), NOW).unwrap();
}

/// The child's side of `drill23_second_process_fails_on_the_lock`; by itself it does nothing.
#[test]
fn child_of_drill23() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let error = Epoch::take(dir.as_ref(), NOW).unwrap_err();
        println!("child: {error}");
        assert!(matches!(error, Error::Locked { .. }), "{error:?}");
    }
}

/// Control, tried: take no lock: the child starts.
#[test]
fn drill23_second_process_fails_on_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let _first = Epoch::take(dir.path(), NOW).unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "shell_epoch::child_of_drill23", "--nocapture"])
        .env(CHILD, dir.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("child: another process uses the data directory"), "{said}");
}

#[test]
fn a_higher_epoch_in_the_file_means_a_successor() {
    let dir = tempfile::tempdir().unwrap();
    let epoch = Epoch::take(dir.path(), NOW).unwrap();
    assert!(epoch.check().unwrap().is_none());
    fs::write(file(&dir), (NOW_MILLIS + 7).to_string()).unwrap();
    let superseded = epoch.check().unwrap_err();
    assert_eq!((superseded.found, superseded.ours), (NOW_MILLIS + 7, NOW_MILLIS));
    // What cannot be read proves nothing.
    fs::write(file(&dir), "?").unwrap();
    assert!(matches!(epoch.check().unwrap(), Some(Error::Garbage { .. })));
    fs::remove_file(file(&dir)).unwrap();
    assert!(matches!(epoch.check().unwrap(), Some(Error::Unreadable { .. })));
}
