//! What this version does not serve: it claims nothing, says so, and its cluster keeps all machines.

use bigfleet_engine::{UnmetReason, Unsupported};
use bigfleet_types::{Operator, WhenUnsatisfiable, keys};

use crate::dsl::{decide, gpu, gpu_need, lines, need, verdict};

#[test]
fn gangs_and_enforced_spreads_are_refused_and_hold_their_cluster() {
    let gang = gpu_need(0, 1).requires("rack", Operator::Same, &[]);
    let spread = gpu_need(0, 1).spread(keys::ZONE, WhenUnsatisfiable::DoNotSchedule);
    for (want, expected) in [(gang, Unsupported::Same), (spread, Unsupported::Spread)] {
        let fleet = [
            gpu("a0").label("rack", "r").configured("a"),
            gpu("b0").label("rack", "r").configured("b"),
            gpu("i0").label("rack", "r"),
        ];
        let decisions = decide(&fleet, &[("a", &[want.clone()]), ("b", &[])]);
        assert_eq!(lines(&decisions), ["Reclaim b0 b"]);
        let v = verdict(&decisions, "a", &want);
        assert_eq!((v.satisfied, v.claimed, v.reason), (false, 0, UnmetReason::Unspecified));
        assert_eq!(v.unsupported, Some(expected));
        assert_eq!(decisions.shortfalls.len(), 1);
        assert_eq!(decisions.shortfalls[0].deficit, want.build().aggregate);
    }
}

#[test]
fn its_neighbours_are_served_as_ever() {
    let gang = gpu_need(9, 1).requires("rack", Operator::Same, &[]);
    let decisions = decide(&[gpu("i0").label("rack", "r")], &[("a", &[gang, gpu_need(0, 1)])]);
    assert_eq!(lines(&decisions), ["Bootstrap i0 a"]);
}

#[test]
fn a_gang_of_nothing_holds_nothing() {
    let gang = need(0, "").requires("rack", Operator::Same, &[]);
    let decisions = decide(&[gpu("a0").configured("a")], &[("a", &[gang])]);
    assert_eq!(lines(&decisions), ["Reclaim a0 a"]);
    assert!(decisions.verdicts[0].satisfied && decisions.verdicts[0].unsupported.is_none());
}
