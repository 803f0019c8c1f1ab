//! The flags of a provider that is a program of its own: those that conformance runners start it with.

use std::path::PathBuf;

use bigfleet_net::listen;
use bigfleet_net::tls::{Files, Guards, Tls};
use bigfleet_types::duration;

use crate::server::desk::socket_beside;
use crate::server::{Options, Timeouts};

/// What the flags say.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where shards connect.
    pub addr: listen::Addr,
    /// What hosts call their provider.
    pub provider: String,
    /// Whether to pretend only.
    pub use_fake_backend: bool,
    /// How many machines to pretend to have.
    pub seed_count: u64,
    /// Where the state is kept; `None` for nowhere.
    pub state: Option<PathBuf>,
    /// The least severe level that is logged.
    pub log_level: tracing::Level,
    /// Options of the kit.
    pub kit: Options,
}

/// Why the flags cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Help was asked for.
    #[error("help was asked for")]
    Help,
    /// Not a flag of ours.
    #[error("{0}: no such flag; --help lists them")]
    Unknown(String),
    /// A flag without its value.
    #[error("--{0} needs a value")]
    Missing(String),
    /// A value that cannot be read.
    #[error("--{flag} {value:?}: {problem}")]
    Value {
        /// The flag.
        flag: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The files of TLS.
    #[error(transparent)]
    Tls(#[from] bigfleet_net::tls::Error),
}

impl Settings {
    /// What `--help` prints.
    pub const HELP: &str = "\
  --addr HOST:PORT           where shards connect [:9000]
  --metrics-addr HOST:PORT   metrics and probes, 0 for none [:9090]
  --provider TEXT            what hosts call their provider
  --state FOLDER             keep machines, fences and operations here
  --admin-socket PATH        socket for `bigfleet provider repair` [admin.sock in --state]
  --use-fake-backend         pretend only
  --seed-count N             how many machines to pretend to have [32]
  --transition-timeout TIME  how long any transition may take [5m, Drain 10m]
  --log-level LEVEL          error, warn, info, debug or trace, on standard error [info]
  --reflection               tell the schema to whoever asks
  --strict-epoch             fence a shard by its newest epoch on any machine
  --tls-cert, --tls-key, --tls-ca FILE   mutual TLS; {id} in a path is the --provider
  --tls-crl FILE             revoked certificates
  --identity-denylist FILE   identities that are not let in, a line each
  --require-tls              do not start without TLS
";

    /// Reads flags, with one dash or two, as `--flag value` or `--flag=value`.
    ///
    /// # Errors
    /// The first flag that cannot be used.
    pub fn read(name: &str, arguments: impl Iterator<Item = String>) -> Result<Self, Unusable> {
        let mut settings = Self {
            addr: fixed(":9000")?,
            provider: name.to_owned(),
            use_fake_backend: false,
            seed_count: 32,
            state: None,
            log_level: tracing::Level::INFO,
            kit: Options { name: name.to_owned(), metrics_addr: fixed(":9090")?, ..Options::default() },
        };
        let (mut cert, mut key, mut ca) = (None, None, None);
        let (mut guards, mut require) = (Guards::default(), false);
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let Some(flag) = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) else {
                return Err(Unusable::Unknown(argument));
            };
            let (flag, given) = flag.split_once('=').map_or((flag, None), |(f, v)| (f, Some(v.to_owned())));
            let flag = flag.to_owned();
            let switch = || match given.as_deref() {
                None | Some("true" | "1") => Ok(true),
                Some("false" | "0") => Ok(false),
                Some(value) => Err(bad(&flag, value, "is neither true nor false")),
            };
            match flag.as_str() {
                "h" | "help" => return Err(Unusable::Help),
                "use-fake-backend" => {
                    settings.use_fake_backend = switch()?;
                    continue;
                }
                "reflection" => {
                    settings.kit.reflection = switch()?;
                    continue;
                }
                "strict-epoch" => {
                    settings.kit.strict_epoch = switch()?;
                    continue;
                }
                "require-tls" => {
                    require = switch()?;
                    continue;
                }
                "addr" | "metrics-addr" | "provider" | "state" | "seed-count" | "transition-timeout"
                | "admin-socket" | "log-level" | "tls-cert" | "tls-key" | "tls-ca" | "tls-crl"
                | "identity-denylist" => {}
                _ => return Err(Unusable::Unknown(argument)),
            }
            let Some(value) = given.or_else(|| arguments.next()) else { return Err(Unusable::Missing(flag)) };
            let path = || Some(PathBuf::from(&value)).filter(|_| !value.is_empty());
            match flag.as_str() {
                "addr" => settings.addr = parse(&flag, &value)?,
                "metrics-addr" => settings.kit.metrics_addr = parse(&flag, &value)?,
                "provider" => settings.provider = value,
                "state" => settings.state = path(),
                "admin-socket" => settings.kit.admin_socket = path(),
                "log-level" => settings.log_level = parse(&flag, &value)?,
                "seed-count" => settings.seed_count = parse(&flag, &value)?,
                "transition-timeout" => {
                    let limit = duration::parse(&value).map_err(|e| bad(&flag, &value, &e.to_string()))?;
                    settings.kit.timeouts =
                        if limit.is_zero() { Timeouts::default() } else { Timeouts::all(limit) };
                }
                "tls-cert" => cert = path(),
                "tls-key" => key = path(),
                "tls-crl" => guards.crl = path(),
                "identity-denylist" => guards.denylist = path(),
                _ => ca = path(),
            }
        }
        let files = Files::from_flags(cert, key, ca)?.map(|files| files.of_id(&settings.provider));
        settings.kit.tls = Tls::from_flags(files, guards, require)?;
        if settings.kit.admin_socket.is_none() {
            settings.kit.admin_socket = settings.state.as_deref().and_then(socket_beside);
        }
        Ok(settings)
    }
}

