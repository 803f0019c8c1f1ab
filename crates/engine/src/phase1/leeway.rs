//! How much else a row may want and take the same machines.

use std::ops::Deref;

use smallvec::SmallVec;

use crate::lanes::Lanes;

/// Bounds of what a row wants, by lane: more than the first amount, and at most the second. Along the machines that it takes,
/// each lane is covered by the same one for all amounts between them.
#[derive(Debug)]
pub(crate) struct Leeway(SmallVec<[(i64, i64); 4]>);

impl Leeway {
    /// That of a row which wants so much, and takes so many machines of each of these capacities, in this order. `None`: they
    /// do not cover it.
    pub(crate) fn of(
        wanted: &Lanes,
        machines: impl Iterator<Item = (impl Deref<Target = Lanes>, usize)>,
    ) -> Option<Self> {
        // Nothing is covered before the first machine but what is not wanted.
        let mut bounds: SmallVec<[_; 4]> =
            wanted.amounts().iter().map(|amount| if *amount > 0 { (0, i64::MAX) } else { (-1, 0) }).collect();
        let mut taken: SmallVec<[i64; 4]> = SmallVec::from_elem(0, bounds.len());
        for (machine, number) in machines {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            let lanes = wanted.amounts().iter().zip(machine.amounts()).zip(bounds.iter_mut().zip(&mut taken));
            for ((wanted, amount), ((more_than, at_most), taken)) in lanes {
                let missing = *wanted - *taken;
                if missing <= 0 || *amount <= 0 {
                    continue;
                }
                let last = (missing - 1) / amount;
                let with = |machines: i64| taken.saturating_add(amount.saturating_mul(machines));
                *more_than = with(last.min(number));
                if last < number {
                    *at_most = with(last + 1);
                }
                *taken = with(number);
            }
        }
        let is_covered = wanted.amounts().iter().zip(&taken).all(|(wanted, taken)| taken >= wanted);
        is_covered.then_some(Self(bounds))
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
        let one = machines.iter().map(|machine| (machine, 1));
        let leeway = Leeway::of(&lanes(&[9, 17]), one).expect("it is covered");
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
        assert!(Leeway::of(&lanes(&[9, 17]), [(&lanes(&[8, 32]), 1)].into_iter()).is_none());
        let no_machines = std::iter::empty::<(&Lanes, usize)>;
        assert!(Leeway::of(&lanes(&[1]), no_machines()).is_none());
        let nothing = Leeway::of(&lanes(&[]), no_machines()).expect("nothing is covered by nothing");
        assert!(nothing.allows(&lanes(&[0])) && !nothing.allows(&lanes(&[1])));
    }

    #[test]
    fn amounts_at_the_end_of_the_number_range_are_covered_in_sum() {
        let machines = [(&lanes(&[i64::MAX - 1]), 1), (&lanes(&[i64::MAX]), 1)];
        let leeway = Leeway::of(&lanes(&[i64::MAX]), machines.into_iter()).expect("it is covered");
        assert!(leeway.allows(&lanes(&[i64::MAX])) && !leeway.allows(&lanes(&[i64::MAX - 1])));
    }

    #[test]
    fn machines_of_one_capacity_count_as_if_each_came_alone() {
        let sizes = [lanes(&[3, 0, 5]), lanes(&[7, 2]), lanes(&[0, 0, 1])];
        for number in 0..400usize {
            let digits = [number % 5, number / 5 % 5, number / 25 % 4, number / 100];
            let together: Vec<(&Lanes, usize)> = sizes.iter().zip(digits).collect();
            let alone = || together.iter().flat_map(|(size, number)| vec![(*size, 1); *number]);
            for wanted in [[10, 2, 8], [1, 0, 0], [12, 4, 20], [0, 0, 7]] {
                let wanted = lanes(&wanted);
                let [one, all] =
                    [Leeway::of(&wanted, alone()), Leeway::of(&wanted, together.iter().copied())];
                assert_eq!(one.map(|one| one.0), all.map(|all| all.0), "{wanted:?} {together:?}");
            }
        }
    }
}
