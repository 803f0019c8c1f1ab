//! `bigfleet crds print|install|upgrade`.

use bigfleet_kubernetes::connect;
use bigfleet_kubernetes::crd::install::{Change, Mode};
use bigfleet_kubernetes::crd::{install, manifest};

use super::{Outcome, block_on, print};
use crate::config::{Flag, Kind, Program, Values};
use crate::logging;

const KUBECONFIG: Flag = Flag {
    name: "kubeconfig",
    kind: Kind::Path,
    default: Some(""),
    help: "The cluster to connect to; without it $KUBECONFIG, then the pod's own service account",
};
const INTO_A_CLUSTER: &[Flag] = &[
    KUBECONFIG,
    Flag {
        name: "timeout",
        kind: Kind::PositiveDuration,
        default: Some("60s"),
        help: "How long to wait for each definition to be Established",
    },
];

pub(super) const PRINT: Program = Program {
    name: "print",
    about: "Print the definitions as YAML",
    flags: &[&[Flag {
        name: "dir",
        kind: Kind::Path,
        default: Some(""),
        help: "Write one file a definition into this folder instead",
    }]],
    later: &[],
};
pub(super) const INSTALL: Program = Program {
    name: "install",
    about: "Bring the definitions into a cluster, by server-side apply",
    flags: &[INTO_A_CLUSTER, logging::FLAGS],
    later: &[],
};
pub(super) const UPGRADE: Program = Program {
    name: "upgrade",
    about: "Bring definitions that are in a cluster up to date; refuses to drop a stored version",
    flags: &[INTO_A_CLUSTER, logging::FLAGS],
    later: &[],
};

pub(super) fn run_print(values: &Values) -> Outcome {
    let definitions = manifest::all()?;
    let Some(folder) = values.path("dir") else {
        let texts: Result<Vec<String>, _> = definitions.iter().map(manifest::Definition::yaml).collect();
        return print(&texts?.concat());
    };
    for definition in definitions {
        let path = folder.join(definition.file_name());
        let wrap = |error| anyhow::anyhow!("--dir: cannot write {}: {error}", path.display());
        std::fs::write(&path, definition.yaml()?).map_err(wrap)?;
    }
    Ok(())
}

pub(super) fn run_install(values: &Values) -> Outcome {
    apply(values, Mode::Install)
}

pub(super) fn run_upgrade(values: &Values) -> Outcome {
    apply(values, Mode::Upgrade)
}

fn apply(values: &Values, mode: Mode) -> Outcome {
    let kubeconfig = values.path("kubeconfig");
    let patience = values.duration("timeout");
    block_on(async {
        let client = connect::client(kubeconfig.as_deref()).await?;
        for (name, change) in install::apply(&client, mode, patience).await? {
            let what = match change {
                Change::Created => "created",
                Change::Updated => "updated",
                Change::Unchanged => "unchanged",
            };
            print(&format!("customresourcedefinition {name} {what}\n"))?;
        }
        Ok(())
    })
}
