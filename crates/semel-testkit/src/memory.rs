//! What something takes in memory, counted by the allocator and not guessed from the process's size.
//!
//! A binary of tests that says [`count_allocations!`](crate::count_allocations) counts all that its process does: it holds
//! nothing but such tests, and each of them runs in [`alone`].

use std::{alloc::System, future::Future};

use parking_lot::Mutex;
pub use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use stats_alloc::{Region, Stats};

/// The counts are the process's: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Makes the system's allocator, counted, the one of this binary.
#[macro_export]
macro_rules! count_allocations {
    () => {
        #[global_allocator]
        static ALLOCATOR: &$crate::memory::StatsAlloc<::std::alloc::System> = &$crate::memory::INSTRUMENTED_SYSTEM;
    };
}

/// Runs a test on this thread, and no other one of this process meanwhile.
///
/// # Panics
/// Where no runtime can be made.
pub fn alone(test: impl Future<Output = ()>) {
    let _alone = ALONE.lock();
    tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime").block_on(test);
}

/// What was allocated from here on.
pub struct Since(Region<'static, System>);

impl Since {
    /// Starts to count.
    #[must_use]
    pub fn now() -> Self {
        Self(Region::new(&INSTRUMENTED_SYSTEM))
    }

    /// Bytes allocated since and not given back. None where more was given back than taken.
    #[must_use]
    pub fn held(&self) -> usize {
        let Stats { bytes_allocated, bytes_deallocated, .. } = self.0.change();
        bytes_allocated.saturating_sub(bytes_deallocated)
    }

    /// Calls of the allocator that asked for memory.
    #[must_use]
    pub fn allocations(&self) -> usize {
        let Stats { allocations, reallocations, .. } = self.0.change();
        allocations + reallocations
    }
}

/// The most bytes held for each thing when there are more and more: `grow` makes `step` more of them, forty times. Looked
/// at each time from the fifth on, as tables grow at once and hold the most for the fewest just after that; before, what
/// does not grow with the things counts too much.
pub async fn most_for_each(step: usize, mut grow: impl AsyncFnMut()) -> usize {
    let since = Since::now();
    let mut most = 0;
    for steps in 1..=40 {
        grow().await;
        if steps > 4 {
            most = most.max(since.held() / (steps * step));
        }
    }
    most
}
