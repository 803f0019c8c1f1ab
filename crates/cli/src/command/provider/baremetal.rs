//! `bigfleet provider baremetal`.

use std::sync::Arc;

use bigfleet_provider_kit::baremetal::{BareMetal, PROVIDER};
use bigfleet_provider_kit::pretend::Pretend;
use bigfleet_provider_kit::{Backend, seeds};

use super::{Common, Failure, Outcome, flags, given_label, label, serve_backend};
use crate::config::{Flag, Kind, Program, Values};
use crate::logging;

const FLAGS: &[Flag] = &[
    flags::addr(":9000"),
    Flag {
        name: "inventory",
        kind: Kind::Path,
        default: Some(""),
        help: "The machines and their hooks (YAML); read again once a minute",
    },
    flags::seed_count("32", "Machines to pretend to have, with --use-fake-backend"),
];

pub(in crate::command) const BAREMETAL: Program = Program {
    name: "baremetal",
    about: "Machines of an inventory, switched on and joined by local programs",
    flags: &[FLAGS, flags::COMMON, logging::FLAGS],
    later: &[],
};

pub(in crate::command) fn run(values: &Values) -> Outcome {
    let common = Common::read(values, "baremetal")?;
    let backend: Arc<dyn Backend> = match (values.path("inventory"), values.switch("use-fake-backend")) {
        (Some(_), true) => {
            return Err(Failure::Usage(
                "--inventory and --use-fake-backend exclude each other: real machines, or pretended ones"
                    .into(),
            ));
        }
        (None, false) => {
            return Err(Failure::Usage(
                "--inventory: is missing; name the file that lists the machines, or pretend with --use-fake-backend"
                    .into(),
            ));
        }
        (Some(path), false) => {
            let backend = BareMetal::open(path, given_label(values));
            Arc::new(backend.map_err(|broken| Failure::Refused(broken.to_string()))?)
        }
        (None, true) => {
            let machines = seeds::bare_metal("metal", common.seed_count);
            Arc::new(Pretend::new(label(values, PROVIDER), machines, false))
        }
    };
    serve_backend(&common, backend)
}
