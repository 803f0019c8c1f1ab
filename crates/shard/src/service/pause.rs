//! The PAUSE file: while it is in the data directory, nothing is executed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::log_limit::LogLimit;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::io::{Input, Published};
use crate::options::Options;

const LOOK_EVERY: Duration = Duration::from_millis(500);
const COMPLAINT_PAUSE: Duration = Duration::from_secs(60);

/// Tells the core whenever the file comes or goes. It looks after every cycle, and twice a second.
pub(super) struct Watch {
    path: PathBuf,
    /// Paused anyway, by flag.
    flag: bool,
    there: bool,
    inputs: mpsc::Sender<Input>,
    cycles: watch::Receiver<Arc<Published>>,
    complaints: LogLimit,
}

impl Watch {
    /// Looks once and tells the core, so that it knows before it decides anything.
    pub(super) async fn begin(
        options: &Options,
        inputs: mpsc::Sender<Input>,
        cycles: watch::Receiver<Arc<Published>>,
    ) -> Self {
        let mut watch = Self {
            path: options.data_dir.join("PAUSE"),
            flag: options.control.actuation_paused,
            there: false,
            inputs,
            cycles,
            complaints: LogLimit::every(COMPLAINT_PAUSE),
        };
        watch.there = watch.look().await;
        watch.tell().await;
        watch
    }

    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Ok(()) = self.cycles.changed() => {}
            }
            let there = self.look().await;
            if there != self.there {
                self.there = there;
                self.tell().await;
            }
        }
    }

    /// Whether the file is there. When that cannot be found out, nothing has changed.
    async fn look(&mut self) -> bool {
        match tokio::fs::try_exists(&self.path).await {
            Ok(there) => there,
            Err(error) => {
                if let Some(suppressed) = self.complaints.pass() {
                    let path = self.path.display();
                    tracing::error!(%path, %error, suppressed, "cannot look for the PAUSE file; nothing changes");
                }
                self.there
            }
        }
    }

    async fn tell(&self) {
        let path = self.path.display();
        if self.there {
            tracing::warn!(%path, "the PAUSE file is there: actions are decided and not executed");
        } else {
            tracing::debug!(%path, "no PAUSE file");
        }
        // Fails only when the deciding thread is gone.
        let _ = self.inputs.send(Input::Paused(self.flag || self.there)).await;
    }
}
