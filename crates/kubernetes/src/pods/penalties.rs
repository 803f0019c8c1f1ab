//! What an interruption, or giving up the machine, costs: from the pod's annotation, else from its PriorityClass, else
//! nothing. Each of the two on its own.

use std::collections::BTreeMap;

use bigfleet_types::Quantity;
use serde_json::Value;

/// Most characters of a penalty.
const LONGEST: usize = 64;

/// Penalties in dollars, as quantity strings.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Penalties {
    /// Of one interruption.
    pub interruption: Option<String>,
    /// Of giving up the machine.
    pub reclamation: Option<String>,
}

/// Penalties by PriorityClass.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Defaults(BTreeMap<String, Penalties>);

/// Why the file with the defaults cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// It is no YAML of the right shape.
    #[error("is no mapping of class names to penalties: {0}")]
    Malformed(String),
    /// One value cannot be used.
    #[error("class {class:?}, field {field:?}: {problem}")]
    Value {
        /// The PriorityClass.
        class: String,
        /// The field.
        field: String,
        /// What is wrong.
        problem: String,
    },
}

impl Defaults {
    /// Reads the file's text: class names, each with `interruptionPenalty` and `reclamationPenalty`, quantities that
    /// are not negative. An empty text has no defaults.
    ///
    /// # Errors
    /// Every variant of [`Error`].
    pub fn parse(yaml: &str) -> Result<Self, Error> {
        if yaml.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
            return Ok(Self::default());
        }
        let file: BTreeMap<String, Option<BTreeMap<String, Value>>> =
            serde_saphyr::from_str(yaml).map_err(|error| Error::Malformed(error.to_string()))?;
        let mut classes = BTreeMap::new();
        for (class, fields) in file {
            let mut penalties = Penalties::default();
            for (field, scalar) in fields.unwrap_or_default() {
                let wrong =
                    |problem: String| Error::Value { class: class.clone(), field: field.clone(), problem };
                let slot = match field.as_str() {
                    "interruptionPenalty" => &mut penalties.interruption,
                    "reclamationPenalty" => &mut penalties.reclamation,
                    _ => {
                        let known = "is not known; known are interruptionPenalty and reclamationPenalty";
                        return Err(wrong(known.to_owned()));
                    }
                };
                let text = match scalar {
                    Value::Number(number) => number.to_string(),
                    Value::String(text) => text,
                    _ => return Err(wrong("is neither a quantity nor a number".to_owned())),
                };
                check(&text).map_err(wrong)?;
                *slot = Some(text);
            }
            classes.insert(class, penalties);
        }
        Ok(Self(classes))
    }

    /// The penalties of a pod and what is wrong with its annotations. An annotation that cannot be used counts as
    /// absent.
    #[must_use]
    pub fn resolve(&self, annotated: &Penalties, class: Option<&str>) -> (Penalties, Vec<String>) {
        let class = class.and_then(|class| self.0.get(class));
        let mut problems = Vec::new();
        let mut one = |annotation: &Option<String>, key: &str, default: Option<&String>| {
            match annotation.as_deref().map(|text| (text, check(text))) {
                Some((text, Ok(()))) => return Some(text.to_owned()),
                Some((text, Err(problem))) => {
                    let instead = default.map_or("0", String::as_str);
                    problems.push(format!("annotation {key}: {text:?} {problem}; {instead} is used instead"));
                }
                None => {}
            }
            default.cloned()
        };
        let penalties = Penalties {
            interruption: one(
                &annotated.interruption,
                crate::crd::names::INTERRUPTION_PENALTY,
                class.and_then(|class| class.interruption.as_ref()),
            ),
            reclamation: one(
                &annotated.reclamation,
                crate::crd::names::RECLAMATION_PENALTY,
                class.and_then(|class| class.reclamation.as_ref()),
            ),
        };
        (penalties, problems)
    }
}

fn check(text: &str) -> Result<(), String> {
    match Quantity::parse(text) {
        Err(error) => Err(error.to_string()),
        Ok(quantity) if quantity.is_negative() => Err("is negative".to_owned()),
        Ok(_) if text.len() > LONGEST => Err(format!("is longer than {LONGEST} characters")),
        Ok(_) => Ok(()),
    }
}
