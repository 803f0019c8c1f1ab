//! How long a provider that knows many machines takes to start.

use anyhow::{Context, Result};

use super::server::Server;
use super::{Numbers, Setting, lists};
use crate::measure::{millis, quantile, to_f64};

/// Starts that are measured.
const STARTS: usize = 5;
/// What a start may take, in milliseconds.
const TARGET: f64 = 2000.0;

pub(super) fn run(setting: &Setting, machines: u64) -> Result<Numbers> {
    let machines = setting.sized(machines);
    let folder = tempfile::tempdir_in(&setting.folder)
        .with_context(|| format!("cannot make a folder in {}", setting.folder.display()))?;
    let state = folder.path().join("state");
    let log_bytes = {
        let first = Server::start_in(&setting.program, &state, &lists::seeds(machines))?;
        first.log_bytes()?
    };
    let (mut times, mut cpu, mut peak) = (Vec::new(), 0.0, 0);
    for _ in 0..STARTS {
        // Without seeds: what it has, it has from its store.
        let server = Server::start_in(&setting.program, &state, &[])?;
        cpu += server.cpu()?.as_secs_f64();
        times.push(server.ready);
        peak = server.peak_rss()?.max(peak);
    }
    let seconds = times.iter().sum::<std::time::Duration>().as_secs_f64();
    times.sort_unstable();
    let calls = times.len() as u64;
    Ok(Numbers {
        machines,
        calls,
        seconds,
        per_second: to_f64(calls) / seconds,
        cpu_us_per_call: cpu * 1e6 / to_f64(calls),
        p50_ms: millis(quantile(&times, 50)),
        p99_ms: millis(quantile(&times, 99)),
        log_bytes: Some(log_bytes),
        target_ms: Some(TARGET),
        peak_rss_bytes: peak,
        ..Numbers::default()
    })
}
