//! `bigfleet shard`.

use bigfleet_shard::options::Options;
use bigfleet_shard::service::{Handle, Shard};
use bigfleet_types::ShardId;
use tokio::signal::unix::{SignalKind, signal};

use crate::command::{Failure, Outcome, TLS_LATER, block_on, ready};
use crate::config::{Flag, Kind, Later, Program, Values};
use crate::logging;
use crate::stop::Signals;

/// The rails and timings of a shard: flags that `all-in-one` and `demo` share with it.
pub(crate) const RAILS: &[Flag] = &[
    Flag {
        name: "cycle-interval",
        kind: Kind::PositiveDuration,
        default: Some("10s"),
        help: "The longest time between two cycles, and the beat by which shortfalls age",
    },
    Flag {
        name: "cycle-min-gap",
        kind: Kind::Duration,
        default: Some("100ms"),
        help: "The shortest time between the starts of two cycles",
    },
    Flag {
        name: "max-actions-per-cycle",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "How many actions one cycle may start; 0 is no limit",
    },
    Flag {
        name: "execute-concurrency",
        kind: Kind::Count(1),
        default: Some("32"),
        help: "How many actions run at once",
    },
    Flag {
        name: "actuation-paused",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Decide and report, execute nothing",
    },
    Flag {
        name: "dry-run",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Execute nothing and log every action that would have run",
    },
    Flag {
        name: "reclaim-cap-fraction",
        kind: Kind::Fraction,
        default: Some("0.05"),
        help: "The share of a cluster's Configured machines that may be reclaimed in 10 s; 0 is no cap",
    },
    Flag {
        name: "reclaim-after",
        kind: Kind::Duration,
        default: Some("60s"),
        help: "How long a machine must be excess before it is reclaimed",
    },
    Flag {
        name: "empty-rollup-guard",
        kind: Kind::Bool,
        default: Some("true"),
        help: "Hold a roll-up that drops nearly all demand until three in a row agree",
    },
    Flag {
        name: "available-capacity-interval",
        kind: Kind::Duration,
        default: Some("0"),
        help: "The shortest time between two capacity hints for one profile; 0 is 5 s",
    },
    Flag {
        name: "bootstrap-timeout",
        kind: Kind::PositiveDuration,
        default: Some("30s"),
        help: "How long an operator may take to render a bootstrap blob",
    },
    Flag {
        name: "execute-timeout",
        kind: Kind::PositiveDuration,
        default: Some("95s"),
        help: "How long one action may take in all, without the provider's transition",
    },
    Flag {
        name: "stuck-create-after",
        kind: Kind::PositiveDuration,
        default: Some("10m"),
        help: "When a Creating machine counts as stuck",
    },
    Flag {
        name: "stuck-configure-after",
        kind: Kind::PositiveDuration,
        default: Some("10m"),
        help: "When a Configuring machine counts as stuck",
    },
    Flag {
        name: "stuck-drain-after",
        kind: Kind::PositiveDuration,
        default: Some("10m"),
        help: "How long past its grace a Draining machine counts as stuck",
    },
    Flag {
        name: "stuck-delete-after",
        kind: Kind::PositiveDuration,
        default: Some("10m"),
        help: "When a Deleting machine counts as stuck",
    },
    Flag {
        name: "audit-log",
        kind: Kind::Path,
        default: Some(""),
        help: "Append a JSON line for every action to this file; reopened at SIGHUP",
    },
    Flag {
        name: "max-list-bytes",
        kind: Kind::Bytes(4 << 30),
        default: Some("1Gi"),
        help: "The largest List answer that is accepted",
    },
    Flag {
        name: "max-rollup-bytes",
        kind: Kind::Bytes(256 << 20),
        default: Some("64Mi"),
        help: "The largest frame of an operator that is accepted",
    },
];

const OWN: &[Flag] = &[
    Flag {
        name: "id",
        kind: Kind::Required,
        default: Some("shard-0"),
        help: "The shard's identity; it must stay the same over restarts",
    },
    Flag {
        name: "listen",
        kind: Kind::AddressOrOff,
        default: Some(":7780"),
        help: "Where operators and readers connect",
    },
    Flag {
        name: "metrics-addr",
        kind: Kind::AddressOrOff,
        default: Some(":8780"),
        help: "Metrics and probes; 0 switches them off",
    },
    Flag {
        name: "data-dir",
        kind: Kind::Required,
        default: Some("./data"),
        help: "Holds the epoch, and PAUSE when somebody puts it there",
    },
    Flag {
        name: "provider-addr",
        kind: Kind::Address,
        default: None,
        help: "The provider of this shard's machines, such as one of `bigfleet provider`",
    },
];

const SEEDS: &str = "belongs to `bigfleet provider fakecloud`";
const NO_COORDINATOR: &str =
    "this version has no coordinator yet; leave the flag out: a shard needs none to serve its clusters";
const FULL_LIST: &str = "this version always reconciles by full List; leave the flag out";

