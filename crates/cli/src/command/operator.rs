//! `bigfleet operator`.

use std::time::Duration;

use bigfleet_kubernetes::client::Limits;
use bigfleet_kubernetes::operator::{self, Options};
use bigfleet_kubernetes::{connect, crd, lease, shell};
use bigfleet_operator::service;
use bigfleet_operator::template::Template;
use bigfleet_operator::template::bootstrap::Bootstrap;
use bigfleet_types::ClusterId;
use tokio_util::sync::CancellationToken;

use super::shard::address;
use super::{Failure, Outcome, TLS_LATER, block_on, ready};
use crate::config::{Flag, Kind, Later, Program, Values};
use crate::logging;
use crate::stop::Signals;

/// What `--rollup-interval=0` means.
const ROLLUP_INTERVAL: Duration = Duration::from_secs(10);
/// What `--rollup-interval` may be otherwise.
const ROLLUP_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// How long one call to the API server may take.
const CALL: Duration = Duration::from_secs(30);

const FLAGS: &[Flag] = &[
    Flag {
        name: "cluster-id",
        kind: Kind::Required,
        default: None,
        help: "The cluster's id in the fleet, for life",
    },
    Flag { name: "shard-addr", kind: Kind::Required, default: None, help: "The cluster's shard, host:port" },
    Flag {
        name: "kubeconfig",
        kind: Kind::Path,
        default: Some(""),
        help: "How to reach the API server; without it $KUBECONFIG, then the pod's own service account",
    },
    Flag {
        name: "namespace",
        kind: Kind::Text,
        default: Some(""),
        help: "Where the operator's Lease is; without it the namespace of the pod or the kubeconfig",
    },
    Flag {
        name: "pod-name",
        kind: Kind::Text,
        default: Some(""),
        help: "The pod that this runs in, in --namespace: it is evicted last",
    },
    Flag {
        name: "metrics-addr",
        kind: Kind::AddressOrOff,
        default: Some(":8770"),
        help: "Metrics and probes; 0 switches them off",
    },
    Flag {
        name: "qps",
        kind: Kind::Count(1),
        default: Some("200"),
        help: "Writes and lists a second at the API server",
    },
    Flag { name: "burst", kind: Kind::Count(1), default: Some("400"), help: "Writes and lists at once" },
    Flag {
        name: "ack-concurrency",
        kind: Kind::Count(1),
        default: Some("16"),
        help: "How many requests are acknowledged at once",
    },
    Flag {
        name: "rollup-interval",
        kind: Kind::Duration,
        default: Some("0"),
        help: "The period of roll-ups, 1s to 5m; 0 is 10 s",
    },
    Flag {
        name: "rollup-on-increase",
        kind: Kind::Bool,
        default: Some("true"),
        help: "Send growing demand ahead of the period",
    },
    Flag {
        name: "bootstrap-template-file",
        kind: Kind::Path,
        default: Some(""),
        help: "The template of what machines boot with; without it they get a stub that joins nothing",
    },
    Flag {
        name: "bootstrap-ttl",
        kind: Kind::PositiveDuration,
        default: Some("600s"),
        help: "How long what a machine boots with may be used",
    },
    Flag {
        name: "api-server-endpoint",
        kind: Kind::Text,
        default: Some(""),
        help: "How machines reach the API server (.APIServerEndpoint); without it as the operator does",
    },
    Flag {
        name: "leader-elect",
        kind: Kind::Bool,
        default: Some("true"),
        help: "Hold a Lease, so that a second replica stands by",
    },
    Flag {
        name: "force-delete-at-deadline",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Delete pods that outlive a drain",
    },
    Flag {
        name: "delete-node-on-release",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Delete the Node of a machine that has left, once it is not Ready",
    },
    Flag {
        name: "daemonset-overhead",
        kind: Kind::Choice(&["off", "auto"]),
        default: Some("off"),
        help: "auto: raise the demand by what DaemonSets take of the fleet's nodes",
    },
    Flag {
        name: "reconnect-initial-backoff",
        kind: Kind::PositiveDuration,
        default: Some("500ms"),
        help: "The first pause before dialling the shard again",
    },
    Flag {
        name: "reconnect-max-backoff",
        kind: Kind::PositiveDuration,
        default: Some("30s"),
        help: "The longest pause before dialling the shard again",
    },
    Flag {
        name: "keepalive-interval",
        kind: Kind::PositiveDuration,
        default: Some("30s"),
        help: "Silence after which the shard is pinged",
    },
    Flag {
        name: "keepalive-timeout",
        kind: Kind::PositiveDuration,
        default: Some("20s"),
        help: "How long a ping may stay unanswered",
    },
];

const LATER: &[Later] = &[
    TLS_LATER[0],
    TLS_LATER[1],
    TLS_LATER[2],
    Later {
        name: "mint-bootstrap-tokens",
        reason: "this version mints no tokens; put what lets a machine join into the template, and leave the flag out",
    },
];

