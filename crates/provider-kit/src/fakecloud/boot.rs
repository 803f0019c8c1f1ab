//! A program that plays the host: run at each Configure and again at each Drain.

use async_trait::async_trait;

use super::NodeHook;
use crate::backend::{Error, Operation};
use crate::blob::Blob;
use crate::program::{Run, environment};

/// The program and its arguments.
///
/// Its environment gets `BIGFLEET_OPERATION` (`Configure` or `Drain`), `BIGFLEET_OPERATION_ID`, `BIGFLEET_MACHINE_ID`,
/// `BIGFLEET_INSTANCE_TYPE`, `BIGFLEET_ZONE`, `BIGFLEET_CLUSTER`, and at Drain `BIGFLEET_GRACE_SECONDS`. At Configure
/// the bootstrap blob comes on standard input. Exit 0 means that the node is Ready, or gone; processes that it leaves
/// behind then live on. Anything else fails the machine, with the last line of standard error as the reason. At the
/// time-out the program is killed with its whole process group.
///
/// After a restart of the provider an interrupted Drain runs again, perhaps beside what the killed provider left
/// running: the program must bear that. An interrupted Configure never runs again.
pub use crate::program::Program as BootCommand;

const WHAT: &str = "boot command";

#[async_trait]
impl NodeHook for BootCommand {
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        play(self, "Configure", operation, Some(blob)).await
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        play(self, "Drain", operation, None).await
    }
}

async fn play(
    command: &BootCommand,
    name: &str,
    operation: Operation<'_>,
    blob: Option<&Blob>,
) -> Result<(), Error> {
    let mut environment = environment(name, &operation);
    if blob.is_none() {
        environment.push(("BIGFLEET_GRACE_SECONDS", operation.grace_seconds.to_string()));
    }
    let run = Run { what: WHAT, environment, input: blob.map(Blob::expose), output: 0 };
    command.run(run).await?.check(WHAT, name)
}
