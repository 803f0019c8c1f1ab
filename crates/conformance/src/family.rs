//! All behaviours, in the order in which they run.

mod baseline;
mod concurrency;
mod durability;
mod errors;
mod failure;
mod fencing;
mod fields;
mod lifecycle;
mod list;
mod metadata;
mod ours;
mod property;
mod scale;

use crate::behaviour::Behaviour;

/// Every behaviour: the baseline, B101 to B1205, then the N-ids.
pub fn all() -> impl Iterator<Item = &'static Behaviour> {
    [
        baseline::TABLE,
        baseline::FAULT,
        lifecycle::TABLE,
        errors::TABLE,
        fencing::TABLE,
        concurrency::TABLE,
        metadata::TABLE,
        failure::TABLE,
        fields::TABLE,
        list::TABLE,
        durability::TABLE,
        scale::TABLE,
        property::TABLE,
        ours::TABLE,
        ours::FAULT,
        ours::DURABLE,
    ]
    .into_iter()
    .flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::behaviour::{Profile, Series};

    #[test]
    fn the_93_are_there_under_their_ids() {
        let ids: Vec<_> = all().map(|behaviour| behaviour.id).collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "an id stands for one behaviour");
        let hundreds: &[(u32, &[u32])] = &[
            (1, &[1, 3, 4, 5, 6, 7, 8, 9]),
            (2, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            (3, &[1, 2, 3, 5, 6, 7, 8, 9, 10, 11, 12]),
            (4, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (5, &[1, 2, 3, 4, 5]),
            (7, &[1, 2, 3, 4, 5, 6, 7, 8]),
            (8, &[1, 2, 3, 4, 5, 6, 7]),
            (9, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (10, &[1, 2, 3, 4, 5, 6, 7]),
            (11, &[1, 2, 3, 4, 5, 6, 7, 8, 9]),
            (12, &[1, 2, 3, 4, 5]),
        ];
        let frozen: Vec<_> = hundreds
            .iter()
            .flat_map(|(area, numbers)| numbers.iter().map(move |n| format!("B{}", area * 100 + n)))
            .collect();
        assert_eq!(frozen.len(), 93);
        let ours: Vec<_> = all().filter(|b| b.series == Series::Extension).map(|b| b.id).collect();
        assert_eq!(ours, frozen);
    }

    #[test]
    fn the_baseline_has_its_tests_and_informing_ids_say_so() {
        assert_eq!(all().filter(|b| b.series == Series::Baseline).count(), 25);
        for behaviour in all() {
            assert_eq!(behaviour.id.starts_with('N'), behaviour.series == Series::Ours, "{behaviour:?}");
            assert!(behaviour.clause.ends_with('.') && behaviour.mend.ends_with('.'), "{behaviour:?}");
        }
        let core = |b: &&Behaviour| b.series == Series::Extension && b.lane == crate::Lane::Core;
        assert_eq!(all().filter(core).count(), 69);
        assert!(all().any(|b| b.profiles.contains(&Profile::BareMetal)));
    }
}
