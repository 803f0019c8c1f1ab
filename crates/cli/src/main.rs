//! `bigfleet`: one executable for every part of BigFleet.
//!
//! Exit status: 0 when all went well or a signal ended it, 1 when it failed at run time, 2 when the command line or
//! another setting cannot be used, 3 when a conformance run is incomplete.

mod arguments;
mod command;
mod config;
mod ctl;
mod demo;
mod logging;
mod stop;

use std::process::ExitCode;

fn main() -> ExitCode {
    // Before any key is read. Not a reason to refuse to work where the kernel does not let us.
    if let Err(error) = bigfleet_net::core_dump::disable() {
        command::say(&format!("bigfleet: core dumps cannot be switched off, and could hold keys: {error}"));
    }
    let arguments = match arguments::normalise(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(message) => return command::usage(&message),
    };
    let matches = match command::tree().try_get_matches_from(arguments) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version come this way too, with status 0; a message that cannot be printed has no reader.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    command::run(&matches)
}
