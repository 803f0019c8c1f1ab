//! The template language: what renders to what, what is refused and where, and that nothing panics or hangs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bigfleet_operator::template::{LoadError, OUTPUT_BYTES, Position, RenderError, Template, Value};
use proptest::prelude::*;

fn data() -> Value {
    let requirement = |key: &str, values: &[&str]| {
        let values = values.iter().map(|v| Value::text(v)).collect();
        Value::Record(
            [("Key", Value::text(key)), ("Operator", Value::text("In")), ("Values", Value::List(values))]
                .into(),
        )
    };
    let labels = BTreeMap::from([("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())]);
    Value::Record(
        [
            ("ClusterID", Value::text("prod-eu-1")),
            (
                "Requirements",
                Value::List([requirement("zone", &["a", "b"]), requirement("arch", &["arm"])].into()),
            ),
            ("NodeLabels", Value::Map(Arc::new(labels))),
            ("None", Value::List([].into())),
            ("Empty", Value::text("")),
            ("Odd", Value::text("say \"hi\"\n")),
            ("Token", Value::Absent(".Token has no value")),
        ]
        .into(),
    )
}

fn render(source: &str) -> Result<String, String> {
    let template = Template::parse(source).map_err(|e| format!("parse {e}"))?;
    template.render(&data()).map_err(|e| e.to_string())
}

#[test]
fn templates_render_as_go_renders_them() {
    for (source, want) in [
        ("", ""),
        ("plain { text } }}", "plain { text } }}"),
        ("cluster: {{ .ClusterID }}", "cluster: prod-eu-1"),
        ("{{.ClusterID}}{{$.ClusterID}}", "prod-eu-1prod-eu-1"),
        (
            "{{ range .Requirements }}{{ .Key }} {{ .Operator }} {{ .Values }};{{ end }}",
            "zone In [a b];arch In [arm];",
        ),
        ("{{ range $i, $v := .Requirements }}{{ $i }}={{ $v.Key }},{{ end }}", "0=zone,1=arch,"),
        (
            "{{ range $v := .Requirements }}{{ $v.Key }}{{ $.ClusterID }} {{ end }}",
            "zoneprod-eu-1 archprod-eu-1 ",
        ),
        ("{{ range $k, $v := .NodeLabels }}{{ $k }}={{ $v }},{{ end }}", "a=1,b=2,"),
        ("{{ range .NodeLabels }}{{ . }}{{ end }}", "12"),
        ("{{ range .None }}x{{ else }}none{{ end }}", "none"),
        ("a  {{- \" b \" -}}  c", "a b c"),
        ("a\n\n{{- if true }}\nb{{ end -}}\n\nc", "a\nbc"),
        ("{{ if .Empty }}x{{ else if .ClusterID }}y{{ else }}z{{ end }}", "y"),
        ("{{ if .Empty }}x{{ else if .None }}y{{ else }}z{{ end }}", "z"),
        ("{{ with .ClusterID }}{{ . }}{{ else }}x{{ end }}", "prod-eu-1"),
        ("{{ with .Empty }}x{{ else }}{{ .ClusterID }}{{ end }}", "prod-eu-1"),
        ("{{ with $x := .ClusterID }}{{ $x }}{{ end }}", "prod-eu-1"),
        ("{{ $x := \"v\" }}{{ if true }}{{ $x := 7 }}{{ $x }}{{ end }}{{ $x }}", "7v"),
        ("{{/* a comment */}}a{{- /* trimmed */ -}} b", "ab"),
        ("{{ if .Token }}t{{ else }}no token{{ end }}", "no token"),
        ("{{ if and .ClusterID (not .Token) }}x{{ end }}", "x"),
        ("{{ or .Empty .None \"last\" }} {{ or .Empty \"b\" .ClusterID }}", "last b"),
        ("{{ and .ClusterID \"b\" }} {{ and .ClusterID 0 \"b\" }}", "b 0"),
        (
            "{{ eq 1 1 }} {{ eq .ClusterID \"a\" \"prod-eu-1\" }} {{ ne 1 2 }} {{ lt 1 2 }} {{ gt \"a\" \"b\" }}",
            "true true true true false",
        ),
        ("{{ not .Empty }} {{ not 3 }}", "true false"),
        ("{{ len .ClusterID }} {{ .Requirements | len }} {{ len .NodeLabels }}", "9 2 2"),
        ("{{ index .Requirements 1 | printf \"%v\" }}", "{arch In [arm]}"),
        ("{{ (index .Requirements 0).Key }} {{ index (index .Requirements 0).Values 1 }}", "zone b"),
        ("{{ index .NodeLabels \"a\" }}[{{ index .NodeLabels \"none\" }}]{{ .NodeLabels.b }}", "1[]2"),
        ("{{ .NodeLabels }}", "map[a:1 b:2]"),
        ("{{ printf \"%s-%d-%q-%v-%t-%x%%\" \"a\" 7 \"b\" true false 255 }}", "a-7-\"b\"-true-false-ff%"),
        ("{{ printf \"%5d|%-5s|%05d|%x\" 42 \"ab\" -42 \"az\" }}", "   42|ab   |-0042|617a"),
        ("{{ printf \"%q\" (index .Requirements 0).Values }}", "[\"a\" \"b\"]"),
        ("{{ .Odd | quote }} {{ quote 1 \"b\" }}", "\"say \\\"hi\\\"\\n\" \"1\" \"b\""),
        ("{{ join \",\" (index .Requirements 0).Values }} {{ .None | join \"-\" }}", "a,b "),
        ("{{ .ClusterID | b64enc }}", "cHJvZC1ldS0x"),
        ("{{ toJson (index .Requirements 0) }}", r#"{"Key":"zone","Operator":"In","Values":["a","b"]}"#),
        ("{{ toJson .NodeLabels }}", r#"{"a":"1","b":"2"}"#),
        ("{{ `raw \\n` }} {{ \"\\t\\\"\" }}", "raw \\n \t\""),
        ("{{ -3 }}{{- 4 }}", "-34"),
    ] {
        assert_eq!(render(source), Ok(want.to_owned()), "{source}");
    }
}

#[test]
fn mistakes_are_found_when_parsing_with_their_position() {
    for (source, line, column, problem) in [
        ("{{ .Unclosed ", 1, 1, "not closed"),
        ("a\nb {{ .X", 2, 3, "not closed"),
        ("\u{e4}{{ nope }}", 1, 5, "unknown function \"nope\""),
        ("{{ if .A }}x", 1, 1, "if has no end"),
        ("{{ end }}", 1, 8, "end without"),
        ("x{{ else }}", 1, 5, "else without"),
        ("{{ if .A }}{{ else }}{{ else }}{{ end }}", 1, 25, "second else"),
        ("{{ $x }}", 1, 4, "unknown variable $x"),
        ("{{ range $v := .A }}{{ end }}{{ $v }}", 1, 33, "unknown variable $v"),
        ("{{ range $a, $b, $c := .A }}{{ end }}", 1, 18, "at most 2 variables"),
        ("{{ }}", 1, 4, "lacks a value"),
        ("{{ if }}{{ end }}", 1, 7, "if lacks a value"),
        ("{{ .A .B }}", 1, 7, "only a function"),
        ("{{ .A | .B }}", 1, 9, "piped into a function"),
        ("{{ eq 1 }}", 1, 4, "at least 2"),
        ("{{ not 1 2 }}", 1, 4, "at most 1"),
        ("{{ not eq 1 2 }}", 1, 8, "parentheses"),
        ("{{ (eq 1 2 }}", 1, 4, "parenthesis is not closed"),
        ("{{ \"a }}", 1, 4, "not closed"),
        ("{{ `a }}", 1, 4, "not closed"),
        ("{{ \"\\q\" }}", 1, 4, "unknown escape"),
        ("{{ 1.5 }}", 1, 4, "fractions"),
        ("{{ 12x }}", 1, 4, "not a whole number"),
        ("{{ 99999999999999999999 }}", 1, 4, "not a whole number"),
        ("{{ % }}", 1, 4, "unexpected '%'"),
        ("{{ {{ }}", 1, 4, "inside an action"),
        ("{{ define \"x\" }}", 1, 1, "not supported"),
        ("{{ template \"x\" }}", 1, 1, "not supported"),
        ("{{/* open", 1, 1, "comment is not closed"),
        ("{{/* c */ .A }}", 1, 1, "must fill its action"),
        ("{{ \"a\"\"b\" }}", 1, 7, "a blank is missing"),
        ("{{ $ := 1 }}", 1, 4, "$ cannot be declared"),
        ("{{ $a = 1 }}", 1, 7, "unexpected '='"),
        ("{{ if true }}{{ end 1 }}{{ end }}", 1, 21, "takes nothing more"),
    ] {
        let error = Template::parse(source).expect_err(source);
        assert!(error.problem.contains(problem), "{source}: {error}");
        assert_eq!(error.at, Position { line, column }, "{source}: {error}");
        let shown = error.to_string();
        assert!(shown.starts_with(&format!("line {line}, column {column}: ")), "{shown}");
    }
}

#[test]
fn ex49_an_action_that_is_not_closed_is_found_at_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bootstrap.tmpl");
    std::fs::write(&path, "cluster: {{ .Unclosed ").expect("a file");
    let error = Template::load(&path).expect_err("it does not parse").to_string();
    assert!(error.contains("bootstrap.tmpl") && error.contains("line 1"), "{error}");
}

#[test]
fn what_has_no_value_fails_when_rendering() {
    for (source, problem) in [
        ("{{ .Nope }}", "column 4: unknown field .Nope; known are .ClusterID .Requirements"),
        ("\n{{ range .Requirements }}{{ .Foo }}{{ end }}", "line 2, column 29: unknown field .Foo"),
        ("{{ .ClusterID.X }}", "a text has no field .X"),
        ("{{ .NodeLabels.none }}", "no key \"none\""),
        ("{{ .Token }}", ".Token has no value"),
        ("{{ printf \"%s\" .Token }}", ".Token has no value"),
        ("{{ range .Token }}{{ end }}", ".Token has no value"),
        ("{{ toJson . }}", ".Token has no value"),
        ("{{ . }}", ".Token has no value"),
        ("{{ range .ClusterID }}{{ end }}", "range cannot loop over a text"),
        ("{{ range 5 }}{{ end }}", "range cannot loop over a number"),
        ("{{ eq 1 \"1\" }}", "a number and a text cannot be compared"),
        ("{{ lt true false }}", "cannot be compared"),
        ("{{ index .Requirements 2 }}", "index 2 is outside the list of 2"),
        ("{{ index .Requirements -1 }}", "index -1 is outside"),
        ("{{ index .Requirements \"a\" }}", "a list cannot be indexed with a text"),
        ("{{ len 3 }}", "a number has no length"),
        ("{{ join \",\" \"a\" }}", "join takes a list"),
        ("{{ b64enc 1 }}", "b64enc takes a text"),
        ("{{ printf 1 }}", "format text first"),
        ("{{ printf \"%d\" \"a\" }}", "%d does not take a text"),
        ("{{ printf \"%d\" }}", "%d has no argument"),
        ("{{ printf \"a\" 1 }}", "has no verb"),
        ("{{ printf \"%z\" 1 }}", "unknown verb %z"),
        ("{{ printf \"%\" }}", "ends with %"),
        ("{{ printf \"%9999d\" 1 }}", "width 9999 is above"),
    ] {
        let shown = render(source).expect_err(source);
        assert!(shown.contains(problem) && !shown.starts_with("parse"), "{source}: {shown}");
    }
}

#[test]
fn work_and_output_are_bounded() {
    let items: Vec<Value> = (0..1000).map(Value::Int).collect();
    let list = Value::List(items.into());
    let deep = "{{ range $ }}{{ range $ }}{{ range $ }}{{ end }}{{ end }}{{ end }}";
    let began = Instant::now();
    assert!(matches!(Template::parse(deep).unwrap().render(&list), Err(RenderError::TooLong { .. })));
    let wide = "{{ range $ }}{{ range $ }}xxxxxxxxxxxxxxxx{{ end }}{{ end }}";
    assert!(matches!(Template::parse(wide).unwrap().render(&list), Err(RenderError::TooLarge { .. })));
    let doubling = format!("{{{{ $x := \"x\" }}}}{}", "{{ $x := printf \"%s%s\" $x $x }}".repeat(60));
    let error = Template::parse(&doubling).unwrap().render(&list).unwrap_err();
    assert!(
        error.to_string().contains("too large") || matches!(error, RenderError::TooLarge { .. }),
        "{error}"
    );
    // A generous bound: all three together take well under a second, a hang would take for ever.
    assert!(began.elapsed() < Duration::from_secs(60));

    let fits = "x".repeat(OUTPUT_BYTES);
    assert_eq!(Template::parse(&fits).unwrap().render(&list).unwrap().len(), OUTPUT_BYTES);
    assert!(Template::parse(&(fits + "x")).unwrap().render(&list).is_err());

    let nested = format!("{}{}", "{{ if true }}".repeat(10_000), "{{ end }}".repeat(10_000));
    assert!(Template::parse(&nested).unwrap_err().problem.contains("nested deeper"));
    let parens = format!("{{{{ {}1{} }}}}", "(".repeat(10_000), ")".repeat(10_000));
    assert!(Template::parse(&parens).unwrap_err().problem.contains("nested deeper"));
    let chain = format!("{{{{ if false }}}}{}{{{{ end }}}}", "{{ else if false }}".repeat(10_000));
    assert!(Template::parse(&chain).unwrap_err().problem.contains("nested deeper"));
}

#[test]
fn files_are_loaded_with_errors_that_name_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bootstrap.tmpl");
    let shown = |path: &std::path::Path| Template::load(path).unwrap_err().to_string();

    assert!(matches!(Template::load(&path), Err(LoadError::Read { .. })));
    assert!(shown(&path).contains("bootstrap.tmpl"));
    std::fs::write(&path, "a\n{{ .Unclosed ").unwrap();
    assert!(shown(&path).contains("bootstrap.tmpl is wrong: line 2, column 1: "), "{}", shown(&path));
    std::fs::write(&path, [b'a', 0xff]).unwrap();
    assert!(shown(&path).contains("not UTF-8 (byte 1)"), "{}", shown(&path));
    std::fs::write(&path, vec![b'a'; 1024 * 1024 + 1]).unwrap();
    assert!(shown(&path).contains("at most 1048576"), "{}", shown(&path));
    std::fs::write(&path, "{{ .ClusterID }}").unwrap();
    assert_eq!(Template::load(&path).unwrap().render(&data()).unwrap(), "prod-eu-1");
}

/// Sources that are often nearly right: pieces of the language in any order.
fn sources() -> impl Strategy<Value = String> {
    let pieces = prop::sample::select(vec![
        "{{",
        "}}",
        "{{-",
        "-}}",
        " ",
        ".",
        ".ClusterID",
        ".Requirements",
        ".Values",
        ".Token",
        "$",
        "$x",
        ":=",
        ",",
        "|",
        "(",
        ")",
        "if ",
        "else",
        "end",
        "range ",
        "with ",
        "eq ",
        "and ",
        "or ",
        "not ",
        "len ",
        "index ",
        "printf ",
        "quote ",
        "join ",
        "b64enc ",
        "toJson ",
        "\"a\"",
        "\"%s%d\"",
        "`",
        "\"",
        "1",
        "-1",
        "true",
        "/*",
        "*/",
        "\n",
        "x",
        "\u{e4}",
        "{{ end }}",
        "{{ range .Requirements }}",
        "{{ if .ClusterID }}",
        "{{ .Key }}",
    ]);
    prop_oneof![
        prop::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat()),
        "\\PC{0,80}",
        "[{}.$a-z \"`|()-]{0,80}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_source_panics_or_hangs(source in sources()) {
        if let Ok(text) = render(&source) {
            prop_assert!(text.len() <= OUTPUT_BYTES);
        }
    }

    #[test]
    fn text_without_actions_renders_as_itself(text in "[^{]{0,200}") {
        prop_assert_eq!(render(&text), Ok(text));
    }
}
