//! What a bootstrap template may know of the API server.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bigfleet_operator::template::bootstrap::Statics;
use kube::Config;

/// Characters in a line of PEM.
const LINE: usize = 64;

/// The values of a template that come from how we reach the API server. `endpoint` is how machines reach it, when that
/// differs from how we do. There is no token: a template brings its own.
#[must_use]
pub fn statics(config: &Config, endpoint: Option<&str>) -> Statics {
    let ours = || config.cluster_url.to_string().trim_end_matches('/').to_owned();
    Statics {
        api_server_endpoint: Some(endpoint.map_or_else(ours, str::to_owned)),
        ca_bundle: ca_bundle(config),
        ..Statics::default()
    }
}

fn ca_bundle(config: &Config) -> Option<String> {
    if let Some(certificates) = &config.root_cert {
        return Some(certificates.iter().map(|der| pem(der)).collect());
    }
    let path = config.root_cert_file.as_ref()?;
    match std::fs::read_to_string(path) {
        Ok(text) => Some(text),
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the CA bundle cannot be read; templates go without");
            None
        }
    }
}

fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, more) = rest.split_at(rest.len().min(LINE));
        out.push_str(line);
        out.push('\n');
        rest = more;
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_print_as_pem() {
        let text = pem(&[7; 60]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1].len(), lines[2].len()), (4, 64, 16), "{text}");
    }
}
