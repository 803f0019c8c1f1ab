//! `bigfleet operator` as a running thing: election, watches, the operator core, metrics and probes.

mod metrics;
mod statics;

use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::admin::{Addr, BuildInfo, Pages, Readiness, supervise};
use bigfleet_net::clock::SystemClock;
use bigfleet_net::metrics::{Buckets, histogram};
use bigfleet_operator::io::{Render, Rendered};
use bigfleet_operator::service;
use bigfleet_operator::template::bootstrap::Bootstrap;
use bigfleet_proto::v1alpha1::BootstrapRequest;
use kube::Client;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::client::{self, Limits};
use crate::lease::{self, Elector, Leadership};
use crate::shell::{self, KubernetesShell};
use metrics::Running;
pub use statics::statics;

/// How long the session may take to end.
const SESSION_END: Duration = Duration::from_secs(4);
/// How long the metrics may take to end.
const ADMIN_END: Duration = Duration::from_secs(2);

/// How the operator runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// The core and its session.
    pub service: service::Options,
    /// The budget at the API server.
    pub limits: Limits,
    /// The election; `None` leads at once and relies on being alone.
    pub lease: Option<lease::Options>,
    /// The shell.
    pub shell: shell::Options,
    /// Where metrics and probes are served.
    pub metrics_addr: Addr,
    /// Makes bootstrap blobs.
    pub bootstrap: Bootstrap,
}

/// Why an operator ended though nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot start.
    #[error(transparent)]
    Start(#[from] service::StartError),
    /// Another process may lead by now.
    #[error("the lease {namespace}/{name} was lost; all writing has stopped, start again")]
    LeaseLost {
        /// Where the lease is.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// A watch ended.
    #[error("a watch of the cluster ended for good; this is a defect, start again")]
    WatchEnded,
}

/// Runs the operator until `stop`: waits for its lease, reads the cluster, speaks with the shard. `client` must not
/// retry by itself. `listening` is told where metrics are served, once they are. Ends within 10 s after `stop`.
///
/// # Errors
/// See [`Error`]; the cluster is left as it is.
pub async fn run(
    client: Client,
    options: Options,
    listening: impl FnOnce(std::net::SocketAddr) + Send + 'static,
    stop: CancellationToken,
) -> Result<(), Error> {
    let clock = Arc::new(SystemClock::start());
    let mut registry = Registry::default();
    BuildInfo::this("operator").register(&mut registry);
    let calls = client::calls(&mut registry, "bigfleet_operator");
    let client = client::limited(client, options.limits, calls);
    let readiness = Readiness::settable("the API server has not answered yet");
    let running = Running::register(&mut registry, clock.clone());
    let rendering = histogram(
        &mut registry,
        "bigfleet_operator_bootstrap_duration_seconds",
        "How long it took to render what a machine boots with",
        Buckets::A,
    );
    let halt = CancellationToken::new();
    let shell = Arc::new(KubernetesShell::new(
        client.clone(),
        options.shell,
        clock.clone(),
        &mut registry,
        readiness.clone(),
        halt.clone(),
    ));
    let admin_stop = CancellationToken::new();
    let admin = match options.metrics_addr {
        Addr::Off => None,
        Addr::On(addr) => {
            let pages = Pages {
                registry: Arc::new(registry),
                readiness: readiness.clone(),
                build: BuildInfo::this("operator"),
            };
            let supervised = supervise(addr, pages, admin_stop.clone());
            let mut bound = supervised.bound();
            tokio::spawn(async move {
                let addr = bound.wait_for(Option::is_some).await.ok().and_then(|bound| *bound);
                if let Some(addr) = addr {
                    listening(addr);
                }
            });
            Some(supervised)
        }
    };
    let elector = options.lease.as_ref().map(|lease| Elector::new(client, lease.clone(), clock.clone()));
    let leader = Leader { shell, running, readiness, halt, clock, rendering, stop: stop.clone() };
    let result = leader.run(elector, options.service, options.bootstrap).await;
    let result = result.map_err(|end| match end {
        End::Error(error) => error,
        End::Lost => {
            let lease = options.lease.unwrap_or_else(|| lease::Options::new("", "", ""));
            Error::LeaseLost { namespace: lease.namespace, name: lease.name }
        }
    });
    admin_stop.cancel();
    if let Some(admin) = admin
        && timeout(ADMIN_END, admin.join()).await.is_err()
    {
        tracing::warn!("the metrics listener did not end in time");
    }
    result
}

enum End {
    Error(Error),
    Lost,
}

struct Leader {
    shell: Arc<KubernetesShell>,
    running: Running,
    readiness: Readiness,
    halt: CancellationToken,
    clock: Arc<SystemClock>,
    rendering: Histogram,
    stop: CancellationToken,
}

impl Leader {
    /// Leads once it may, until stopped or something ends it.
    async fn run(
        self,
        elector: Option<Elector>,
        options: service::Options,
        bootstrap: Bootstrap,
    ) -> Result<(), End> {
        let leadership = match elector {
            None => None,
            Some(elector) => {
                // A replica that stands by is as ready as it can be.
                let stand_by = || self.readiness.set_ready();
                let Some(leadership) = elector.acquire(&self.stop, stand_by).await else {
                    return Ok(());
                };
                self.readiness.set_unready("reading the cluster");
                Some(leadership)
            }
        };
        self.running.leads(true);
        let lost = leadership.as_ref().map_or_else(CancellationToken::new, |leads| leads.lost().clone());
        let result = self.lead(options, bootstrap, &lost).await;
        self.halt.cancel();
        self.running.leads(false);
        if let Some(handle) = self.running.take()
            && timeout(SESSION_END, handle.stop()).await.is_err()
        {
            tracing::warn!("the session did not end in time");
        }
        match leadership {
            // What is lost is not given back.
            Some(leadership) if !lost.is_cancelled() => Leadership::release(leadership).await,
            _ => {}
        }
        result
    }

    async fn lead(
        &self,
        options: service::Options,
        bootstrap: Bootstrap,
        lost: &CancellationToken,
    ) -> Result<(), End> {
        tokio::select! {
            () = self.shell.prime() => {}
            () = self.stop.cancelled() => return Ok(()),
            () = lost.cancelled() => return Err(End::Lost),
        }
        let render = Arc::new(VersionedRender {
            bootstrap,
            version: self.shell.version(),
            rendering: self.rendering.clone(),
        });
        // A token of its own: the session ends in `Leader::run`, after writing has.
        let handle = service::start(
            options,
            render,
            Arc::clone(&self.shell),
            self.clock.clone(),
            &CancellationToken::new(),
        )
        .map_err(|error| End::Error(error.into()))?;
        self.running.set(handle);
        tokio::select! {
            () = self.stop.cancelled() => Ok(()),
            () = lost.cancelled() => {
                self.halt.cancel();
                Err(End::Lost)
            }
            () = self.shell.ended().cancelled() => Err(End::Error(Error::WatchEnded)),
        }
    }
}

/// Blobs for the API server as it is now, not as it was at the start.
struct VersionedRender {
    bootstrap: Bootstrap,
    version: watch::Receiver<Option<String>>,
    rendering: Histogram,
}

impl Render for VersionedRender {
    fn render(&self, request: &BootstrapRequest) -> Result<Rendered, String> {
        let version = self.version.borrow().clone();
        let began = Instant::now();
        let rendered = self.bootstrap.for_version(version).render(request);
        self.rendering.observe(began.elapsed().as_secs_f64());
        rendered
    }
}
