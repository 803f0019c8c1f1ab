//! Starting and stopping: listener, health, admin pages, periodic looks at the back end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bigfleet_net::admin::{self, BuildInfo, Pages, Readiness, Supervised};
use bigfleet_net::listen::Listener;
use bigfleet_net::metrics::gauge;
use bigfleet_net::{grpc, limits};
use bigfleet_proto::v1alpha1::capacity_provider_server::CapacityProviderServer;
use prometheus_client::registry::Registry;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::server::NamedService as _;

use super::listing::Lists;
use super::service::Service;
use super::{Options, Provider, StartError, desk};
use crate::backend::Backend;
use crate::faults::{Faults, NoFaults};
use crate::instance::Instance;
use crate::store::Store;
use crate::table::Binding;

/// How often a provider that everybody may call says so.
const WARN_EVERY: Duration = Duration::from_secs(60 * 60);
const NO_TLS: &str = "no TLS: whoever reaches the port may move machines; run on a trusted network only";

/// The server ended although nobody asked it to.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The transport failed.
    #[error(transparent)]
    Transport(#[from] grpc::Error),
    /// Its task panicked.
    #[error("the server's task ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// A provider that serves. Dropping it stops it without waiting.
#[derive(Debug)]
pub struct Handle {
    local: SocketAddr,
    dial: SocketAddr,
    provider: Provider,
    readiness: Readiness,
    pages: Pages,
    stop: CancellationToken,
    /// Taken once it is known how the server ended.
    serving: Option<JoinHandle<Result<grpc::Stopped, grpc::Error>>>,
    admin: Option<Supervised>,
    /// Later than `stop`: probes must see that the provider is not ready while it stops.
    admin_stop: CancellationToken,
}

impl Provider {
    /// Opens the store, describes the back end, and serves on `listener`. Must run on a tokio runtime.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is served then.
    pub async fn start(
        listener: Listener,
        backend: Arc<dyn Backend>,
        options: Options,
        store: Box<dyn Store>,
    ) -> Result<Handle, StartError> {
        Self::start_with_faults(listener, backend, Arc::new(NoFaults), options, store).await
    }

    /// As [`Provider::start`], for doubles that misbehave on demand.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is served then.
    pub async fn start_with_faults(
        listener: Listener,
        backend: Arc<dyn Backend>,
        faults: Arc<dyn Faults>,
        options: Options,
        store: Box<dyn Store>,
    ) -> Result<Handle, StartError> {
        Self::launch(listener, backend, faults, options, store, &[]).await
    }

    /// As [`Provider::start_with_faults`], with machines that serve a cluster from the beginning.
    pub(crate) async fn launch(
        listener: Listener,
        backend: Arc<dyn Backend>,
        faults: Arc<dyn Faults>,
        options: Options,
        store: Box<dyn Store>,
        bound: &[(Instance, Binding)],
    ) -> Result<Handle, StartError> {
        let mut registry = Registry::default();
        let build = BuildInfo::this("provider");
        build.register(&mut registry);
        let (metrics_addr, grace) = (options.metrics_addr.clone(), options.shutdown_grace);
        let desk = match &options.admin_socket {
            None => None,
            Some(path) => Some((desk::bind(path).await?, path.clone())),
        };
        let (reflection, tls) = (options.reflection, options.tls.clone());
        let exposed = tls.is_none() && !listener.local_addr().ip().is_loopback();
        let secure = gauge(&mut registry, "bigfleet_transport_secure", "1 with TLS, 0 in plaintext");
        secure.set(i64::from(tls.is_some()));
        let help = "1 in plaintext on an address that other machines reach";
        gauge(&mut registry, "bigfleet_insecure_transport", help).set(i64::from(exposed));
        match &tls {
            Some(tls) => tls.register(&mut registry),
            None => tracing::warn!("{NO_TLS}"),
        }
        let provider = Self::open(backend, faults, options, store, &mut registry).await?;
        provider.add_all_bound(bound).await?;

        let (local, dial) = (listener.local_addr(), listener.dial_addr());
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_serving::<CapacityProviderServer<Service>>().await;
        let service = CapacityProviderServer::new(Service(provider.clone()))
            .max_decoding_message_size(limits::PROVIDER_REQUEST_BYTES)
            .max_encoding_message_size(limits::LIST_BYTES);
        let stop = CancellationToken::new();
        let mut server = grpc::Server::new(listener)
            .tls(tls)
            .connections(limits::PROVIDER_CONNECTIONS, provider.shared.security.connections.clone())
            .add_service(Lists(service))
            .add_service(health_service);
        if reflection {
            let schema = || {
                tonic_reflection::server::Builder::configure()
                    .register_encoded_file_descriptor_set(bigfleet_proto::FILE_DESCRIPTOR_SET)
                    .with_service_name(CapacityProviderServer::<Service>::NAME)
            };
            server = server.add_service(schema().build_v1()?).add_service(schema().build_v1alpha()?);
        }
        let serving = Some(tokio::spawn(server.serve(stop.clone(), grace)));
        tokio::spawn({
            let stop = stop.clone();
            async move {
                stop.cancelled().await;
                health.set_not_serving::<CapacityProviderServer<Service>>().await;
            }
        });
        provider.look_now_and_then();
        if exposed {
            provider.warn_now_and_then();
        }
        if let Some((listener, path)) = desk {
            provider.open_desk(listener, path);
        }

        let readiness = Readiness::settable("starting");
        readiness.set_ready();
        provider.unready_when_broken(&readiness);
        let pages = Pages { registry: Arc::new(registry), readiness: readiness.clone(), build };
        let admin_stop = CancellationToken::new();
        let admin = match metrics_addr {
            admin::Addr::Off => None,
            admin::Addr::On(addr) => Some(admin::supervise(addr, pages.clone(), admin_stop.clone())),
        };
        tracing::info!(%local, machines = provider.count(), "provider ready");
        Ok(Handle { local, dial, provider, readiness, pages, stop, serving, admin, admin_stop })
    }

    /// A provider whose store takes nothing any more answers reads only.
    fn unready_when_broken(&self, readiness: &Readiness) {
        let (stop, mut broken) = (self.shared.stop.clone(), self.shared.journal.broken());
        let readiness = readiness.clone();
        self.shared.tasks.spawn(async move {
            let reason = tokio::select! {
                () = stop.cancelled() => return,
                reason = broken.wait_for(Option::is_some) => reason.ok().and_then(|reason| reason.clone()),
            };
            if let Some(reason) = reason {
                readiness.set_unready(format!(
                    "the store takes no change any more ({reason}); restart the provider once the cause is removed"
                ));
            }
        });
    }

    fn warn_now_and_then(&self) {
        let stop = self.shared.stop.clone();
        self.shared.tasks.spawn(async move {
            while stop.run_until_cancelled(tokio::time::sleep(WARN_EVERY)).await.is_some() {
                tracing::warn!("{NO_TLS}");
            }
        });
    }

    fn look_now_and_then(&self) {
        let Some(interval) = self.shared.options.reconcile_interval else { return };
        let provider = self.clone();
        self.shared.tasks.spawn(async move {
            let stop = provider.shared.stop.clone();
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(interval) => {}
                }
                // Its outcome is logged and counted; the next look comes in any case.
                tokio::select! {
                    () = stop.cancelled() => return,
                    _ = provider.reconcile() => {}
                }
            }
        });
    }
}

