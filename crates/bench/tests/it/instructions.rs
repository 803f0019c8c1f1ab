//! Comparing instruction counts.

use bigfleet_bench::instructions::{NAMES, compare, parse, run};

fn counts(counts: &[(&str, u64)]) -> Vec<(String, u64)> {
    counts.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn growth_of_more_than_three_percent_fails() {
    let committed = counts(&[("a", 1000), ("b", 1000)]);
    let table = compare(&committed, &counts(&[("a", 1030), ("b", 500)])).unwrap();
    assert!(table.contains("+3.0 %") && table.contains("-50.0 %"), "{table}");
    let error = compare(&committed, &counts(&[("a", 1031), ("b", 1000)])).unwrap_err().to_string();
    assert!(error.contains("a grew from 1000 to 1031 instructions (+3.1 %)"), "{error}");
    let error = compare(&committed, &counts(&[("c", 1)])).unwrap_err().to_string();
    assert!(error.contains("c has no committed number"), "{error}");
}

#[test]
fn every_bench_has_a_committed_number() {
    let committed = parse(include_str!("../../instructions.txt")).unwrap();
    for name in NAMES {
        assert!(committed.iter().any(|(known, count)| known == name && *count > 0), "{name}");
    }
    assert!(parse("a").is_err() && parse("a b").is_err());
}

/// The benches do what they count.
#[test]
fn every_bench_runs() {
    for name in NAMES {
        run(name, true).unwrap();
        run(name, false).unwrap();
    }
    assert!(run("nothing", false).is_err());
}
