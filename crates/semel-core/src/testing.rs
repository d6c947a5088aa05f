//! For tests of applications: time that a test moves, an engine on it, and [`assert_once`].
//!
//! [`env()`] follows tokio's paused clock, so a test of hours ends in milliseconds and its order of events is always the
//! same:
//!
//! ```
//! # use semel_core::{engine::{Answer, Call, Ran, Verdict}, fingerprint::Fingerprint, identity::*, policy::Policy};
//! # use semel_core::{record::{Format, Outcome}, testing};
//! # tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap().block_on(async {
//! let engine = testing::engine();
//! let key = Key::new(&("order", 4711), Display::Full);
//! let id = Identity::new(engine.secret(), Kind::Key, Namespace::once("shop.charge")?, &Scope::shared(), &key);
//! let call = Call::new(id, Fingerprint::NONE, Policy::key().build()?);
//!
//! let receipt = testing::assert_once(100, move |effect| {
//!     let (engine, call) = (engine.clone(), call.clone());
//!     async move {
//!         let charge = async move |_run| {
//!             tokio::time::sleep(std::time::Duration::from_secs(3)).await;
//!             effect.happened();
//!             let outcome = Outcome::new(Format::JSON, &b""[..], &b"charged"[..]);
//!             Ran { value: outcome.clone(), verdict: Verdict::Keep(outcome) }
//!         };
//!         match engine.run(call, charge).await {
//!             Answer::Executed { value, .. } => value,
//!             Answer::Replayed { recorded, .. } => recorded.outcome,
//!             other => panic!("{other:?}"),
//!         }
//!     }
//! })
//! .await;
//! assert_eq!(receipt.len(), "charged".len());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

use std::{
    fmt::{self, Debug},
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use tokio::{task::JoinSet, time::Instant};

use crate::{
    engine::Engine,
    env::{BoxFuture, Clock, Env, Rng, Tick, TokioTasks},
    identity::Secret,
    store::{Capacity, MemoryStore},
};

/// What the wall clock shows when a [`PausedClock`] is made: some day in 2026.
const WALL_AT_START: Duration = Duration::from_secs(1_780_000_000);

/// What the boot-time clock shows then. Not zero, so that a mistaken subtraction shows.
const UP_AT_START: Duration = Duration::from_secs(3_600);

/// An [`Env`] on tokio's clock: paused where the runtime's is, moved with `tokio::time::advance`. Its random source
/// always gives the same numbers. To be made, and used, inside one runtime.
#[must_use]
pub fn env() -> Env {
    Env { clock: Arc::new(PausedClock::start()), rng: Arc::new(Seeded::new(1)), tasks: Arc::new(TokioTasks) }
}

/// An engine on a memory store and on [`env()`].
#[must_use]
pub fn engine() -> Engine {
    let env = env();
    let secret = Secret::random(&*env.rng);
    Engine::builder(Arc::new(MemoryStore::new(&env, Capacity::default())), secret).env(env).build()
}

/// Follows tokio's clock.
#[derive(Clone, Copy, Debug)]
pub struct PausedClock {
    start: Instant,
}

impl PausedClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Tick {
        Tick::default() + UP_AT_START + self.start.elapsed()
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        let until = self.start + t.since(Tick::default() + UP_AT_START);
        Box::pin(tokio::time::sleep_until(until))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + WALL_AT_START + self.start.elapsed()
    }
}

/// A random source that gives the same numbers for the same seed. For tests only: anybody can guess them.
pub struct Seeded(AtomicU64);

impl Seeded {
    /// The numbers of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }
}

impl Rng for Seeded {
    /// `SplitMix64` (Steele, Lea and Flood 2014): each step is one addition, so threads share it without a lock.
    fn fill(&self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            let step = 0x9e37_79b9_7f4a_7c15_u64;
            let mut z = self.0.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            chunk.copy_from_slice(&(z ^ (z >> 31)).to_be_bytes()[..chunk.len()]);
        }
    }
}

impl Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeded")
    }
}

/// What a copy tells when it takes effect. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct Effect(Arc<AtomicUsize>);

impl Effect {
    /// The effect takes place now.
    pub fn happened(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How often it took place.
    #[must_use]
    pub fn times(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Runs `n` copies of one intent at once and gives the answer that all of them got.
///
/// # Panics
/// When the effect did not take place exactly once, when two copies got different answers, or when one panicked.
pub async fn assert_once<T, F>(n: usize, mut copy: impl FnMut(Effect) -> F) -> T
where
    F: Future<Output = T> + Send + 'static,
    T: PartialEq + Debug + Send + 'static,
{
    assert!(n > 0, "no copy was to be run");
    let effect = Effect::default();
    let mut copies = JoinSet::new();
    for _ in 0..n {
        copies.spawn(copy(effect.clone()));
    }
    let answers = copies.join_all().await;
    assert_eq!(effect.times(), 1, "{n} copies took effect {} times", effect.times());
    let mut answers = answers.into_iter();
    let first = answers.next().expect("there is a copy");
    for other in answers {
        assert_eq!(first, other, "two copies of one intent got different answers");
    }
    first
}
