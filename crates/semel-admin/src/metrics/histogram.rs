//! A histogram of times without a lock: one relaxed addition per bucket hit and one for the sum.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use semel_core::lanes::Lanes;

/// Upper bounds in nanoseconds: a memory store answers in microseconds, a synced write in milliseconds, a person waits for seconds.
const BOUNDS: [u64; 15] = [
    5_000,
    25_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Times, counted in fixed buckets from 5 µs to 10 s, for each thread apart: 4 KiB. Observing costs two relaxed additions.
#[derive(Debug, Default)]
pub struct Histogram(Lanes<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// One per bound and one for what is longer; not cumulative.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
}

/// What a histogram held at one moment; its count is the sum of its buckets, so the parts always agree.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    /// Upper bound in seconds and how many are in that bucket; the last bound is infinite.
    pub buckets: Vec<(f64, u64)>,
    /// How many there are.
    pub count: u64,
    /// The sum of all times, in seconds.
    pub sum: f64,
}

impl Histogram {
    /// Counts one time.
    pub fn observe(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanos);
        let counts = self.0.mine();
        counts.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    /// What it holds now.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        reason = "seconds for people: 52 bits of nanoseconds are fifty days of summed time, exact"
    )]
    pub fn snapshot(&self) -> Snapshot {
        let bounds = BOUNDS.iter().map(|nanos| *nanos as f64 / 1e9).chain([f64::INFINITY]);
        let sum = |of: &dyn Fn(&Counts) -> &AtomicU64| {
            self.0.iter().fold(0_u64, |sum, counts| sum.wrapping_add(of(counts).load(Ordering::Relaxed)))
        };
        let buckets: Vec<(f64, u64)> = bounds.enumerate().map(|(n, bound)| (bound, sum(&|c| &c.buckets[n]))).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        Snapshot { buckets, count, sum: sum(&|c| &c.nanos) as f64 / 1e9 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_falls_into_the_first_bucket_that_holds_it() {
        let h = Histogram::default();
        for nanos in [0, 5_000, 5_001, 11_000_000_000] {
            h.observe(Duration::from_nanos(nanos));
        }
        let s = h.snapshot();
        assert_eq!((s.buckets[0], s.buckets[1]), ((5e-6, 2), (25e-6, 1)));
        assert_eq!(s.buckets.last(), Some(&(f64::INFINITY, 1)));
        assert_eq!(s.count, 4);
        assert!((s.sum - 11.000_010_001).abs() < 1e-9);
    }

    #[test]
    fn no_time_is_too_long() {
        let h = Histogram::default();
        h.observe(Duration::MAX);
        assert_eq!(h.snapshot().count, 1);
    }
}
