//! The CustomResourceDefinitions as the cluster gets them: derived from the types, then tidied.
//!
//! The derive leaves things that the API server stores oddly or that make differences noisy. [`tidy`] removes them in
//! one pass; the committed files under `crds/` are its output.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use serde_json::{Map, Number, Value, json};

use super::{AvailableCapacity, CapacityRequest, UpcomingNode};

/// Why a definition cannot be made: a mistake in the types, not in any input.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It does not serialise.
    #[error("the definition of {name} does not serialise: {message}")]
    Serialise {
        /// Of which kind.
        name: String,
        /// Why.
        message: String,
    },
}

/// One CustomResourceDefinition, ready to apply.
#[derive(Debug, Clone, PartialEq)]
pub struct Definition {
    /// Its object name, `<plural>.bigfleet.lucy.sh`.
    pub name: String,
    /// The whole object.
    pub object: Value,
}

impl Definition {
    /// The file that holds it in a repository or chart.
    #[must_use]
    pub fn file_name(&self) -> String {
        let plural = self.name.split('.').next().unwrap_or_default();
        format!("{}_{plural}.yaml", super::GROUP)
    }

    /// Block YAML that begins a document of its own.
    ///
    /// # Errors
    /// [`Error::Serialise`].
    pub fn yaml(&self) -> Result<String, Error> {
        let body = serde_saphyr::to_string(&self.object)
            .map_err(|error| Error::Serialise { name: self.name.clone(), message: error.to_string() })?;
        Ok(format!("---\n{}\n", body.trim_end()))
    }
}

/// All three, in the order of their file names.
///
/// # Errors
/// [`Error::Serialise`].
pub fn all() -> Result<[Definition; 3], Error> {
    let mut request = one(CapacityRequest::crd())?;
    // New requests read Pending without a second write by whoever made them.
    pending_by_default(&mut request.object);
    Ok([one(AvailableCapacity::crd())?, request, one(UpcomingNode::crd())?])
}

fn one(crd: CustomResourceDefinition) -> Result<Definition, Error> {
    let name = crd.metadata.name.clone().unwrap_or_default();
    let mut object = serde_json::to_value(crd)
        .map_err(|error| Error::Serialise { name: name.clone(), message: error.to_string() })?;
    tidy(&mut object);
    Ok(Definition { name, object })
}

fn pending_by_default(object: &mut Value) {
    for version in object.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::Object(status)) = version.pointer_mut("/schema/openAPIV3Schema/properties/status")
        {
            status.insert("default".to_owned(), json!({ "phase": "Pending" }));
        }
    }
    sort(object);
}

/// Makes a derived definition fit to store: a `listKind`, schemas without `nullable`, `title` and null members of
/// enums, integral bounds as integers, descriptions in one line, keys in order.
pub fn tidy(object: &mut Value) {
    let kind = object.pointer("/spec/names/kind").and_then(Value::as_str).map(str::to_owned);
    if let (Some(kind), Some(Value::Object(names))) = (kind, object.pointer_mut("/spec/names")) {
        names.insert("listKind".to_owned(), Value::String(format!("{kind}List")));
    }
    for version in object.pointer_mut("/spec/versions").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(root) = version.pointer_mut("/schema/openAPIV3Schema") {
            schema(root);
        }
    }
    sort(object);
}

/// One schema and all below it. Names of properties are not keywords and stay.
fn schema(value: &mut Value) {
    let Value::Object(map) = value else { return };
    map.remove("nullable");
    map.remove("title");
    if let Some(Value::String(text)) = map.get_mut("description") {
        *text = text.replace('\n', " ");
    }
    if let Some(Value::Array(members)) = map.get_mut("enum") {
        members.retain(|member| !member.is_null());
    }
    for bound in ["minimum", "maximum"] {
        if let Some(number) = map.get_mut(bound) {
            integral(number);
        }
    }
    if let Some(Value::Object(properties)) = map.get_mut("properties") {
        properties.values_mut().for_each(schema);
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(below) = map.get_mut(keyword) {
            schema(below);
        }
    }
    for keyword in ["anyOf", "allOf", "oneOf"] {
        if let Some(Value::Array(branches)) = map.get_mut(keyword) {
            branches.iter_mut().for_each(schema);
        }
    }
}

fn integral(value: &mut Value) {
    let Some(float) = value.as_f64().filter(|x| value.as_i64().is_none() && x.fract() == 0.0) else { return };
    // The text of a whole float has no point when printed without a fraction, so the parse is exact where it succeeds.
    if let Ok(whole) = format!("{float:.0}").parse::<i64>() {
        *value = Value::Number(Number::from(whole));
    }
}

/// Keys in byte order, whatever map type other crates made serde_json use.
fn sort(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> = std::mem::take(map).into_iter().collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.iter_mut().for_each(|(_, below)| sort(below));
            *map = entries.into_iter().collect::<Map<_, _>>();
        }
        Value::Array(items) => items.iter_mut().for_each(sort),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tidying_removes_what_the_derive_leaves() {
        let mut object = json!({
            "spec": {
                "names": { "kind": "Thing" },
                "versions": [{ "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "title": "Thing",
                    "description": "two\nlines",
                    "properties": {
                        "title": { "type": "string", "nullable": true, "title": "x" },
                        "n": { "minimum": 0.0, "maximum": 1.5 },
                        "word": { "enum": ["A", null], "nullable": true },
                        "list": { "items": { "nullable": true, "minimum": 1.0 } },
                        "map": { "additionalProperties": { "enum": [null, "B"], "nullable": true } },
                        "either": { "anyOf": [{ "nullable": true }] },
                    },
                } } }],
            },
        });
        tidy(&mut object);
        let expected = json!({
            "spec": {
                "names": { "kind": "Thing", "listKind": "ThingList" },
                "versions": [{ "schema": { "openAPIV3Schema": {
                    "type": "object",
                    "description": "two lines",
                    "properties": {
                        "title": { "type": "string" },
                        "n": { "minimum": 0, "maximum": 1.5 },
                        "word": { "enum": ["A"] },
                        "list": { "items": { "minimum": 1 } },
                        "map": { "additionalProperties": { "enum": ["B"] } },
                        "either": { "anyOf": [{}] },
                    },
                } } }],
            },
        });
        assert_eq!(object, expected);
        assert!(object.to_string().find("names").unwrap() < object.to_string().find("versions").unwrap());
    }
}
