//! The two programs that are killed: what they are started with.

use std::net::{Ipv4Addr, SocketAddr};

use tempfile::TempDir;
use tokio::task::block_in_place;

use super::demand::Workload;
use super::world::World;
use crate::process::Program;

pub(super) fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// How many machines are contested: one more is wanted urgently at every point, and a kill may break some.
pub(super) fn contested(points: u64) -> u64 {
    8 + 2 * points
}

/// Machines for so many kills: each may break what is Configuring just then.
pub(super) fn catalogue(points: u64) -> String {
    let class = |workload: Workload, count, idle, capacity, price, chance| {
        format!(
            "- {{name: {}, count: {count}, idle: {idle}, instance_type: {}, zones: [a, b], capacity_type: {capacity}, \
             price_per_hour: {price}, interruption_probability: {chance}, resources: {{cpu: '4'}}}}\n",
            workload.name(),
            workload.instance_type(),
        )
    };
    class(Workload::Moving, 40 + 8 * points, true, "bare-metal", 0.0, 0.0)
        + &class(Workload::Growing, 60 + 12 * points, false, "on-demand", 1.0, 0.05)
        + &class(Workload::Bursting, 40 + 6 * points, false, "spot", 0.3, 0.2)
        + &class(Workload::Yielding, contested(points), true, "bare-metal", 0.0, 0.0)
}

pub(super) fn start_provider(folder: &TempDir, (_, port): (u16, u16), world: &World) -> Program {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let args = [
        "provider",
        "fakecloud",
        &format!("--addr=127.0.0.1:{port}"),
        "--metrics-addr=0",
        &format!("--state={}", path("provider")),
        &format!("--archetypes={}", path("catalogue.yaml")),
        "--create-latency=2s",
        "--boot-command",
        &world.boot_command,
    ];
    let mut program = Program::start(&args, &folder.path().join("provider.log"));
    block_in_place(|| program.ready("provider"));
    program
}

pub(super) fn start_shard(folder: &TempDir, (port, provider): (u16, u16)) -> Program {
    let path = |name: &str| folder.path().join(name).display().to_string();
    let args = [
        "shard",
        &format!("--listen=127.0.0.1:{port}"),
        "--metrics-addr=0",
        &format!("--provider-addr=127.0.0.1:{provider}"),
        &format!("--data-dir={}", path("shard")),
        &format!("--audit-log={}", path("audit.jsonl")),
        "--reclaim-after=1s",
        "--reclaim-cap-fraction=0",
        "--cycle-interval=1s",
    ];
    let mut program = Program::start(&args, &folder.path().join("shard.log"));
    block_in_place(|| program.ready("shard"));
    program
}
