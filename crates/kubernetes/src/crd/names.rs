//! Names of our objects, and the metadata keys that we use on them and on others'.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

pub use bigfleet_operator::core::names::{available_capacity, is_label_value, upcoming_node};

/// CapacityRequest label: the uid of the pod that it stands for.
pub const OWNED_BY_POD: &str = "bigfleet.lucy.sh/owned-by-pod";
/// CapacityRequest annotation: a hash of the spec that the pod controller wanted.
pub const SPEC_HASH: &str = "bigfleet.lucy.sh/spec-hash";
/// Pod annotation: `true` keeps the pod out of the fleet's sight.
pub const IGNORE: &str = "bigfleet.lucy.sh/ignore";
/// Pod annotation: dollars that an interruption costs.
pub const INTERRUPTION_PENALTY: &str = "bigfleet.lucy.sh/interruption-penalty";
/// Pod annotation: dollars that giving up the machine costs.
pub const RECLAMATION_PENALTY: &str = "bigfleet.lucy.sh/reclamation-penalty";
/// Label of Nodes and UpcomingNodes: the machine's id, if it is a legal label value.
pub const MACHINE_ID: &str = "bigfleet.lucy.sh/machine-id";
/// AvailableCapacity annotation: the key that the name is a hash of.
pub const SUPERSEDES_KEY: &str = "bigfleet.lucy.sh/supersedes-key";
/// Label of what the operator owns.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";

/// How much of a pod's name a CapacityRequest's name keeps.
const KEPT: usize = 200;

/// The name of the CapacityRequest of a pod: the same for every try, another for a pod that takes the name over.
#[must_use]
pub fn capacity_request(pod_name: &str, pod_uid: &str) -> String {
    let cut: String = pod_name.chars().take(KEPT).collect();
    let kept = cut.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    format!("cr-pod-{kept}-{}", hex(pod_uid.as_bytes(), 5))
}

/// The first `bytes` bytes of the SHA-256 of `data`, in hex.
pub(crate) fn hex(data: &[u8], bytes: usize) -> String {
    Sha256::digest(data).iter().take(bytes).fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}
