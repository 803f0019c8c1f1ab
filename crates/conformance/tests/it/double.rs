//! Providers in this process, with a broken proxy in front when asked for.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bigfleet_conformance::{
    Event, Launch, LaunchError, Only, Options, Outcome, Profile, Report, Running, Series, Settings, Spec,
    Subject, run,
};
use bigfleet_net::listen::{self, Listener};
use bigfleet_net::tls::Tls;
use bigfleet_provider_kit::defects::Defect;
use bigfleet_provider_kit::fakecloud::{self, FakeCloud, Latencies, Latency, Seeds};
use bigfleet_provider_kit::fault::Fault;
use bigfleet_provider_kit::{self as kit, FileStore, Handle, MemStore, Store, Timeouts};

use crate::proxy::{Memory, Proxy};

/// Slots of a double at most: enough for the whole suite where machines can be given back.
pub(crate) const SLOTS: u32 = 120;

/// Starts fakeclouds, each behind the same proxy if that is asked for.
pub(crate) struct Double {
    pub(crate) latency: Latency,
    pub(crate) instant: bool,
    pub(crate) can_delete: bool,
    pub(crate) tls: Option<Tls>,
    pub(crate) proxied: bool,
    /// What the proxy gets wrong.
    pub(crate) defect: Option<Defect>,
    /// What the kit gets wrong.
    pub(crate) switch: Option<Defect>,
    pub(crate) memory: Arc<Memory>,
}

impl Default for Double {
    fn default() -> Self {
        let latency = Latency { min_ms: 2, max_ms: 6 };
        Self {
            latency,
            instant: false,
            can_delete: true,
            tls: None,
            proxied: false,
            defect: None,
            switch: None,
            memory: Arc::default(),
        }
    }
}

enum Provider {
    Cloud(fakecloud::Handle),
    Fault(Handle),
}

struct Served {
    addr: String,
    provider: Option<Provider>,
    proxy: Option<Proxy>,
}

fn io(what: &str, error: impl std::fmt::Display) -> LaunchError {
    LaunchError::Io { what: what.into(), source: std::io::Error::other(error.to_string()) }
}

impl Double {
    async fn cloud(&self, spec: &Spec, listener: Listener) -> Result<(Provider, SocketAddr), LaunchError> {
        let latency = self.latency;
        // Fewer slots than are asked for: short Lists keep the tests short.
        let slots = spec.seed.min(SLOTS);
        let options = fakecloud::Options {
            seeds: Seeds { speculative: slots - 20, spot: 20, ..Seeds::default() },
            latency: Latencies { create: latency, configure: latency, drain: latency, delete: latency },
            instant: self.instant,
            ..fakecloud::Options::default()
        };
        let mut cloud = FakeCloud::new(options).map_err(|e| io("options", e))?;
        if let Some(tls) = self.tls.clone() {
            cloud = cloud.kit(|kit| kit.tls = Some(tls));
        }
        cloud = cloud.kit(|kit| {
            kit.defect = self.switch;
            if self.switch == Some(Defect::IdlingMovesRevision) {
                kit.reconcile_interval = Some(Duration::from_millis(20));
            }
        });
        if let Some(path) = &spec.state {
            cloud = cloud.store(FileStore::open(path).map_err(|e| io("store", e))?);
        }
        let cloud = cloud.start(listener).await.map_err(|e| io("start", e))?;
        cloud.control().can_delete(self.can_delete);
        let addr = cloud.dial_addr();
        Ok((Provider::Cloud(cloud), addr))
    }
}

/// A provider that breaks on demand.
async fn fault(
    switch: Option<Defect>,
    spec: &Spec,
    listener: Listener,
    limit: Duration,
) -> Result<(Provider, SocketAddr), LaunchError> {
    let backend = Arc::new(Fault::new("fault", spec.seed.into(), limit));
    let options = kit::Options { timeouts: Timeouts::all(limit), defect: switch, ..kit::Options::default() };
    let store: Box<dyn Store> = match &spec.state {
        Some(path) => Box::new(FileStore::open(path).map_err(|e| io("store", e))?),
        None => Box::new(MemStore),
    };
    let handle = kit::Provider::start(listener, backend, options, store).await.map_err(|e| io("start", e))?;
    let addr = handle.dial_addr();
    Ok((Provider::Fault(handle), addr))
}

#[async_trait]
impl Launch for Double {
    async fn start(&self, spec: &Spec) -> Result<Box<dyn Running>, LaunchError> {
        let listener = listen::bind("127.0.0.1:0").await.map_err(|e| io("listen", e))?;
        let (provider, addr) = match spec.transition_timeout {
            Some(limit) => fault(self.switch, spec, listener, limit).await?,
            None => self.cloud(spec, listener).await?,
        };
        let mut addr = addr.to_string();
        let mut proxy = None;
        if self.proxied {
            self.memory.started(spec.state.as_deref());
            let started = Proxy::start(self.defect, &addr, Arc::clone(&self.memory)).await;
            addr = started.addr().to_string();
            proxy = Some(started);
        }
        Ok(Box::new(Served { addr, provider: Some(provider), proxy }))
    }
}

#[async_trait]
impl Running for Served {
    fn addr(&self) -> &str {
        &self.addr
    }

    async fn kill(&mut self) -> Result<(), LaunchError> {
        self.proxy = None;
        match self.provider.take() {
            None => Ok(()),
            Some(Provider::Cloud(cloud)) => cloud.shutdown().await.map_err(|e| io("stop", e)),
            Some(Provider::Fault(fault)) => fault.shutdown().await.map_err(|e| io("stop", e)),
        }
    }
}

/// Short waits: what must not happen is watched for only briefly here.
pub(crate) fn options(profiles: &[Profile], only: Option<&str>) -> Options {
    Options {
        profiles: profiles.iter().copied().collect(),
        only: only.map(Only::new),
        settings: Settings {
            window: Duration::from_millis(60),
            // A busy machine must not decide.
            settle: Duration::from_secs(300),
            call: Duration::from_secs(300),
            ..Settings::default()
        },
        ..Options::default()
    }
}

/// Runs the suite against a double.
pub(crate) async fn judged(double: Double, options: &Options) -> Report {
    let double: Arc<dyn Launch> = Arc::new(double);
    let subject =
        Subject::Program { program: Arc::clone(&double), fault: double, name: "a double".to_owned() };
    run(&subject, options, &mut |_: &Event<'_>| {}).await.unwrap()
}

/// What did not hold of all that decides.
pub(crate) fn failed(report: &Report) -> BTreeSet<&'static str> {
    let failed = report
        .findings
        .iter()
        .filter(|f| f.series != Series::Ours && matches!(f.outcome, Outcome::Failed(_)));
    failed.map(|f| f.id).collect()
}

/// What was not looked at.
pub(crate) fn skipped(report: &Report) -> BTreeSet<&'static str> {
    let skipped = report.findings.iter().filter(|f| matches!(f.outcome, Outcome::Skipped(_)));
    skipped.map(|f| f.id).collect()
}
