//! Randomness from a seed.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use semel_core::env::Rng;

/// `SplitMix64` (Steele, Lea, Flood 2014). Clones share their state; [`fork`](Self::fork) gives an independent one.
#[derive(Clone)]
pub struct Seeded(Arc<AtomicU64>);

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Seeded {
    /// A source for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Arc::new(AtomicU64::new(seed)))
    }

    /// An independent source.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::new(self.number())
    }

    /// The next number.
    #[must_use]
    pub fn number(&self) -> u64 {
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`; zero for zero.
    #[must_use]
    pub fn below(&self, n: u64) -> u64 {
        self.number() % n.max(1)
    }

    /// True once in `n`, never for zero.
    #[must_use]
    pub fn one_in(&self, n: u64) -> bool {
        n > 0 && self.below(n) == 0
    }

    /// A duration up to `most`, short ones more often than long ones.
    #[must_use]
    pub fn upto(&self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        let most = if self.one_in(4) { most } else { most / 8 };
        Duration::from_micros(self.below(most.saturating_add(1)))
    }
}

impl Rng for Seeded {
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
    }
}

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Seeded({:#x})", self.0.load(Ordering::Relaxed))
    }
}
