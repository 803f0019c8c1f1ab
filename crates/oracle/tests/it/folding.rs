//! Gangs that fit one machine (examples 28 to 31).

use bigfleet_oracle::Outcome;
use bigfleet_types::Operator::{Exists, Same};
use bigfleet_types::keys::ZONE;

use crate::fleet::*;

/// Pods of 2 cpu and 16Gi that share a rack.
fn gang_of(of: &str, pods: u32, group: &str, arrival: i64) -> N {
    let (cpu, memory) = ((2 * pods).to_string(), format!("{}Gi", 16 * pods));
    any(of, 10)
        .requires(RACK, Same, &[])
        .wants(&[("cpu", &cpu), ("memory", &memory)], &[("cpu", "2"), ("memory", "16Gi")])
        .group(group)
        .arrival(arrival)
}

fn node(id: &str, of: &str) -> M {
    configured(id, of).cap(&[("cpu", "16"), ("memory", "128Gi")]).rack("r1")
}

fn groups(outcome: &Outcome) -> Vec<&str> {
    outcome.verdicts.iter().map(|verdict| verdict.key.group.as_str()).collect()
}

#[test]
fn ex28_equal_gangs_become_one_need() {
    let gangs = [gang_of("c1", 4, "g0", 300), gang_of("c1", 4, "g1", 100), gang_of("c1", 4, "g2", 200)];
    let out = outcome([node("c", "c1")], &gangs);
    assert_eq!(groups(&out), ["fold/c3bb5abd3042a91ddeb2b4bb8c7b3f5a"]);
    let fold = &out.verdicts[0];
    let (profile, group) = bigfleet_engine::fold_key(&gangs[0].need()).unwrap();
    assert_eq!((&profile.fingerprint(), &group), (&fold.key.fingerprint, &fold.key.group));
    let stripped = any("c1", 10).requires(RACK, Exists, &[]);
    assert_eq!(fold.key.fingerprint, stripped.key().fingerprint);
    assert!(fold.same.is_none());
    // 16 cpu hold two gangs of 8: the first two to arrive.
    assert_eq!(fold.residual.to_string(), "cpu 8, memory 64Gi");
    let members: Vec<(&str, bool)> = fold.members.iter().map(|m| (m.group.as_str(), m.satisfied)).collect();
    assert_eq!(members, [("g1", true), ("g2", true), ("g0", false)]);
    assert!(fold.members.iter().all(|m| m.fingerprint == gangs[0].key().fingerprint));
}

#[test]
fn ex28_sizes_fold_apart_and_what_fits_no_machine_stays() {
    let out = outcome(
        [node("c", "c1")],
        &[gang_of("c1", 4, "g0", 1), gang_of("c1", 2, "g1", 2), gang_of("c1", 4, "g2", 3)],
    );
    let mut sizes: Vec<usize> = out.verdicts.iter().map(|verdict| verdict.members.len()).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [1, 2]);

    let twelve = gang_of("c1", 12, "g", 1);
    let out = outcome([node("c", "c1")], std::slice::from_ref(&twelve));
    assert_eq!(groups(&out), ["g"]);
    assert!(verdict(&out, &twelve).same.is_some());
}

#[test]
fn ex29_another_clusters_machine_does_not_count() {
    let out = outcome([node("c", "c2")], &[gang_of("c1", 4, "g", 1), gang_of("c2", 4, "g", 1)]);
    let folded: Vec<(&str, bool)> =
        out.verdicts.iter().map(|v| (v.key.cluster.as_str(), v.same.is_none())).collect();
    assert!(folded.contains(&("c1", false)) && folded.contains(&("c2", true)), "{folded:?}");
}

#[test]
fn ex30_a_bigger_type_does_not_fold_a_served_gang() {
    let want = gang("a", 0, 4, RACK, "g");
    let own = many(4, "c", |id| configured(id, "a").rack("r1").stamped(&want));
    let large = speculative("large").cap(&[("gpu", "32")]).rack("r2");
    let out = outcome(own.into_iter().chain([large]), std::slice::from_ref(&want));
    assert_eq!(acts(&out), Vec::<String>::new());
    assert!(verdict(&out, &want).same.is_some() && verdict(&out, &want).satisfied);
}

#[test]
fn ex31_gangs_are_met_whole() {
    let eight = |group: &str| {
        any("a", 0).requires(RACK, Same, &[]).wants(&[("cpu", "8")], &[("cpu", "2")]).group(group)
    };
    let machines = many(2, "c", |id| configured(id, "a").cap(&[("cpu", "15")]).rack("r1"));
    let out = outcome(machines, &[eight("x"), eight("y"), eight("z")]);
    assert_eq!(out.verdicts.len(), 1);
    assert_eq!((out.verdicts[0].residual.to_string().as_str(), out.claimed.len()), ("cpu 8", 2));
}

/// Without the domain that each of them wants they want the same.
#[test]
fn gangs_over_different_keys_fold_into_one_need() {
    let of = |same: &str, there: &str, group: &str| {
        let want = any("a", 0).requires(same, Same, &[]).requires(there, Exists, &[]).group(group);
        want.wants(&[("cpu", "8")], &[("cpu", "2")])
    };
    let gangs = [of(RACK, ZONE, "x"), of(ZONE, RACK, "y")];
    let out = outcome([configured("c", "a").cap(&[("cpu", "16")]).rack("r").zone("z")], &gangs);
    let members: Vec<usize> = out.verdicts.iter().map(|verdict| verdict.members.len()).collect();
    assert_eq!(members, [2]);
}
