//! From a kubeconfig, or from inside a pod, to an API server.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file that was named cannot be used.
    #[error("--kubeconfig {}: {source}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// Nothing was named, and neither the environment nor a pod says where the API server is.
    #[error("no API server: {0}; give --kubeconfig, set KUBECONFIG, or run in a pod with a service account")]
    Nowhere(kube::config::InferConfigError),
    /// The configuration cannot be turned into a client.
    #[error("cannot make a client for {url}: {source}")]
    Client {
        /// The API server.
        url: String,
        /// Why.
        source: Box<kube::Error>,
    },
}

/// Where the API server is and who we are: from the file if one is named, else from `$KUBECONFIG`, the home
/// directory, or the pod that this runs in. Nothing is dialled.
///
/// The client's own retries are off: they would hide an eviction that a budget refuses, for minutes.
///
/// # Errors
/// [`Error::Kubeconfig`] and [`Error::Nowhere`].
pub async fn config(kubeconfig: Option<&Path>) -> Result<Config, Error> {
    let mut config = match kubeconfig {
        None => Config::infer().await.map_err(Error::Nowhere)?,
        Some(path) => {
            let wrap = |source| Error::Kubeconfig { path: path.to_owned(), source };
            let file = Kubeconfig::read_from(path).map_err(wrap)?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrap)?
        }
    };
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT);
    Ok(config)
}

/// A client. Nothing is dialled before its first call.
///
/// # Errors
/// Every variant of [`Error`].
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    client_of(config(kubeconfig).await?)
}

/// A client for a configuration that [`config`] has made.
///
/// # Errors
/// [`Error::Client`].
pub fn client_of(config: Config) -> Result<Client, Error> {
    let url = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| Error::Client { url, source: Box::new(source) })
}
