//! Bringing the definitions into a cluster, and up to date there.
//!
//! Always by server-side apply: deleting a definition would delete every object of its kind with it.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::{Client, ResourceExt as _};
use serde_json::Value;

use super::manifest::{self, Definition};

/// The field manager that owns the definitions.
const MANAGER: &str = "bigfleet-crds";
/// The first Kubernetes 1.x on which selectable fields may be used.
const MINOR: u32 = 31;
const POLL: Duration = Duration::from_millis(200);

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They may be there already.
    Install,
    /// They must be there already.
    Upgrade,
}

/// What became of one definition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It is new.
    Created,
    /// It was there and is different now.
    Updated,
    /// It was there just so.
    Unchanged,
}

/// Why the definitions are not, or not all, in force.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server refused, or was not reached.
    #[error(
        "cannot {verb} CustomResourceDefinition {name}: {}; nothing was changed by this step",
        reason(source)
    )]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which definition.
        name: String,
        /// What came back.
        source: Box<kube::Error>,
    },
    /// The API server does not say what it is.
    #[error("cannot ask the API server for its version: {}", reason(.0))]
    Unreachable(Box<kube::Error>),
    /// The API server lacks what the definitions use.
    #[error(
        "the API server is Kubernetes {0}; the definitions need 1.31 or newer (selectable fields); nothing was changed"
    )]
    TooOld(String),
    /// There is nothing to upgrade.
    #[error(
        "CustomResourceDefinition {0} is not in the cluster; `bigfleet crds install` brings it; nothing was changed"
    )]
    NotInstalled(String),
    /// Objects may be stored in a version that this build does not have.
    #[error(
        "CustomResourceDefinition {name} has stored versions {} that this build lacks: applying it would make their objects unreadable; use the build that brought them, or migrate the objects first; nothing was changed", versions.join(", ")
    )]
    StoredVersion {
        /// Which definition.
        name: String,
        /// The versions.
        versions: Vec<String>,
    },
    /// It was applied but does not serve.
    #[error(
        "CustomResourceDefinition {name} was applied but is not Established after {seconds} s: {conditions}"
    )]
    NotEstablished {
        /// Which definition.
        name: String,
        /// How long was waited.
        seconds: u64,
        /// What the API server says of it.
        conditions: String,
    },
    /// A mistake in this build.
    #[error(transparent)]
    Manifest(#[from] manifest::Error),
}

fn reason(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => {
            let mut text = other.to_string();
            let mut source = std::error::Error::source(other);
            while let Some(below) = source {
                let more = below.to_string();
                if !text.contains(&more) {
                    text = format!("{text}: {more}");
                }
                source = below.source();
            }
            text
        }
    }
}

/// Applies the three definitions and waits until each is Established, at most `patience` for one. All are checked
/// before the first is changed.
///
/// # Errors
/// Every variant of [`Error`]; what was applied before the failure stays.
pub async fn apply(client: &Client, mode: Mode, patience: Duration) -> Result<Vec<(String, Change)>, Error> {
    let definitions = manifest::all()?;
    let version = client.apiserver_version().await.map_err(|error| Error::Unreachable(Box::new(error)))?;
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).collect::<String>();
    let minor: u32 = digits(&version.minor).parse().unwrap_or(0);
    if version.major == "1" && minor < MINOR {
        return Err(Error::TooOld(version.git_version));
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut before = Vec::new();
    for definition in &definitions {
        let name = &definition.name;
        let existing = api.get_opt(name).await.map_err(|source| failed("read", name, source))?;
        match &existing {
            None if mode == Mode::Upgrade => return Err(Error::NotInstalled(name.clone())),
            None => {}
            Some(existing) => check_stored(definition, existing)?,
        }
        before.push(existing.and_then(|existing| existing.resource_version()));
    }
    let mut report = Vec::new();
    for (definition, before) in definitions.iter().zip(before) {
        let name = &definition.name;
        let params = PatchParams::apply(MANAGER).force();
        let applied = api
            .patch(name, &params, &Patch::Apply(&definition.object))
            .await
            .map_err(|source| failed("apply", name, source))?;
        let change = match before {
            None => Change::Created,
            Some(before) if applied.resource_version().as_ref() == Some(&before) => Change::Unchanged,
            Some(_) => Change::Updated,
        };
        established(&api, name, patience).await?;
        report.push((name.clone(), change));
    }
    Ok(report)
}

fn failed(verb: &'static str, name: &str, source: kube::Error) -> Error {
    Error::Api { verb, name: name.to_owned(), source: Box::new(source) }
}

/// Refuses to drop a version in which objects may be stored.
fn check_stored(definition: &Definition, existing: &CustomResourceDefinition) -> Result<(), Error> {
    let ours: Vec<&str> = definition
        .object
        .pointer("/spec/versions")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|version| version.get("name").and_then(Value::as_str))
        .collect();
    let stored = existing.status.as_ref().and_then(|status| status.stored_versions.as_ref());
    let versions: Vec<String> =
        stored.into_iter().flatten().filter(|version| !ours.contains(&version.as_str())).cloned().collect();
    if versions.is_empty() {
        return Ok(());
    }
    Err(Error::StoredVersion { name: definition.name.clone(), versions })
}

async fn established(
    api: &Api<CustomResourceDefinition>,
    name: &str,
    patience: Duration,
) -> Result<(), Error> {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        let current = api.get(name).await.map_err(|source| failed("read", name, source))?;
        let conditions = current.status.and_then(|status| status.conditions).unwrap_or_default();
        let holds = |kind: &str| conditions.iter().any(|one| one.type_ == kind && one.status == "True");
        if holds("Established") && holds("NamesAccepted") && !holds("NonStructuralSchema") {
            return Ok(());
        }
        if tokio::time::Instant::now() >= deadline {
            let say = |one: &k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionCondition| {
                format!("{}={} ({})", one.type_, one.status, one.message.clone().unwrap_or_default())
            };
            let conditions = match conditions.is_empty() {
                true => "the API server says nothing of it yet".to_owned(),
                false => conditions.iter().map(say).collect::<Vec<_>>().join("; "),
            };
            return Err(Error::NotEstablished {
                name: name.to_owned(),
                seconds: patience.as_secs(),
                conditions,
            });
        }
        tokio::time::sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinitionStatus;

    #[test]
    fn a_stored_version_that_we_lack_is_never_dropped() {
        let [definition, ..] = manifest::all().unwrap();
        let existing = |stored: &[&str]| CustomResourceDefinition {
            status: Some(CustomResourceDefinitionStatus {
                stored_versions: Some(stored.iter().map(|one| (*one).to_owned()).collect()),
                ..CustomResourceDefinitionStatus::default()
            }),
            ..CustomResourceDefinition::default()
        };
        assert!(check_stored(&definition, &existing(&[])).is_ok());
        assert!(check_stored(&definition, &existing(&["v1alpha1"])).is_ok());
        let refused = check_stored(&definition, &existing(&["v1alpha1", "v1beta1"])).unwrap_err();
        assert!(refused.to_string().contains("stored versions v1beta1 that this build lacks"), "{refused}");
    }
}
