//! How records are asked for again: how many of them, and how long after they were settled.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use semel_core::identity::Identity;

use super::Snapshot;

/// Upper bounds in seconds: a double click, a network's retry, a client's, a person's, a batch of the next day.
const BOUNDS: [u64; 12] = [1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400, 259_200, 604_800, 2_592_000];

/// Registers of the estimate, a power of two: an error of 1.6 per cent, for 4 KiB a rule.
const REGISTERS: usize = 1 << BITS;
const BITS: u32 = 12;

/// Copies of a rule's requests. Counting one costs two relaxed additions and a look.
#[derive(Debug)]
pub struct Again {
    gaps: [AtomicU64; BOUNDS.len() + 1],
    millis: AtomicU64,
    /// `HyperLogLog` (Flajolet, Fusy, Gandouet, Meunier 2007) over the identities, whose digests are uniform.
    seen: Box<[AtomicU8]>,
}

impl Default for Again {
    fn default() -> Self {
        let seen = (0..REGISTERS).map(|_| AtomicU8::new(0)).collect();
        Self { gaps: Default::default(), millis: AtomicU64::new(0), seen }
    }
}

impl Again {
    /// A copy of what has this identity came.
    pub fn asked(&self, identity: &Identity) {
        let [a, b, c, d, e, f, g, h, ..] = *identity.digest();
        let bits = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        let register = &self.seen[usize::try_from(bits >> (64 - BITS)).unwrap_or(0)];
        // The bits behind the register's number; a one at their end bounds the run of zeros.
        let rank = u8::try_from(((bits << BITS) | (1 << (BITS - 1))).leading_zeros() + 1).unwrap_or(u8::MAX);
        if register.load(Ordering::Relaxed) < rank {
            register.fetch_max(rank, Ordering::Relaxed);
        }
    }

    /// It came so long after the record was settled.
    pub fn after(&self, gap: Duration) {
        let bucket = BOUNDS.partition_point(|bound| Duration::from_secs(*bound) < gap);
        self.gaps[bucket].fetch_add(1, Ordering::Relaxed);
        self.millis.fetch_add(u64::try_from(gap.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// How many records were asked for again since the start; an estimate above a few thousand.
    #[must_use]
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate"
    )]
    pub fn records(&self) -> u64 {
        let m = REGISTERS as f64;
        let (mut sum, mut empty) = (0.0, 0);
        for register in &self.seen {
            let rank = register.load(Ordering::Relaxed);
            sum += 0.5_f64.powi(i32::from(rank));
            empty += u64::from(rank == 0);
        }
        let estimate = 0.7213 / (1.0 + 1.079 / m) * m * m / sum;
        match empty {
            1.. if estimate <= 2.5 * m => (m * (m / empty as f64).ln()).round() as u64,
            _ => estimate.round() as u64,
        }
    }

    /// The gaps, as a histogram.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
    pub fn gaps(&self) -> Snapshot {
        let bounds = BOUNDS.iter().map(|seconds| *seconds as f64).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(self.gaps.iter().map(|n| n.load(Ordering::Relaxed))).collect();
        let count = buckets.iter().map(|(_, n)| n).sum();
        Snapshot { buckets, count, sum: self.millis.load(Ordering::Relaxed) as f64 / 1e3 }
    }
}

#[cfg(test)]
mod tests {
    use semel_core::identity::{Display, Key, Kind, Namespace, Scope, Secret};

    use super::*;

    fn identity(n: u64) -> Identity {
        let secret = Secret::from_material(b"sixteen bytes or more").unwrap();
        let key = Key::new(n.to_string().as_str(), Display::Masked);
        Identity::new(&secret, Kind::Key, Namespace::http("gateway").unwrap(), &Scope::shared(), &key)
    }

    #[test]
    fn each_record_counts_once_however_often_it_is_asked_for() {
        let again = Again::default();
        assert_eq!(again.records(), 0);
        for n in 0..10 {
            for _ in 0..=n {
                again.asked(&identity(n));
            }
        }
        assert_eq!(again.records(), 10);
    }

    #[test]
    fn many_records_are_estimated() {
        let again = Again::default();
        (0..100_000).for_each(|n| again.asked(&identity(n)));
        // The identities are fixed, and so is the estimate: five times its standard error is never reached by luck.
        assert!((92_000..108_000).contains(&again.records()), "{}", again.records());
    }

    #[test]
    fn a_gap_falls_into_the_first_bucket_that_holds_it() {
        let again = Again::default();
        for seconds in [0, 1, 2, 86_400, 9_999_999] {
            again.after(Duration::from_secs(seconds));
        }
        let gaps = again.gaps();
        assert_eq!((gaps.buckets[0], gaps.buckets[1], gaps.buckets[8]), ((1.0, 2), (5.0, 1), (86_400.0, 1)));
        assert_eq!((gaps.buckets.last(), gaps.count), (Some(&(f64::INFINITY, 1)), 5));
    }
}
