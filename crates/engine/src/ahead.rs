//! Looking ahead. What a decision looks at lies all over memory, and most of its time it waits for one line after the other.
//! A loop that knows what it comes to reads something of it in front and does not wait for it, so that the waits overlap.

use std::sync::Arc;

/// How many to read in front at most: the waits overlap as far as processors can, and nothing is gone again before it is
/// looked at.
pub(crate) const MANY: usize = 32;

/// How many steps a loop that reads one in front at each step is to be ahead of itself.
pub(crate) const NEAR: usize = 8;

/// Reads a value for nothing but that what stands beside it is near.
pub(crate) fn fetch<T: Copy>(value: T) {
    std::hint::black_box(value);
}

/// Reads how many share a value.
pub(crate) fn fetch_count<T: ?Sized>(shared: &Arc<T>) {
    fetch(Arc::strong_count(shared));
}
