//! The one seam to the outside: time, randomness, tasks.
//!
//! The engine runs under simulated time because nothing else in this crate names a clock, a random source or a runtime.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use crate::ids::StoreTime;

/// A boxed future that can be handed to [`Tasks`] or comes from [`Clock`].
pub type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// What [`Tasks::compute`] takes.
pub type Work = Box<dyn FnOnce() + Send>;

/// Time, randomness and tasks.
#[derive(Clone)]
pub struct Env {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Where owners come from.
    pub rng: Arc<dyn Rng>,
    /// Where detached work runs.
    pub tasks: Arc<dyn Tasks>,
}

impl Env {
    /// The real one: the machine's boot-time clock, the system's random source, the current tokio runtime.
    #[must_use]
    pub fn system() -> Self {
        Self { clock: Arc::new(BootClock), rng: Arc::new(SystemRng), tasks: Arc::new(TokioTasks) }
    }
}

impl fmt::Debug for Env {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Env")
    }
}

/// A point on the local boot-time clock, in nanoseconds. Unlike the standard library's `Instant` it counts the time
/// that the machine was suspended, and a test can make one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Tick(u64);

impl Tick {
    /// From nanoseconds since boot.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since boot.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl std::ops::Add<Duration> for Tick {
    type Output = Self;

    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Local time.
pub trait Clock: Send + Sync + 'static {
    /// The boot-time clock. Never runs back.
    fn now(&self) -> Tick;

    /// Resolves at `t` or later: timers stop while the machine is suspended, so whoever wakes looks at
    /// [`now`](Self::now) again.
    fn sleep_until(&self, t: Tick) -> BoxFuture;

    /// The wall clock, for people and for the birth of a local store's clock. Decides nothing.
    fn wall(&self) -> SystemTime;
}

/// Randomness that nobody can guess.
pub trait Rng: Send + Sync + 'static {
    /// Fills `out`.
    fn fill(&self, out: &mut [u8]);
}

/// Where detached work runs.
pub trait Tasks: Send + Sync + 'static {
    /// Starts `future`; `false` if there is nowhere to run it (outside a runtime, or while it shuts down).
    fn spawn(&self, name: &'static str, future: BoxFuture) -> bool;

    /// Starts `work`, which computes for long and waits for nothing, on a thread where it holds nobody else up. Gives it
    /// back where there is none (simulated time, outside a runtime): the caller does it then. Whoever calls bounds how
    /// much of it there is.
    ///
    /// # Errors
    /// `work` itself; nothing of it was done.
    fn compute(&self, work: Work) -> Result<(), Work> {
        Err(work)
    }
}

/// `CLOCK_BOOTTIME` and tokio's timer.
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Tick {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let secs = u64::try_from(t.tv_sec).unwrap_or(0);
        Tick(secs * 1_000_000_000 + u64::try_from(t.tv_nsec).unwrap_or(0))
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        Box::pin(tokio::time::sleep(t.since(self.now())))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam that everybody else calls")]
    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The operating system's random source, drawn in pages per thread: one system call for 32 owners.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemRng;

const RNG_PAGE: usize = 512;

impl Rng for SystemRng {
    fn fill(&self, out: &mut [u8]) {
        use std::cell::RefCell;
        thread_local! {
            static PAGE: RefCell<([u8; RNG_PAGE], usize)> = const { RefCell::new(([0; RNG_PAGE], RNG_PAGE)) };
        }
        PAGE.with_borrow_mut(|(page, used)| {
            if out.len() > RNG_PAGE {
                draw(out);
                return;
            }
            if *used + out.len() > RNG_PAGE {
                draw(page);
                *used = 0;
            }
            out.copy_from_slice(&page[*used..*used + out.len()]);
            // What was handed out is not kept.
            page[*used..*used + out.len()].fill(0);
            *used += out.len();
        });
    }
}

fn draw(out: &mut [u8]) {
    getrandom::fill(out).expect("the operating system has a random source");
}

/// Tasks of the tokio runtime that the caller is in.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokioTasks;

impl Tasks for TokioTasks {
    fn spawn(&self, _name: &'static str, future: BoxFuture) -> bool {
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => {
                drop(handle.spawn(future));
                true
            }
            Err(_) => false,
        }
    }

    fn compute(&self, work: Work) -> Result<(), Work> {
        match tokio::runtime::Handle::try_current() {
            Ok(handle) => {
                drop(handle.spawn_blocking(work));
                Ok(())
            }
            Err(_) => Err(work),
        }
    }
}

/// A store's clock for stores of this process: the wall clock at its birth plus boot time since, so that it never runs
/// back and no change of the wall clock touches a lease.
#[derive(Clone)]
pub struct LocalStoreClock {
    clock: Arc<dyn Clock>,
    born: Tick,
    base: StoreTime,
}

impl LocalStoreClock {
    /// A clock that starts at the wall clock, or at `floor` where that is later (a stored high-water mark).
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, floor: StoreTime) -> Self {
        let wall = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let wall = StoreTime::default() + wall;
        Self { born: clock.now(), base: wall.max(floor), clock }
    }

    /// Store time now.
    #[must_use]
    pub fn now(&self) -> StoreTime {
        self.base + self.clock.now().since(self.born)
    }
}

impl fmt::Debug for LocalStoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalStoreClock({:?})", self.base)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_computes_for_long_does_so_on_another_thread() {
        let (tell, told) = oneshot::channel();
        let work = move || _ = tell.send(std::thread::current().id());
        assert!(TokioTasks.compute(Box::new(work)).is_ok());
        assert_ne!(told.await.unwrap(), std::thread::current().id());
    }

    #[test]
    fn where_there_is_no_thread_for_it_the_work_comes_back_undone() {
        let (tell, mut told) = oneshot::channel();
        let work = TokioTasks.compute(Box::new(move || _ = tell.send(7))).unwrap_err();
        assert!(told.try_recv().is_err());
        work();
        assert_eq!(told.try_recv(), Ok(7));
    }
}
