//! Clocks that a test moves.

use std::{
    collections::BTreeMap,
    fmt,
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Poll, Waker},
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use semel_core::env::{BootClock, BoxFuture, Clock, Tick};

/// The wall clock's reading when a test's clock starts: some day in 2026. Only its being late enough matters.
const WALL_AT_START: Duration = Duration::from_secs(1_780_000_000);

/// Stands still until [`advance`](Self::advance). Clones are one clock.
#[derive(Clone, Default)]
pub struct ManualClock(Arc<Hands>);

#[derive(Default)]
struct Hands {
    now: AtomicU64,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    next: u64,
    wakers: BTreeMap<(Tick, u64), Waker>,
}

impl ManualClock {
    /// A clock that starts at zero.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock and wakes whom that concerns.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let now = Tick::from_nanos(self.0.now.fetch_add(by, Ordering::SeqCst).saturating_add(by));
        let late = {
            let mut sleepers = self.0.sleepers.lock();
            let later = sleepers.wakers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut sleepers.wakers, later)
        };
        late.into_values().for_each(Waker::wake);
    }

    /// When the next sleeper wants to wake; `None` where nobody sleeps.
    #[must_use]
    pub fn next_wake(&self) -> Option<Tick> {
        self.0.sleepers.lock().wakers.keys().next().map(|(t, _)| *t)
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({:?})", self.now())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.now.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        let mut bed = Bed { clock: self.clone(), until: t, place: None };
        Box::pin(poll_fn(move |cx| bed.poll(cx.waker())))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + WALL_AT_START + self.now().since(Tick::default())
    }
}

/// One sleeper's place; dropped, it leaves none behind.
struct Bed {
    clock: ManualClock,
    until: Tick,
    place: Option<u64>,
}

impl Bed {
    fn poll(&mut self, waker: &Waker) -> Poll<()> {
        let mut sleepers = self.clock.0.sleepers.lock();
        // Under the lock: whoever moves the clock afterwards finds the waker.
        if self.clock.now() >= self.until {
            return Poll::Ready(());
        }
        let place = *self.place.get_or_insert_with(|| {
            sleepers.next += 1;
            sleepers.next
        });
        sleepers.wakers.insert((self.until, place), waker.clone());
        Poll::Pending
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            self.clock.0.sleepers.lock().wakers.remove(&(self.until, place));
        }
    }
}

/// The machine's clock plus what a test added. For stores with threads of their own, which a clock that stands still
/// would keep waiting. Clones are one clock.
#[derive(Clone, Default)]
pub struct SkewedClock(Arc<Skew>);

#[derive(Default)]
struct Skew {
    ahead: AtomicU64,
    moved: tokio::sync::Notify,
}

impl SkewedClock {
    /// A clock that shows what the machine's does.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock ahead and wakes whom that concerns.
    pub fn advance(&self, by: Duration) {
        self.0.ahead.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        self.0.moved.notify_waiters();
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.ahead.load(Ordering::SeqCst))
    }
}

impl fmt::Debug for SkewedClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SkewedClock(+{:?})", self.ahead())
    }
}

impl Clock for SkewedClock {
    fn now(&self) -> Tick {
        BootClock.now() + self.ahead()
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        let clock = self.clone();
        Box::pin(async move {
            loop {
                let moved = clock.0.moved.notified();
                let left = t.since(clock.now());
                if left.is_zero() {
                    return;
                }
                tokio::select! {
                    () = moved => {}
                    () = tokio::time::sleep(left) => {}
                }
            }
        })
    }

    fn wall(&self) -> SystemTime {
        BootClock.wall() + self.ahead()
    }
}
