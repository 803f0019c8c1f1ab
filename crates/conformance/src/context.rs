//! What a probe has at hand: a recorded client of one provider, machines to try things on, and patience.

mod callers;
mod calls;
mod lives;
mod machines;
mod waits;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bigfleet_types::chance::Seeded;

use crate::check::Check;
use crate::launch::Launch;
use crate::record::{Exchange, Log};
use crate::run::Options;

pub(crate) use calls::{CLUSTER, Kind, Token, metadata, token};
pub(crate) use waits::{rest, transitional};

/// How patient the suite is, and how large it makes things.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// How long a transition may take; default 30 s. Real clouds need minutes.
    pub settle: Duration,
    /// How long something that must not happen is watched for; default 300 ms.
    pub window: Duration,
    /// How long one call may stay unanswered; default 10 s.
    pub call: Duration,
    /// Machines of the scale lane; default 8,000.
    pub scale_seed: u32,
    /// How long the scale lane churns; default 10 s.
    pub soak: Duration,
    /// Where chance begins; default 1. The same number asks the same questions.
    pub random_seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            settle: Duration::from_secs(30),
            window: Duration::from_millis(300),
            call: Duration::from_secs(10),
            scale_seed: 8_000,
            soak: Duration::from_secs(10),
            random_seed: 1,
        }
    }
}

/// Optional features that a probe found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Features {
    pub(crate) delete: bool,
    pub(crate) revision: bool,
}

/// What all behaviours of a run share.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Tells this run's names from those of other runs, whose marks a provider may still keep.
    tag: String,
    names: AtomicU64,
    /// Machines that were tried on before.
    used: Mutex<BTreeSet<String>>,
    /// Machines of this run that rest in Idle because they cannot be given back.
    spare: Mutex<Vec<String>>,
    callers: callers::Callers,
}

impl Run {
    /// A run that began at this Unix time in milliseconds.
    pub(crate) fn new(unix_millis: u128) -> Self {
        Self { tag: format!("{unix_millis:x}-{:x}", std::process::id()), ..Self::default() }
    }

    /// What the same run knows of another provider: nothing.
    fn elsewhere(&self) -> Self {
        let n = self.names.fetch_add(1, Ordering::Relaxed);
        Self { tag: format!("{}-{n}", self.tag), ..Self::default() }
    }
}

/// Programs that a probe may start.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    pub(crate) subject: Option<Arc<dyn Launch>>,
    pub(crate) fault: Option<Arc<dyn Launch>>,
}

/// One behaviour's view of one provider.
pub(crate) struct Context {
    addr: String,
    grpc: callers::Client,
    authority: callers::Trust,
    log: Arc<Log>,
    run: Arc<Run>,
    programs: Programs,
    pub(crate) settings: Settings,
    pub(crate) features: Features,
    picked: Mutex<BTreeSet<String>>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Context {
    /// A view of the provider at `addr`. Must run on a tokio runtime; connects at the first call.
    ///
    /// # Errors
    /// When `addr` is no address.
    pub(crate) fn new(
        addr: &str,
        run: &Arc<Run>,
        programs: &Programs,
        options: &Options,
        features: Features,
    ) -> Check<Self> {
        let authority = options.authority.clone();
        Ok(Self {
            addr: addr.to_owned(),
            grpc: callers::reader(addr, authority.as_deref())?,
            authority,
            log: Arc::default(),
            run: Arc::clone(run),
            programs: programs.clone(),
            settings: options.settings.clone(),
            features,
            picked: Mutex::default(),
        })
    }

    /// The same view of another provider; calls go into the same record.
    pub(crate) fn at(&self, addr: &str) -> Check<Self> {
        Ok(Self {
            addr: addr.to_owned(),
            grpc: callers::reader(addr, self.authority.as_deref())?,
            authority: self.authority.clone(),
            log: Arc::clone(&self.log),
            // Machines of another provider are other machines.
            run: Arc::new(self.run.elsewhere()),
            programs: self.programs.clone(),
            settings: self.settings.clone(),
            features: self.features,
            picked: Mutex::default(),
        })
    }

    /// The same provider over a connection of its own.
    pub(crate) fn another(&self) -> Check<Self> {
        let mut other = self.at(&self.addr)?;
        other.run = Arc::clone(&self.run);
        Ok(other)
    }

    /// The calls so far, forgotten afterwards.
    pub(crate) fn calls(&self) -> Vec<Exchange> {
        self.log.take()
    }

    /// A name that nothing else in this run has.
    pub(crate) fn unique(&self, prefix: &str) -> String {
        let n = self.run.names.fetch_add(1, Ordering::Relaxed);
        format!("conformance-{prefix}-{}-{n}", self.run.tag)
    }

    /// Chance that depends on the run's seed and `salt` only.
    pub(crate) fn chance(&self, salt: u64) -> Seeded {
        Seeded::new(self.settings.random_seed.wrapping_mul(0x9E37_79B9).wrapping_add(salt))
    }
}

/// Pairs as a map.
pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