/// Flags of the public shard that this version refuses.
pub(crate) const LATER: &[Later] = &[
    TLS_LATER[0],
    TLS_LATER[1],
    TLS_LATER[2],
    Later { name: "coordinator-addr", reason: NO_COORDINATOR },
    Later { name: "coordinator-heartbeat-interval", reason: NO_COORDINATOR },
    Later { name: "advertise-addr", reason: NO_COORDINATOR },
    Later { name: "incremental-reconcile", reason: FULL_LIST },
    Later { name: "full-reconcile-interval", reason: FULL_LIST },
    Later {
        name: "local-bootstrap",
        reason: "this version always asks the operator for the bootstrap blob; leave the flag out",
    },
    Later {
        name: "phase-attribution-log",
        reason: "this version explains decisions through `bigfleet ctl needs`; leave the flag out",
    },
    Later {
        name: "credit-requires-ready",
        reason: "this version trusts the provider's node-ready check; leave the flag out",
    },
    Later { name: "metrics-warmup-cycles", reason: "this version records every cycle; leave the flag out" },
    Later { name: "enable-profiling", reason: "this version has no profiling endpoints; leave the flag out" },
    Later { name: "seed-machines", reason: SEEDS },
    Later { name: "seed-speculative", reason: SEEDS },
    Later { name: "seed-spot", reason: SEEDS },
    Later { name: "seed-configured-per-cluster", reason: SEEDS },
    Later { name: "seed-cluster-total", reason: SEEDS },
    Later { name: "seed-cluster-stride", reason: SEEDS },
    Later { name: "seed-density-multiplier", reason: SEEDS },
    Later { name: "archetypes", reason: SEEDS },
    Later { name: "failure-rate-per-sec", reason: SEEDS },
];

pub(super) const PROGRAM: Program = Program {
    name: "shard",
    about: "Own machines and serve clusters",
    flags: &[OWN, RAILS, logging::FLAGS],
    later: LATER,
};

/// A shard's options, the listeners and the data directory aside.
pub(crate) fn options(values: &Values, provider_addr: &str) -> Result<Options, Failure> {
    let usage = |flag: &str, error: &dyn std::fmt::Display| Failure::Usage(format!("--{flag}: {error}"));
    let mut options = Options::new(provider_addr)?;
    let duration = |name| values.duration(name);
    let count =
        |name| u32::try_from(values.count(name)).map_err(|_| usage(name, &"is larger than 4294967295"));
    options.audit_log = values.path("audit-log");
    options.max_list_bytes = values.count("max-list-bytes");
    options.max_rollup_bytes = values.count("max-rollup-bytes");
    let control = &mut options.control;
    control.policy.reclaim_after = duration("reclaim-after");
    control.cycle_interval = duration("cycle-interval");
    control.cycle_min_gap = duration("cycle-min-gap");
    control.max_actions_per_cycle = count("max-actions-per-cycle")?;
    control.execute_concurrency = count("execute-concurrency")?;
    control.reclaim_cap_fraction = values.number("reclaim-cap-fraction");
    control.actuation_paused = values.switch("actuation-paused");
    control.dry_run = values.switch("dry-run");
    control.empty_rollup_guard = values.switch("empty-rollup-guard");
    let hints = duration("available-capacity-interval");
    if !hints.is_zero() {
        control.available_capacity_interval = hints;
    }
    control.bootstrap_timeout = duration("bootstrap-timeout");
    control.execute_timeout = duration("execute-timeout");
    control.stuck.create = duration("stuck-create-after");
    control.stuck.configure = duration("stuck-configure-after");
    control.stuck.drain = duration("stuck-drain-after");
    control.stuck.delete = duration("stuck-delete-after");
    options.validate().map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(options)
}

/// Reads an address that the table has already found well-formed.
pub(crate) fn address<T: std::str::FromStr>(values: &Values, flag: &str) -> Result<T, Failure>
where
    T::Err: std::fmt::Display,
{
    values.text(flag).parse().map_err(|error| Failure::Usage(format!("--{flag}: {error}")))
}

pub(super) fn run(values: &Values) -> Outcome {
    let mut options = options(values, values.text("provider-addr"))?;
    options.id = ShardId::parse(values.text("id")).map_err(|e| Failure::Usage(format!("--id: {e}")))?;
    options.listen = address(values, "listen")?;
    options.metrics_addr = address(values, "metrics-addr")?;
    options.data_dir = values.text("data-dir").into();
    block_on(async {
        let signals = Signals::listen()?;
        let mut shard = Shard::start(options).await?;
        announce(&shard)?;
        serve(&mut shard, signals).await
    })
}

/// Prints where a shard can be reached.
pub(crate) fn announce(shard: &Handle) -> Outcome {
    ready("shard", shard.grpc_addr())?;
    shard.metrics_addr().map_or(Ok(()), |addr| ready("shard-metrics", addr))
}

/// Runs a shard until a signal ends it, or it ends by itself. SIGHUP opens the audit log anew.
pub(crate) async fn serve(shard: &mut Handle, mut signals: Signals) -> Outcome {
    let mut hangups = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping");
                shard.shutdown();
                shard.wait().await?;
                return Ok(());
            }
            Some(()) = hangups.recv() => shard.reopen_audit_log(),
            ended = shard.wait() => {
                ended?;
                return Err(anyhow::anyhow!("the shard ended though nobody asked it to").into());
            }
        }
    }
}
