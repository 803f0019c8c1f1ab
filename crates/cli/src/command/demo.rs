//! `bigfleet demo`.

use std::collections::BTreeMap;

use bigfleet_provider_kit::fakecloud::Profile;

use super::shard::{RAILS, address, options};
use super::{Failure, Outcome, TLS_LATER, block_on};
use crate::config::{Flag, Kind, Later, Program, Values};
use crate::demo::{self, Afterwards, Pace, Scenario, Settings, Stage};
use crate::logging;

const OWN: &[Flag] = &[
    Flag {
        name: "scenario",
        kind: Kind::Text,
        default: Some(""),
        help: "Play a story and check its claims: move (machines travel from one cluster to another), saturate (more demand than owned machines) or critical (batch gives way to what matters most)",
    },
    Flag {
        name: "exit",
        kind: Kind::Bool,
        default: Some("false"),
        help: "End with the scenario; status 1 when one of its claims does not hold",
    },
    Flag {
        name: "keep",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Stay up until a signal, after a scenario too, and print commands for ctl and curl",
    },
    Flag {
        name: "scenario-timeout",
        kind: Kind::PositiveDuration,
        default: Some("4m"),
        help: "How long a scenario may take",
    },
    Flag {
        name: "plain",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Print lines instead of the live view, as it does when standard output is no terminal",
    },
    Flag {
        name: "data-dir",
        kind: Kind::Path,
        default: Some(""),
        help: "Keep the log, the audit log and all state here; without it they are in a temporary folder and gone at the end",
    },
    Flag {
        name: "provider-listen",
        kind: Kind::Address,
        default: Some("127.0.0.1:0"),
        help: "Where the simulated cloud listens",
    },
    Flag {
        name: "shard-listen",
        kind: Kind::Address,
        default: Some("127.0.0.1:0"),
        help: "Where operators and readers connect",
    },
    Flag {
        name: "shard-metrics-addr",
        kind: Kind::Address,
        default: Some("127.0.0.1:0"),
        help: "The shard's metrics and probes",
    },
    Flag {
        name: "create-latency",
        kind: Kind::Duration,
        default: Some("800ms"),
        help: "How long the cloud takes to make a machine, give or take a quarter",
    },
    Flag {
        name: "join-latency",
        kind: Kind::Duration,
        default: Some("1500ms"),
        help: "How long a machine takes to boot and join, give or take a quarter",
    },
    Flag {
        name: "drain-latency",
        kind: Kind::Duration,
        default: Some("1s"),
        help: "How long a machine takes to leave, give or take a quarter",
    },
    Flag {
        name: "repair-latency",
        kind: Kind::Duration,
        default: Some("45s"),
        help: "How long the cloud takes to replace a machine that was killed",
    },
];

/// How many machines of each class there are; the names are those of the demo's catalogue.
const SIZES: &[Flag] = &[
    Flag {
        name: "onprem",
        kind: Kind::Count(0),
        default: Some("28"),
        help: "Bare-metal machines on premises, $0",
    },
    Flag { name: "aws-reserved", kind: Kind::Count(0), default: Some("20"), help: "Reserved machines, $0" },
    Flag {
        name: "aws-od",
        kind: Kind::Count(0),
        default: Some("24"),
        help: "On-demand slots, $0.38 an hour",
    },
    Flag { name: "aws-spot", kind: Kind::Count(0), default: Some("12"), help: "Spot slots, $0.12 an hour" },
    Flag {
        name: "gcp-od",
        kind: Kind::Count(0),
        default: Some("24"),
        help: "On-demand slots, $0.38 an hour",
    },
    Flag { name: "gcp-spot", kind: Kind::Count(0), default: Some("12"), help: "Spot slots, $0.10 an hour" },
];

const NO_COORDINATOR: &str = "this version has no coordinator yet; the demo runs one shard without it";
const LATER: &[Later] = &[
    TLS_LATER[0],
    TLS_LATER[1],
    TLS_LATER[2],
    Later {
        name: "dashboard-addr",
        reason: "this version has no dashboard yet; the demo shows itself in the terminal",
    },
    Later { name: "coordinator-listen", reason: NO_COORDINATOR },
    Later { name: "coordinator-metrics-addr", reason: NO_COORDINATOR },
];

