use prost::Message as _;

use super::{Change, Error, Schema, Subject, accept, check, compare};

/// A small protocol with one of everything.
const BASE: &str = r#"
    syntax = "proto3";
    package p;
    service S { rpc Do(A) returns (stream A); }
    enum E { E_ZERO = 0; E_ONE = 1; reserved 7; }
    message A {
        reserved 4, 9 to 10;
        string name = 1;
        repeated E many = 2;
        map<string, int32> counts = 3;
        oneof choice { bytes left = 5; A right = 6; }
        message Inner { bool yes = 1; }
    }
"#;

fn schema(source: &str) -> Schema {
    let file = protox_file(source);
    Schema::decode(&file).unwrap()
}

fn protox_file(source: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("p.proto"), source).unwrap();
    protox::compile([dir.path().join("p.proto")], [dir.path()]).unwrap().encode_to_vec()
}

/// The changes that `edit` makes to the base, as text.
fn changes(from: &str, to: &str) -> Vec<String> {
    assert_eq!(BASE.matches(from).count(), 1, "{from:?} must be in the base once");
    compare(&schema(BASE), &schema(&BASE.replace(from, to))).iter().map(ToString::to_string).collect()
}

#[test]
fn facts_say_everything_that_is_on_the_wire() {
    let expected = "\
service p.S = present
rpc p.S Do = (p.A) -> (stream p.A)
enum p.E = present
value p.E 0 = E_ZERO
value p.E 1 = E_ONE
message p.A = present
message p.A.Inner = present
field p.A 1 = name string singular json=name
field p.A 2 = many p.E repeated(packed) json=many
field p.A 3 = counts map<string,int32> map json=counts
field p.A 5 = left bytes singular json=left oneof=choice
field p.A 6 = right p.A singular json=right oneof=choice
field p.A.Inner 1 = yes bool singular json=yes
reserved p.A 4 = tombstone
reserved p.A 9 = tombstone
reserved p.A 10 = tombstone
reserved p.E 7 = tombstone
";
    let base = schema(BASE);
    assert_eq!(base.to_text(), expected);
    assert_eq!(Schema::parse(expected).unwrap(), base);
    assert_eq!(compare(&base, &base), []);
}

#[test]
fn additions_pass() {
    for (from, to) in [
        ("string name = 1;", "string name = 1; string more = 100;"),
        ("E_ONE = 1;", "E_ONE = 1; E_TWO = 2;"),
        ("message Inner", "message Other {} message Inner"),
        ("rpc Do", "rpc Undo(A) returns (A); rpc Do"),
        ("reserved 4, ", "reserved 4, 12, "),
        ("bytes left = 5;", "bytes left = 5; bytes middle = 100;"),
    ] {
        let old = schema(BASE);
        let found = compare(&old, &schema(&BASE.replace(from, to)));
        assert_eq!(found.len(), 1, "{to}: {found:?}");
        assert!(found.iter().all(|change| !change.breaks_peers()), "{to}: {found:?}");
    }
}

