//! Plain HTTP on loopback: metrics pages, and the gateway of etcd.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};

const PATIENCE: Duration = Duration::from_secs(30);

/// GET; the body of a 200.
pub(super) fn get(address: &str, path: &str) -> Result<String> {
    call(address, &format!("GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n"))
}

/// POST of JSON; the body of a 200.
pub(super) fn post(address: &str, path: &str, json: &str) -> Result<String> {
    let length = json.len();
    call(
        address,
        &format!(
            "POST {path} HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{json}"
        ),
    )
}

fn call(address: &str, request: &str) -> Result<String> {
    let what = request.lines().next().unwrap_or_default();
    let mut stream = TcpStream::connect(address).with_context(|| format!("cannot reach {address}"))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).with_context(|| format!("{address}: {what}"))?;
    let answer = String::from_utf8_lossy(&bytes);
    let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("{address} speaks no HTTP"))?;
    if head.split(' ').nth(1) != Some("200") {
        bail!("{address}: {what}: {} {body}", head.lines().next().unwrap_or_default());
    }
    Ok(body.to_owned())
}

/// The sum of a metric's samples whose labels hold every one of `labels`; `None` when there is no such sample.
pub(super) fn metric(address: &str, name: &str, labels: &[&str]) -> Result<Option<f64>> {
    let page = get(address, "/metrics")?;
    sum(&page, name, labels).with_context(|| format!("{address}: a sample of {name} is no number"))
}

fn sum(page: &str, name: &str, labels: &[&str]) -> Result<Option<f64>> {
    let mut total = None;
    for line in page.lines() {
        let Some(rest) = line.strip_prefix(name) else { continue };
        if rest.starts_with([' ', '{']) && labels.iter().all(|label| rest.contains(label)) {
            let value: f64 = rest.rsplit(' ').next().unwrap_or_default().parse()?;
            *total.get_or_insert(0.0) += value;
        }
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::sum;

    #[test]
    fn samples_are_summed_by_label() {
        let page = "# HELP a x\na_total{k=\"1\"} 2\na_total{k=\"2\"} 3\na_total_more 9\nb 1\n";
        assert_eq!(sum(page, "a_total", &[]).unwrap(), Some(5.0));
        assert_eq!(sum(page, "a_total", &["k=\"2\""]).unwrap(), Some(3.0));
        assert_eq!(sum(page, "a", &[]).unwrap(), None);
        assert!(sum("a x\n", "a", &[]).is_err());
    }
}
