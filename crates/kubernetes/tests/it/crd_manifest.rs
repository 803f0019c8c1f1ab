//! The committed definitions, and what is in them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bigfleet_kubernetes::crd::manifest::{self, Definition};
use serde_json::{Value, json};

fn committed(definition: &Definition) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds").join(definition.file_name())
}

fn by_kind() -> BTreeMap<String, Value> {
    let all = manifest::all().unwrap();
    all.into_iter()
        .map(|definition| {
            (definition.object["spec"]["names"]["kind"].as_str().unwrap().to_owned(), definition.object)
        })
        .collect()
}

fn schema<'a>(crd: &'a Value, path: &str) -> &'a Value {
    let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let found = path.split('.').fold(root, |at, step| match step {
        "[]" => &at["items"],
        "{}" => &at["additionalProperties"],
        name => &at["properties"][name],
    });
    assert!(!found.is_null(), "{path} is not in the schema");
    found
}

/// After a change of the types: `bigfleet crds print --dir crates/kubernetes/crds`.
#[test]
fn the_committed_definitions_are_current() {
    for definition in manifest::all().unwrap() {
        let path = committed(&definition);
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert_eq!(definition.yaml().unwrap(), text, "{} has drifted", path.display());
        let parsed: Value = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(parsed, definition.object, "{}: YAML changed the meaning", path.display());
    }
}

#[test]
fn names_scopes_and_columns() {
    let crds = by_kind();
    let columns = |kind: &str| -> Vec<(String, String, i64)> {
        crds[kind]["spec"]["versions"][0]["additionalPrinterColumns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| {
                let text = |key: &str| one[key].as_str().unwrap().to_owned();
                assert_eq!(one["jsonPath"].as_str().unwrap().chars().next(), Some('.'));
                (text("name"), text("type"), one["priority"].as_i64().unwrap_or(0))
            })
            .collect()
    };
    let expect = |all: &[(&str, &str, i64)]| -> Vec<(String, String, i64)> {
        all.iter().map(|(name, kind, wide)| ((*name).to_owned(), (*kind).to_owned(), *wide)).collect()
    };
    for (kind, plural, scope, short, selectable, shown) in [
        (
            "CapacityRequest",
            "capacityrequests",
            "Namespaced",
            json!(["cr", "crs"]),
            json!([{ "jsonPath": ".status.phase" }]),
            expect(&[
                ("Phase", "string", 0),
                ("Priority", "integer", 0),
                ("Age", "date", 0),
                ("Domain", "string", 1),
            ]),
        ),
        (
            "UpcomingNode",
            "upcomingnodes",
            "Cluster",
            json!(["upn"]),
            json!([{ "jsonPath": ".status.phase" }]),
            expect(&[
                ("Phase", "string", 0),
                ("Node", "string", 0),
                ("Age", "date", 0),
                ("Machine", "string", 1),
                ("Type", "string", 1),
            ]),
        ),
        (
            "AvailableCapacity",
            "availablecapacities",
            "Cluster",
            json!(["avc"]),
            Value::Null,
            expect(&[
                ("Availability", "string", 0),
                ("Available", "integer", 0),
                ("Cost", "string", 0),
                ("Age", "date", 1),
            ]),
        ),
    ] {
        let crd = &crds[kind];
        let spec = &crd["spec"];
        let version = &spec["versions"][0];
        assert_eq!(crd["metadata"]["name"], json!(format!("{plural}.bigfleet.lucy.sh")));
        assert_eq!(spec["group"], json!("bigfleet.lucy.sh"));
        assert_eq!(spec["scope"], json!(scope));
        assert_eq!(
            spec["names"],
            json!({
                "categories": ["fleet"],
                "kind": kind,
                "listKind": format!("{kind}List"),
                "plural": plural,
                "shortNames": short,
                "singular": kind.to_lowercase(),
            })
        );
        assert_eq!(spec["versions"].as_array().unwrap().len(), 1);
        assert_eq!(
            (&version["name"], &version["served"], &version["storage"]),
            (&json!("v1alpha1"), &json!(true), &json!(true))
        );
        assert_eq!(version["subresources"], json!({ "status": {} }), "{kind}");
        assert_eq!(
            version
                .get("selectableFields")
                .filter(|one| one.as_array().is_none_or(|all| !all.is_empty()))
                .cloned()
                .unwrap_or_default(),
            selectable,
            "{kind}"
        );
        assert_eq!(columns(kind), shown, "{kind}");
    }
}

