//! What the server's clock shows, as far as it can be told from here.

use std::{
    sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    time::Duration,
};

use semel_core::{StoreTime, env::Tick};

/// For how long after it was asked what the server said is taken for what its clock shows. Who sets that back or ahead meanwhile
/// sets it, for what is written by this, a moment later. An answer that took longer is not taken at all.
const RECENT: Duration = Duration::from_millis(100);

/// By what the server said on one connection: another server has another clock.
///
/// What it says it looked at between question and answer. That bounds how far its clock is ahead of the ticks here.
#[derive(Debug, Default)]
pub(super) struct Reckoning {
    /// How far its clock is ahead, in microseconds: the most that is certain, for as long as nothing says otherwise.
    ahead: AtomicI64,
    /// How far it is at most, by the last answer.
    at_most: AtomicI64,
    /// When that was asked, in nanoseconds.
    asked: AtomicU64,
    is_told: AtomicBool,
}

impl Reckoning {
    /// A question that was sent at one tick was answered with `now` by another.
    pub(super) fn heard(&self, (sent, heard): (Tick, Tick), now: StoreTime) {
        let (least, most) = (now.as_micros() - micros(heard), now.as_micros() - micros(sent));
        let before = if self.is_told() { self.ahead.load(Ordering::Relaxed) } else { least };
        self.ahead.store(before.clamp(least.min(most), most), Ordering::Relaxed);
        self.at_most.store(most, Ordering::Relaxed);
        self.asked.store(sent.as_nanos(), Ordering::Release);
        self.is_told.store(true, Ordering::Release);
    }

    /// What it shows at `tick` at least, for what is compared with it afterwards; `None` where it never said. It does not go back
    /// unless the clock does.
    pub(super) fn at(&self, tick: Tick) -> Option<StoreTime> {
        self.is_told().then(|| later(tick, &self.ahead))
    }

    /// The same at most, for what is rather too late than too early.
    pub(super) fn at_most(&self, tick: Tick) -> Option<StoreTime> {
        self.is_told().then(|| later(tick, &self.at_most))
    }

    /// Whether the server looked a moment before `tick`, so that it need not be asked.
    pub(super) fn is_recent(&self, tick: Tick) -> bool {
        let asked = Tick::from_nanos(self.asked.load(Ordering::Acquire));
        self.is_told() && asked <= tick && tick.since(asked) < RECENT
    }

    fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Acquire)
    }
}

fn later(tick: Tick, ahead: &AtomicI64) -> StoreTime {
    StoreTime::from_micros(micros(tick).saturating_add(ahead.load(Ordering::Relaxed)))
}

fn micros(tick: Tick) -> i64 {
    i64::try_from(tick.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tick(seconds: u64) -> Tick {
        Tick::default() + Duration::from_secs(seconds)
    }

    fn time(seconds: i64) -> StoreTime {
        StoreTime::from_micros(seconds * 1_000_000)
    }

    #[test]
    fn nothing_is_reckoned_before_the_server_said_what_its_clock_shows() {
        let clock = Reckoning::default();
        assert_eq!((clock.at(tick(5)), clock.at_most(tick(5))), (None, None));
    }

    #[test]
    fn what_was_asked_is_recent_for_a_tenth_of_a_second_however_long_the_answer_took() {
        let clock = Reckoning::default();
        assert!(!clock.is_recent(Tick::default()), "nothing was");
        let (sent, millis) = (tick(5), Duration::from_millis);
        for took in [1, 50, 99, 5_000] {
            clock.heard((sent, sent + millis(took)), time(100));
            for (tick, is) in [(sent + millis(99), true), (sent + millis(100), false), (sent + millis(5_001), false)] {
                assert_eq!(clock.is_recent(tick), is, "{took}: {tick:?}");
            }
        }
        assert!(!clock.is_recent(tick(4)), "no tick is before the question, but where somebody turned the clock");
    }

    #[test]
    fn the_narrowest_answer_counts_until_another_says_otherwise() {
        let clock = Reckoning::default();
        // Sent, heard, said; and what that bounds, and what is reckoned.
        for (sent, heard, said, ahead, is) in [
            (10, 20, 100, 80..=90, 80),
            (30, 32, 120, 88..=90, 88),
            (40, 50, 135, 85..=95, 88),
            (60, 64, 144, 80..=84, 84),
            (70, 80, 169, 89..=99, 89),
        ] {
            clock.heard((tick(sent), tick(heard)), time(said));
            assert_eq!(clock.at(tick(sent)), Some(time(sent.cast_signed() + is)), "{ahead:?}");
            assert_eq!(clock.at_most(tick(sent)), Some(time(sent.cast_signed() + ahead.end())), "{ahead:?}");
        }
    }
}
