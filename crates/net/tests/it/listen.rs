//! Binding real addresses.

use bigfleet_net::listen::{Error, bind};
use tokio::net::TcpStream;

#[tokio::test]
async fn port_zero_is_bound_to_a_true_port() {
    for addr in ["127.0.0.1:0", "localhost:0", ":0", "0.0.0.0:0"] {
        let listener = bind(addr).await.unwrap();
        assert_ne!(listener.local_addr().port(), 0, "{addr}");
        TcpStream::connect(listener.dial_addr()).await.unwrap();
    }
    assert!(bind(":0").await.unwrap().local_addr().ip().is_unspecified(), "a wildcard is shown as one");
}

#[tokio::test]
async fn a_taken_port_is_told_apart() {
    let first = bind(":0").await.unwrap();
    for host in ["", "127.0.0.1"] {
        let addr = format!("{host}:{}", first.local_addr().port());
        let err = bind(&addr).await.unwrap_err();
        assert!(matches!(err, Error::InUse { .. }), "{err:?}");
        assert!(err.to_string().contains(&addr), "{err}");
    }
}

#[tokio::test]
async fn foreign_and_unknown_hosts_are_told_apart() {
    // An address reserved for documentation, and a name that may never resolve.
    let err = bind("192.0.2.1:0").await.unwrap_err();
    assert!(matches!(err, Error::NotLocal { .. }), "{err:?}");
    let err = bind("nobody.invalid:0").await.unwrap_err();
    assert!(matches!(err, Error::Resolve { .. }), "{err:?}");
    assert!(matches!(bind("nonsense").await.unwrap_err(), Error::Syntax { .. }));
}
