//! One watch that never ends by itself.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use bigfleet_net::backoff::Backoff;
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::core::DeserializeGuard;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;

/// Pauses after failures: from the first to the last, doubling.
const PAUSES: (Duration, Duration) = (Duration::from_millis(800), Duration::from_secs(30));
/// This long without a failure, and the pauses begin anew.
const HEALTHY: Duration = Duration::from_secs(120);
/// How often a failure that lasts is told.
const TELL: Duration = Duration::from_secs(30);

/// What a watch has to say.
#[allow(
    clippy::large_enum_variant,
    reason = "it is taken apart at once; a box for every event would only cost"
)]
pub(crate) enum Change<K> {
    /// As the watcher puts it.
    Event(watcher::Event<DeserializeGuard<K>>),
    /// The kind cannot be read: forbidden, or there is no such kind. What was read before is out of date from now on.
    /// Said once; the next list ends it.
    Denied,
}

/// A watch of one kind.
pub(crate) struct Follower<K> {
    kind: &'static str,
    api: Api<DeserializeGuard<K>>,
    config: watcher::Config,
    stream: BoxStream<'static, watcher::Result<watcher::Event<DeserializeGuard<K>>>>,
    backoff: Backoff,
    failed: Option<Instant>,
    told: Option<Instant>,
    pause: Option<Duration>,
    denied: bool,
}

impl<K> Follower<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    /// A watch of `kind` through `api`, with everything of it that `config` selects.
    pub(crate) fn new(kind: &'static str, api: Api<DeserializeGuard<K>>, config: watcher::Config) -> Self {
        let stream = watcher(api.clone(), config.clone()).boxed();
        let backoff = Backoff::new(PAUSES.0, PAUSES.1);
        Self { kind, api, config, stream, backoff, failed: None, told: None, pause: None, denied: false }
    }

    /// Waits for what happens next.
    pub(crate) async fn next(&mut self) -> Change<K> {
        loop {
            if let Some(pause) = self.pause.take() {
                tokio::time::sleep(pause).await;
            }
            match self.stream.next().await {
                Some(Ok(event)) => {
                    if matches!(event, watcher::Event::InitDone) {
                        self.denied = false;
                    }
                    return Change::Event(event);
                }
                Some(Err(error)) => {
                    if self.failure(&error) && !std::mem::replace(&mut self.denied, true) {
                        return Change::Denied;
                    }
                }
                None => self.restart(),
            }
        }
    }

    /// Begins again, with a list.
    pub(crate) fn restart(&mut self) {
        self.stream = watcher(self.api.clone(), self.config.clone()).boxed();
    }

    /// Plans a pause; whether the kind cannot be read at all.
    fn failure(&mut self, error: &watcher::Error) -> bool {
        let now = Instant::now();
        if self.failed.is_none_or(|last| now.duration_since(last) > HEALTHY) {
            self.backoff.reset();
        }
        self.failed = Some(now);
        self.pause = Some(self.backoff.next_delay_os());
        let code = code(error);
        if self.told.is_none_or(|told| now.duration_since(told) >= TELL) {
            self.told = Some(now);
            tracing::warn!(kind = self.kind, code, %error, "the watch failed; what is known stays in force");
        }
        let denied = matches!(code, Some(403 | 404));
        // A watch that is refused from its start would be tried again from the same version for ever: a kind that is
        // there again, or a version that is too old, needs a list.
        if denied || (code == Some(410) && matches!(error, watcher::Error::WatchStartFailed(_))) {
            self.restart();
        }
        denied
    }
}

fn code(error: &watcher::Error) -> Option<u16> {
    match error {
        watcher::Error::WatchError(status) => Some(status.code),
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status.code),
        _ => None,
    }
}

/// Which objects a list has named so far, to find out at its end who is gone.
#[derive(Debug, Default)]
pub(crate) struct Listing(Option<BTreeSet<String>>);

impl Listing {
    /// A list begins.
    pub(crate) fn begin(&mut self) {
        self.0 = Some(BTreeSet::new());
    }

    /// The list names an object, readable or not.
    pub(crate) fn names(&mut self, key: &str) {
        if let Some(named) = &mut self.0 {
            named.insert(key.to_owned());
        }
    }

    /// The list is complete: gives what it has named.
    pub(crate) fn end(&mut self) -> BTreeSet<String> {
        self.0.take().unwrap_or_default()
    }
}
