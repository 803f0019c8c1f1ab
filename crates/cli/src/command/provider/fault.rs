//! `bigfleet provider fault`.

use std::sync::Arc;

use bigfleet_provider_kit::fault::Fault;

use super::{Common, Outcome, flags, label, serve_backend};
use crate::config::{Flag, Program, Values};
use crate::logging;

const FLAGS: &[Flag] = &[
    flags::addr(":9400"),
    flags::seed_count("64", "Slots without a fault, beside eight whose Create fails"),
];

pub(in crate::command) const FAULT: Program = Program {
    name: "fault",
    about: "A provider whose work fails when the wire asks for it, to certify how failures are borne",
    flags: &[FLAGS, flags::COMMON, logging::FLAGS],
    later: &[],
};

pub(in crate::command) fn run(values: &Values) -> Outcome {
    let common = Common::read(values, "fault")?;
    let timeout = common.timeouts().configure;
    let fault = Fault::new(label(values, "fault"), common.seed_count, timeout);
    serve_backend(&common, Arc::new(fault))
}
