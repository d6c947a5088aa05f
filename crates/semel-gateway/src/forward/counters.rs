//! What went wrong towards an upstream, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the start. Share one among the forwarders of an upstream on all runtimes.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Counters {
    /// Connections made.
    pub connected: Count,
    /// Requests of which nothing was sent.
    pub unreachable: Count,
    /// Requests whose outcome is unknown because the connection ended before an answer began.
    pub broken: Count,
    /// Of those, the ones on a connection that had carried a request before. Many mean that the upstream closes
    /// unused connections sooner than [`idle_timeout`](crate::pool::PoolConfig::idle_timeout).
    pub broken_reused: Count,
    /// Requests whose outcome is unknown because no answer came in time.
    pub timed_out: Count,
    /// Requests sent a second time, on a fresh connection, because nothing of them was written at first.
    pub sent_anew: Count,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
