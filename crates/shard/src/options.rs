//! What a shard is started with, and which values make no sense.

use std::path::PathBuf;
use std::time::Duration;

use bigfleet_net::{admin, limits, listen};
use bigfleet_types::ShardId;

use crate::control;

/// Everything that may be chosen for a shard. Names are those of the flags.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its stable identity, `--id`.
    pub id: ShardId,
    /// Where it serves sessions and readers, `--listen`.
    pub listen: listen::Addr,
    /// Where it serves metrics and probes, `--metrics-addr`.
    pub metrics_addr: admin::Addr,
    /// Where its epoch and the PAUSE file are, `--data-dir`.
    pub data_dir: PathBuf,
    /// The provider's `host:port`, `--provider-addr`.
    pub provider_addr: String,
    /// Where the audit log goes, `--audit-log`; `None` for nowhere.
    pub audit_log: Option<PathBuf>,
    /// The largest List answer, in bytes, `--max-list-bytes`.
    pub max_list_bytes: usize,
    /// The largest frame of an operator, in bytes, `--max-rollup-bytes`.
    pub max_rollup_bytes: usize,
    /// What the core is configured with; its epoch is set by the start.
    pub control: control::Config,
}

/// A value that makes no sense; nothing was started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--{flag} is {found}: {problem}")]
pub struct Invalid {
    /// The flag, without its dashes.
    pub flag: &'static str,
    /// Its value.
    pub found: String,
    /// What is wrong with that.
    pub problem: &'static str,
}

impl Options {
    /// The defaults of the flags around the one that has none.
    ///
    /// # Errors
    /// Never for these constants; the types cannot say so.
    pub fn new(provider_addr: impl Into<String>) -> Result<Self, listen::Error> {
        Ok(Self {
            id: ShardId::trusted("shard-0"),
            listen: ":7780".parse()?,
            metrics_addr: ":8780".parse()?,
            data_dir: PathBuf::from("./data"),
            provider_addr: provider_addr.into(),
            audit_log: None,
            max_list_bytes: limits::LIST_BYTES,
            max_rollup_bytes: limits::ROLLUP_BYTES,
            control: control::Config::default(),
        })
    }

    /// Checks every value, without touching a file or a socket.
    ///
    /// # Errors
    /// The first value that makes no sense.
    pub fn validate(&self) -> Result<(), Invalid> {
        let control = &self.control;
        let refuse = |flag, found: String, problem| Err(Invalid { flag, found, problem });
        if self.provider_addr.is_empty() {
            return refuse("provider-addr", "empty".into(), "a shard needs a provider; give its host:port");
        }
        if ShardId::parse(self.id.as_str()).is_err() {
            return refuse(
                "id",
                format!("{:?}", self.id),
                "it takes 1 to 253 printable ASCII bytes, no blanks",
            );
        }
        let fraction = control.reclaim_cap_fraction;
        if !(0.0..=1.0).contains(&fraction) {
            return refuse("reclaim-cap-fraction", fraction.to_string(), "it takes 0 (no cap) to 1");
        }
        if control.execute_concurrency < 1 {
            return refuse(
                "execute-concurrency",
                "0".into(),
                "nothing would ever be executed; give at least 1",
            );
        }
        if !(1..=limits::ROLLUP_BYTES_MAX).contains(&self.max_rollup_bytes) {
            let found = self.max_rollup_bytes.to_string();
            return refuse("max-rollup-bytes", found, "it takes 1 byte to 256 MiB");
        }
        if self.max_list_bytes == 0 {
            return refuse("max-list-bytes", "0".into(), "no List could be read; give at least 1 byte");
        }
        let positive: [(&'static str, Duration); 8] = [
            ("cycle-interval", control.cycle_interval),
            ("bootstrap-timeout", control.bootstrap_timeout),
            ("execute-timeout", control.execute_timeout),
            ("available-capacity-interval", control.available_capacity_interval),
            ("stuck-create-after", control.stuck.create),
            ("stuck-configure-after", control.stuck.configure),
            ("stuck-drain-after", control.stuck.drain),
            ("stuck-delete-after", control.stuck.delete),
        ];
        match positive.into_iter().find(|(_, duration)| duration.is_zero()) {
            Some((flag, _)) => refuse(flag, "0".into(), "it must be longer than nothing"),
            None if control.cycle_min_gap > control.cycle_interval => refuse(
                "cycle-min-gap",
                format!("{:?}", control.cycle_min_gap),
                "it must not be longer than --cycle-interval",
            ),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Spoil = fn(&mut Options);

    #[test]
    fn every_limit_names_its_flag() {
        let good = Options::new("127.0.0.1:1").unwrap();
        good.validate().unwrap();
        let wrong: [(&str, Spoil); 10] = [
            ("provider-addr", |o| o.provider_addr.clear()),
            ("id", |o| o.id = ShardId::trusted("a b")),
            ("reclaim-cap-fraction", |o| o.control.reclaim_cap_fraction = 1.01),
            ("reclaim-cap-fraction", |o| o.control.reclaim_cap_fraction = f64::NAN),
            ("execute-concurrency", |o| o.control.execute_concurrency = 0),
            ("max-rollup-bytes", |o| o.max_rollup_bytes = limits::ROLLUP_BYTES_MAX + 1),
            ("max-list-bytes", |o| o.max_list_bytes = 0),
            ("cycle-interval", |o| o.control.cycle_interval = Duration::ZERO),
            ("stuck-delete-after", |o| o.control.stuck.delete = Duration::ZERO),
            ("cycle-min-gap", |o| o.control.cycle_min_gap = Duration::from_secs(11)),
        ];
        for (flag, spoil) in wrong {
            let mut options = good.clone();
            spoil(&mut options);
            let error = options.validate().unwrap_err();
            assert_eq!(error.flag, flag);
            assert!(error.to_string().starts_with(&format!("--{flag} is ")), "{error}");
        }
    }
}
