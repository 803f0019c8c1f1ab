//! The world outside the two programs: three clusters with their operators, and the hosts, which are run by the
//! provider's boot command and live through its death.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bigfleet_net::clock::SystemClock;
use bigfleet_operator::memory::{self, MemoryCluster};
use bigfleet_operator::service;
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::{Bootstrap, Statics};
use bigfleet_types::chance::{Chance as _, Seeded};
use bigfleet_types::{ClusterId, MachineId, keys};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::demand::Workload;

/// What the provider runs at each Configure and each Drain: it hands everything to the listener of this process and waits
/// for its word.
const BOOT: &str = r#"#!/usr/bin/env bash
set -euo pipefail
exec 3<>"/dev/tcp/127.0.0.1/$1"
{
    printf '%s\n' "$BIGFLEET_OPERATION" "$BIGFLEET_MACHINE_ID" "$BIGFLEET_INSTANCE_TYPE" "$BIGFLEET_CLUSTER"
    printf '%s\n' "${BIGFLEET_GRACE_SECONDS:-0}"
    if [ "$BIGFLEET_OPERATION" = Configure ]; then cat; fi
    printf '\n.\n'
} >&3
read -r answer <&3
if [ "$answer" != ok ]; then
    echo "$answer" >&2
    exit 1
fi
"#;

/// A drain's grace is ten minutes; a host that is not empty after so long shows that nobody empties it.
const LONGEST_DRAIN: Duration = Duration::from_secs(60);

/// One cluster and its operator.
pub(super) struct Cluster {
    pub(super) memory: MemoryCluster,
    pub(super) operator: service::Handle,
}

/// What plays the hosts.
struct Hosts {
    clusters: BTreeMap<String, MemoryCluster>,
    chance: Mutex<Seeded>,
    /// How often each machine has joined: a late drain of an earlier life must not touch a later one.
    lives: Mutex<BTreeMap<MachineId, u64>>,
}

/// Everything outside the two programs.
pub(super) struct World {
    pub(super) clusters: Vec<Cluster>,
    /// What `--boot-command` is set to.
    pub(super) boot_command: String,
    _stop: DropGuard,
}

impl World {
    /// The one cluster that wants this.
    pub(super) fn home(&self, workload: Workload) -> &Cluster {
        let here = |cluster: &&Cluster| Some(cluster.memory.id().as_str()) == workload.home();
        self.clusters.iter().find(here).unwrap()
    }

    /// Starts three empty clusters whose operators dial `shard` until somebody answers.
    pub(super) async fn start(folder: &Path, shard: u16, seed: u64) -> Self {
        let stop = CancellationToken::new();
        let clock = Arc::new(SystemClock::start());
        let mut clusters = Vec::new();
        for (n, name) in (0..).zip(["east", "north", "west"]) {
            let id = ClusterId::parse(name).unwrap();
            let config = memory::Config { seed: seed + n, ..memory::Config::default() };
            let memory = MemoryCluster::start(id.clone(), config, clock.clone(), stop.clone());
            for workload in Workload::of(name) {
                memory.apply_deployment(workload.deployment(0)).unwrap();
            }
            let template = Template::parse(memory::blob::TEMPLATE).unwrap();
            let blobs =
                Bootstrap::new(id.clone(), Some(template), Statics::default(), Duration::from_secs(600));
            let mut options = service::Options::new(id, format!("127.0.0.1:{shard}"));
            options.core.rollup_interval = Duration::from_secs(1);
            options.session.initial_backoff = Duration::from_millis(100);
            options.session.max_backoff = Duration::from_millis(400);
            let operator =
                service::start(options, Arc::new(blobs), Arc::new(memory.clone()), clock.clone(), &stop);
            clusters.push(Cluster { memory, operator: operator.unwrap() });
        }
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let boot_command =
            format!("bash {} {}", script(folder).display(), listener.local_addr().unwrap().port());
        let hosts = Hosts {
            clusters: clusters.iter().map(|c| (c.memory.id().to_string(), c.memory.clone())).collect(),
            chance: Mutex::new(Seeded::new(seed)),
            lives: Mutex::default(),
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(run_hosts(listener, Arc::new(hosts))));
        Self { clusters, boot_command, _stop: stop.drop_guard() }
    }
}

fn script(folder: &Path) -> PathBuf {
    let path = folder.join("boot.sh");
    std::fs::write(&path, BOOT).unwrap();
    path
}

async fn run_hosts(listener: TcpListener, hosts: Arc<Hosts>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let hosts = Arc::clone(&hosts);
        tokio::spawn(async move {
            // A script that died with half of its words said wants nothing.
            if let Ok((mut stream, order)) = Order::read(stream).await {
                let answer = match hosts.obey(order).await {
                    Ok(()) => "ok\n".to_owned(),
                    Err(error) => format!("{error}\n"),
                };
                // Nobody listens any more when the script was killed meanwhile; the host has done it all the same.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
    }
}

/// What a script says.
struct Order {
    joins: bool,
    machine: MachineId,
    instance_type: String,
    cluster: String,
    blob: String,
}

impl Order {
    async fn read(stream: TcpStream) -> std::io::Result<(TcpStream, Self)> {
        let mut reader = BufReader::new(stream);
        let mut words = Vec::new();
        for _ in 0..5 {
            words.push(line(&mut reader).await?);
        }
        let mut blob = String::new();
        loop {
            let line = line(&mut reader).await?;
            if line == "." {
                break;
            }
            blob.push_str(&line);
            blob.push('\n');
        }
        let order = Self {
            joins: words[0] == "Configure",
            machine: MachineId::parse(&words[1]).unwrap(),
            instance_type: words[2].clone(),
            cluster: words[3].clone(),
            blob,
        };
        Ok((reader.into_inner(), order))
    }
}

async fn line(reader: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    if reader.read_line(&mut line).await? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    Ok(line.trim_end_matches('\n').to_owned())
}

impl Hosts {
    async fn obey(&self, order: Order) -> Result<(), String> {
        let pause = Duration::from_millis(50 + self.chance.lock().unwrap().below(500));
        let cluster =
            self.clusters.get(&order.cluster).ok_or_else(|| format!("no cluster {:?}", order.cluster))?;
        if order.joins {
            *self.lives.lock().unwrap().entry(order.machine.clone()).or_default() += 1;
            tokio::time::sleep(pause).await;
            let labels = BTreeMap::from([(keys::INSTANCE_TYPE.to_owned(), order.instance_type)]);
            let amounts = BTreeMap::from([("cpu".to_owned(), "4".to_owned())]);
            let joined = cluster.join(&order.machine, order.blob.as_bytes(), labels, &amounts).await;
            return joined.map(|_| ()).map_err(|error| error.to_string());
        }
        let life = self.lives.lock().unwrap().get(&order.machine).copied();
        tokio::time::sleep(pause).await;
        // The operator empties the node; the host waits for that, as a graceful shutdown does.
        let begin = Instant::now();
        let empty = |view: &memory::View| {
            let node = view.nodes.iter().find(|node| node.machine == order.machine);
            node.is_none_or(|node| node.pods == 0)
        };
        while !empty(&cluster.view()) {
            if begin.elapsed() > LONGEST_DRAIN {
                return Err(format!("nobody emptied the node of {}", order.machine));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let lives = self.lives.lock().unwrap();
        if lives.get(&order.machine).copied() == life {
            cluster.remove_node(&order.machine);
        }
        Ok(())
    }
}
