//! An admin listener that is tried again: a taken metrics port must not keep machines from being managed.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Pages, Server};
use crate::backoff::Backoff;
use crate::listen;

const FIRST_RETRY: Duration = Duration::from_millis(500);
const LAST_RETRY: Duration = Duration::from_secs(30);

/// A listener that is bound again whenever it is lost.
#[derive(Debug)]
pub struct Supervised {
    bound: watch::Receiver<Option<SocketAddr>>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Where it is bound now, with its true port; `None` while it waits to try again.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        *self.bound.borrow()
    }

    /// Follows where it is bound, after `self` is gone too.
    #[must_use]
    pub fn bound(&self) -> watch::Receiver<Option<SocketAddr>> {
        self.bound.clone()
    }

    /// Waits until it is bound. `None` when it was stopped before that.
    pub async fn wait_bound(&mut self) -> Option<SocketAddr> {
        self.bound.wait_for(Option::is_some).await.ok().and_then(|bound| *bound)
    }

    /// Waits for its end, after `stop` was cancelled.
    pub async fn join(self) {
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the admin listener's task failed");
        }
    }
}

/// Serves `pages` on `addr` in a task until `stop` is cancelled. A listener that cannot be bound or ends by itself
/// is logged and tried again after half a second, doubling to 30 s.
#[must_use]
pub fn supervise(addr: listen::Addr, pages: Pages, stop: CancellationToken) -> Supervised {
    supervise_with(addr, pages, stop, Backoff::new(FIRST_RETRY, LAST_RETRY))
}

pub(super) fn supervise_with(
    addr: listen::Addr,
    pages: Pages,
    stop: CancellationToken,
    mut backoff: Backoff,
) -> Supervised {
    let (tell, bound) = watch::channel(None);
    let task = tokio::spawn(async move {
        while !stop.is_cancelled() {
            match Server::bind(&addr, pages.clone()).await {
                Ok(server) => {
                    backoff.reset();
                    let local = server.local_addr();
                    tell.send_replace(Some(local));
                    tracing::info!(%local, "admin listener ready");
                    // In a task of its own, so that a panic ends the listener and not its supervisor.
                    let ended = tokio::spawn(server.serve(stop.clone())).await;
                    tell.send_replace(None);
                    if !stop.is_cancelled() {
                        tracing::warn!(%local, ?ended, "admin listener ended; binding it again");
                    }
                }
                Err(error) => tracing::warn!(%error, "admin listener unavailable; trying again"),
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(backoff.next_delay_os()) => {}
            }
        }
    });
    Supervised { bound, task }
}
