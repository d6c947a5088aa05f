//! What each thread has to itself of what all of them share, so that none waits for another's cache lines: a line that
//! two processors write by turns costs each of them more than most of what is done with it.

use std::{
    ops::Index,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Threads share a lane when there are more of them.
const LANES: usize = 16;

/// One `T` for each thread, as long as there are no more than sixteen; more share them.
///
/// ```
/// use semel_core::lanes::Lanes;
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let hits: Lanes<AtomicU64> = Lanes::default();
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| hits.mine().fetch_add(1, Ordering::Relaxed));
///     }
/// });
/// assert_eq!(hits.iter().map(|lane| lane.load(Ordering::Relaxed)).sum::<u64>(), 4);
/// ```
#[derive(Debug, Default)]
pub struct Lanes<T>([Apart<T>; LANES]);

/// Two lines, since processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Apart<T>(T);

impl<T> Lanes<T> {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|lane| &lane.0)
    }

    /// This thread's.
    #[must_use]
    pub fn mine(&self) -> &T {
        &self[Lane::here()]
    }
}

impl<T> Index<Lane> for Lanes<T> {
    type Output = T;

    fn index(&self, lane: Lane) -> &T {
        &self.0[usize::from(lane.0) % LANES].0
    }
}

/// The number of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane(u8);

impl Lane {
    /// That of the calling thread.
    #[must_use]
    pub fn here() -> Self {
        static THREADS: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static LANE: Lane = Lane((THREADS.fetch_add(1, Ordering::Relaxed) % LANES) as u8);
        }
        LANE.with(|lane| *lane)
    }
}

/// So many places and no more. Threads take them by the handful and keep what comes free, and help themselves to what
/// others have left where none is left in common.
#[derive(Debug, Default)]
pub(crate) struct Places {
    /// How many were handed out to lanes.
    handed_out: AtomicUsize,
    /// What lanes have of those and nobody sits on.
    free: Lanes<AtomicUsize>,
}

const HANDFUL: usize = 32;

/// How many to take of so many. The last ones go one by one: between taking them out and laying them into a lane nobody
/// finds them.
fn handful(left: usize) -> usize {
    if left == 0 { 0 } else { (left / LANES).clamp(1, HANDFUL) }
}

impl Places {
    /// Takes one of `limit` places, which is always the same number; `false` where all are taken.
    pub(crate) fn take(&self, limit: usize) -> bool {
        let mine = self.free.mine();
        if take_one(mine) {
            return true;
        }
        let more = |out: usize| Some(out + handful(limit.checked_sub(out)?)).filter(|now| *now > out);
        match self.handed_out.fetch_update(Ordering::AcqRel, Ordering::Acquire, more) {
            Ok(out) => {
                mine.fetch_add(handful(limit - out) - 1, Ordering::AcqRel);
                true
            }
            Err(_) => self.free.iter().any(take_one),
        }
    }

    /// Gives one back, on whichever thread.
    pub(crate) fn give_back(&self) {
        self.free.mine().fetch_add(1, Ordering::AcqRel);
    }

    /// How many are taken. While others take and give back, of about this moment.
    pub(crate) fn taken(&self) -> usize {
        let free: usize = self.free.iter().map(|free| free.load(Ordering::Acquire)).sum();
        self.handed_out.load(Ordering::Acquire).saturating_sub(free)
    }
}

fn take_one(free: &AtomicUsize) -> bool {
    free.fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| n.checked_sub(1)).is_ok()
}

/// How many have begun and not ended.
#[derive(Debug, Default)]
pub(crate) struct Open(Lanes<Passages>);

#[derive(Debug, Default)]
struct Passages {
    begun: AtomicUsize,
    ended: AtomicUsize,
}

impl Open {
    /// One begins.
    pub(crate) fn begin(&self) {
        self.0.mine().begun.fetch_add(1, Ordering::SeqCst);
    }

    /// One ends, on whichever thread.
    pub(crate) fn end(&self) {
        self.0.mine().ended.fetch_add(1, Ordering::SeqCst);
    }

    /// How many are open. Never too few: zero says that there was a moment with none.
    pub(crate) fn count(&self) -> usize {
        // In this order: between the two there was a moment with as many or more ends, and as many or fewer beginnings.
        let ended: usize = self.0.iter().map(|p| p.ended.load(Ordering::SeqCst)).fold(0, usize::wrapping_add);
        let begun: usize = self.0.iter().map(|p| p.begun.load(Ordering::SeqCst)).fold(0, usize::wrapping_add);
        begun.wrapping_sub(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::Arc, thread};

    #[test]
    fn no_more_than_the_limit_are_taken_and_no_fewer() {
        for limit in [1, 31, 32, 33, 100] {
            let places = Places::default();
            for n in 0..limit {
                assert!(places.take(limit), "{n} of {limit}");
                assert_eq!(places.taken(), n + 1);
            }
            assert!(!places.take(limit));
            places.give_back();
            assert_eq!(places.taken(), limit - 1);
            assert!(places.take(limit) && !places.take(limit));
        }
    }

    #[test]
    fn what_one_thread_has_left_another_takes() {
        let places = Arc::new(Places::default());
        let elsewhere = |work: fn(&Places) -> bool| {
            let places = Arc::clone(&places);
            thread::spawn(move || work(&places)).join().unwrap()
        };
        assert!(places.take(100), "the handful is this thread's");
        assert!(elsewhere(|places| (0..99).all(|_| places.take(100))));
        assert!(!places.take(100) && elsewhere(|places| !places.take(100)));
        assert!(elsewhere(|places| {
            places.give_back();
            true
        }));
        assert!(places.take(100), "given back on another thread");
        assert_eq!(places.taken(), 100);
    }

    #[test]
    fn threads_together_stay_within_the_limit() {
        const LIMIT: usize = 40;
        let (places, most) = (Places::default(), AtomicUsize::new(0));
        let running = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        let mut mine = 0;
                        while mine < 15 && places.take(LIMIT) {
                            mine += 1;
                            most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        }
                        for _ in 0..mine {
                            running.fetch_sub(1, Ordering::SeqCst);
                            places.give_back();
                        }
                    }
                });
            }
        });
        assert!(most.load(Ordering::SeqCst) <= LIMIT);
        assert_eq!(places.taken(), 0);
        assert!((0..LIMIT).all(|_| places.take(LIMIT)) && !places.take(LIMIT), "none got lost");
    }

    #[test]
    fn what_begins_here_may_end_elsewhere() {
        let open = Open::default();
        open.begin();
        open.begin();
        thread::scope(|scope| {
            scope.spawn(|| open.end());
        });
        assert_eq!(open.count(), 1);
        open.end();
        assert_eq!(open.count(), 0);
    }
}
