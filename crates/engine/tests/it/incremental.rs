//! A decision that builds on the one before is the one that a fresh pass takes.

use bigfleet_engine::{Engine, Event, Policy, fold_key};
use bigfleet_types::{Need, Operator, keys};
use proptest::prelude::*;

use crate::dsl::{cluster, demand, engine, gpu, gpu_need, lines, machine, need, secs, vector};

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

/// Who rested and is woken late, when the machine that it had is free for all, sees it though no Need saw its class before.
#[test]
fn who_is_woken_late_sees_classes_that_are_new() {
    sequence::run(include_bytes!("../../../decide/tests/corpus/sequence/woken-late"));
}

/// Rows that are compiled anew, since a label key is new, are told apart by their versions as ever: whether gangs fold is asked
/// again of those that changed.
#[test]
fn rows_compiled_anew_have_versions_of_their_own() {
    sequence::run(include_bytes!("../../../decide/tests/corpus/sequence/numbered-anew"));
}

/// A gang that is woken in the second round sees a machine of its own that a row behind it rested on.
#[test]
fn a_gang_that_comes_late_sees_its_own_machine_in_hands_behind_it() {
    sequence::run(include_bytes!("../../../decide/tests/corpus/sequence/own-behind"));
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

/// What nobody's verdict changes is told with the list of before, of which nothing was copied.
#[test]
fn a_decision_that_changes_no_verdict_shares_the_list() {
    let mut engine = engine(Policy::default(), &[gpu("m").configured("a")], &[("a", &[gpu_need(0, 1)])]);
    let first = engine.decide(secs(0));
    engine.apply(machine("n").speculative().event());
    let second = engine.decide(secs(1));
    assert_eq!(first.verdicts.len(), 1);
    assert!(std::ptr::eq(&*first.verdicts, &*second.verdicts));
}

/// Gangs of two cores, each in one zone.
fn gang(group: &str) -> Need {
    need(0, "cpu=2").floor("cpu=2").requires(keys::ZONE, Operator::Same, &[]).group(group).build()
}

/// A row that says of itself that it is what such gangs fold into.
fn twin(aggregate: &str) -> Need {
    let (profile, group) = fold_key(&gang("")).unwrap();
    Need { profile: profile.into(), group, aggregate: vector(aggregate), ..gang("") }
}

fn want(engine: &mut Engine, name: &str, rows: &[&Need]) {
    let rows = rows.iter().map(|row| (*row).clone()).collect();
    engine.apply(Event::Demand { cluster: cluster(name), rows, at: secs(1) });
}

/// Decides as an engine does that knows nothing of before.
fn decides_as_afresh(engine: &mut Engine) {
    let (afresh, _) = engine.content().decide(secs(1));
    assert_eq!(engine.decide(secs(1)), afresh);
}

/// A fold and a row of its key are two rows, even when one has the place in the table that the other had.
#[test]
fn a_fold_is_not_the_row_of_its_key_that_was_there() {
    let gangs: Vec<Need> = ["g1", "g2", "g3"].map(gang).to_vec();
    for (number, places) in [(2, 3), (3, 3), (2, 4), (3, 4), (3, 5)] {
        for aggregate in ["cpu=3", "cpu=4", "cpu=6"] {
            let host = |id: &str| machine(id).has("cpu=3").zone("z").configured("a").of(&twin("cpu=3"));
            let mut engine = engine(Policy::default(), &["m1", "m2", "m3"].map(host), &[]);
            let (row, folds): (Need, Vec<&Need>) = (twin(aggregate), gangs.iter().take(number).collect());
            let others: Vec<Need> = (0..places).map(|i| need(0, "").group(&format!("{i}")).build()).collect();
            let others: Vec<&Need> = others.iter().collect();
            for rows in [[&[&row][..], &folds], [&folds, &[&row]]] {
                want(&mut engine, "a", rows[0]);
                want(&mut engine, "b", &others);
                decides_as_afresh(&mut engine);
                want(&mut engine, "a", &[]);
                want(&mut engine, "b", &[]);
                want(&mut engine, "a", rows[1]);
                decides_as_afresh(&mut engine);
            }
        }
    }
}

/// What machines are stamped with names a Need while some row of that key is left.
#[test]
fn a_stamp_of_two_rows_names_a_need_when_one_of_them_goes() {
    let (row, gang, robs) = (twin("cpu=2"), gang("g"), need(10, "cpu=4").build());
    let host = machine("m").has("cpu=4").zone("z").configured("a").of(&row);
    for goes in [&row, &gang] {
        let stays = if goes == &row { &gang } else { &row };
        let mut engine = engine(Policy::default(), &[host.clone()], &[]);
        for rows in [&[&row, &gang][..], &[stays], &[stays, &robs]] {
            want(&mut engine, "a", rows);
            decides_as_afresh(&mut engine);
        }
    }
}

/// Of two rows of one key the fold comes last, whichever was there before.
#[test]
fn a_fold_comes_after_the_row_of_its_key() {
    let (row, gang) = (twin("cpu=2"), gang("g"));
    let host = machine("m").has("cpu=4").zone("z").configured("a").of(&row);
    for first in [&row, &gang] {
        let mut engine = engine(Policy::default(), &[host.clone()], &[]);
        for rows in [&[first][..], &[&row, &gang], &[first]] {
            want(&mut engine, "a", rows);
            decides_as_afresh(&mut engine);
        }
    }
}

/// Gangs of two profiles that become the same plain row fold into one row, whichever were there before.
#[test]
fn gangs_of_two_profiles_share_a_fold() {
    let gang = |group: &str| need(0, "cpu=2").floor("cpu=2").group(group);
    let zoned =
        gang("g1").requires(keys::ZONE, Operator::Same, &["z"]).requires(keys::ZONE, Operator::Exists, &[]);
    let other =
        gang("g2").requires(keys::ZONE, Operator::In, &["z"]).requires(keys::ZONE, Operator::Same, &[]);
    let (zoned, other) = (zoned.build(), other.build());
    assert_eq!(fold_key(&zoned), fold_key(&other));
    assert_ne!(zoned.profile, other.profile);
    for first in [&zoned, &other] {
        let hosts = ["m1", "m2"].map(|id| machine(id).has("cpu=4").zone("z"));
        let mut engine = engine(Policy::default(), &hosts, &[]);
        for rows in [&[first][..], &[&zoned, &other], &[first], &[]] {
            want(&mut engine, "a", rows);
            decides_as_afresh(&mut engine);
        }
    }
}