impl Handle {
    /// Where it is bound, with its true port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Where a client on this machine reaches it.
    #[must_use]
    pub fn dial_addr(&self) -> SocketAddr {
        self.dial
    }

    /// The provider from the inside.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        &self.provider
    }

    /// What an admin listener shows, for a program that serves several components on one.
    #[must_use]
    pub fn pages(&self) -> &Pages {
        &self.pages
    }

    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// Waits until the admin listener of [`Options::metrics_addr`] is bound; `None` when there is none.
    pub async fn admin_addr(&mut self) -> Option<SocketAddr> {
        self.admin.as_mut()?.wait_bound().await
    }

    /// Follows where the admin listener is bound; `None` when there is none.
    #[must_use]
    pub fn admin_bound(&self) -> Option<tokio::sync::watch::Receiver<Option<SocketAddr>>> {
        Some(self.admin.as_ref()?.bound())
    }

    /// Waits until the server ends by itself, which it should not.
    ///
    /// # Errors
    /// Why it ended.
    pub async fn failed(&mut self) -> Result<(), Failed> {
        if let Some(serving) = &mut self.serving {
            let ended = serving.await;
            self.serving = None;
            ended??;
        }
        Ok(())
    }

    /// Stops: not ready, no new calls, a bounded time for those in flight, work abandoned for the next start to take
    /// up, and the store closed.
    ///
    /// # Errors
    /// When the server had failed by itself and nobody was told yet.
    pub async fn shutdown(mut self) -> Result<(), Failed> {
        self.readiness.set_unready("shutting down");
        self.stop.cancel();
        let served = self.failed().await;
        self.provider.close().await;
        self.admin_stop.cancel();
        if let Some(admin) = self.admin.take() {
            admin.join().await;
        }
        served
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop.cancel();
        self.admin_stop.cancel();
        self.provider.shared.stop.cancel();
    }
}
