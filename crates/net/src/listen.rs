//! Listening addresses as flags give them, and the sockets bound to them.
//!
//! An address is `host:port`. An empty host means every interface; port 0 lets the system choose, and
//! [`Listener::local_addr`] tells what it chose.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};

/// Pause after a failed accept that is not the peer's doing, such as running out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// Why an address is not listened on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no `host:port`.
    #[error("{addr:?} is not a listening address: {problem}; write host:port, :port or [v6-address]:port")]
    Syntax {
        /// The flag's value.
        addr: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The host has no address.
    #[error("cannot listen on {addr}: its host does not resolve ({source}); use an address of this machine")]
    Resolve {
        /// The flag's value.
        addr: String,
        /// What the resolver said.
        source: io::Error,
    },
    /// Somebody else listens there.
    #[error(
        "cannot listen on {addr}: the port is taken; stop the other process, or choose another port (0 picks a free one)"
    )]
    InUse {
        /// The flag's value.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// The address belongs to no interface of this machine.
    #[error(
        "cannot listen on {addr}: no interface of this machine has that address; leave the host empty for all"
    )]
    NotLocal {
        /// The flag's value.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// The process may not bind there.
    #[error(
        "cannot listen on {addr}: permission denied; ports below 1024 need a privilege, choose a higher one"
    )]
    Denied {
        /// The flag's value.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
    /// Anything else.
    #[error("cannot listen on {addr}: {source}")]
    Other {
        /// The flag's value.
        addr: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A checked `host:port` that nothing listens on yet. Checking touches no socket and resolves no name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addr {
    host: String,
    port: u16,
}

impl Addr {
    /// The host without brackets; empty for all interfaces.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 0 lets the system choose.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl FromStr for Addr {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let fail = |problem| Error::Syntax { addr: text.to_owned(), problem };
        if text.is_empty() {
            return Err(fail("it is empty"));
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(|| fail("it has no port"))?;
        if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
            return Err(fail("the port is not a number"));
        }
        let port = port.parse().map_err(|_| fail("the port is above 65535"))?;
        let host = if let Some(inner) = host.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or_else(|| fail("the bracket is not closed"))?;
            inner.parse::<Ipv6Addr>().map_err(|_| fail("the brackets hold no IPv6 address"))?;
            inner
        } else if host.contains(':') {
            return Err(fail("an IPv6 address needs brackets"));
        } else if host.bytes().any(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))) {
            return Err(fail("the host is neither a name nor an IPv4 address"));
        } else {
            host
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// A bound listener: connections queue from here on, whether or not they are accepted yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    local: SocketAddr,
}

impl Listener {
    /// Where the socket is bound, with its true port; a wildcard is shown as `0.0.0.0` or `[::]`.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Where a client on this machine reaches it: as [`Self::local_addr`], with loopback for a wildcard.
    #[must_use]
    pub fn dial_addr(&self) -> SocketAddr {
        dialable(self.local)
    }

    /// The socket itself, for whoever accepts.
    #[must_use]
    pub fn into_socket(self) -> TcpListener {
        self.socket
    }
}

/// `addr` with loopback in place of a wildcard.
#[must_use]
pub fn dialable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        // A wildcard of the sixth version takes both families, and the fourth one's loopback is always there.
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Checks and binds `addr`, in the words of the flag that gave it. Must run on a tokio runtime.
///
/// # Errors
/// Every variant of [`Error`]; nothing is bound then.
pub async fn bind(addr: &str) -> Result<Listener, Error> {
    bind_addr(&addr.parse()?).await
}

/// Binds a checked address. Must run on a tokio runtime.
///
/// # Errors
/// Every variant of [`Error`] but `Syntax`; nothing is bound then.
pub async fn bind_addr(addr: &Addr) -> Result<Listener, Error> {
    let result = if addr.host.is_empty() {
        bind_all(addr.port).await
    } else {
        let targets = tokio::net::lookup_host((addr.host.as_str(), addr.port))
            .await
            .map_err(|source| Error::Resolve { addr: addr.to_string(), source })?;
        let targets: Vec<SocketAddr> = targets.collect();
        TcpListener::bind(targets.as_slice()).await
    };
    let bound = result.and_then(|socket| Ok(Listener { local: socket.local_addr()?, socket }));
    bound.map_err(|source| {
        let addr = addr.to_string();
        match source.kind() {
            io::ErrorKind::AddrInUse => Error::InUse { addr, source },
            io::ErrorKind::AddrNotAvailable => Error::NotLocal { addr, source },
            io::ErrorKind::PermissionDenied => Error::Denied { addr, source },
            _ => Error::Other { addr, source },
        }
    })
}

/// Both families where the machine has both, else the fourth alone.
async fn bind_all(port: u16) -> io::Result<TcpListener> {
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Err(e) if e.kind() != io::ErrorKind::AddrInUse && e.kind() != io::ErrorKind::PermissionDenied => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        bound => bound,
    }
}

/// Waits for the next connection and sets its options: the server builder's own do nothing for connections that
/// are handed to it.
pub(crate) async fn next_connection(socket: &TcpListener) -> TcpStream {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    loop {
        match socket.accept().await {
            Ok((stream, _)) => {
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "cannot set nodelay; the connection is used as it is");
                }
                return stream;
            }
            Err(e) if matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_without_a_socket() {
        for (text, host, port, shown) in [
            (":7780", "", 7780, ":7780"),
            ("0.0.0.0:0", "0.0.0.0", 0, "0.0.0.0:0"),
            ("localhost:1", "localhost", 1, "localhost:1"),
            ("[::1]:65535", "::1", 65535, "[::1]:65535"),
        ] {
            let addr: Addr = text.parse().unwrap();
            assert_eq!((addr.host(), addr.port(), addr.to_string().as_str()), (host, port, shown));
        }
    }

    #[test]
    fn bad_addresses_name_their_value_and_fault() {
        for (text, problem) in [
            ("", "it is empty"),
            ("7780", "it has no port"),
            ("host:", "not a number"),
            (":-1", "not a number"),
            (":+5", "not a number"),
            (":70000", "above 65535"),
            ("::1:80", "needs brackets"),
            ("[::1:80", "not closed"),
            ("[nope]:80", "no IPv6 address"),
            ("http://x:80", "needs brackets"),
            ("a b:80", "neither a name"),
        ] {
            let err = text.parse::<Addr>().unwrap_err();
            assert!(matches!(err, Error::Syntax { .. }));
            let shown = err.to_string();
            assert!(shown.contains(problem) && shown.contains(&format!("{text:?}")), "{text}: {shown}");
        }
    }

    #[test]
    fn wildcards_are_dialled_on_loopback() {
        for (bound, dial) in [
            ("0.0.0.0:5", "127.0.0.1:5"),
            ("[::]:5", "127.0.0.1:5"),
            ("[::1]:5", "[::1]:5"),
            ("10.1.2.3:5", "10.1.2.3:5"),
        ] {
            assert_eq!(dialable(bound.parse().unwrap()), dial.parse().unwrap());
        }
    }

    #[tokio::test]
    async fn accepted_connections_send_without_delay() {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.dial_addr()).await.unwrap();
        assert!(next_connection(&listener.into_socket()).await.nodelay().unwrap());
    }
}
