//! Reading the shard's own numbers from its metrics page.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const PATIENCE: Duration = Duration::from_secs(5);

/// The page as text.
///
/// # Errors
/// When nobody answers in time, or not with 200.
pub(crate) async fn metrics(addr: SocketAddr) -> anyhow::Result<String> {
    let ask = async {
        let mut stream = TcpStream::connect(addr).await?;
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer =
        tokio::time::timeout(PATIENCE, ask).await.context("no answer in time").and_then(|answer| answer);
    let answer = answer.with_context(|| format!("reading http://{addr}/metrics"))?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
        _ => bail!("http://{addr}/metrics answered {:?}", answer.lines().next().unwrap_or_default()),
    }
}

/// The sum of a gauge over all its label values but those that `leave_out` finds in the labels.
pub(crate) fn sum(page: &str, name: &str, leave_out: impl Fn(&str) -> bool) -> f64 {
    let samples = page.lines().filter_map(|line| line.strip_prefix(name)).filter_map(|rest| {
        let (labels, value) = rest.rsplit_once(' ')?;
        let ours = labels.is_empty() || labels.starts_with('{');
        (ours && !leave_out(labels)).then(|| value.parse::<f64>().ok()).flatten()
    });
    // An empty sum of floats is -0.
    samples.fold(0.0, |sum, value| sum + value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_leave_out_what_they_are_told_to() {
        let page = "# HELP dollars x\ndollars{state=\"Idle\"} 1.5\ndollars{state=\"Speculative\"} 9\n\
                    dollars{state=\"Configured\"} 2\ndollars_more 4\n# EOF\n";
        let total = sum(page, "dollars", |labels| labels.contains("Speculative"));
        assert!((total - 3.5).abs() < 1e-9);
        assert!((sum(page, "dollars_more", |_| false) - 4.0).abs() < 1e-9);
        assert!(sum(page, "nothing", |_| false).abs() < 1e-9);
    }
}