#[test]
fn required_fields_enums_and_bounds() {
    let crds = by_kind();
    let request = &crds["CapacityRequest"];
    let upcoming = &crds["UpcomingNode"];
    let available = &crds["AvailableCapacity"];
    for (crd, path, required) in [
        (request, "spec", json!(["resources"])),
        (request, "spec.requirements.[]", json!(["key", "operator"])),
        (request, "spec.topologySpread.[]", json!(["maxSkew", "topologyKey", "whenUnsatisfiable"])),
        (request, "spec.coLocation", json!(["topologyKey"])),
        (request, "status", json!(["phase"])),
        (upcoming, "spec", json!(["resources"])),
        (upcoming, "spec.taints.[]", json!(["effect", "key"])),
        (upcoming, "status", json!(["phase"])),
        (available, "spec", json!(["availability", "availableCount", "cost", "resources"])),
    ] {
        let mut found: Vec<&str> = schema(crd, path)["required"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one.as_str().unwrap())
            .collect();
        found.sort_unstable();
        assert_eq!(json!(found), required, "{path}");
    }
    for (crd, path, words) in [
        (request, "spec.requirements.[].operator", json!(["In", "NotIn", "Exists", "DoesNotExist"])),
        (request, "spec.topologySpread.[].whenUnsatisfiable", json!(["DoNotSchedule", "ScheduleAnyway"])),
        (request, "status.phase", json!(["Pending", "Acknowledged"])),
        (
            upcoming,
            "status.phase",
            json!(["Provisioning", "Launched", "Registered", "Ready", "Draining", "Drained", "Failed"]),
        ),
        (upcoming, "spec.taints.[].effect", json!(["NoSchedule", "PreferNoSchedule", "NoExecute"])),
        (available, "spec.availability", json!(["None", "Low", "Medium", "High"])),
        (available, "spec.requirements.[].operator", json!(["In", "NotIn", "Exists", "DoesNotExist"])),
    ] {
        assert_eq!(schema(crd, path)["enum"], words, "{path}");
    }
    for (crd, path, key, value) in [
        (request, "spec.requirements", "maxItems", json!(128)),
        (request, "spec.requirements", "x-kubernetes-list-type", json!("atomic")),
        (request, "spec.requirements.[].key", "maxLength", json!(317)),
        (request, "spec.requirements.[].values", "maxItems", json!(256)),
        (request, "spec.requirements.[].values.[]", "maxLength", json!(63)),
        (request, "spec.resources", "maxProperties", json!(64)),
        (request, "spec.resources.{}", "x-kubernetes-int-or-string", json!(true)),
        (request, "spec.resources.{}", "minimum", json!(0)),
        (request, "spec.resources.{}", "maxLength", json!(64)),
        (request, "spec.interruptionPenalty", "minimum", json!(0)),
        (request, "spec.reclamationPenalty", "x-kubernetes-int-or-string", json!(true)),
        (request, "spec.priority", "default", json!(0)),
        (request, "spec.priority", "format", json!("int32")),
        (request, "spec.topologySpread", "maxItems", json!(32)),
        (request, "spec.topologySpread.[].maxSkew", "minimum", json!(1)),
        (request, "spec.coLocation.labelSelector", "x-kubernetes-map-type", json!("atomic")),
        (request, "status", "default", json!({ "phase": "Pending" })),
        (request, "status.acknowledgedAt", "format", json!("date-time")),
        (upcoming, "spec.labels", "maxProperties", json!(128)),
        (upcoming, "spec.machineID", "maxLength", json!(1024)),
        (upcoming, "spec.taints", "maxItems", json!(64)),
        (upcoming, "status.lastError", "maxLength", json!(1024)),
        (upcoming, "status.nodeRef", "x-kubernetes-map-type", json!("atomic")),
        (available, "spec.availableCount", "minimum", json!(0)),
        (available, "spec.cost", "minimum", json!(0)),
    ] {
        assert_eq!(schema(crd, path)[key], value, "{path} {key}");
    }
    let rules = &schema(request, "spec.requirements.[]")["x-kubernetes-validations"];
    assert_eq!(rules.as_array().map(Vec::len), Some(1), "{rules}");
    assert_eq!(schema(available, "spec.requirements.[]")["x-kubernetes-validations"], *rules);
}

/// Every schema has a type or is an int-or-string, says what it is for, and has nothing that the API server frowns on.
#[test]
fn schemas_are_structural_and_described() {
    fn walk(path: &str, schema: &Value) {
        let object = schema.as_object().unwrap();
        let typed = object.get("type").is_some_and(Value::is_string);
        let quantity = object.get("x-kubernetes-int-or-string") == Some(&json!(true));
        assert!(typed != quantity, "{path}: neither a type nor a quantity, or both");
        for unwanted in ["nullable", "title", "anyOf", "oneOf", "allOf", "$ref", "definitions", "$schema"] {
            assert!(!object.contains_key(unwanted), "{path}: {unwanted}");
        }
        let format = object.get("format").and_then(Value::as_str);
        assert!(!format.is_some_and(|format| format.starts_with('u')), "{path}: {format:?}");
        for (name, below) in object.get("properties").and_then(Value::as_object).into_iter().flatten() {
            walk(&format!("{path}.{name}"), below);
        }
        for below in ["items", "additionalProperties"] {
            if let Some(schema) = object.get(below) {
                walk(&format!("{path}.{below}"), schema);
            }
        }
    }
    for (kind, crd) in by_kind() {
        let root = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        walk(&kind, root);
        for part in ["spec", "status"] {
            for (name, field) in root["properties"][part]["properties"].as_object().into_iter().flatten() {
                assert!(field["description"].is_string(), "{kind} {part}.{name} says nothing of itself");
            }
        }
    }
}
