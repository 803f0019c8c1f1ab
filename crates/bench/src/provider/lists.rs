//! Whole lists, taken from the connection byte by byte: what a caller then makes of them is not the provider's time.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bigfleet_proto::v1alpha1 as pb;
use prost::Message as _;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::codegen::http;
use tonic::transport::Channel;

use super::server::Server;
use super::{Numbers, Setting};
use crate::measure::{millis, quantile, to_f64};

pub(super) const WHAT: &str =
    "one caller lists all machines, which serve clusters and carry a shard's notes; p50 is the last byte";

/// Machines of one cluster.
const PER_CLUSTER: u64 = 1000;
/// Field number of the machines in an answer.
const MACHINES: u32 = 1;
/// At least so long, so that the processor's time, which the system counts in steps of 10 ms, means something.
const LEAST: Duration = Duration::from_secs(2);

/// How to begin with so many machines that serve clusters.
pub(super) fn seeds(machines: u64) -> [String; 3] {
    let each = PER_CLUSTER.min(machines);
    [
        format!("--seed-configured-per-cluster={each}"),
        format!("--seed-cluster-total={}", machines.div_ceil(each)),
        // So that they say what pods can use, too.
        "--seed-density-multiplier=2".to_owned(),
    ]
}

/// One answer.
struct Answer {
    first: Duration,
    last: Duration,
    /// The message, without what gRPC puts before it.
    message: Vec<u8>,
}

pub(super) fn whole(setting: &Setting, machines: u64) -> Result<Numbers> {
    let machines = setting.sized(machines);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let server = Server::start(setting, &seeds(machines))?;
        let mut channel = server.channel()?;
        let bytes = ask(&mut channel).await?.message;
        let (mut firsts, mut lasts) = (Vec::new(), Vec::new());
        let (begun, cpu) = (Instant::now(), server.cpu()?);
        while lasts.len() < 3 || begun.elapsed() < LEAST {
            let answer = ask(&mut channel).await?;
            ensure!(answer.message.len() == bytes.len(), "two lists of machines at rest differ");
            firsts.push(answer.first);
            lasts.push(answer.last);
        }
        let (took, cpu) = (begun.elapsed(), server.cpu()?.saturating_sub(cpu));
        ensure!(count(&bytes)? == machines, "the list has {} machines, not {machines}", count(&bytes)?);
        firsts.sort_unstable();
        lasts.sort_unstable();
        let calls = lasts.len() as u64;
        Ok(Numbers {
            machines,
            callers: 1,
            calls,
            seconds: took.as_secs_f64(),
            per_second: to_f64(calls) / took.as_secs_f64(),
            cpu_us_per_call: cpu.as_secs_f64() * 1e6 / to_f64(calls),
            p50_ms: millis(quantile(&lasts, 50)),
            p99_ms: millis(quantile(&lasts, 99)),
            bytes: Some(bytes.len() as u64),
            first_byte_ms: Some(millis(quantile(&firsts, 50))),
            peak_rss_bytes: server.peak_rss()?,
            ..Numbers::default()
        })
    })
}

/// One List as a call of gRPC by hand: five bytes before each message, the status at the end.
async fn ask(channel: &mut Channel) -> Result<Answer> {
    let mut request = vec![0; 5];
    pb::ListFilter::default().encode(&mut request).context("cannot encode the request")?;
    let length = u32::try_from(request.len() - 5).context("the request is too long")?;
    request[1..5].copy_from_slice(&length.to_be_bytes());
    let request = http::Request::post("http://provider/bigfleet.v1alpha1.CapacityProvider/List")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(http_body_util::Full::new(prost::bytes::Bytes::from(request))))
        .context("cannot make the request")?;
    std::future::poll_fn(|context| channel.poll_ready(context)).await.context("no connection")?;
    let begun = Instant::now();
    let answer = channel.call(request).await.context("List failed")?;
    let refused = answer.headers().get("grpc-status").cloned();
    let mut body = answer.into_body();
    let (mut first, mut bytes, mut status) = (None, Vec::new(), refused);
    while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
        let frame = frame.context("the answer broke off")?;
        if let Some(data) = frame.data_ref() {
            first.get_or_insert_with(|| begun.elapsed());
            bytes.extend_from_slice(data);
        } else if let Some(trailers) = frame.trailers_ref() {
            status = trailers.get("grpc-status").cloned();
        }
    }
    let last = begun.elapsed();
    let (Some(first), Some(status)) = (first, status) else { bail!("the answer has no bytes or no status") };
    ensure!(status == "0", "List ended with status {status:?}");
    let length = bytes.get(1..5).and_then(|head| head.try_into().ok()).map(u32::from_be_bytes);
    let message = bytes.split_off(5.min(bytes.len()));
    ensure!(
        length.and_then(|length| usize::try_from(length).ok()) == Some(message.len()),
        "the answer is cut short"
    );
    Ok(Answer { first, last, message })
}

/// The machines in an answer, without decoding them.
fn count(mut message: &[u8]) -> Result<u64> {
    let mut machines = 0;
    while !message.is_empty() {
        let (number, wire) = decode_key(&mut message).context("the answer cannot be read")?;
        machines += u64::from(number == MACHINES);
        skip_field(wire, number, &mut message, DecodeContext::default())
            .context("the answer cannot be read")?;
    }
    Ok(machines)
}
