//! A decision that builds on the one before is the one that a fresh pass takes.

use proptest::prelude::*;

#[path = "../../../decide/tests/fuzz/bytes.rs"]
mod bytes;
#[path = "../../../decide/tests/fuzz/sequence.rs"]
mod sequence;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// P8: after every event of a random sequence.
    #[test]
    fn p08_remembering_is_deciding_afresh(bytes in prop::collection::vec(any::<u8>(), 200..1600)) {
        sequence::run(&bytes);
    }
}

/// What a gang acquires before it moves to another domain is in its hands when the gangs behind it look, and free when
/// it moves no more: they are told so, though no acquisition of the decision before shows it.
#[test]
fn what_a_moving_gang_gave_up_is_told_when_it_stays() {
    sequence::run(include_bytes!("../../../decide/tests/corpus/sequence/moving"));
}
