//! Mutual TLS: who may call what, with certificates made here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bigfleet_net::channel;
use bigfleet_net::tls::{Error, Files, Tls};
use bigfleet_provider_kit::fakecloud::FakeCloud;
use bigfleet_types::MachineState::Idle;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, SanType};
use tonic::Code;

use crate::fixture::{Client, Cloud, code, eventually, options, serve};

/// An authority that signs what it is asked for.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// Writes a leaf for 127.0.0.1 with these URIs, and this authority, into `dir`.
    fn issue(&self, dir: &Path, uris: &[&str]) -> Files {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())));
        let key = KeyPair::generate().unwrap();
        let leaf = params.signed_by(&key, &self.0).unwrap();
        let write = |name: &str, text: &str| -> PathBuf {
            let path = dir.join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        Files {
            cert: write("tls.crt", &leaf.pem()),
            key: write("tls.key", &key.serialize_pem()),
            ca: write("ca.crt", &self.0.pem()),
        }
    }

    fn tls(&self, uris: &[&str]) -> Tls {
        let dir = tempfile::tempdir().unwrap();
        Tls::load(self.issue(dir.path(), uris)).unwrap()
    }
}

async fn secured(tls: Tls) -> Cloud {
    serve(FakeCloud::new(options()).unwrap().kit(|kit| kit.tls = Some(tls))).await
}

fn client(cloud: &Cloud, tls: Option<Tls>, shard: &str, epoch: i64) -> Client {
    let addr = cloud.handle.dial_addr().to_string();
    let options = channel::Options { tls, ..channel::Options::default() };
    Client::over(channel::connect_lazy(&addr, &options).unwrap(), shard, epoch)
}

#[tokio::test]
async fn only_the_shard_that_is_named_moves_machines() {
    let authority = Authority::new();
    let cloud = secured(authority.tls(&["bigfleet://provider/fakecloud"])).await;
    let shard = authority.tls(&["spiffe://x/y", "bigfleet://shard/shard-0"]);
    let own = client(&cloud, Some(shard.clone()), "shard-0", 1);
    own.create("spec-0").await.unwrap();
    eventually("spec-0 is Idle", async || {
        (own.get("spec-0").await.unwrap().state == i32::from(Idle.number())).then_some(())
    })
    .await;
    // A foreign id, and none at all: the zero token is for plaintext only.
    for (shard_id, epoch) in [("shard-1", 1), ("", 0)] {
        let foreign = client(&cloud, Some(shard.clone()), shard_id, epoch);
        for status in [
            foreign.create("spec-1").await.unwrap_err(),
            foreign.configure("idle-0", "a").await.unwrap_err(),
            foreign.drain("idle-0", 0).await.unwrap_err(),
            foreign.delete("idle-0").await.unwrap_err(),
        ] {
            assert_eq!(status.code(), Code::PermissionDenied, "{shard_id:?}: {status}");
            assert!(status.message().contains("shard/shard-0"), "{status}");
        }
        assert_eq!(foreign.list_since(b"", 0).await.machines.len(), 10, "any shard may look");
    }
    let unnamed = client(&cloud, Some(shard), "", 0).create("no such machine").await.unwrap_err();
    assert_eq!(unnamed.code(), Code::PermissionDenied, "before the request is looked into");
    cloud.stop().await;
}

