//! Rows of one key are one row.

use bigfleet_types::{Fingerprint, Group, Need, UnixNanos};

use crate::intern::Map;

/// One Need per key: aggregates add up, the larger minimum and the earliest known arrival count.
pub(super) fn merge(rows: Vec<Need>) -> Vec<Need> {
    let mut places: Map<(Fingerprint, Group), usize> = Map::default();
    let mut merged: Vec<Need> = Vec::with_capacity(rows.len());
    for row in rows {
        let key = (row.profile.fingerprint(), row.group.clone());
        if let Some(place) = places.get(&key) {
            let first = &mut merged[*place];
            first.aggregate = first.aggregate.add(&row.aggregate);
            first.min_unit = first.min_unit.max(&row.min_unit);
            first.arrival = earliest(first.arrival, row.arrival);
        } else {
            places.insert(key, merged.len());
            merged.push(row);
        }
    }
    merged
}

/// The earlier of two arrivals; 0 and none mean that it is not known.
pub(crate) fn earliest(a: Option<UnixNanos>, b: Option<UnixNanos>) -> Option<UnixNanos> {
    let known = |arrival: Option<UnixNanos>| arrival.filter(|arrival| arrival.0 != 0);
    match (known(a), known(b)) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a_known, b_known) => a_known.or(b_known).or(a).or(b),
    }
}
