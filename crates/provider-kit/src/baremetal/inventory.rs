//! The inventory's file, and the rules that it must keep.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bigfleet_types::{CapacityType, MachineId, duration};
use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::instance::{Host, Instance, Invalid};
use crate::program::Program;

/// Why an inventory is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// It cannot be read.
    #[error("{path}: {problem}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        problem: String,
    },
    /// It breaks a rule.
    #[error("{path}:{line}: {field}: {problem}")]
    Rule {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The field.
        field: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    provider: String,
    hooks: BTreeMap<String, Spanned<HookEntry>>,
    machines: Vec<Spanned<Entry>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HookEntry {
    command: Vec<String>,
    timeout: Option<String>,
}

/// One machine, as the file gives it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    id: String,
    instance_type: String,
    #[serde(default)]
    zone: String,
    #[serde(default)]
    address: String,
    /// Whether it is switched on already: Idle from the beginning.
    #[serde(default)]
    powered: bool,
    #[serde(default)]
    price_per_hour: f64,
    resources: BTreeMap<String, String>,
    #[serde(default)]
    allocatable: BTreeMap<String, String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

/// One hook.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    pub(super) program: Program,
    /// Its own limit, below that of the transition.
    pub(super) timeout: Option<Duration>,
}

/// Hooks by name, and whether the inventory must have them.
const HOOKS: [(&str, bool); 5] =
    [("power_on", true), ("boot", true), ("release", true), ("ready", false), ("power_off", false)];

/// Machines and hooks.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    provider: String,
    hooks: BTreeMap<String, Hook>,
    machines: Vec<Instance>,
    powered: BTreeSet<String>,
    addresses: BTreeMap<String, String>,
}

