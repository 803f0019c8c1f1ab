//! The benchmark of providers, as small as it gets. No test looks at a time.

use std::path::PathBuf;

use bigfleet_bench::provider::{Numbers, Setting, Size, measured, names};

#[test]
fn every_workload_of_a_provider_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = PathBuf::from(env!("CARGO_BIN_EXE_bigfleet"));
    let setting = Setting { program, folder: folder.path().to_owned(), size: Size::Least };
    for name in names() {
        let report = measured(name, &setting).unwrap();
        let Numbers { machines, calls, p50_ms, p99_ms, .. } = report.numbers;
        assert!(machines > 0 && calls > 0 && p50_ms > 0.0 && p99_ms >= p50_ms, "{report:?}");
        let (bytes, first) = (report.numbers.bytes, report.numbers.first_byte_ms);
        match name {
            "provider-create" | "provider-mutations" => {
                assert!(report.numbers.fsync_ms.is_some(), "{report:?}")
            }
            "provider-start-500k" => assert_eq!(report.numbers.target_ms, Some(2000.0)),
            "provider-get" => {}
            // A record that says everything has some 400 bytes.
            _ => assert!(
                bytes.is_some_and(|bytes| (machines * 300..machines * 600).contains(&bytes))
                    && first.is_some_and(|first| first <= p50_ms),
                "{report:?}"
            ),
        }
        assert!(report.lines().unwrap().iter().any(|(name, _)| name == "peak_rss_bytes"));
    }
    // Nothing is left of the stores.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_be_measured_is_an_error() {
    let setting = Setting { program: "/nowhere".into(), folder: std::env::temp_dir(), size: Size::Least };
    let error = |name: &str| format!("{:#}", measured(name, &setting).unwrap_err());
    assert!(error("provider-sing").contains("known are provider-mutations, "), "{}", error("provider-sing"));
    assert!(error("provider-get").contains("cannot start /nowhere"), "{}", error("provider-get"));
}
