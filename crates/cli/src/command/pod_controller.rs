//! `bigfleet pod-controller`.

use std::collections::BTreeSet;

use bigfleet_kubernetes::client::Limits;
use bigfleet_kubernetes::connect;
use bigfleet_kubernetes::pods::core::Rules;
use bigfleet_kubernetes::pods::facts::parse_requests;
use bigfleet_kubernetes::pods::service::{self, Options};
use bigfleet_net::admin;

use super::shard::address;
use super::{Failure, Outcome, block_on, ready};
use crate::config::{Flag, Kind, Program, Values};
use crate::logging;
use crate::stop::Signals;

const FLAGS: &[Flag] = &[
    Flag {
        name: "kubeconfig",
        kind: Kind::Path,
        default: Some(""),
        help: "The cluster to connect to; without it $KUBECONFIG, then the pod's own service account",
    },
    Flag {
        name: "metrics-addr",
        kind: Kind::AddressOrOff,
        default: Some(":8080"),
        help: "Metrics and probes; 0 switches them off",
    },
    Flag {
        name: "priority-class-defaults",
        kind: Kind::Path,
        default: Some(""),
        help: "A YAML file with penalties by PriorityClass; read again when it changes",
    },
    Flag {
        name: "qps",
        kind: Kind::Count(1),
        default: Some("200"),
        help: "Calls a second to the API server",
    },
    Flag { name: "burst", kind: Kind::Count(1), default: Some("400"), help: "Calls at once after a pause" },
    Flag {
        name: "leader-elect",
        kind: Kind::Bool,
        default: Some("true"),
        help: "Act only while holding a lease, so that two replicas are safe",
    },
    Flag {
        name: "exclude-namespaces",
        kind: Kind::Text,
        default: Some(""),
        help: "Namespaces, separated by commas, whose pods get no CapacityRequest",
    },
    Flag {
        name: "unmanaged-node-selector",
        kind: Kind::Text,
        default: Some("node-role.kubernetes.io/control-plane"),
        help: "A label selector for nodes that are not the fleet's: their pods get no CapacityRequest; empty is none",
    },
    Flag {
        name: "terminating-pod-grace",
        kind: Kind::Duration,
        default: Some("5m"),
        help: "How long after its grace a pod that does not end is still counted",
    },
    Flag {
        name: "default-requests",
        kind: Kind::Text,
        default: Some(""),
        help: "What a pod without any request counts as, such as cpu=100m,memory=200Mi; empty is nothing",
    },
];

pub(super) const PROGRAM: Program = Program {
    name: "pod-controller",
    about: "Turn a cluster's pods into CapacityRequests",
    flags: &[FLAGS, logging::FLAGS],
    later: &[],
};

fn options(values: &Values) -> Result<Options, Failure> {
    let count = |name: &str| {
        let too_many = || Failure::Usage(format!("--{name}: is larger than 4294967295"));
        u32::try_from(values.count(name)).map_err(|_| too_many())
    };
    let namespaces: BTreeSet<String> = values
        .text("exclude-namespaces")
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect();
    let default_requests = parse_requests(values.text("default-requests"))
        .map_err(|error| Failure::Usage(format!("--default-requests: {error}")))?;
    let metrics_addr = match address::<admin::Addr>(values, "metrics-addr")? {
        admin::Addr::Off => None,
        admin::Addr::On(addr) => Some(addr),
    };
    Ok(Options {
        metrics_addr,
        limits: Limits { qps: count("qps")?, burst: count("burst")?, ..Limits::default() },
        leader_elect: values.switch("leader-elect"),
        rules: Rules {
            excluded_namespaces: namespaces,
            terminating_grace: values.duration("terminating-pod-grace"),
            default_requests,
            ..Rules::default()
        },
        defaults_file: values.path("priority-class-defaults"),
        unmanaged_node_selector: values.text("unmanaged-node-selector").to_owned(),
    })
}

pub(super) fn run(values: &Values) -> Outcome {
    let options = options(values)?;
    let kubeconfig = values.path("kubeconfig");
    let serves = options.metrics_addr.is_some();
    block_on(async {
        let mut signals = Signals::listen()?;
        let client = connect::client(kubeconfig.as_deref()).await?;
        let mut controller = service::start(client, options)?;
        if serves {
            // A taken port is tried again for ever; the work does not wait for it.
            tokio::select! {
                addr = controller.metrics_addr() => {
                    if let Some(addr) = addr {
                        ready("pod-controller-metrics", addr)?;
                    }
                }
                () = tokio::time::sleep(std::time::Duration::from_secs(2)) => {}
            }
        }
        tokio::select! {
            signal = signals.next() => {
                tracing::info!(signal, "stopping");
                controller.shutdown();
                controller.wait().await?;
                Ok(())
            }
            ended = controller.wait() => {
                ended?;
                Err(anyhow::anyhow!("the pod controller ended though nobody asked it to").into())
            }
        }
    })
}
