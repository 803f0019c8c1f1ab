//! `bigfleet provider exec`.

use std::sync::Arc;

use bigfleet_provider_kit::exec::{Exec, schema};

use super::{Common, Failure, Outcome, command_line, flags, given_label, serve_backend};
use crate::command::print;
use crate::config::{Flag, Kind, Program, Values};
use crate::logging;

const FLAGS: &[Flag] = &[
    flags::addr(":9000"),
    Flag {
        name: "command",
        kind: Kind::Text,
        default: Some(""),
        help: "The program that is the back end, with arguments; quotes keep blanks in one, as in a shell",
    },
    Flag {
        name: "print-schema",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Print the JSON Schema of requests and answers and exit",
    },
    flags::seed_count("0", "Passed on to the program, for those that can pretend"),
];

pub(in crate::command) const EXEC: Program = Program {
    name: "exec",
    about: "Any program as a back end: one JSON request on standard input, one JSON answer",
    flags: &[FLAGS, flags::COMMON, logging::FLAGS],
    later: &[],
};

pub(in crate::command) fn run(values: &Values) -> Outcome {
    if values.switch("print-schema") {
        return print(&format!("{:#}\n", schema()));
    }
    let common = Common::read(values, "exec")?;
    let command = command_line(values, "command")?.ok_or_else(|| {
        Failure::Usage("--command: is missing; name the program that is the back end".into())
    })?;
    let fake = values.switch("use-fake-backend");
    serve_backend(&common, Arc::new(Exec::new(command, given_label(values), common.seed_count, fake)))
}
