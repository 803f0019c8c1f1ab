//! Client channels: connected on first use, kept alive while idle, never repeating a request.
//!
//! A request that fails is the caller's to judge. After a failure the channel dials again at the next request; how
//! long to wait before that is the caller's [`crate::backoff`].

use std::time::Duration;

use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::limits;
use crate::tls::Tls;

/// Why no channel was made. Connecting itself fails later, at the first request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no `host:port`.
    #[error("{addr:?} is not an address to connect to: {problem}; write host:port")]
    Syntax {
        /// The flag's value.
        addr: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A scheme that needs TLS.
    #[error(
        "{addr:?} asks for TLS by its scheme; write host:port, TLS comes from --tls-cert, --tls-key and --tls-ca"
    )]
    Tls {
        /// The flag's value.
        addr: String,
    },
}

/// Timings of a channel.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// Silence after which a ping is sent, also while no request runs.
    pub keep_alive_interval: Duration,
    /// How long a ping may stay unanswered.
    pub keep_alive_timeout: Duration,
    /// TLS on this edge; `None` for plaintext. The server's certificate must name the host that is dialled.
    pub tls: Option<Tls>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: limits::CONNECT_TIMEOUT,
            keep_alive_interval: limits::KEEP_ALIVE_INTERVAL,
            keep_alive_timeout: limits::KEEP_ALIVE_TIMEOUT,
            tls: None,
        }
    }
}

/// A channel to `addr`, `host:port` with an optional `http://` before it. Opens no connection yet; must run on a
/// tokio runtime.
///
/// # Errors
/// When `addr` cannot be an address.
pub fn connect_lazy(addr: &str, options: &Options) -> Result<Channel, Error> {
    let syntax = |problem| Error::Syntax { addr: addr.to_owned(), problem };
    if addr.starts_with("https://") {
        return Err(Error::Tls { addr: addr.to_owned() });
    }
    let target = addr.strip_prefix("http://").unwrap_or(addr);
    let parsed = target.parse::<crate::listen::Addr>().map_err(|e| match e {
        crate::listen::Error::Syntax { problem, .. } => syntax(problem),
        _ => syntax("it cannot be read"),
    })?;
    if parsed.host().is_empty() {
        return Err(syntax("it has no host"));
    }
    if parsed.port() == 0 {
        return Err(syntax("port 0 cannot be dialled"));
    }
    let endpoint =
        Endpoint::from_shared(format!("http://{parsed}")).map_err(|_| syntax("it is not part of a URI"))?;
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .http2_keep_alive_interval(options.keep_alive_interval)
        .keep_alive_timeout(options.keep_alive_timeout)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(limits::WINDOW_BYTES)
        .initial_connection_window_size(limits::WINDOW_BYTES)
        .tcp_nodelay(true);
    let Some(tls) = options.tls.clone() else { return Ok(endpoint.connect_lazy()) };
    let name = ServerName::try_from(parsed.host().to_owned())
        .map_err(|_| syntax("its host is no name that a certificate can have"))?;
    let connector = tower::service_fn(move |_: Uri| {
        let (target, name, tls) = (parsed.to_string(), name.clone(), tls.clone());
        async move {
            let stream = TcpStream::connect(target).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(tls.client()).connect(name, stream).await?;
            Ok::<_, std::io::Error>(TokioIo::new(stream))
        }
    });
    Ok(endpoint.connect_with_connector_lazy(connector))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_checked_before_anything_is_dialled() {
        for good in ["127.0.0.1:9000", "http://provider.example:9000", "[::1]:9000", "name_with.dots-9:1"] {
            connect_lazy(good, &Options::default()).unwrap();
        }
        for (bad, problem) in [
            ("", "it is empty"),
            (":9000", "no host"),
            ("host", "no port"),
            ("host:0", "port 0"),
            ("https://host:1", "TLS"),
            ("ftp://host:1", "needs brackets"),
            ("host:9000/path", "not a number"),
        ] {
            let shown = connect_lazy(bad, &Options::default()).unwrap_err().to_string();
            assert!(shown.contains(problem) && shown.contains(&format!("{bad:?}")), "{bad}: {shown}");
        }
    }
}
