//! A decision that builds on the one before is the one that a fresh pass takes.

use bigfleet_engine::Policy;
use proptest::prelude::*;

use crate::dsl::{demand, engine, gpu, gpu_need, lines, secs};

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

/// A row that a higher one left its second best does not rest on it: when the higher one goes, it has its best again.
#[test]
fn a_row_that_passed_a_taken_machine_comes_back_to_it() {
    let (high, low) = (gpu_need(10, 1), gpu_need(0, 1));
    let own = |id: &str, price: f64| gpu(id).price(price).configured("a").of(&low.build());
    let fleet = [own("best", 1.0), own("second", 2.0)];
    let mut engine = engine(Policy::default(), &fleet, &[("a", &[high, low.clone()])]);
    assert!(engine.decide(secs(0)).actions.is_empty());
    engine.apply(demand("a", &[low]));
    assert_eq!(lines(&engine.decide(secs(1))), ["Reclaim second a"]);
}
