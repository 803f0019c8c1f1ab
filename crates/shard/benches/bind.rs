//! From a change of demand to a Configured machine, step by step, over real gRPC on loopback.
//!
//! One operator asks for one machine more, again and again, each time after a pause that lets the shard come to
//! rest; the provider answers at once. Prints one JSON object: milliseconds from the sending of the roll-up to each
//! step. Encoding and decoding are included; operator and provider share the process and its cores with the shard.
//!
//! `cargo bench -p bigfleet-shard --bench bind --profile release`

use std::error::Error;
use std::time::{Duration, Instant};

use bigfleet_net::{channel, listen};
use bigfleet_proto::v1alpha1::operator_message::Payload as Said;
use bigfleet_proto::v1alpha1::shard_client::ShardClient;
use bigfleet_proto::v1alpha1::shard_message::Payload as Heard;
use bigfleet_proto::v1alpha1::{
    BootstrapBlobResponse, CapacityNeed, ClusterCapacityNeeds, Hello, MachineState, OperatorMessage,
};
use bigfleet_provider_kit::fakecloud::{self, FakeCloud, Seeds};
use bigfleet_shard::options::Options;
use bigfleet_shard::service::Shard;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

const ROUNDS: usize = 200;
/// Longer than two of the shortest gaps between cycles, so that each round finds the shard at rest: the machine that
/// joined last causes a cycle of its own.
const PAUSE: Duration = Duration::from_millis(250);
const STEPS: [&str; 4] = ["rollup_acknowledged", "bootstrap_requested", "configuring", "configured"];

fn main() -> Result<(), Box<dyn Error>> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(Box::pin(run()))
}

async fn run() -> Result<(), Box<dyn Error>> {
    let machines = u32::try_from(ROUNDS * 5)?;
    let cloud = fakecloud::Options {
        instant: true,
        seeds: Seeds { idle: machines, ..Seeds::default() },
        ..fakecloud::Options::default()
    };
    let provider = FakeCloud::new(cloud)?.start(listen::bind("127.0.0.1:0").await?).await?;
    let folder = tempfile::tempdir()?;
    let mut options = Options::new(provider.dial_addr().to_string())?;
    options.listen = "127.0.0.1:0".parse()?;
    options.metrics_addr = "0".parse()?;
    options.data_dir = folder.path().to_owned();
    let mut shard = Shard::start(options).await?;
    shard.readiness().wait_ready().await;

    let channel = channel::connect_lazy(&shard.grpc_addr().to_string(), &channel::Options::default())?;
    let (say, said) = mpsc::channel(16);
    let hello = Hello { cluster_id: "bench".into(), protocol_version: "v1alpha1".into() };
    say.send(OperatorMessage { payload: Some(Said::Hello(hello)) }).await?;
    let mut frames = ShardClient::new(channel).session(ReceiverStream::new(said)).await?.into_inner();

    let mut samples: [Vec<f64>; STEPS.len()] = Default::default();
    for round in 1..=ROUNDS {
        tokio::time::sleep(PAUSE).await;
        let began = Instant::now();
        say.send(OperatorMessage { payload: Some(Said::Rollup(rollup(round))) }).await?;
        let mut reached = [None; STEPS.len()];
        while reached[STEPS.len() - 1].is_none() {
            let frame = frames.message().await?.ok_or("the shard ended the session")?;
            let step = match frame.payload {
                Some(Heard::Ack(ack)) if ack.echo == "rollup" => 0,
                Some(Heard::BootstrapRequest(request)) => {
                    let answer = BootstrapBlobResponse {
                        request_id: request.request_id,
                        user_data: b"join".as_slice().into(),
                        ttl_seconds: 600,
                        error: String::new(),
                    };
                    say.send(OperatorMessage { payload: Some(Said::BootstrapResponse(answer)) }).await?;
                    1
                }
                Some(Heard::NodeStateUpdate(update)) => match update.state() {
                    MachineState::Configuring => 2,
                    MachineState::Configured => 3,
                    _ => continue,
                },
                _ => continue,
            };
            reached[step].get_or_insert_with(|| began.elapsed());
        }
        for (samples, at) in samples.iter_mut().zip(reached) {
            // CONFIGURING is superseded in the outbox when CONFIGURED follows at once.
            samples.extend(at.map(|at| at.as_secs_f64() * 1000.0));
        }
    }
    report(machines, samples);
    shard.shutdown();
    shard.wait().await?;
    provider.shutdown().await?;
    Ok(())
}

/// So many machines of the first shape that fakecloud seeds.
fn rollup(machines: usize) -> ClusterCapacityNeeds {
    let amounts = |n: usize| [("nvidia.com/gpu".to_owned(), (8 * n).to_string())].into_iter().collect();
    ClusterCapacityNeeds {
        cluster_id: "bench".into(),
        timestamp_unix_nanos: i64::try_from(machines).unwrap_or(i64::MAX),
        needs: vec![CapacityNeed {
            aggregate_resources: amounts(machines),
            min_unit: amounts(1),
            ..CapacityNeed::default()
        }],
    }
}

fn report(machines: u32, samples: [Vec<f64>; STEPS.len()]) {
    let mut steps = serde_json::Map::new();
    for (name, mut times) in STEPS.into_iter().zip(samples) {
        times.sort_by(f64::total_cmp);
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
        let figures = serde_json::json!({"n": times.len(), "p50_ms": at(50), "p99_ms": at(99)});
        steps.insert(name.to_owned(), figures);
    }
    let report = serde_json::json!({
        "workload": "one operator, one machine more each round, instant provider, loopback gRPC",
        "rounds": ROUNDS,
        "machines": machines,
        "from_sending_the_rollup": steps,
    });
    println!("{report}");
}
