//! How much else a row may want and take the same machines.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::lanes::Lanes;

/// Bounds of what a row wants, by lane: more than the first amount, and at most the second. Along the machines that it takes,
/// each lane is covered by the same one for all amounts between them.
#[derive(Debug)]
pub(crate) struct Leeway(SmallVec<[(i64, i64); 4]>);

impl Leeway {
    /// That of a row which wants so much, and takes machines of these capacities, in this order. `None`: they do not cover it.
    pub(crate) fn of(
        wanted: &Lanes,
        machines: impl Iterator<Item = impl Deref<Target = Lanes>>,
    ) -> Option<Self> {
        // Nothing is covered before the first machine but what is not wanted.
        let mut bounds: SmallVec<[_; 4]> =
            wanted.amounts().iter().map(|amount| if *amount > 0 { (0, i64::MAX) } else { (-1, 0) }).collect();
        let mut taken = Lanes::default();
        for machine in machines {
            taken.add(&machine);
            for lane in wanted.positive() {
                let (more_than, at_most) = &mut bounds[lane];
                if taken.get(lane) < wanted.get(lane) {
                    *more_than = taken.get(lane);
                } else {
                    *at_most = taken.get(lane).min(*at_most);
                }
            }
        }
        taken.covers(wanted).then_some(Self(bounds))
    }

    /// Whether a row that wants so much takes the same machines.
    pub(crate) fn allows(&self, wanted: &Lanes) -> bool {
        let amounts = wanted.amounts();
        let lanes = 0..self.0.len().max(amounts.len());
        lanes.into_iter().all(|lane| {
            let (more_than, at_most) = self.0.get(lane).copied().unwrap_or((-1, 0));
            let amount = wanted.get(lane);
            more_than < amount && amount <= at_most
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(amounts: &[i64]) -> Lanes {
        Lanes::from(amounts)
    }

    #[test]
    fn a_row_takes_the_same_machines_while_each_lane_ends_at_the_same_one() {
        let machines = [lanes(&[4, 16]), lanes(&[4, 16]), lanes(&[8])];
        let leeway = Leeway::of(&lanes(&[9, 17]), machines.iter()).expect("it is covered");
        for (wanted, allowed) in [
            (&[9, 17][..], true),
            (&[16, 32], true),
            (&[17, 32], false),
            (&[8, 32], false),
            (&[16, 33], false),
            (&[16, 16], false),
            (&[16], false),
            (&[16, 32, 1], false),
            (&[16, 32, 0], true),
        ] {
            assert_eq!(leeway.allows(&lanes(wanted)), allowed, "{wanted:?}");
        }
    }

    #[test]
    fn what_is_not_covered_has_no_leeway() {
        assert!(Leeway::of(&lanes(&[9, 17]), [lanes(&[8, 32])].iter()).is_none());
        assert!(Leeway::of(&lanes(&[1]), std::iter::empty::<&Lanes>()).is_none());
        let nothing =
            Leeway::of(&lanes(&[]), std::iter::empty::<&Lanes>()).expect("nothing is covered by nothing");
        assert!(nothing.allows(&lanes(&[0])) && !nothing.allows(&lanes(&[1])));
    }

    #[test]
    fn amounts_at_the_end_of_the_number_range_are_covered_in_sum() {
        let machines = [lanes(&[i64::MAX - 1]), lanes(&[i64::MAX])];
        let leeway = Leeway::of(&lanes(&[i64::MAX]), machines.iter()).expect("it is covered");
        assert!(leeway.allows(&lanes(&[i64::MAX])) && !leeway.allows(&lanes(&[i64::MAX - 1])));
    }
}
