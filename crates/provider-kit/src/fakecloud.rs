//! A cloud that is not there: a catalogue of machines of all four capacity types, latencies, stock-outs, and a knob
//! for every fault that a shard must survive. It is the kit with a back end that only pretends, so it keeps the whole
//! contract.
//!
//! [`Options`] is what the flags of `bigfleet provider fakecloud` map to, and what a `--archetypes` file holds a part
//! of ([`Class`]):
//!
//! | Flag | Field |
//! |---|---|
//! | `--seed-profile` | [`Options::profile`] |
//! | `--seed-machines`, `--seed-speculative`, `--seed-spot` | [`Seeds::idle`], [`Seeds::speculative`], [`Seeds::spot`] |
//! | `--seed-configured-per-cluster`, `--seed-cluster-total`, `--seed-cluster-stride` | [`Seeds::configured_per_cluster`] and the two after it |
//! | `--id` (its number at the end) | [`Seeds::ordinal`] |
//! | `--seed-density-multiplier` | [`Options::density_multiplier`] |
//! | `--archetypes` | [`Options::classes`] |
//! | `--speculative-shed-at-seconds`, `--speculative-shed-multiplier` | [`Options::shed`] |
//! | `--failure-rate-per-sec` | [`Options::failures_per_second`] |
//! | `--instant` | [`Options::instant`] |
//! | `--dwell`, `--latency-spread` | [`Options::dwell`], the ranges of [`Options::latency`] |
//! | `--spot-market-every`, `--spot-market-swing`, `--spot-market-speed` | [`Options::market`] |
//! | `--stock-out-chance`, `--stock-out-period` | [`Options::stock_outs`] |
//! | `--throttle-per-sec`, `--list-lag` | [`Options::calls_per_second`], [`Options::list_lag_ms`] |
//! | `--boot-command` | [`Options::boot`] |
//! | `--transition-timeout` | [`crate::Options::timeouts`] |
//! | `--data-dir` | [`FakeCloud::store`] with a [`crate::FileStore`] |
//! | `BIGFLEET_FAKE_CREATE_LATENCY` | [`Options::take_environment`] |
//!
//! [`Control`] turns the knobs while it runs.

mod background;
mod boot;
mod catalogue;
mod cloud;
mod control;
mod knobs;
mod market;
mod options;

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bigfleet_net::listen::Listener;

use crate::backend::{Error, Operation};
use crate::blob::Blob;
use crate::server::{self, StartError};
use crate::store::{MemStore, Store};

pub use boot::BootCommand;
pub use catalogue::{Class, Profile, Seeds};
pub use control::{Actions, ClassKey, Control};
pub use knobs::{Corruption, ListFault};
pub use market::{Market, StockOuts};
pub use options::{Dwell, InvalidOptions, Latencies, Latency, Options, Shed};

/// What happens on a pretended host when it joins or leaves a cluster. The future is dropped at the time-out.
#[async_trait]
pub trait NodeHook: Send + Sync + 'static {
    /// The host joins `operation.machine.cluster`; returns when its node is Ready there.
    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error>;

    /// The host leaves its cluster; returns when its node is gone.
    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error>;
}

/// A fake cloud that does not serve yet.
pub struct FakeCloud {
    options: Options,
    kit: server::Options,
    hook: Option<Arc<dyn NodeHook>>,
    store: Box<dyn Store>,
}

impl std::fmt::Debug for FakeCloud {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeCloud")
            .field("options", &self.options)
            .field("kit", &self.kit)
            .finish_non_exhaustive()
    }
}

impl FakeCloud {
    /// A fake cloud with nothing durable, no hook beside the boot command of the options, and the kit's defaults.
    ///
    /// # Errors
    /// When the options contradict themselves; the text names the field.
    pub fn new(options: Options) -> Result<Self, InvalidOptions> {
        options.validate()?;
        let kit = server::Options {
            name: "fakecloud".into(),
            settle_before_ack: options.instant,
            reconcile_interval: None,
            ..server::Options::default()
        };
        Ok(Self { options, kit, hook: None, store: Box::new(MemStore) })
    }

    /// Calls `hook` when hosts join and leave, before the boot command if there is one too.
    #[must_use]
    pub fn hook(mut self, hook: Arc<dyn NodeHook>) -> Self {
        self.hook = Some(hook);
        self
    }

    /// Keeps its state in `store`.
    #[must_use]
    pub fn store(mut self, store: impl Store) -> Self {
        self.store = Box::new(store);
        self
    }

    /// Changes the kit's own options: time-outs, the metrics listener.
    #[must_use]
    pub fn kit(mut self, change: impl FnOnce(&mut server::Options)) -> Self {
        change(&mut self.kit);
        self
    }

    /// Seeds the machines and serves them on `listener`. Must run on a tokio runtime.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is served then.
    pub async fn start(self, listener: Listener) -> Result<Handle, StartError> {
        let (instances, bound) = self.options.seeds();
        let cloud = Arc::new(cloud::Cloud::new(&self.options, self.hook, instances));
        let (backend, faults) = (Arc::clone(&cloud), Arc::clone(&cloud));
        let kit = server::Provider::launch(listener, backend, faults, self.kit, self.store, &bound).await?;
        let control = Control::new(cloud, kit.provider().clone());
        background::start(&self.options, &control, kit.stop_token());
        Ok(Handle { kit, control })
    }
}

/// A fake cloud that serves.
#[derive(Debug)]
pub struct Handle {
    kit: server::Handle,
    control: Control,
}

impl Handle {
    /// Where it is bound, with its true port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.kit.local_addr()
    }

    /// Where a client on this machine reaches it.
    #[must_use]
    pub fn dial_addr(&self) -> SocketAddr {
        self.kit.dial_addr()
    }

    /// Its knobs.
    #[must_use]
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// What an admin listener shows.
    #[must_use]
    pub fn pages(&self) -> &bigfleet_net::admin::Pages {
        self.kit.pages()
    }

    /// The kit's handle: admin listener, waiting for a failure.
    pub fn kit(&mut self) -> &mut server::Handle {
        &mut self.kit
    }

    /// The kit's handle alone, for whoever turns no knobs.
    #[must_use]
    pub fn into_kit(self) -> server::Handle {
        self.kit
    }

    /// Stops it; see [`server::Handle::shutdown`].
    ///
    /// # Errors
    /// When the server had failed by itself.
    pub async fn shutdown(self) -> Result<(), server::Failed> {
        self.kit.shutdown().await
    }
}