#[tokio::test]
async fn roles_may_what_they_may_and_nobody_is_nobody() {
    let authority = Authority::new();
    let cloud = secured(authority.tls(&[])).await;
    for (uris, looks) in [
        (&["bigfleet://readonly"][..], true),
        (&["bigfleet://admin"], true),
        (&["bigfleet://cluster/shard-0"], false),
        (&["bigfleet://provider/shard-0"], false),
        (&[], false),
        (&["bigfleet://shard/shard-0", "BIGFLEET://shard/shard-0"], false),
    ] {
        let client = client(&cloud, Some(authority.tls(uris)), "shard-0", 1);
        assert_eq!(code(client.create("spec-0").await), Code::PermissionDenied, "{uris:?}");
        let expected = if looks { Code::Ok } else { Code::PermissionDenied };
        assert_eq!(code(client.get("spec-0").await), expected, "{uris:?}");
        let list = client.raw().list(bigfleet_proto::v1alpha1::ListFilter::default()).await;
        assert_eq!(code(list), expected, "{uris:?}");
    }
    assert!(cloud.control().provider().machines().iter().all(|m| m.cluster.is_empty()));
    cloud.stop().await;
}

#[tokio::test]
async fn plaintext_and_foreign_certificates_do_not_get_in() {
    let authority = Authority::new();
    let cloud = secured(authority.tls(&[])).await;
    // What a caller is told depends on when its connection breaks.
    let broken = |code| matches!(code, Code::Unavailable | Code::Unknown);
    assert!(broken(code(client(&cloud, None, "s", 1).get("spec-0").await)));
    let foreign = Authority::new().tls(&["bigfleet://shard/s"]);
    assert!(broken(code(client(&cloud, Some(foreign), "s", 1).get("spec-0").await)));
    // A client does not talk to a server that its own authority does not know either.
    let plain = crate::fixture::start(options()).await;
    let tls = authority.tls(&["bigfleet://shard/s"]);
    assert!(broken(code(client(&plain, Some(tls), "s", 1).get("spec-0").await)));
    plain.stop().await;
    cloud.stop().await;
}

#[tokio::test]
async fn replaced_files_are_in_force_for_new_connections_and_broken_ones_are_not() {
    let (old, new) = (Authority::new(), Authority::new());
    let dir = tempfile::tempdir().unwrap();
    let cloud = secured(Tls::load(old.issue(dir.path(), &[])).unwrap()).await;
    let first = client(&cloud, Some(old.tls(&["bigfleet://shard/s"])), "s", 1);
    first.get("spec-0").await.unwrap();
    std::fs::write(dir.path().join("tls.crt"), "no certificate").unwrap();
    // Longer than the files are left unlooked at.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    client(&cloud, Some(old.tls(&["bigfleet://shard/s"])), "s", 1).get("spec-0").await.unwrap();
    new.issue(dir.path(), &[]);
    eventually("the new authority counts", async || {
        let client = client(&cloud, Some(new.tls(&["bigfleet://shard/s"])), "s", 1);
        client.get("spec-0").await.ok()
    })
    .await;
    first.get("spec-0").await.unwrap();
    assert!(client(&cloud, Some(old.tls(&["bigfleet://shard/s"])), "s", 1).get("spec-0").await.is_err());
    cloud.stop().await;
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| Some(dir.path().join(name));
    assert_eq!(Files::from_flags(None, None, None).unwrap(), None);
    let partial = Files::from_flags(path("tls.crt"), None, path("ca.crt")).unwrap_err().to_string();
    assert!(partial.starts_with("--tls-key missing beside --tls-cert, --tls-ca"), "{partial}");

    let files = Authority::new().issue(dir.path(), &[]);
    Tls::load(files.clone()).unwrap();
    let missing = Tls::load(Files { ca: dir.path().join("nowhere"), ..files.clone() }).unwrap_err();
    assert!(
        missing.to_string().starts_with("--tls-ca ") && missing.to_string().contains("nowhere"),
        "{missing}"
    );
    let key = KeyPair::generate().unwrap().serialize_pem();
    std::fs::write(dir.path().join("other.key"), key).unwrap();
    let other = Tls::load(Files { key: dir.path().join("other.key"), ..files.clone() }).unwrap_err();
    assert!(matches!(other, Error::Pair { .. }), "{other}");
    let empty = Tls::load(Files { ca: files.key.clone(), ..files }).unwrap_err();
    assert!(empty.to_string().contains("no certificate"), "{empty}");
}
