//! The small numbers that name a claim: owner, fence, and the store's time.

use std::{fmt, num::NonZeroU64, time::Duration};

/// Who holds a claim: 16 random bytes, made anew for every claim.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Owner([u8; 16]);

impl Owner {
    /// An owner from its bytes, as stored.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes, as stored.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({:016x}…)", u64::from_be_bytes(first_eight(&self.0)))
    }
}

/// The number of a grant: `max(last fence of the record + 1, store clock in µs)`, so it rises over expiry, purge, flush
/// and failover. Always below 2⁵³, so that scripting languages which know only doubles compare it exactly.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Fence(NonZeroU64);

impl Fence {
    /// A fence read from a store or a header; `None` for zero, which no grant ever gets.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The fence of the next grant, given the record's last one and the store's clock.
    #[must_use]
    pub fn next(last: Option<Self>, now: StoreTime) -> Self {
        let floor = last.map_or(1, |f| f.get() + 1);
        let clock = u64::try_from(now.as_micros()).unwrap_or(0);
        Self(NonZeroU64::new(floor.max(clock)).unwrap_or(NonZeroU64::MIN))
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A point in time on the *store's* clock, in microseconds since the Unix epoch. Leases and expiry are decided by it
/// alone; it is never mixed with a local clock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StoreTime(i64);

impl StoreTime {
    /// The end of time: nothing is later.
    pub const MAX: Self = Self(i64::MAX);

    /// From microseconds since the Unix epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl std::ops::Add<Duration> for StoreTime {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(micros(by)))
    }
}

impl std::ops::Sub<Duration> for StoreTime {
    type Output = Self;

    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(micros(by)))
    }
}

fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX)
}

pub(crate) fn first_eight(bytes: &[u8]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[..8]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_follows_the_clock_and_never_repeats() {
        let now = StoreTime::from_micros(1_000);
        let first = Fence::next(None, now);
        assert_eq!(first.get(), 1_000);
        assert_eq!(Fence::next(Some(first), now).get(), 1_001);
        assert_eq!(Fence::next(Some(first), StoreTime::from_micros(5)).get(), 1_001);
        assert_eq!(Fence::next(None, StoreTime::from_micros(-5)).get(), 1);
    }
}
