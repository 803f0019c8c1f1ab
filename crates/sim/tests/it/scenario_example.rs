//! The example of the format, byte for byte, and the same scenario written otherwise.

use crate::played;

pub(crate) const INVERSION: &str = include_str!("../fixtures/inversion.yaml");

#[test]
fn a_priority_inversion_with_slow_drains() {
    assert_eq!(played(INVERSION), include_str!("../fixtures/inversion.jsonl"));
}
