//! Why a Need is not satisfied (example 56).

use bigfleet_engine::UnmetReason;

use crate::fleet::*;

#[test]
fn ex56_reasons() {
    let (first, second) = (need("a", 2_000_000, 1), need("z", 1_000_000, 1));
    let out = outcome([idle("i")], &[first.clone(), second.clone()]);
    let (a, z) = (verdict(&out, &first), verdict(&out, &second));
    assert_eq!(
        (a.satisfied, a.machines.len(), a.bootstraps, a.reason),
        (true, 1, 1, UnmetReason::Unspecified)
    );
    assert_eq!((z.satisfied, z.reason, z.supply.unwrap().idle), (false, UnmetReason::PriorityStarved, 1));

    let out = outcome([], std::slice::from_ref(&first));
    assert_eq!(verdict(&out, &first).reason, UnmetReason::NoMatchingSupply);

    let five = gang("a", 0, 5, RACK, "g");
    let racks =
        many(3, "x", |id| idle(id).rack("x")).into_iter().chain(many(3, "y", |id| idle(id).rack("y")));
    let out = outcome(racks, std::slice::from_ref(&five));
    assert_eq!(verdict(&out, &five).reason, UnmetReason::TopologyUnsatisfiable);
}

#[test]
fn ex56_clusters_that_share_a_profile_fall_short_apart() {
    let out = outcome([], &[need("a", 5, 1), need("b", 5, 2)]);
    let short: Vec<(&str, String)> =
        out.shortfalls.iter().map(|s| (s.key.cluster.as_str(), s.deficit.to_string())).collect();
    assert_eq!(short, [("a", "gpu 8".to_owned()), ("b", "gpu 16".to_owned())]);
}

#[test]
fn supply_is_counted_up_to_256() {
    let want = need("a", 5, 400);
    let machines = (0..300).map(|i| speculative(&format!("s{i:03}")).kind(if i < 256 { "a3" } else { "b" }));
    let out = outcome(machines, std::slice::from_ref(&want));
    let supply = verdict(&out, &want).supply.unwrap();
    assert_eq!((supply.speculative, supply.capped), (256, false));
    let out = outcome((0..257).map(|i| speculative(&format!("s{i:03}"))), std::slice::from_ref(&want));
    let supply = verdict(&out, &want).supply.unwrap();
    assert_eq!((supply.speculative, supply.capped), (256, true));
}
