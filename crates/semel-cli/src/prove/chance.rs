//! The moments of a run: repeatable from a seed. Keys are not drawn here, since a repeated key would be answered from
//! the run before.

use std::time::Duration;

/// `SplitMix64` (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In `0.0..1.0`.
    pub(crate) fn share(&mut self) -> f64 {
        // 53 bits: every value is exact in an f64.
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Within `0..=longest`, half of them in the first eighth: a fast answer leaves little time for a late moment.
    pub(crate) fn early_moment(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.share().powi(3))
    }

    /// Evenly within `0..=longest`.
    pub(crate) fn moment(&mut self, longest: Duration) -> Duration {
        longest.mul_f64(self.share())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_course() {
        let draw = |seed| {
            let mut chance = Chance::new(seed);
            (0..50).map(|_| chance.moment(Duration::from_secs(1))).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|moment| *moment <= Duration::from_secs(1)));
    }
}
