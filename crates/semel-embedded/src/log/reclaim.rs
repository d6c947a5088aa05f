//! What the writer does for room beside its writing: it forgets records that have ended, a few at a time.
//!
//! ```text
//! at the start        what had ended by then
//! room is short       what has ended by now, and again as time goes by, until there is room
//! otherwise           nothing: whoever purges does it
//! ```
//!
//! Those that nobody told the outcome of stay: their end is an event, and the purge that removes them tells of it.

use std::time::Duration;

use semel_core::{StoreTime, env::Tick};

use crate::{disk::Disk, store::Shared};

/// How many records one step forgets: a fraction of a millisecond.
const IDLE_STEP: usize = 1_000;
/// The same between two batches that somebody waits for.
const BUSY_STEP: usize = 100;

/// A store that is looked at all the time is not looked at more often than this.
const LEAST_PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Reclaim {
    /// What had ended by then is being forgotten.
    until: Option<StoreTime>,
    /// When that was begun.
    begun: Tick,
    /// The disk has more to write, which makes room.
    goes_on: bool,
}

impl Reclaim {
    /// Begins with what had ended when the store was opened.
    pub(super) fn of_the_time_before(shared: &Shared) -> Self {
        Self { until: Some(shared.clock.now()), begun: shared.space.ticks(), goes_on: false }
    }

    pub(super) const fn is_under_way(&self) -> bool {
        self.until.is_some()
    }

    /// Whether the disk has more to write, which makes room.
    pub(super) const fn goes_on(&mut self, more: bool) {
        self.goes_on = more;
    }

    /// How long the writer may wait for work; `None` for as long as there is none.
    pub(super) fn pause(&self, shared: &Shared) -> Option<Duration> {
        if self.goes_on || self.is_under_way() {
            return Some(Duration::ZERO);
        }
        shared.space.is_pressed().then(|| shared.space.every().max(LEAST_PAUSE))
    }

    pub(super) fn while_idle(&mut self, shared: &Shared, disk: &dyn Disk) {
        self.step(shared, disk, IDLE_STEP);
    }

    pub(super) fn beside_a_batch(&mut self, shared: &Shared, disk: &dyn Disk) {
        self.step(shared, disk, BUSY_STEP);
    }

    fn step(&mut self, shared: &Shared, disk: &dyn Disk, max: usize) {
        if self.until.is_none() && shared.space.is_pressed() {
            let ticks = shared.space.ticks();
            if ticks.since(self.begun) >= shared.space.every() {
                (self.until, self.begun) = (Some(shared.clock.now()), ticks);
            }
        }
        let Some(until) = self.until else { return };
        match shared.reclaim(disk, until, max) {
            Ok(gone) if gone == max => {}
            Ok(_) => self.until = None,
            Err(error) => {
                tracing::warn!(%error, "records that have ended could not be removed; they only take room");
                self.until = None;
            }
        }
    }
}
