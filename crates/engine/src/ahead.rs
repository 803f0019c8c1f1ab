//! Looking ahead. What a decision looks at lies all over memory, and most of its time it waits for one line after the other.
//! A loop that knows what it comes to asks for it in front, so that these waits overlap.

use std::sync::Arc;

/// How many to ask for in front: the waits overlap as far as processors can, and nothing is gone again before it is looked at.
pub(crate) const MANY: usize = 32;

/// How many steps a loop that asks for one thing at a time is to be ahead of itself.
pub(crate) const NEAR: usize = 8;

/// Has the processor fetch what stands at a place, and does not wait for it.
pub(crate) fn fetch<T: Copy>(place: &T) {
    std::hint::black_box(*place);
}

/// The same for a value that is shared: what counts who has it.
pub(crate) fn fetch_shared<T: ?Sized>(shared: &Arc<T>) {
    std::hint::black_box(Arc::strong_count(shared));
}
