//! Settings of a program: a table of flags, read from the command line, the environment, a file and defaults, in
//! this order of precedence.
//!
//! Every flag `--some-name` is also the variable `BIGFLEET_SOME_NAME` and the key `some-name` of the YAML file that
//! `--config` names. A value is parsed once, by the kind of its flag, whatever its origin.

mod load;
mod value;

pub(crate) use load::{Values, load};
pub(crate) use value::{Kind, Value};

/// One flag of a program.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flag {
    /// Its name without dashes.
    pub(crate) name: &'static str,
    /// What it takes.
    pub(crate) kind: Kind,
    /// Its value when nobody sets it; `None` makes it required.
    pub(crate) default: Option<&'static str>,
    /// One line for people.
    pub(crate) help: &'static str,
}

/// A flag that the public programs have and this version does not: using it is refused with the reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Later {
    /// Its name without dashes.
    pub(crate) name: &'static str,
    /// Why it is refused, and what to do instead.
    pub(crate) reason: &'static str,
}

/// A subcommand whose settings are a table of flags.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Program {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// One line for people.
    pub(crate) about: &'static str,
    /// What it understands.
    pub(crate) flags: &'static [&'static [Flag]],
    /// What it will understand one day.
    pub(crate) later: &'static [Later],
}

impl Program {
    /// All flags of the program, in the order of its help text.
    pub(crate) fn flags(&self) -> impl Iterator<Item = &'static Flag> {
        self.flags.iter().flat_map(|group| group.iter())
    }

    /// The command line of the program.
    pub(crate) fn command(&self) -> clap::Command {
        let base = clap::Command::new(self.name).about(self.about).args([
            clap::Arg::new("config").long("config").value_name("FILE").help("Read settings from a YAML file"),
            clap::Arg::new("print-config")
                .long("print-config")
                .action(clap::ArgAction::SetTrue)
                .help("Print the effective settings with their origin and exit"),
        ]);
        let shown = self.flags().map(|flag| {
            let help = match flag.default {
                None => format!("{} [required]", flag.help),
                Some("") => flag.help.to_owned(),
                Some(default) => format!("{} [default: {default}]", flag.help),
            };
            argument(flag.name, matches!(flag.kind, Kind::Bool))
                .value_name(flag.kind.placeholder())
                .help(help)
        });
        let hidden = self.later.iter().map(|later| argument(later.name, true).hide(true));
        base.args(shown).args(hidden)
    }
}

/// A switch may stand alone; `--switch=false` unsets it.
fn argument(name: &'static str, switch: bool) -> clap::Arg {
    let argument = clap::Arg::new(name).long(name).action(clap::ArgAction::Set).allow_hyphen_values(true);
    if switch {
        argument.num_args(0..=1).require_equals(true).default_missing_value("true")
    } else {
        argument
    }
}

/// Why a program's settings cannot be used. Every problem is listed, not only the first.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("--config {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The file is no flat YAML mapping.
    #[error("--config {path}: {message}")]
    Malformed {
        /// The file.
        path: String,
        /// Where and why.
        message: String,
    },
    /// Settings that cannot be used.
    #[error("{}", .0.join("\n"))]
    Refused(Vec<String>),
}

/// The environment variable of a flag.
pub(crate) fn variable(name: &str) -> String {
    format!("BIGFLEET_{}", name.to_uppercase().replace('-', "_"))
}
