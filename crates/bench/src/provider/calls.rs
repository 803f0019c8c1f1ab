//! Many callers, one call after the other each.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bigfleet_proto::v1alpha1 as pb;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::server::{Server, fsync_ms};
use super::{Numbers, Setting};
use crate::measure::{millis, quantile, to_f64};

const CALLERS: u64 = 64;
/// Connections that they share: a shard has one, a few shards a few.
const CONNECTIONS: u64 = 4;
/// A bootstrap blob of a usual size, in bytes.
const BLOB: usize = 4096;

/// The four calls that move machines, in the order of a machine's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Create,
    Configure,
    Drain,
    Delete,
}

const LIFE: [Kind; 4] = [Kind::Create, Kind::Configure, Kind::Drain, Kind::Delete];

/// One caller: its client, and the machines that are its own.
struct Caller {
    client: CapacityProviderClient<Channel>,
    machines: Vec<String>,
    sequence: Arc<AtomicI64>,
}

/// Tokens of one shard: each attempt has a higher number.
const SHARD: &str = "shard-0";

impl Caller {
    fn next(&self) -> i64 {
        self.sequence.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// One call that moves a machine.
    async fn call(&mut self, kind: Kind, at: usize) -> Result<(), Status> {
        let (machine_id, sequence_number) = (self.machines[at].clone(), self.next());
        let (shard_id, shard_epoch) = (SHARD.to_owned(), 1);
        match kind {
            Kind::Create => {
                let request = pb::CreateRequest { machine_id, shard_id, shard_epoch, sequence_number };
                self.client.create(request).await.map(|_| ())
            }
            Kind::Configure => {
                let note =
                    |key: &str, value: &str| (format!("bigfleet.lucy.sh/assigned-{key}"), value.to_owned());
                let request = pb::ConfigureRequest {
                    machine_id,
                    cluster_id: "cluster-a".into(),
                    bootstrap_blob: vec![b'x'; BLOB].into(),
                    shard_id,
                    shard_epoch,
                    sequence_number,
                    shard_metadata: [note("priority", "1000"), note("group", "")].into(),
                };
                self.client.configure(request).await.map(|_| ())
            }
            Kind::Drain => {
                let grace_period_seconds = 30;
                let request = pb::DrainRequest {
                    machine_id,
                    grace_period_seconds,
                    shard_id,
                    shard_epoch,
                    sequence_number,
                };
                self.client.drain(request).await.map(|_| ())
            }
            Kind::Delete => {
                let request = pb::DeleteRequest { machine_id, shard_id, shard_epoch, sequence_number };
                self.client.delete(request).await.map(|_| ())
            }
        }
    }

    /// As [`Caller::call`], timed. Where the machine was not at rest yet, it is waited for first, off the clock.
    async fn timed(&mut self, kind: Kind, at: usize) -> Result<Duration> {
        let mut begun = Instant::now();
        let mut answer = self.call(kind, at).await;
        if answer.as_ref().is_err_and(|status| status.code() == Code::Internal) {
            self.settled(at).await?;
            begun = Instant::now();
            answer = self.call(kind, at).await;
        }
        answer.with_context(|| format!("{kind:?} of {} failed", self.machines[at]))?;
        Ok(begun.elapsed())
    }

    async fn get(&mut self, at: usize) -> Result<pb::Machine> {
        let request = pb::MachineRef { id: self.machines[at].clone() };
        Ok(self.client.get(request).await.context("Get failed")?.into_inner())
    }

    /// Waits until a machine has come to rest.
    async fn settled(&mut self, at: usize) -> Result<()> {
        let resting = [pb::MachineState::Speculative, pb::MachineState::Idle, pb::MachineState::Configured]
            .map(i32::from);
        let begun = Instant::now();
        loop {
            let machine = self.get(at).await?;
            if resting.contains(&machine.state) {
                return Ok(());
            }
            ensure!(begun.elapsed() < Duration::from_secs(60), "never comes to rest: {machine:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// A server with slots, and callers who share them.
fn callers(setting: &Setting, slots_each: u64) -> Result<(Server, Vec<Caller>)> {
    let machines = CALLERS * slots_each;
    let server = Server::start(setting, &[format!("--seed-speculative={machines}")])?;
    let clients = (0..CONNECTIONS).map(|_| server.client()).collect::<Result<Vec<_>>>()?;
    let sequence = Arc::new(AtomicI64::new(0));
    let caller = |(n, client): (u64, &CapacityProviderClient<Channel>)| Caller {
        client: client.clone(),
        machines: (0..slots_each).map(|slot| format!("spec-{}", n * slots_each + slot)).collect(),
        sequence: Arc::clone(&sequence),
    };
    let callers = (0..CALLERS).zip(clients.iter().cycle()).map(caller).collect();
    Ok((server, callers))
}

/// Lets every caller make its calls, all at the same time; `steps` says what a caller does with its `n`th call.
fn measure<F>(setting: &Setting, slots_each: u64, calls_each: u64, step: F) -> Result<Numbers>
where
    F: AsyncFn(&mut Caller, u64) -> Result<Duration> + Copy + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let (server, callers) = callers(setting, slots_each)?;
        let local = tokio::task::LocalSet::new();
        let mut running = Vec::new();
        let (begun, cpu) = (Instant::now(), server.cpu()?);
        for mut caller in callers {
            running.push(local.spawn_local(async move {
                let mut times = Vec::new();
                for n in 0..calls_each {
                    times.push(step(&mut caller, n).await?);
                }
                anyhow::Ok(times)
            }));
        }
        let mut times = Vec::new();
        local
            .run_until(async {
                for caller in running {
                    times.extend(caller.await.context("a caller panicked")??);
                }
                anyhow::Ok(())
            })
            .await?;
        let (took, cpu) = (begun.elapsed(), server.cpu()?.saturating_sub(cpu));
        times.sort_unstable();
        let calls = times.len() as u64;
        Ok(Numbers {
            machines: CALLERS * slots_each,
            callers: CALLERS,
            calls,
            seconds: took.as_secs_f64(),
            per_second: to_f64(calls) / took.as_secs_f64(),
            cpu_us_per_call: cpu.as_secs_f64() * 1e6 / to_f64(calls),
            p50_ms: millis(quantile(&times, 50)),
            p99_ms: millis(quantile(&times, 99)),
            fsync_ms: Some(fsync_ms(&setting.folder)?),
            peak_rss_bytes: server.peak_rss()?,
            ..Numbers::default()
        })
    })
}

/// Whole lives: each caller takes all its machines one step further, then the next step.
pub(super) fn mutations(setting: &Setting) -> Result<Numbers> {
    const SLOTS: u64 = 50;
    let lives = setting.sized(1000).div_ceil(100);
    measure(setting, SLOTS, SLOTS * LIFE.len() as u64 * lives, async |caller, n| {
        let step = usize::try_from(n / SLOTS).unwrap_or(0);
        caller.timed(LIFE[step % LIFE.len()], usize::try_from(n % SLOTS).unwrap_or(0)).await
    })
}

/// Slots that become machines, each once.
pub(super) fn creates(setting: &Setting) -> Result<Numbers> {
    let each = setting.sized(1000);
    measure(setting, each, each, async |caller, n| {
        caller.timed(Kind::Create, usize::try_from(n).unwrap_or(0)).await
    })
}

/// Looks at single machines.
pub(super) fn gets(setting: &Setting) -> Result<Numbers> {
    const SLOTS: u64 = 50;
    let mut numbers = measure(setting, SLOTS, setting.sized(2000), async |caller, n| {
        let begun = Instant::now();
        let machine = caller.get(usize::try_from(n % SLOTS).unwrap_or(0)).await?;
        ensure!(
            machine.state == i32::from(pb::MachineState::Speculative),
            "an unexpected machine: {machine:?}"
        );
        Ok(begun.elapsed())
    })?;
    numbers.fsync_ms = None;
    Ok(numbers)
}
