//! Pieces of schema that the derive cannot make: quantities, closed sets of words, bounded maps and the standard
//! types in a form that stays structural.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::json;

/// What a quantity that is not negative looks like as text.
pub(super) const QUANTITY: &str = r"^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Most resources of one object.
const RESOURCES: u32 = 64;
/// Most characters of a label key: a DNS prefix, a slash and a name.
const LABEL_KEY: u32 = 317;
/// Most characters of a label value.
const LABEL_VALUE: u32 = 63;

/// An integer or a quantity string, not negative.
pub(super) fn quantity(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": QUANTITY,
        "minimum": 0,
        "maxLength": 64,
    })
}

/// Quantities by resource name.
pub(super) fn resources(generator: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": RESOURCES,
        "additionalProperties": quantity(generator),
    })
}

/// Labels by key.
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 128,
        "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE },
    })
}

/// Label values of a requirement.
pub(super) fn values(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 256,
        "x-kubernetes-list-type": "atomic",
        "items": { "type": "string", "maxLength": LABEL_VALUE },
    })
}

fn words(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}

/// How a requirement compares. `Same` is for the wire only; `Gt` and `Lt` have no form there.
pub(super) fn operator(_: &mut SchemaGenerator) -> Schema {
    words(&["In", "NotIn", "Exists", "DoesNotExist"])
}

/// What a spread that cannot be met means for the scheduler.
pub(super) fn when_unsatisfiable(_: &mut SchemaGenerator) -> Schema {
    words(&["DoNotSchedule", "ScheduleAnyway"])
}

/// The phases of a CapacityRequest.
pub(super) fn request_phase(_: &mut SchemaGenerator) -> Schema {
    words(&["Pending", "Acknowledged"])
}

/// The phases of an UpcomingNode.
pub(super) fn node_phase(_: &mut SchemaGenerator) -> Schema {
    words(&["Provisioning", "Launched", "Registered", "Ready", "Draining", "Drained", "Failed"])
}

/// How near capacity is.
pub(super) fn availability(_: &mut SchemaGenerator) -> Schema {
    words(&["None", "Low", "Medium", "High"])
}

/// A point in time, RFC 3339.
pub(super) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// The standard label selector.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "matchLabels": {
                "type": "object",
                "maxProperties": 128,
                "description": "Exact labels.",
                "additionalProperties": { "type": "string", "maxLength": LABEL_VALUE },
            },
            "matchExpressions": {
                "type": "array",
                "maxItems": 128,
                "x-kubernetes-list-type": "atomic",
                "description": "Further conditions; all must hold.",
                "items": {
                    "type": "object",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {
                            "type": "string",
                            "minLength": 1,
                            "maxLength": LABEL_KEY,
                            "description": "The label's key.",
                        },
                        "operator": {
                            "type": "string",
                            "maxLength": LABEL_VALUE,
                            "description": "In, NotIn, Exists or DoesNotExist.",
                        },
                        "values": {
                            "type": "array",
                            "maxItems": 256,
                            "x-kubernetes-list-type": "atomic",
                            "description": "For In and NotIn: the values.",
                            "items": { "type": "string", "maxLength": LABEL_VALUE },
                        },
                    },
                },
            },
        },
    })
}

/// A list of taints.
pub(super) fn taints(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 64,
        "x-kubernetes-list-type": "atomic",
        "items": {
            "type": "object",
            "required": ["effect", "key"],
            "properties": {
                "key": { "type": "string", "minLength": 1, "maxLength": LABEL_KEY, "description": "The taint's key." },
                "value": { "type": "string", "maxLength": LABEL_VALUE, "description": "The taint's value." },
                "effect": {
                    "type": "string",
                    "enum": ["NoSchedule", "PreferNoSchedule", "NoExecute"],
                    "description": "What happens to pods that do not tolerate it.",
                },
                "timeAdded": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When it was added.",
                },
            },
        },
    })
}

/// A reference to an object.
pub(super) fn object_reference(_: &mut SchemaGenerator) -> Schema {
    let text = json!({ "type": "string" });
    json_schema!({
        "type": "object",
        "x-kubernetes-map-type": "atomic",
        "properties": {
            "apiVersion": text,
            "fieldPath": text,
            "kind": text,
            "name": text,
            "namespace": text,
            "resourceVersion": text,
            "uid": text,
        },
    })
}
