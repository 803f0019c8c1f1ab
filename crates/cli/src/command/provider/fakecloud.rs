//! `bigfleet provider fakecloud`.

use bigfleet_provider_kit::fakecloud::{
    BootCommand, Class, FakeCloud, Latency, Options, Profile, Seeds, Shed,
};

use super::{Common, Failure, Outcome, flags, label, serve};
use crate::config::{Flag, Kind, Program, Values};
use crate::logging;

const FLAGS: &[Flag] = &[
    flags::addr(":9000"),
    flags::seed_count("0", "Slots seed-N, a quarter each of on-demand and spot in two zones"),
    Flag {
        name: "id",
        kind: Kind::Text,
        default: Some("fakecloud-0"),
        help: "Its name; the number at its end decides which clusters --seed-cluster-stride gives it",
    },
    Flag {
        name: "seed-profile",
        kind: Kind::Choice(&["none", "dev", "demo"]),
        default: Some("none"),
        help: "Begin with a catalogue: none, dev or demo",
    },
    Flag {
        name: "seed-machines",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "Idle bare-metal machines idle-N",
    },
    Flag {
        name: "seed-speculative",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "On-demand slots spec-N at $1 an hour",
    },
    Flag {
        name: "seed-spot",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "Spot slots spot-N at $0.30 an hour",
    },
    Flag {
        name: "seed-configured-per-cluster",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "Machines that serve each of the clusters kwok-cluster-N from the beginning",
    },
    Flag {
        name: "seed-cluster-total",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "How many such clusters there are",
    },
    Flag {
        name: "seed-cluster-stride",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "Over how many providers they are spread; 0 is one",
    },
    Flag {
        name: "seed-density-multiplier",
        kind: Kind::Count(1),
        default: Some("1"),
        help: "Allocatable cpu, memory and ephemeral storage, times this",
    },
    Flag {
        name: "archetypes",
        kind: Kind::Path,
        default: Some(""),
        help: "A YAML list of machine classes to begin with",
    },
    Flag {
        name: "speculative-shed-at-seconds",
        kind: Kind::Count(0),
        default: Some("0"),
        help: "When part of the Speculative slots vanishes; 0 is never",
    },
    Flag {
        name: "speculative-shed-multiplier",
        kind: Kind::Fraction,
        default: Some("1"),
        help: "The fraction of Speculative slots that is kept then",
    },
    Flag {
        name: "failure-rate-per-sec",
        kind: Kind::Rate,
        default: Some("0"),
        help: "Expected failures a second for each Configured machine",
    },
    Flag {
        name: "instant",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Answer every call when its work is done, and take no time for it (tests)",
    },
    Flag {
        name: "create-latency",
        kind: Kind::Duration,
        default: Some("40ms"),
        help: "How long a Create takes; BIGFLEET_FAKE_CREATE_LATENCY wins",
    },
    Flag {
        name: "configure-latency",
        kind: Kind::Duration,
        default: Some("40ms"),
        help: "How long a Configure takes before the boot command",
    },
    Flag {
        name: "drain-latency",
        kind: Kind::Duration,
        default: Some("40ms"),
        help: "How long a Drain takes before the boot command",
    },
    Flag {
        name: "delete-latency",
        kind: Kind::Duration,
        default: Some("40ms"),
        help: "How long a Delete takes",
    },
    Flag {
        name: "boot-command",
        kind: Kind::Text,
        default: Some(""),
        help: "A program run when a machine joins (blob on standard input) and leaves; words are split at blanks",
    },
    Flag { name: "random-seed", kind: Kind::Count(0), default: Some("1"), help: "Where chance begins" },
];

pub(in crate::command) const FAKECLOUD: Program = Program {
    name: "fakecloud",
    about: "A cloud that is not there: simulated machines, prices and faults",
    flags: &[FLAGS, flags::COMMON, logging::FLAGS],
    later: &[],
};

fn options(values: &Values) -> Result<Options, Failure> {
    let count = |name: &str| {
        let too_many = || Failure::Usage(format!("--{name}: is larger than 4294967295"));
        u32::try_from(values.count(name)).map_err(|_| too_many())
    };
    let id = values.text("id");
    let ordinal = id.trim_start_matches(|c: char| !c.is_ascii_digit());
    let number = |name| u64::try_from(values.count(name)).unwrap_or(u64::MAX);
    let mut options = Options {
        profile: Profile::named(values.text("seed-profile")),
        seeds: Seeds {
            idle: count("seed-machines")?,
            speculative: count("seed-speculative")?,
            spot: count("seed-spot")?,
            configured_per_cluster: count("seed-configured-per-cluster")?,
            cluster_total: count("seed-cluster-total")?,
            cluster_stride: count("seed-cluster-stride")?,
            ordinal: ordinal
                .rsplit(|c: char| !c.is_ascii_digit())
                .next()
                .and_then(|n| n.parse().ok())
                .unwrap_or(0),
        },
        classes: values.path("archetypes").map(|path| archetypes(&path)).transpose()?.unwrap_or_default(),
        slots: number("seed-count"),
        label: label(values, "fakecloud"),
        density_multiplier: number("seed-density-multiplier"),
        instant: values.switch("instant"),
        failures_per_second: values.number("failure-rate-per-sec"),
        random_seed: number("random-seed"),
        ..Options::default()
    };
    options.latency.create = Latency::fixed(values.duration("create-latency"));
    options.latency.configure = Latency::fixed(values.duration("configure-latency"));
    options.latency.drain = Latency::fixed(values.duration("drain-latency"));
    options.latency.delete = Latency::fixed(values.duration("delete-latency"));
    let at_seconds = number("speculative-shed-at-seconds");
    options.shed =
        (at_seconds > 0).then(|| Shed { at_seconds, keep: values.number("speculative-shed-multiplier") });
    let mut words = values.text("boot-command").split_whitespace().map(str::to_owned);
    options.boot = words.next().map(|program| BootCommand { program: program.into(), args: words.collect() });
    Ok(options.take_environment(|name| std::env::var(name).ok()))
}

fn archetypes(path: &std::path::Path) -> Result<Vec<Class>, Failure> {
    let refuse =
        |why: &dyn std::fmt::Display| Failure::Usage(format!("--archetypes {}: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| refuse(&error))?;
    serde_saphyr::from_str(&text).map_err(|error| refuse(&error))
}

pub(in crate::command) fn run(values: &Values) -> Outcome {
    let common = Common::read(values, "fakecloud")?;
    let mut cloud = FakeCloud::new(options(values)?).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(store) = common.store()? {
        cloud = cloud.store(store);
    }
    let addr = common.addr.clone();
    let cloud = cloud.kit(|kit| common.apply(kit));
    serve(addr, async |listener| Ok(cloud.start(listener).await?.into_kit()))
}