fn bad(flag: &str, value: &str, problem: &str) -> Unusable {
    Unusable::Value { flag: flag.to_owned(), value: value.to_owned(), problem: problem.to_owned() }
}

fn parse<T: std::str::FromStr<Err: std::fmt::Display>>(flag: &str, value: &str) -> Result<T, Unusable> {
    value.parse().map_err(|error: T::Err| bad(flag, value, &error.to_string()))
}

fn fixed<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, Unusable> {
    parse("addr", value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Settings, Unusable> {
        Settings::read("mine", words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn the_flags_of_a_runner_are_read() {
        let settings = read(&[
            "--addr=127.0.0.1:0",
            "-provider",
            "certify",
            "--use-fake-backend",
            "--seed-count=64",
            "--state=s",
            "--transition-timeout=2s",
            "--metrics-addr=0",
            "--reflection=false",
        ])
        .unwrap();
        assert_eq!((settings.provider.as_str(), settings.seed_count), ("certify", 64));
        assert!(settings.use_fake_backend && !settings.kit.reflection);
        assert_eq!(settings.state, Some("s".into()));
        assert_eq!(settings.kit.admin_socket, Some("s/admin.sock".into()), "for repairs");
        assert_eq!(settings.kit.timeouts, Timeouts::all(std::time::Duration::from_secs(2)));
        assert_eq!(settings.kit.metrics_addr, bigfleet_net::admin::Addr::Off);
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        for (words, words_of_error) in [
            (&["--sed-count=3"][..], "--sed-count=3: no such flag"),
            (&["serve"], "serve: no such flag"),
            (&["--seed-count"], "--seed-count needs a value"),
            (&["--seed-count=-1"], "--seed-count \"-1\""),
            (&["--addr=9000"], "--addr \"9000\""),
            (&["--use-fake-backend=perhaps"], "neither true nor false"),
            (&["--log-level=loud"], "--log-level \"loud\""),
            (&["--tls-key=k"], "--tls-cert, --tls-ca missing"),
            (&["--transition-timeout=soon"], "--transition-timeout \"soon\""),
        ] {
            let error = read(words).unwrap_err().to_string();
            assert!(error.contains(words_of_error), "{words:?}: {error}");
        }
        assert!(matches!(read(&["--help"]), Err(Unusable::Help)));
    }
}