impl Inventory {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// The first rule that is broken, with its line and field.
    pub fn read(path: &Path) -> Result<Self, Broken> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Broken::Unreadable { path: path.to_owned(), problem: error.to_string() })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, Broken> {
        let rule = |line: u64, field: &str, problem: String| Broken::Rule {
            path: path.to_owned(),
            line,
            field: field.to_owned(),
            problem,
        };
        let file: File = serde_saphyr::from_str(text).map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            let shown = error.to_string();
            let problem = shown.lines().next().unwrap_or_default();
            // The place is said before it.
            let place = format!("line {line} column ");
            let problem = problem
                .split_once(&place)
                .and_then(|(_, rest)| rest.split_once(": "))
                .map_or(problem, |(_, rest)| rest);
            let missing = problem.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
            rule(line, &missing.map_or_else(|| field_at(text, line), str::to_owned), problem.to_owned())
        })?;
        let mut hooks = BTreeMap::new();
        for (name, entry) in file.hooks {
            let line = entry.defined.line();
            let field = format!("hooks.{name}");
            if !HOOKS.iter().any(|(known, _)| *known == name) {
                let known = HOOKS.map(|(known, _)| known).join(", ");
                return Err(rule(line_with(text, &name), &field, format!("is no hook; there are {known}")));
            }
            let HookEntry { command, timeout } = entry.value;
            let program = Program::of(command).ok_or_else(|| {
                let at = line_of(text, line, "command");
                rule(at, &format!("{field}.command"), "is empty; name a program".into())
            })?;
            let timeout = timeout.map(|limit| {
                duration::parse(&limit).ok().filter(|limit| !limit.is_zero()).ok_or_else(|| {
                    let at = line_of(text, line, "timeout");
                    rule(at, &format!("{field}.timeout"), format!("{limit:?} is no time above 0, such as 5m"))
                })
            });
            hooks.insert(name, Hook { program, timeout: timeout.transpose()? });
        }
        if let Some((missing, _)) = HOOKS.iter().find(|(name, must)| *must && !hooks.contains_key(*name)) {
            let at = line_with(text, "hooks");
            return Err(rule(at, &format!("hooks.{missing}"), "is missing; every inventory needs it".into()));
        }
        let mut inventory = Self { provider: file.provider, hooks, ..Self::default() };
        let mut ids = BTreeSet::new();
        for (at, entry) in file.machines.into_iter().enumerate() {
            let line = entry.defined.line();
            let instance = inventory.take(entry.value);
            let checked = instance.validate(false);
            let twice = |id| {
                if ids.insert(instance.id.clone()) {
                    Ok(id)
                } else {
                    Err(Invalid::Duplicate { id: instance.id.clone() })
                }
            };
            if let Err(invalid) = checked.and_then(twice) {
                let field = invalid.field();
                let (at_line, shown) = (line_of(text, line, field), format!("machines[{at}].{field}"));
                return Err(rule(at_line, &shown, invalid.to_string()));
            }
            inventory.machines.push(instance);
        }
        Ok(inventory)
    }

    fn take(&mut self, entry: Entry) -> Instance {
        if entry.powered {
            self.powered.insert(entry.id.clone());
        }
        self.addresses.insert(entry.id.clone(), entry.address);
        Instance {
            id: entry.id,
            host: None,
            instance_type: entry.instance_type,
            zone: entry.zone,
            capacity_type: CapacityType::BareMetal,
            price_per_hour: entry.price_per_hour,
            interruption_probability: 0.0,
            resources: entry.resources,
            allocatable: entry.allocatable,
            labels: entry.labels,
        }
    }

    /// What hosts call their provider, if the file says.
    pub(super) fn provider(&self) -> Option<&str> {
        Some(self.provider.as_str()).filter(|provider| !provider.is_empty())
    }

    pub(super) fn address(&self, id: &MachineId) -> Option<&str> {
        self.addresses.get(id.as_str()).map(String::as_str)
    }

    /// All machines; those that are switched on from the beginning have their host.
    pub(super) fn instances(&self, label: &str) -> impl Iterator<Item = Instance> + '_ {
        let label = label.to_owned();
        self.machines.iter().cloned().map(move |mut instance| {
            if self.powered.contains(&instance.id) {
                let address = self.addresses.get(&instance.id).filter(|address| !address.is_empty());
                let reference = address.unwrap_or(&instance.id).clone();
                instance.host = Some(Host { provider: label.clone(), reference });
            }
            instance
        })
    }

    pub(super) fn power_on(&self) -> Option<&Hook> {
        self.hooks.get("power_on")
    }

    pub(super) fn boot(&self) -> Option<&Hook> {
        self.hooks.get("boot")
    }

    pub(super) fn release(&self) -> Option<&Hook> {
        self.hooks.get("release")
    }

    pub(super) fn ready(&self) -> Option<&Hook> {
        self.hooks.get("ready")
    }

    pub(super) fn power_off(&self) -> Option<&Hook> {
        self.hooks.get("power_off")
    }
}

/// The key on a line of YAML, without the dash of a list.
fn key(line: &str) -> Option<&str> {
    let (key, _) = line.trim_start_matches([' ', '-']).split_once(':')?;
    (!key.is_empty() && !key.starts_with('#')).then_some(key.trim())
}

/// The key on line `number`, or the nearest above it.
fn field_at(text: &str, number: u64) -> String {
    let count = usize::try_from(number).unwrap_or(usize::MAX);
    let lines: Vec<&str> = text.lines().take(count).collect();
    lines.iter().rev().find_map(|line| key(line)).unwrap_or("the file").to_owned()
}

/// The first line of the file with this key; 1 without one.
fn line_with(text: &str, name: &str) -> u64 {
    let at = text.lines().position(|line| key(line) == Some(name)).unwrap_or(0);
    u64::try_from(at + 1).unwrap_or(1)
}

/// The line on which the entry that begins on line `from` has `field`; `from` itself when it has none. A key of deeper
/// maps (`resources[...]`) is that of its map.
fn line_of(text: &str, from: u64, field: &str) -> u64 {
    let start = usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut lines = text.lines().enumerate().skip(start);
    let begins = |line: &str| line.trim_start().starts_with('-');
    let found = lines
        .by_ref()
        .take_while(|(at, line)| *at == start || !begins(line))
        .find(|(_, line)| key(line) == Some(field));
    found.and_then(|(at, _)| u64::try_from(at + 1).ok()).unwrap_or(from)
}
