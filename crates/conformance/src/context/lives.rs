//! Providers that a probe starts, kills and starts again on the same state.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Context;
use crate::behaviour::Lane;
use crate::check::{Check, Stop};
use crate::launch::{Launch, Running, Spec};

/// Machines of a provider that is killed.
const SEED: u32 = 64;

/// One provider over several processes.
pub(crate) struct Life {
    launch: Arc<dyn Launch>,
    spec: Spec,
    running: Option<Box<dyn Running>>,
    folder: PathBuf,
}

impl Context {
    /// A provider with a state of its own, just started.
    pub(crate) async fn life(&self) -> Check<(Life, Self)> {
        let Some(launch) = &self.programs.subject else {
            return Err(Stop::Unseen(
                "the provider must be started and killed: give its command with --exec".into(),
            ));
        };
        self.start(launch, Lane::Durable, None).await
    }

    /// The same that breaks on demand, if there is a program for it.
    pub(crate) async fn faulty_life(&self, timeout: Duration) -> Check<Option<(Life, Self)>> {
        match &self.programs.fault {
            Some(launch) => self.start(launch, Lane::Fault, Some(timeout)).await.map(Some),
            None => Ok(None),
        }
    }

    async fn start(
        &self,
        launch: &Arc<dyn Launch>,
        lane: Lane,
        transition_timeout: Option<Duration>,
    ) -> Check<(Life, Self)> {
        let folder = std::env::temp_dir().join(self.unique("life"));
        std::fs::create_dir_all(&folder)
            .map_err(|error| Stop::Unseen(format!("cannot make {}: {error}", folder.display())))?;
        let spec = Spec { lane, seed: SEED, state: Some(folder.join("state")), transition_timeout };
        let mut life = Life { launch: Arc::clone(launch), spec, running: None, folder };
        let context = life.begin(self).await?;
        Ok((life, context))
    }
}

impl Life {
    async fn begin(&mut self, context: &Context) -> Check<Context> {
        let running = self.launch.start(&self.spec).await.map_err(|error| Stop::Broken(error.to_string()))?;
        let next = context.at(running.addr())?;
        self.running = Some(running);
        Ok(next)
    }

    /// SIGKILL, and a new process on the same state.
    pub(crate) async fn reborn(&mut self, context: &Context) -> Check<Context> {
        if let Some(mut running) = self.running.take() {
            running.kill().await.map_err(|error| Stop::Unseen(error.to_string()))?;
        }
        context.log.add("SIGKILL, then a new process on the same state".into(), "started".into());
        self.begin(context).await
    }

    /// SIGKILL, and the state is thrown away.
    pub(crate) async fn end(mut self) -> Check {
        if let Some(mut running) = self.running.take() {
            running.kill().await.map_err(|error| Stop::Unseen(error.to_string()))?;
        }
        Ok(())
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // The process first: it must not write into a folder that is going away.
        self.running = None;
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            tracing::warn!(folder = %self.folder.display(), %error, "a provider's state stays behind");
        }
    }
}
