//! What is made where it stays.

use std::{future::Future, pin::Pin};

/// A future in a box, made in the box.
///
/// `Box::pin(future)` makes it on the stack first: the allocation after it may unwind, and then the future is dropped. So
/// it is copied, with all the room that its later states need. Here the allocation comes first, and nothing is copied but
/// what the future was made from.
///
/// ```
/// # use std::{future::Future, pin::Pin};
/// let answer: Pin<Box<dyn Future<Output = u8>>> = semel_core::pinned(|| async { 7 });
/// # drop(answer);
/// ```
///
/// Cost: one allocation.
pub fn pinned<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(boxed(make))
}

/// What `make` makes, made in its box; see [`pinned`].
///
/// Cost: one allocation.
pub fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    let room = Box::new_uninit();
    Box::write(room, make())
}
