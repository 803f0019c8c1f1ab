//! The provider as a child process, and what the system says about it.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bigfleet_net::channel;
use bigfleet_net::limits;
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use tonic::transport::Channel;

use super::Setting;

/// Clock ticks a second in `/proc`, the same on every Linux.
const TICKS: u64 = 100;

/// A fake cloud that takes no time for its work and keeps its state on the disk.
pub(super) struct Server {
    child: Child,
    addr: SocketAddr,
    /// From the start of the program to its line `ready`.
    pub(super) ready: Duration,
    state: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

impl Server {
    /// Starts one with an empty store.
    pub(super) fn start(setting: &Setting, seeds: &[String]) -> Result<Self> {
        let folder = tempfile::tempdir_in(&setting.folder)
            .with_context(|| format!("cannot make a folder in {}", setting.folder.display()))?;
        let state = folder.path().join("state");
        let mut server = Self::start_in(&setting.program, &state, seeds)?;
        server._folder = Some(folder);
        Ok(server)
    }

    /// Starts one on the store in `state`.
    pub(super) fn start_in(program: &Path, state: &Path, seeds: &[String]) -> Result<Self> {
        let mut command = Command::new(program);
        command.args([
            "provider",
            "fakecloud",
            "--addr=127.0.0.1:0",
            "--metrics-addr=0",
            "--log-level=error",
        ]);
        command.args(["create", "configure", "drain", "delete"].map(|kind| format!("--{kind}-latency=0")));
        command.arg(format!("--state={}", state.display())).args(seeds);
        let begun = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut lines = BufReader::new(child.stdout.take().context("the provider has no output")?).lines();
        let line = lines.next().transpose().context("cannot read what the provider prints")?;
        let ready = begun.elapsed();
        let Some(addr) = line.as_deref().and_then(|line| line.strip_prefix("ready provider ")) else {
            let status = child.wait().context("cannot wait for the provider")?;
            bail!("the provider ended before it was ready ({status})");
        };
        let addr = addr
            .parse()
            .with_context(|| format!("the provider is ready at {addr:?}, which is no address"))?;
        Ok(Self { child, addr, ready, state: state.to_owned(), _folder: None })
    }

    /// A connection of one's own.
    pub(super) fn channel(&self) -> Result<Channel> {
        Ok(channel::connect_lazy(&self.addr.to_string(), &channel::Options::default())?)
    }

    /// A client on a connection of its own.
    pub(super) fn client(&self) -> Result<CapacityProviderClient<Channel>> {
        let client = CapacityProviderClient::new(self.channel()?);
        Ok(client.max_decoding_message_size(limits::LIST_BYTES))
    }

    /// What its processors have spent on it so far, in steps of 10 ms.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let text = self.proc("stat")?;
        // The name in brackets may hold blanks; times are the 12th and 13th word after it.
        let after = text.rsplit_once(')').map_or("", |(_, after)| after);
        let ticks = |at| after.split_whitespace().nth(at).and_then(|word| word.parse::<u64>().ok());
        let ticks = ticks(11).zip(ticks(12)).context("/proc/PID/stat has no times")?;
        Ok(Duration::from_millis((ticks.0 + ticks.1) * 1000 / TICKS))
    }

    /// Its memory when it had most, in bytes.
    pub(super) fn peak_rss(&self) -> Result<u64> {
        let text = self.proc("status")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
        Ok(kilobytes.context("/proc/PID/status has no VmHWM")? * 1024)
    }

    /// Bytes of its log.
    pub(super) fn log_bytes(&self) -> Result<u64> {
        let log = self.state.join("machines.log");
        Ok(fs::metadata(&log).with_context(|| format!("cannot look at {}", log.display()))?.len())
    }

    fn proc(&self, name: &str) -> Result<String> {
        let path = format!("/proc/{}/{name}", self.child.id());
        fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already needs no end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a small write with its wait takes on the disk of `folder`: the median of many, in milliseconds.
pub(super) fn fsync_ms(folder: &Path) -> Result<f64> {
    use std::io::Write as _;
    const WRITES: usize = 101;
    let mut file = tempfile::tempfile_in(folder).context("cannot make a file")?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let begun = Instant::now();
        file.write_all(&[0; 512]).and_then(|()| file.sync_data()).context("cannot write to the disk")?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    Ok(crate::measure::millis(times[WRITES / 2]))
}
