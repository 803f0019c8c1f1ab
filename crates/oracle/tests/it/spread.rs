//! Topology spread (examples 41 and 60).

use bigfleet_types::WhenUnsatisfiable::{DoNotSchedule, ScheduleAnyway};
use bigfleet_types::keys;

use crate::fleet::*;

fn zones(counts: &[(&str, usize, f64)]) -> Vec<M> {
    let of = |&(zone, n, price): &(&str, usize, f64)| many(n, zone, |id| idle(id).zone(zone).price(price));
    counts.iter().flat_map(of).collect()
}

/// How many machines of each zone are bootstrapped.
fn per_zone(machines: Vec<M>, want: &N) -> (Vec<usize>, String) {
    let out = outcome(machines, std::slice::from_ref(want));
    assert_eq!(out.actions.len(), count(&out, "Bootstrap"));
    let zone = |z: &str| acts(&out).iter().filter(|a| a.starts_with(&format!("Bootstrap {z}"))).count();
    (["a", "b", "c"].iter().map(|z| zone(z)).collect(), residual(&out, want))
}

fn wants(k: i64) -> N {
    need("x", 0, k).spread(keys::ZONE, DoNotSchedule)
}

#[test]
fn ex41_evenly_as_far_as_it_goes() {
    let even = per_zone(zones(&[("a", 4, 1.0), ("b", 4, 1.0), ("c", 4, 1.0)]), &wants(6));
    assert_eq!(even, (vec![2, 2, 2], "nothing".to_owned()));
    let scarce = per_zone(zones(&[("a", 1, 1.0), ("b", 5, 1.0), ("c", 5, 1.0)]), &wants(6));
    assert_eq!(scarce, (vec![1, 2, 2], "gpu 8".to_owned()));
    let dear = per_zone(zones(&[("a", 3, 1.0), ("b", 3, 5.0)]), &wants(4));
    assert_eq!(dear, (vec![2, 2, 0], "nothing".to_owned()));
}

#[test]
fn ex41_a_wish_and_the_hostname_are_not_enforced() {
    let fleet = zones(&[("a", 6, 1.0), ("b", 2, 5.0)]);
    let wish = need("x", 0, 4).spread(keys::ZONE, ScheduleAnyway);
    assert_eq!(per_zone(fleet.clone(), &wish).0, [4, 0, 0]);
    let hostname = need("x", 0, 4).spread(keys::HOSTNAME, DoNotSchedule);
    assert_eq!(per_zone(fleet, &hostname).0, [4, 0, 0]);
}

#[test]
fn ex41_counts_start_from_what_is_credited() {
    let fleet = many(2, "c", |id| configured(id, "x").zone("a"))
        .into_iter()
        .chain(zones(&[("a", 2, 1.0), ("b", 2, 1.0)]));
    assert_eq!(acts(&outcome(fleet, &[wants(4)])), ["Bootstrap b0", "Bootstrap b1"]);
}

#[test]
fn ex41_a_victim_that_would_break_the_skew_is_spared() {
    let batch = need("batch", 0, 2);
    let fleet = zones(&[("a", 1, 1.0), ("b", 2, 1.0)])
        .into_iter()
        .chain(many(2, "v", |id| configured(id, "batch").zone("b").stamped(&batch)));
    let want = need("x", 1_000_000, 4).spread(keys::ZONE, DoNotSchedule);
    let out = outcome(fleet, &[want, batch]);
    assert_eq!((count(&out, "Bootstrap"), count(&out, "Preempt")), (3, 0));
}

#[test]
fn ex60_one_greedy_over_both_tiers() {
    let fleet =
        many(2, "a", |id| idle(id).zone("a")).into_iter().chain(many(2, "b", |id| speculative(id).zone("b")));
    let want = wants(4);
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(acts(&out), ["Bootstrap a0", "Provision b0", "Bootstrap a1", "Provision b1"]);
    assert_eq!(residual(&out, &want), "nothing");
}

/// A domain in which nothing could ever serve the Need is not one that it has to fill.
#[test]
fn only_machines_that_could_serve_open_a_domain() {
    let want = wants(2);
    let small = |machine: M| machine.cap(&[("gpu", "4")]);
    let of_x = configured("h", "x");
    for other in [small(of_x.clone()), of_x.kind("b3"), small(idle("h")), configured("h", "y")] {
        let fleet = zones(&[("a", 2, 1.0)]).into_iter().chain([other.zone("b")]);
        let out = outcome(fleet, std::slice::from_ref(&want));
        assert_eq!((count(&out, "Bootstrap"), residual(&out, &want).as_str()), (2, "nothing"));
    }
}

/// Without those that the others make superfluous the spread would not be what it is.
#[test]
fn victims_of_a_spread_are_not_trimmed() {
    let held = |id: &str, cpu, priority, zone: &str| {
        configured(id, "batch").cap(&[("cpu", cpu)]).priority(priority).zone(zone)
    };
    let fleet = || [held("small", "2", 0, "a"), held("large", "8", 100, "b")];
    let want = any("x", 1_000_000).wants(&[("cpu", "8")], &[]);
    assert_eq!(acts(&outcome(fleet(), std::slice::from_ref(&want))), ["Preempt large"]);
    let spread = want.spread(keys::ZONE, DoNotSchedule);
    assert_eq!(acts(&outcome(fleet(), &[spread])), ["Preempt small", "Preempt large"]);
}

/// Where a Need has a machine already is a domain that must not fall behind, whether another is to be had there or not.
#[test]
fn a_domain_without_anything_free_counts_where_the_need_has_something() {
    let home = configured("h", "x").zone("b");
    let want = wants(4);
    let fleet = zones(&[("a", 3, 1.0)]).into_iter().chain([home]);
    let out = outcome(fleet, std::slice::from_ref(&want));
    assert_eq!(
        (acts(&out), residual(&out, &want)),
        (vec!["Bootstrap a0".into(), "Bootstrap a1".into()], "gpu 8".into())
    );
}
