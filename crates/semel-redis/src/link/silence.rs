//! Since when calls wait on a connection and nothing comes.
//!
//! Callers give up sooner than an answer may take: nobody may be there to see that it never came.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use semel_core::env::Tick;

/// Zero where nobody waits.
#[derive(Default)]
pub(super) struct Silence(AtomicU64);

impl Silence {
    /// A call goes out. Whoever waits already waits longer.
    pub(super) fn begins(&self, now: Tick) {
        let _longer = self.0.compare_exchange(0, now.as_nanos().max(1), Ordering::AcqRel, Ordering::Acquire);
    }

    /// An answer came.
    pub(super) fn ends(&self) {
        self.0.store(0, Ordering::Release);
    }

    /// Whether it is longer than an answer may take.
    pub(super) fn is_over(&self, now: impl Fn() -> Tick, limit: Duration) -> bool {
        let since = self.0.load(Ordering::Acquire);
        since != 0 && now().since(Tick::from_nanos(since)) > limit
    }
}