#[test]
fn every_kind_of_break_is_found() {
    let table: &[(&str, &str, &[&str])] = &[
        // Another type, label, name, oneof on the same number.
        (
            "string name = 1;",
            "bytes name = 1;",
            &["changed field p.A 1 from name string singular json=name to name bytes singular json=name"],
        ),
        (
            "string name = 1;",
            "repeated string name = 1;",
            &["changed field p.A 1 from name string singular json=name to name string repeated json=name"],
        ),
        (
            "string name = 1;",
            "optional string name = 1;",
            &["changed field p.A 1 from name string singular json=name to name string optional json=name"],
        ),
        (
            "string name = 1;",
            "string title = 1;",
            &["changed field p.A 1 from name string singular json=name to title string singular json=title"],
        ),
        (
            "map<string, int32>",
            "map<string, int64>",
            &[
                "changed field p.A 3 from counts map<string,int32> map json=counts to counts map<string,int64> map \
               json=counts",
            ],
        ),
        (
            "repeated E many = 2;",
            "repeated E many = 2 [packed = false];",
            &["changed field p.A 2 from many p.E repeated(packed) json=many to many p.E repeated json=many"],
        ),
        (
            "oneof choice {",
            "oneof selection {",
            &[
                "changed field p.A 5 from left bytes singular json=left oneof=choice to left bytes singular json=left \
                 oneof=selection",
                "changed field p.A 6 from right p.A singular json=right oneof=choice to right p.A singular json=right \
                 oneof=selection",
            ],
        ),
        // Gone.
        ("string name = 1;", "", &["removed field p.A 1 (was name string singular json=name)"]),
        (
            "message Inner { bool yes = 1; }",
            "",
            &[
                "removed message p.A.Inner (was present)",
                "removed field p.A.Inner 1 (was yes bool singular json=yes)",
            ],
        ),
        ("E_ONE = 1;", "", &["removed value p.E 1 (was E_ONE)"]),
        ("rpc Do(A) returns (stream A);", "", &["removed rpc p.S Do (was (p.A) -> (stream p.A))"]),
        // Moved to another number.
        (
            "string name = 1;",
            "string name = 11;",
            &[
                "removed field p.A 1 (was name string singular json=name)",
                "added field p.A 11 = name string singular json=name",
            ],
        ),
        // Tombstones.
        ("reserved 4, ", "reserved ", &["removed reserved p.A 4 (was tombstone)"]),
        ("reserved 7;", "", &["removed reserved p.E 7 (was tombstone)"]),
        (
            "reserved 4, 9 to 10;",
            "reserved 9 to 10; int32 count = 4;",
            &[
                "removed reserved p.A 4 (was tombstone)",
                "reused a reserved number: field p.A 4 = count int32 singular json=count",
            ],
        ),
        (
            "reserved 7;",
            "E_SEVEN = 7;",
            &["removed reserved p.E 7 (was tombstone)", "reused a reserved number: value p.E 7 = E_SEVEN"],
        ),
        // Enum values and calls that mean something else.
        ("E_ONE = 1;", "E_UNO = 1;", &["changed value p.E 1 from E_ONE to E_UNO"]),
        (
            "returns (stream A)",
            "returns (A)",
            &["changed rpc p.S Do from (p.A) -> (stream p.A) to (p.A) -> (p.A)"],
        ),
    ];
    for (from, to, expected) in table {
        assert_eq!(changes(from, to), *expected, "{from:?} -> {to:?}");
        let found = compare(&schema(BASE), &schema(&BASE.replace(from, to)));
        assert!(found.iter().any(Change::breaks_peers), "{from:?} -> {to:?}");
    }
}

#[test]
fn nothing_is_accepted_past_a_break() {
    let built = Schema::built().unwrap();
    let text = built.to_text();
    assert_eq!(check(&text).unwrap().additions, []);
    assert_eq!(accept(&text).unwrap(), text);

    // As if the build had dropped, retyped or reused something that is committed.
    let dropped = format!("{text}field bigfleet.v1alpha1.MachineRef 2 = more string singular json=more\n");
    let retyped = text.replace("MachineRef 1 = id string", "MachineRef 1 = id bytes");
    let reused = text.replace("field bigfleet.v1alpha1.MachineRef 1 = id string singular json=id\n", "")
        + "reserved bigfleet.v1alpha1.MachineRef 1 = tombstone\n";
    for committed in [dropped, retyped, reused] {
        assert_ne!(committed, text);
        for refused in [check(&committed).map(|_| ()), accept(&committed).map(|_| ())] {
            let Err(Error::Breaking(changes)) = refused else { panic!("{refused:?}") };
            assert!(!changes.is_empty() && changes.iter().all(Change::breaks_peers), "{changes:?}");
        }
    }

    // As if the build had something that is not committed yet.
    let older = built.clone().filtered(|subject| subject.owner() != "bigfleet.v1alpha1.PoolCount").to_text();
    let report = check(&older).unwrap();
    assert_eq!(report.additions.len(), 8, "{report}");
    assert_eq!(accept(&older).unwrap(), text);
    assert_eq!(accept("").unwrap(), text);
}

#[test]
fn damaged_input_is_refused_with_its_place() {
    for (text, line, problem) in [
        ("message p.A = present\nnonsense\n", 2, "has no `=`"),
        ("field p.A one = name string singular\n", 1, "names nothing that a schema has"),
        ("message p.A = present\nmessage p.A = present\n", 2, "repeats an earlier line"),
    ] {
        let error = Schema::parse(text).unwrap_err();
        assert!(matches!(error, Error::Text { line: l, problem: p } if l == line && p == problem), "{error}");
    }
    assert!(matches!(Schema::decode(&[0xff]), Err(Error::Descriptor(_))));
    let wide = protox_file("syntax = \"proto3\"; package p; message A { reserved 5 to max; }");
    assert!(matches!(Schema::decode(&wide), Err(Error::Incomplete(_))));
    assert_eq!(Subject::Field("p.A".to_owned(), 1).to_string(), "field p.A 1");
}