pub(super) const PROGRAM: Program = Program {
    name: "demo",
    about: "A simulated cloud, a shard and three simulated clusters in one process, live in the terminal",
    flags: &[OWN, SIZES, RAILS, logging::FLAGS],
    later: LATER,
};

pub(super) fn run(values: &Values) -> Outcome {
    let settings = settings(values)?;
    block_on(Box::pin(demo::run(settings)))
}

fn settings(values: &Values) -> Result<Settings, Failure> {
    let usage = |text: String| Failure::Usage(text);
    let scenario = match values.text("scenario") {
        "" => None,
        name => Some(Scenario::parse(name).map_err(|why| usage(format!("--scenario {name:?}: {why}")))?),
    };
    let afterwards = match (values.switch("exit"), values.switch("keep")) {
        (true, true) => return Err(usage("--exit: contradicts --keep; give one of them".to_owned())),
        (true, false) if scenario.is_none() => {
            return Err(usage(
                "--exit: ends with a scenario; give --scenario move, saturate or critical".to_owned(),
            ));
        }
        (true, false) => Afterwards::Exit,
        (false, true) => Afterwards::Keep,
        (false, false) => Afterwards::Stay,
    };
    // The provider's address is known once it listens; everything else is checked before anything starts.
    let mut shard = options(values, "127.0.0.1:1")?;
    shard.listen = address(values, "shard-listen")?;
    shard.metrics_addr = address(values, "shard-metrics-addr")?;
    let mut classes = Profile::Demo.classes();
    let sizes: BTreeMap<&str, usize> =
        SIZES.iter().map(|flag| (flag.name, values.count(flag.name))).collect();
    for class in &mut classes {
        let Some(size) = sizes.get(class.name.as_str()) else { continue };
        class.count =
            u32::try_from(*size).ok().filter(|size| *size <= demo::MOST_MACHINES).ok_or_else(|| {
                usage(format!("--{}: the demo takes at most {}", class.name, demo::MOST_MACHINES))
            })?;
    }
    Ok(Settings {
        stage: Stage {
            classes,
            pace: Pace {
                create: values.duration("create-latency"),
                join: values.duration("join-latency"),
                drain: values.duration("drain-latency"),
                repair: values.duration("repair-latency"),
            },
            provider_listen: address(values, "provider-listen")?,
            shard,
        },
        data_dir: values.path("data-dir"),
        scenario,
        scenario_timeout: values.duration("scenario-timeout"),
        afterwards,
        plain: values.switch("plain"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn read(arguments: &[&str]) -> Result<Settings, Failure> {
        let words = [&["demo"], arguments].concat();
        let matches = PROGRAM.command().try_get_matches_from(words).unwrap();
        settings(&config::load(&PROGRAM, &matches, &|_| None).unwrap())
    }

    fn refused(arguments: &[&str]) -> String {
        match read(arguments) {
            Err(Failure::Usage(text)) => text,
            Err(other) => panic!("{arguments:?} failed instead: {other:?}"),
            Ok(_) => panic!("{arguments:?} was taken"),
        }
    }

    #[test]
    fn the_catalogue_has_a_size_flag_for_every_class() {
        let defaults = read(&[]).unwrap().stage.classes;
        assert_eq!(defaults, Profile::Demo.classes());
        assert_eq!(defaults.len(), SIZES.len());
        let sized = read(&["--gcp-od=3"]).unwrap().stage.classes;
        assert_eq!(sized.iter().find(|class| class.name == "gcp-od").unwrap().count, 3);
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_name() {
        assert!(refused(&["--scenario=dance"]).contains("move, saturate, critical"));
        assert!(refused(&["--exit"]).starts_with("--exit: "));
        assert!(refused(&["--scenario=move", "--exit", "--keep"]).starts_with("--exit: contradicts --keep"));
        assert!(refused(&["--onprem=100000"]).starts_with("--onprem: "));
    }
}
