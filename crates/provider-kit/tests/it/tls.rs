//! Mutual TLS: who may call what, with certificates made here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bigfleet_net::channel;
use bigfleet_net::tls::{Error, Files, Guards, Tls};
use bigfleet_provider_kit::fakecloud::FakeCloud;
use bigfleet_types::MachineState::Idle;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, IsCa, KeyIdMethod,
    KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
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
        self.issue_with(dir, uris, |_| {})
    }

    fn issue_with(&self, dir: &Path, uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Files {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        change(&mut params);
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

    /// A list that revokes the leaves with these numbers.
    fn revocations(&self, serials: &[u64]) -> String {
        let revoked = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2025, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2025, 1, 1),
            next_update: date_time_ymd(2095, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.0).unwrap().pem().unwrap()
    }

    fn tls_with(&self, uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Tls {
        let dir = tempfile::tempdir().unwrap();
        Tls::load(self.issue_with(dir.path(), uris, change)).unwrap()
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

/// What `/metrics` shows.
fn metrics(cloud: &Cloud) -> String {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &cloud.handle.pages().registry).unwrap();
    text
}

#[tokio::test]
async fn an_identity_on_the_deny_list_is_cut_off_and_not_let_in_again() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let list = dir.path().join("denied");
    std::fs::write(&list, "# nobody yet\n").unwrap();
    let guards = Guards { crl: None, denylist: Some(list.clone()) };
    let tls = Tls::guarded(authority.issue(dir.path(), &[]), guards).unwrap();
    let cloud = secured(tls).await;
    let stolen = authority.tls(&["bigfleet://shard/stolen"]);
    let honest = client(&cloud, Some(authority.tls(&["bigfleet://shard/honest"])), "honest", 1);
    let open = client(&cloud, Some(stolen.clone()), "stolen", 1);
    open.create("spec-0").await.unwrap();
    honest.create("spec-1").await.unwrap();
    std::fs::write(&list, "# nobody yet\nbigfleet://shard/stolen\n").unwrap();
    let denied = eventually("the open connection ends", async || open.get("spec-0").await.err()).await;
    // The connection broke under the call, or the next one knows already that the caller is nobody.
    assert!(
        matches!(denied.code(), Code::Unavailable | Code::Unknown | Code::PermissionDenied | Code::Cancelled),
        "{denied}"
    );
    let again = client(&cloud, Some(stolen), "stolen", 1);
    let status = eventually("a new connection is nobody's", async || {
        again.get("spec-0").await.err().filter(|status| status.code() == Code::PermissionDenied)
    })
    .await;
    assert!(status.message().contains("bigfleet://shard/stolen is on the deny list"), "{status}");
    honest.get("spec-1").await.unwrap();
    let text = metrics(&cloud);
    let rejected = "bigfleet_identity_rejected_total{component=\"provider\",rpc=\"Get\",reason=\"denied\"}";
    assert!(text.contains(rejected), "{text}");
    cloud.stop().await;
}

#[tokio::test]
async fn a_revoked_certificate_does_not_get_in_and_what_it_has_open_ends() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let crl = dir.path().join("revoked.pem");
    std::fs::write(&crl, authority.revocations(&[7])).unwrap();
    let guards = Guards { crl: Some(crl.clone()), denylist: None };
    let cloud = secured(Tls::guarded(authority.issue(dir.path(), &[]), guards).unwrap()).await;
    let shard = |serial: u64| {
        authority.tls_with(&["bigfleet://shard/s"], |params| {
            params.serial_number = Some(SerialNumber::from(serial))
        })
    };
    let revoked = client(&cloud, Some(shard(7)), "s", 1);
    assert!(matches!(code(revoked.get("spec-0").await), Code::Unavailable | Code::Unknown));
    let (open, other) = (client(&cloud, Some(shard(8)), "s", 1), client(&cloud, Some(shard(9)), "s", 1));
    open.get("spec-0").await.unwrap();
    other.get("spec-0").await.unwrap();
    std::fs::write(&crl, authority.revocations(&[7, 8])).unwrap();
    eventually("the open connection ends and no other is let in", async || open.get("spec-0").await.err())
        .await;
    assert!(matches!(code(open.get("spec-0").await), Code::Unavailable | Code::Unknown));
    other.get("spec-0").await.unwrap();
    cloud.stop().await;
}

