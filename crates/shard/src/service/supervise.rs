//! The end of a shard: what brings it about, and in which order the parts go.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::admin::Supervised;
use bigfleet_net::{grpc, limits};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Failure;
use crate::epoch::{Epoch, Superseded};
use crate::io::Input;
use crate::session::Sessions;

/// How long streams that were told to end may take.
pub(super) const STREAMS_GRACE: Duration = Duration::from_secs(2);

/// What is stopped one after the other.
#[derive(Debug, Default)]
pub(super) struct Stops {
    pub(super) streams: CancellationToken,
    pub(super) decisions: CancellationToken,
    pub(super) admin: CancellationToken,
}

/// The parts of a running shard that its end needs.
pub(super) struct Running {
    pub(super) stop: CancellationToken,
    pub(super) stops: Stops,
    pub(super) inputs: mpsc::Sender<Input>,
    pub(super) sessions: Sessions,
    pub(super) mutations: TaskTracker,
    pub(super) admin: Option<Supervised>,
    /// Keeps the data directory locked.
    pub(super) _epoch: Arc<Epoch>,
}

impl Running {
    /// Waits for a reason to end, and ends everything in order.
    pub(super) async fn supervise(
        self,
        mut decided: oneshot::Receiver<()>,
        mut serving: JoinHandle<Result<grpc::Stopped, grpc::Error>>,
        mut superseded: mpsc::Receiver<Superseded>,
    ) -> Result<(), Failure> {
        let failure = tokio::select! {
            () = self.stop.cancelled() => None,
            _ = &mut decided => Some(Failure::Decisions),
            result = &mut serving => Some(Failure::Listener(match result {
                Ok(Ok(_)) => "nobody asked it to".into(),
                Ok(Err(error)) => error.to_string(),
                Err(error) => error.to_string(),
            })),
            Some(by) = superseded.recv() => Some(Failure::Superseded(by)),
        };
        match &failure {
            None => tracing::info!("the shard stops"),
            Some(failure) => tracing::error!(%failure, "the shard ends"),
        }
        if !matches!(failure, Some(Failure::Decisions)) {
            // No new work. Waits for room in the queue at most as long as for the calls in flight.
            let quiet = async {
                let _ = self.inputs.send(Input::Stopping).await;
                self.mutations.close();
                self.mutations.wait().await;
            };
            if tokio::time::timeout(limits::SHUTDOWN_GRACE, quiet).await.is_err() {
                let calls = self.mutations.len();
                tracing::warn!(
                    calls,
                    "provider calls are still in flight; their machines settle after the next start"
                );
            }
        }
        self.sessions.stop();
        self.stops.streams.cancel();
        if !serving.is_finished() && (&mut serving).await.is_err() {
            tracing::error!("the session listener panicked while it stopped");
        }
        self.stops.decisions.cancel();
        if !matches!(failure, Some(Failure::Decisions)) {
            // Its last act is to write out the audit log; a disk that hangs must not keep the process.
            let _ = tokio::time::timeout(STREAMS_GRACE, decided).await;
        }
        self.stops.admin.cancel();
        if let Some(admin) = self.admin {
            admin.join().await;
        }
        failure.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;
    use bigfleet_net::clock::SystemClock;
    use bigfleet_types::Clock as _;
    use prometheus_client::registry::Registry;

    struct Set {
        running: Running,
        decided: (oneshot::Sender<()>, oneshot::Receiver<()>),
        superseded: (mpsc::Sender<Superseded>, mpsc::Receiver<Superseded>),
        _inputs: mpsc::Receiver<Input>,
        _dir: tempfile::TempDir,
    }

    fn set() -> Set {
        let dir = tempfile::tempdir().unwrap();
        let (inputs, incoming) = mpsc::channel(8);
        let running = Running {
            stop: CancellationToken::new(),
            stops: Stops::default(),
            inputs,
            sessions: Sessions::new(Metrics::register(&mut Registry::default())),
            mutations: TaskTracker::new(),
            admin: None,
            _epoch: Arc::new(Epoch::take(dir.path(), SystemClock::start().now()).unwrap()),
        };
        let (decided, superseded) = (oneshot::channel(), mpsc::channel(1));
        Set { running, decided, superseded, _inputs: incoming, _dir: dir }
    }

    fn listener(set: &Set) -> JoinHandle<Result<grpc::Stopped, grpc::Error>> {
        let stop = set.running.stops.streams.clone();
        tokio::spawn(async move {
            stop.cancelled().await;
            Ok(grpc::Stopped::Drained)
        })
    }

    #[tokio::test]
    async fn a_deciding_thread_that_dies_ends_the_shard() {
        let set = set();
        let serving = listener(&set);
        // A panic drops the sender unused.
        drop(set.decided.0);
        let end = set.running.supervise(set.decided.1, serving, set.superseded.1).await;
        assert!(matches!(end, Err(Failure::Decisions)), "{end:?}");
    }

    #[tokio::test]
    async fn a_session_listener_that_ends_takes_the_shard_with_it() {
        let set = set();
        let (stop, decided) = (set.running.stops.decisions.clone(), set.decided.0);
        tokio::spawn(async move {
            stop.cancelled().await;
            decided.send(())
        });
        let serving = tokio::spawn(async { panic!("accept loop") });
        let end = set.running.supervise(set.decided.1, serving, set.superseded.1).await;
        assert!(matches!(&end, Err(Failure::Listener(why)) if why.contains("panic")), "{end:?}");
    }

    #[tokio::test]
    async fn a_stop_waits_for_calls_in_flight_and_is_no_failure() {
        let set = set();
        let serving = listener(&set);
        let (stop, decided, streams) =
            (set.running.stops.decisions.clone(), set.decided.0, set.running.stops.streams.clone());
        tokio::spawn(async move {
            stop.cancelled().await;
            decided.send(())
        });
        let (finish, finished) = oneshot::channel::<()>();
        set.running.mutations.spawn(finished);
        set.running.stop.cancel();
        let ending = tokio::spawn(set.running.supervise(set.decided.1, serving, set.superseded.1));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        assert!(!streams.is_cancelled(), "sessions were ended before the call was");
        finish.send(()).unwrap();
        ending.await.unwrap().unwrap();
    }
}
