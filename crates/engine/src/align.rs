//! What two lists have in common that are much in the same order, as most lists are that follow each other in time.

use std::hash::Hash;

use crate::intern::Map;

/// How far apart in the lists the same is looked for first.
const NEAR: usize = 8;

/// Finds for each key what there was with this key before. Gives what is left as well. Keys are unique in both lists; the
/// result is the same for any order, which takes a map only for what moved farther than a few places.
pub(crate) fn align<T: Copy, K: Copy + Eq + Hash>(
    before: &[T],
    now: &[K],
    key: impl Fn(&T) -> K,
) -> (Vec<Option<T>>, Vec<T>) {
    let mut found: Vec<Option<T>> = Vec::with_capacity(now.len());
    let (mut others, mut missed): (Vec<T>, Vec<usize>) = Default::default();
    let mut next = 0;
    for (place, wanted) in now.iter().enumerate() {
        let near = &before[next..before.len().min(next + NEAR)];
        if let Some(passed) = near.iter().position(|one| key(one) == *wanted) {
            others.extend(&near[..passed]);
            found.push(Some(near[passed]));
            next += passed + 1;
            continue;
        }
        found.push(None);
        missed.push(place);
        // If the next one is there, this one came in front of it; if not, it may have taken the place of another.
        let came = now.get(place + 1).is_none_or(|after| near.iter().any(|one| key(one) == *after));
        if !came {
            others.extend(near.first());
            next += near.len().min(1);
        }
    }
    others.extend(&before[next..]);
    if missed.is_empty() || others.is_empty() {
        return (found, others);
    }
    let mut known: Map<K, T> = others.into_iter().map(|one| (key(&one), one)).collect();
    for place in missed {
        found[place] = known.remove(&now[place]);
    }
    (found, known.into_values().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_wherever_it_stood() {
        let before: Vec<u32> = (0..40).collect();
        let without = |gone: &[u32]| before.iter().copied().filter(|one| !gone.contains(one)).collect();
        let mut cases: Vec<Vec<u32>> = vec![
            before.clone(),
            Vec::new(),
            without(&[0, 7, 8, 39]),
            before.iter().rev().copied().collect(),
            before[20..].iter().chain(&before[..20]).copied().collect(),
            (100..140).collect(),
            before.iter().map(|one| if one % 3 == 0 { one + 100 } else { *one }).collect(),
        ];
        for (place, new) in [(0, 1), (3, 1), (20, 3), (38, 12)] {
            let mut now: Vec<u32> = without(&[5, 21]);
            now.splice(place..place, 100..100 + new);
            cases.push(now);
        }
        for now in cases {
            let (found, mut others) = align(&before, &now, |one| *one);
            let there = |one: &u32| before.contains(one).then_some(*one);
            assert_eq!(found, now.iter().map(there).collect::<Vec<_>>(), "{now:?}");
            others.sort_unstable();
            assert_eq!(others, without(&now), "{now:?}");
        }
    }
}
