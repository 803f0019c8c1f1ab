//! How good a victim is, and how long it may take to go.

use std::time::Duration;

use bigfleet_types::StampedPenalty;

use crate::policy::VictimPolicy;

const NANO: i128 = 1_000_000_000;

/// How far the preemptor is above the victim.
fn gap(preemptor: i32, victim: i32) -> i64 {
    (i64::from(preemptor) - i64::from(victim)).max(0)
}

/// The grace of a victim's drain: the further below, the shorter.
pub(crate) fn grace(preemptor: i32, victim: i32) -> Duration {
    Duration::from_secs(match gap(preemptor, victim) {
        900_001.. => 10,
        500_001.. => 30,
        100_001.. => 120,
        _ => 600,
    })
}

/// The score in nano-points; the highest goes first. Every term is rounded down on its own, so that ties are ties.
pub(super) fn score(
    policy: &VictimPolicy,
    preemptor: i32,
    victim: i32,
    interruption: StampedPenalty,
    reclamation: StampedPenalty,
) -> i128 {
    let inverse = |weight: u64, penalty: StampedPenalty| match penalty {
        // A cent at least.
        StampedPenalty::Finite(dollars) => {
            i128::from(weight) * NANO / i128::from(dollars.nano()).max(NANO / 100)
        }
        StampedPenalty::Infinite => 0,
    };
    let drain = i128::try_from(policy.drain_estimate.as_nanos()).unwrap_or(i128::MAX).max(NANO);
    i128::from(gap(preemptor, victim)) * i128::from(policy.priority_weight)
        + i128::from(policy.drain_weight) * NANO / drain
        + inverse(policy.interruption_weight, interruption)
        + inverse(policy.reclamation_weight, reclamation)
}

#[cfg(test)]
mod tests {
    use bigfleet_types::NanoDollars;

    use super::*;

    #[test]
    fn ex43_grace_by_gap() {
        let table = [
            (1_000_000, 0, 10),
            (1_000_000, 99_999, 10),
            (1_000_000, 100_001, 30),
            (1_000_000, 499_999, 30),
            (1_000_000, 500_001, 120),
            (1_000_000, 899_999, 120),
            (1_000_000, 900_001, 600),
            (1_000_000, 999_999, 600),
            (1_000_000, 1_000_000, 600),
            (i32::MAX, i32::MIN, 10),
        ];
        for (preemptor, victim, seconds) in table {
            assert_eq!(grace(preemptor, victim), Duration::from_secs(seconds), "{preemptor} over {victim}");
        }
    }

    #[test]
    fn ex44_scores() {
        let dollars =
            |d: f64| NanoDollars::from_dollars(d).map_or(StampedPenalty::Infinite, StampedPenalty::Finite);
        let score = |gap, int, rec| score(&VictimPolicy::default(), gap, 0, dollars(int), dollars(rec));
        assert_eq!(score(500_000, 1.0, 1.0), 500_000_203_333_333);
        assert_eq!(score(500_000, 100_000.0, 1.0), 500_000_103_334_333);
        assert_eq!(score(1000, 0.0, 0.0), 1_020_003_333_333);
        assert_eq!(score(1015, 8192.0, f64::INFINITY), 1_015_003_345_540);
    }
}
