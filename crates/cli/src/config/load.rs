//! Reading the settings of a program from where people put them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ArgMatches;
use clap::parser::ValueSource;

use super::{ConfigError, Flag, Program, Value, variable};

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Flag,
    Environment,
    File,
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Flag => "flag",
            Self::Environment => "environment",
            Self::File => "file",
            Self::Default => "default",
        })
    }
}

/// The effective settings of a program.
#[derive(Debug)]
pub(crate) struct Values(BTreeMap<&'static str, (Value, Origin)>);

/// A scalar of the configuration file.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Scalar {
    Bool(bool),
    Integer(i64),
    Number(f64),
    Text(String),
}

impl Scalar {
    fn text(&self) -> String {
        match self {
            Self::Bool(switch) => switch.to_string(),
            Self::Integer(n) => n.to_string(),
            Self::Number(x) => x.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Reads every setting of `program`: flags from `matches`, variables through `environment`, then the file, then
/// defaults. All problems are reported together.
pub(crate) fn load(
    program: &Program,
    matches: &ArgMatches,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<Values, ConfigError> {
    let from_flag = |name: &str| {
        let given = matches.value_source(name) == Some(ValueSource::CommandLine);
        given.then(|| matches.get_one::<String>(name).cloned()).flatten()
    };
    let config = from_flag("config").or_else(|| environment(&variable("config")));
    let file = config.as_deref().map(read_file).transpose()?.unwrap_or_default();

    let mut problems = Vec::new();
    for later in program.later {
        let places = [
            from_flag(later.name).map(|_| format!("--{}", later.name)),
            environment(&variable(later.name)).map(|_| variable(later.name)),
            file.get(later.name)
                .map(|_| format!("{}: {}", config.as_deref().unwrap_or_default(), later.name)),
        ];
        problems.extend(places.into_iter().flatten().map(|place| format!("{place}: {}", later.reason)));
    }
    let known = |key: &str| {
        program.flags().any(|flag| flag.name == key) || program.later.iter().any(|later| later.name == key)
    };
    for key in file.keys().filter(|key| !known(key)) {
        let path = config.as_deref().unwrap_or_default();
        problems.push(format!("{path}: {key}: is not a setting of `bigfleet {}`", program.name));
    }

    let mut values = BTreeMap::new();
    for flag in program.flags() {
        let text = from_flag(flag.name)
            .map(|text| (text, Origin::Flag))
            .or_else(|| environment(&variable(flag.name)).map(|text| (text, Origin::Environment)))
            .or_else(|| file.get(flag.name).map(|scalar| (scalar.text(), Origin::File)))
            .or_else(|| flag.default.map(|text| (text.to_owned(), Origin::Default)));
        match text {
            None => problems.push(format!("--{}: is required: {}", flag.name, flag.help)),
            Some((text, origin)) => match flag.kind.parse(&text) {
                Ok(value) => {
                    values.insert(flag.name, (value, origin));
                }
                Err(reason) => problems.push(format!("{} {text:?}: {reason}", place(flag, origin))),
            },
        }
    }
    if problems.is_empty() { Ok(Values(values)) } else { Err(ConfigError::Refused(problems)) }
}

fn place(flag: &Flag, origin: Origin) -> String {
    match origin {
        Origin::Environment => variable(flag.name),
        Origin::File => format!("{} (from --config)", flag.name),
        Origin::Flag | Origin::Default => format!("--{}", flag.name),
    }
}

fn read_file(path: &str) -> Result<BTreeMap<String, Scalar>, ConfigError> {
    let text = std::fs::read_to_string(Path::new(path))
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    if text.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_saphyr::from_str(&text)
        .map_err(|error| ConfigError::Malformed { path: path.to_owned(), message: error.to_string() })
}

impl Values {
    /// One line a setting: `name = value (origin)`.
    pub(crate) fn print(&self) -> String {
        self.0
            .iter()
            .map(|(name, (value, origin))| format!("{name} = {:?} ({origin})\n", value.print()))
            .collect()
    }

    /// The value of a flag. Asking for a flag that the program's table lacks is a mistake in this crate.
    fn get(&self, name: &str) -> &Value {
        match self.0.get(name) {
            Some((value, _)) => value,
            None => unreachable!("--{name} is not in the table of this program"),
        }
    }

    /// A text, address or choice.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Value::Text(text) => text,
            other => unreachable!("--{name} is no text but {other:?}"),
        }
    }

    /// A file or folder, if set.
    pub(crate) fn path(&self, name: &str) -> Option<PathBuf> {
        self.get(name).path()
    }

    /// A switch.
    pub(crate) fn switch(&self, name: &str) -> bool {
        matches!(self.get(name), Value::Bool(true))
    }

    /// A duration.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        match self.get(name) {
            Value::Duration(duration) => *duration,
            other => unreachable!("--{name} is no duration but {other:?}"),
        }
    }

    /// A count or size.
    pub(crate) fn count(&self, name: &str) -> usize {
        match self.get(name) {
            Value::Count(n) => usize::try_from(*n).unwrap_or(usize::MAX),
            other => unreachable!("--{name} is no count but {other:?}"),
        }
    }

    /// A fraction or rate.
    pub(crate) fn number(&self, name: &str) -> f64 {
        match self.get(name) {
            Value::Number(x) => *x,
            other => unreachable!("--{name} is no number but {other:?}"),
        }
    }
}
