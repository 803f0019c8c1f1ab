//! The gate, row by row of its tables, and against arbitrary messages.

mod arbitrary;
mod lists;
mod machine;
mod metadata;
mod rollup;
mod session;

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{ClusterCapacityNeeds, OperatorMessage};
use prost::Message as _;

/// A map from pairs.
fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The roll-up in the bytes of an operator's frame, if that is what they hold.
fn rollup_of(frame: &[u8]) -> Option<ClusterCapacityNeeds> {
    match OperatorMessage::decode(frame).ok()?.payload? {
        Payload::Rollup(rollup) => Some(rollup),
        _ => None,
    }
}
