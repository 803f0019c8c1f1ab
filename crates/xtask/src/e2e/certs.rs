//! Keys and certificates of one run. Elliptic curves: RSA would take seconds.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The names under which the API server is reached.
const SERVER: &str = "extendedKeyUsage=serverAuth\nsubjectAltName=IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,\
                      DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc\n";
const CLIENT: &str = "extendedKeyUsage=clientAuth\n";

/// Makes `ca`, `server` and `front-proxy` (`.key` and `.crt`) and the key `sa.key` in `folder`.
///
/// # Errors
/// openssl is missing or fails.
pub(super) fn make(folder: &Path) -> Result<()> {
    key(folder, "ca")?;
    let ca = [
        "req",
        "-x509",
        "-new",
        "-key",
        "ca.key",
        "-subj",
        "/CN=bigfleet-e2e-ca",
        "-days",
        "2",
        "-out",
        "ca.crt",
        "-addext",
        "basicConstraints=critical,CA:TRUE",
        "-addext",
        "keyUsage=critical,keyCertSign,digitalSignature",
    ];
    openssl(folder, &ca)?;
    leaf(folder, "server", "/CN=kube-apiserver", SERVER)?;
    leaf(folder, "front-proxy", "/CN=front-proxy-client", CLIENT)?;
    key(folder, "sa")
}

fn key(folder: &Path, name: &str) -> Result<()> {
    let file = format!("{name}.key");
    openssl(folder, &["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &file])
}

fn leaf(folder: &Path, name: &str, subject: &str, extensions: &str) -> Result<()> {
    key(folder, name)?;
    let [key, request, ext, cert] = ["key", "csr", "ext", "crt"].map(|end| format!("{name}.{end}"));
    openssl(folder, &["req", "-new", "-key", &key, "-subj", subject, "-out", &request])?;
    std::fs::write(folder.join(&ext), extensions)?;
    let sign = [
        "x509",
        "-req",
        "-in",
        &request,
        "-CA",
        "ca.crt",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
        "-extfile",
        &ext,
        "-out",
        &cert,
    ];
    openssl(folder, &sign)
}

fn openssl(folder: &Path, args: &[&str]) -> Result<()> {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(folder)
        .output()
        .context("cannot start openssl, which makes the certificates of the end-to-end tests")?;
    if !output.status.success() {
        bail!("openssl {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
