//! `bigfleet provider fakecloud`.

use bigfleet_provider_kit::fakecloud::{
    Class, Dwell, FakeCloud, Latency, Market, Options, Profile, Seeds, Shed, StockOuts,
};

use super::{Common, Failure, Outcome, command_line, flags, label, serve};
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
        name: "dwell",
        kind: Kind::Choice(&["same", "uniform", "long-tail"]),
        default: Some("same"),
        help: "Which time of its range work takes: the same for each machine, any, or mostly short ones",
    },
    Flag {
        name: "latency-spread",
        kind: Kind::Rate,
        default: Some("1"),
        help: "How many times the latencies the longest work takes; at least 1",
    },
    Flag {
        name: "spot-market-every",
        kind: Kind::Duration,
        default: Some("0"),
        help: "How often spot prices move; dear spot hosts are taken away sooner. 0 is never",
    },
    Flag {
        name: "spot-market-swing",
        kind: Kind::Fraction,
        default: Some("0.5"),
        help: "How far spot prices move from where they began, as a part of it; below 1",
    },
    Flag {
        name: "spot-market-speed",
        kind: Kind::Rate,
        default: Some("1"),
        help: "How many times faster than in real time spot hosts are taken away",
    },
    Flag {
        name: "stock-out-chance",
        kind: Kind::Fraction,
        default: Some("0"),
        help: "The chance that a class of machines is out of stock for a period",
    },
    Flag {
        name: "stock-out-period",
        kind: Kind::PositiveDuration,
        default: Some("1m"),
        help: "How long such a period is",
    },
    Flag {
        name: "throttle-per-sec",
        kind: Kind::Rate,
        default: Some("0"),
        help: "Mutating calls a second that are let through; 0 is all",
    },
    Flag {
        name: "list-lag",
        kind: Kind::Duration,
        default: Some("0"),
        help: "How far List is behind; it then takes no cursor",
    },
    Flag {
        name: "boot-command",
        kind: Kind::Text,
        default: Some(""),
        help: "A program run when a machine joins (blob on standard input) and leaves; quotes keep blanks in an argument",
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
    let spread = values.number("latency-spread");
    if !(1.0..=10_000.0).contains(&spread) {
        return Err(Failure::Usage(format!("--latency-spread: is {spread}, must be from 1 to 10000")));
    }
    for kind in bigfleet_provider_kit::Kind::ALL {
        let shortest = values.duration(&format!("{}-latency", kind.name().to_lowercase()));
        options
            .latency
            .set(kind, Latency { max_ms: millis(shortest.mul_f64(spread)), min_ms: millis(shortest) });
    }
    options.dwell = match values.text("dwell") {
        "uniform" => Dwell::Uniform,
        "long-tail" => Dwell::LongTail,
        _ => Dwell::Same,
    };
    let every_ms = millis(values.duration("spot-market-every"));
    let (swing, speed) = (values.number("spot-market-swing"), values.number("spot-market-speed"));
    options.market = (every_ms > 0).then_some(Market { every_ms, swing, speed });
    let chance = values.number("stock-out-chance");
    let period_ms = millis(values.duration("stock-out-period")).max(1);
    options.stock_outs = (chance > 0.0).then_some(StockOuts { chance, period_ms });
    options.calls_per_second = values.number("throttle-per-sec");
    options.list_lag_ms = millis(values.duration("list-lag"));
    let at_seconds = number("speculative-shed-at-seconds");
    options.shed =
        (at_seconds > 0).then(|| Shed { at_seconds, keep: values.number("speculative-shed-multiplier") });
    options.boot = command_line(values, "boot-command")?;
    Ok(options.take_environment(|name| std::env::var(name).ok()))
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