#[tokio::test]
async fn certificates_out_of_their_time_do_not_get_in() {
    let authority = Authority::new();
    let cloud = secured(authority.tls(&[])).await;
    for (from, to) in [(2001, 2002), (2094, 2095)] {
        let tls = authority.tls_with(&["bigfleet://shard/s"], |params| {
            params.not_before = date_time_ymd(from, 1, 1);
            params.not_after = date_time_ymd(to, 1, 1);
        });
        let refused = code(client(&cloud, Some(tls), "s", 1).get("spec-0").await);
        assert!(matches!(refused, Code::Unavailable | Code::Unknown), "{from}: {refused}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn metrics_tell_when_the_certificate_ends_and_how_often_it_was_replaced() {
    let authority = Authority::new();
    let dir = tempfile::tempdir().unwrap();
    let ends = |year| move |params: &mut CertificateParams| params.not_after = date_time_ymd(year, 1, 1);
    let cloud = secured(Tls::load(authority.issue_with(dir.path(), &[], ends(2090))).unwrap()).await;
    let line = |year: i32| {
        let seconds = date_time_ymd(year, 1, 1).unix_timestamp();
        format!("bigfleet_tls_cert_not_after_seconds {seconds}")
    };
    let text = metrics(&cloud);
    assert!(text.contains(&line(2090)) && text.contains("bigfleet_transport_secure 1"), "{text}");
    assert!(text.contains("bigfleet_insecure_transport 0"), "{text}");
    authority.issue_with(dir.path(), &[], ends(2091));
    let caller = authority.tls(&["bigfleet://shard/s"]);
    eventually("the new certificate is in force", async || {
        // A handshake looks at the files, at most once a second.
        client(&cloud, Some(caller.clone()), "s", 1).get("spec-0").await.unwrap();
        metrics(&cloud).contains(&line(2091)).then_some(())
    })
    .await;
    assert!(metrics(&cloud).contains("bigfleet_tls_reload_total{result=\"ok\"}"), "{}", metrics(&cloud));
    cloud.stop().await;
}

#[test]
fn plaintext_is_refused_where_tls_is_required_or_something_would_guard_nothing() {
    let guard = |crl: Option<&str>, denylist: Option<&str>| Guards {
        crl: crl.map(Into::into),
        denylist: denylist.map(Into::into),
    };
    assert_eq!(Tls::from_flags(None, Guards::default(), false).unwrap(), None);
    for (guards, require, words) in [
        (Guards::default(), true, "--require-tls: there is no TLS"),
        (guard(Some("x"), None), false, "--tls-crl: there is no TLS"),
        (guard(None, Some("x")), false, "--identity-denylist: there is no TLS"),
    ] {
        let error = Tls::from_flags(None, guards, require).unwrap_err().to_string();
        assert!(error.starts_with(words), "{error}");
    }
    let dir = tempfile::tempdir().unwrap();
    let files = Authority::new().issue(dir.path(), &[]);
    let list = dir.path().join("denied");
    std::fs::write(&list, "bigfleet://shard/a\n\nbigfleet://shard/B\n").unwrap();
    let guards = guard(None, list.to_str());
    let error = Tls::from_flags(Some(files.clone()), guards, true).unwrap_err().to_string();
    assert!(
        error.starts_with("--identity-denylist ") && error.contains("line 3: \"bigfleet://shard/B\""),
        "{error}"
    );
    let error =
        Tls::from_flags(Some(files.clone()), guard(list.to_str(), None), true).unwrap_err().to_string();
    assert!(error.starts_with("--tls-crl ") && error.contains("no revocation list"), "{error}");
    assert!(Tls::from_flags(Some(files), Guards::default(), true).unwrap().is_some());
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