pub(super) const PROGRAM: Program = Program {
    name: "operator",
    about: "Speak for a Kubernetes cluster: state its demand, carry out what its shard decides",
    flags: &[FLAGS, logging::FLAGS],
    later: LATER,
};

/// The core's and the session's options.
fn service_options(values: &Values) -> Result<service::Options, Failure> {
    let cluster = ClusterId::parse(values.text("cluster-id"))
        .map_err(|error| Failure::Usage(format!("--cluster-id: {error}")))?;
    let interval = match values.duration("rollup-interval") {
        Duration::ZERO => ROLLUP_INTERVAL,
        other if (ROLLUP_INTERVALS.0..=ROLLUP_INTERVALS.1).contains(&other) => other,
        _ => return Err(Failure::Usage("--rollup-interval: is neither 0 nor within 1s and 5m".to_owned())),
    };
    let mut options = service::Options::new(cluster, values.text("shard-addr"));
    let core = &mut options.core;
    core.rollup_interval = interval;
    core.rollup_on_increase = values.switch("rollup-on-increase");
    core.ack_concurrency = values.count("ack-concurrency");
    core.force_delete_at_deadline = values.switch("force-delete-at-deadline");
    core.delete_node_on_release = values.switch("delete-node-on-release");
    core.daemonset_overhead = values.text("daemonset-overhead") == "auto";
    core.seed = bigfleet_net::ids::random_u64()?;
    let session = &mut options.session;
    session.initial_backoff = values.duration("reconnect-initial-backoff");
    session.max_backoff = values.duration("reconnect-max-backoff");
    session.channel.keep_alive_interval = values.duration("keepalive-interval");
    session.channel.keep_alive_timeout = values.duration("keepalive-timeout");
    Ok(options)
}

/// The budget at the API server.
pub(super) fn limits(values: &Values) -> Result<Limits, Failure> {
    let count = |flag: &str| {
        let wrong = |_| Failure::Usage(format!("--{flag}: is larger than 4294967295"));
        u32::try_from(values.count(flag)).map_err(wrong)
    };
    Ok(Limits { qps: count("qps")?, burst: count("burst")?, timeout: CALL })
}

/// The election, if there is to be one, and the pod that this runs in, if it is known. `name` is the Lease's name.
pub(super) fn place(
    values: &Values,
    name: &str,
    default_namespace: &str,
) -> (Option<lease::Options>, Option<(String, String)>) {
    let set = |flag: &str| Some(values.text(flag)).filter(|text| !text.is_empty());
    let namespace = set("namespace").unwrap_or(default_namespace);
    let pod = set("pod-name");
    let identity = lease::identity(pod.unwrap_or(name));
    let election = values.switch("leader-elect").then(|| lease::Options::new(namespace, name, identity));
    (election, pod.map(|pod| (namespace.to_owned(), pod.to_owned())))
}

pub(super) fn run(values: &Values) -> Outcome {
    let service = service_options(values)?;
    let limits = limits(values)?;
    let metrics_addr = address(values, "metrics-addr")?;
    let template = values.path("bootstrap-template-file").map(|path| Template::load(&path)).transpose();
    // The message already holds its cause.
    let template = template.map_err(|error| anyhow::anyhow!("{error}"))?;
    block_on(async {
        let mut signals = Signals::listen()?;
        // Dials nothing: an address that is none should not wait for the lease to be found out.
        bigfleet_net::channel::connect_lazy(&service.session.shard_addr, &service.session.channel)
            .map_err(|error| Failure::Usage(format!("--shard-addr: {error}")))?;
        let kubeconfig = values.path("kubeconfig");
        let config = connect::config(kubeconfig.as_deref()).await?;
        let endpoint = Some(values.text("api-server-endpoint")).filter(|text| !text.is_empty());
        let statics = operator::statics(&config, endpoint);
        let cluster = service.core.cluster.clone();
        let bootstrap = Bootstrap::new(cluster, template, statics, values.duration("bootstrap-ttl"));
        let (lease, own_pod) = place(values, crd::OPERATOR, &config.default_namespace);
        let client = connect::client_of(config)?;
        let stop = CancellationToken::new();
        let stopping = stop.clone();
        tokio::spawn(async move {
            let signal = signals.next().await;
            tracing::info!(signal, "stopping");
            stopping.cancel();
        });
        let shell = shell::Options { own_pod, daemon_sets: service.core.daemonset_overhead };
        let options = Options { service, limits, lease, shell, metrics_addr, bootstrap };
        let listening = |addr| {
            if ready("operator-metrics", addr).is_err() {
                tracing::warn!("standard output is closed; the metrics address was not printed");
            }
        };
        operator::run(client, options, listening, stop).await?;
        Ok(())
    })
}
