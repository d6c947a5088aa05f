//! The engine: claim → execute under a renewed lease → settle, for every entrance.
//!
//! - `claiming`: from a question to a grant, an answer, or an attempt that was met.
//! - `waiting`: copies in flight get the answer of the attempt they met.
//! - `running`: owned and inline work; panics, `max_hold`.
//! - `leaving`: callers that leave; what they have begun goes on in a task.
//! - `lease`, `keeper`: one keeper per process renews what is held.
//! - `settling`: recording outlasts a store outage and belongs to no request.
//! - `joining`, `tier`: copies of one process join what it has under way or remembers, before any claim is sent.
//! - `open`: runs without a grant while the store does not answer, for rules that say so.
//! - `breaker`, `store_health`: a store that does not answer is not asked by everybody; one that lost its records is told.
//! - `hourglass`: one timer for all who wait for the store.
//! - `bounds`: how much may run and wait; what a drain waits for.

mod bounds;
mod breaker;
mod call;
mod claiming;
mod grant;
mod hourglass;
mod joining;
mod keeper;
mod lease;
mod leaving;
mod open;
mod running;
mod settling;
mod store_health;
mod sweeping;
mod tier;
mod waiting;

pub use call::{Answer, Begin, Broken, Call, Kept, OnCancel, Ran, Run, Verdict};
pub use grant::Grant;
pub use open::OpenReason;
pub use tier::{Local, TierConfig};

use std::{
    fmt,
    future::Future,
    ops::Deref,
    sync::{Arc, Weak},
    time::Duration,
};

use self::{
    bounds::Bounds,
    breaker::Breaker,
    claiming::StoreClock,
    hourglass::{Bound, Hourglass},
    keeper::Keeper,
    store_health::StoreHealth,
    tier::Tier,
    waiting::Flights,
};
use crate::{
    env::{Env, Tick},
    identity::{Identity, Secret},
    ids::Owner,
    observe::{Event, Observer, StoreCall, What},
    record::Record,
    store::{Capacity, Changes, MemoryStore, Pending, Reply, Store, StoreError, StoreFacts},
};

/// The engine. Cheap to clone and not generic: neither a layer nor a macro carries the store's type.
///
/// ```
/// use semel_core::{engine::{Answer, Call, Engine, Ran, Verdict}, fingerprint::Fingerprint, identity::*, policy::Policy};
/// use semel_core::record::{Format, Outcome};
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let engine = Engine::memory();
/// let key = Key::new(&("order", 4711), Display::Full);
/// let id = Identity::new(engine.secret(), Kind::Key, Namespace::once("shop.charge")?, &Scope::shared(), &key);
/// let call = Call::new(id, Fingerprint::NONE, Policy::key().build()?).shown(key.shown());
/// let charge = async |_run| {
///     let receipt = "charged once".to_string();
///     let outcome = Outcome::new(Format::JSON, b"".as_slice(), receipt.clone());
///     Ran { value: receipt, verdict: Verdict::Keep(outcome) }
/// };
/// assert!(matches!(engine.run(call.clone(), charge).await, Answer::Executed { .. }));
/// assert!(matches!(engine.run(call, charge).await, Answer::Replayed { .. }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Inner>);

/// A handle of what all handles share, with a count of references of its own; see [`Engine::apart`].
pub(crate) struct Inner(Arc<Shared>);

impl Deref for Inner {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

pub(crate) struct Shared {
    store: Arc<dyn Store>,
    facts: StoreFacts,
    env: Env,
    secret: Secret,
    observers: Vec<Arc<dyn Observer>>,
    limits: Limits,
    times: Times,
    store_clock: StoreClock,
    store_health: Arc<StoreHealth>,
    breaker: Breaker,
    tier: Arc<Tier>,
    keeper: Arc<Keeper>,
    hourglass: Arc<Hourglass>,
    flights: Arc<Flights>,
    bounds: Bounds,
}

/// How much may run and wait in this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Waiters for one identity (1,000).
    pub waiters_per_key: usize,
    /// Waiters of one verified scope (1,000).
    pub waiters_per_scope: usize,
    /// Waiters in all (10,000).
    pub waiters: usize,
    /// Work of one verified scope that runs at once (1,000). The limit per rule is the policy's `max_running`.
    pub running_per_scope: usize,
    /// Work in all that runs at once (10,000).
    pub running: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiters_per_key: 1_000,
            waiters_per_scope: 1_000,
            waiters: 10_000,
            running_per_scope: 1_000,
            running: 10_000,
        }
    }
}

/// How long the engine bears with its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// One call of the store (250 ms); a claim is repeated once by the same owner.
    pub store_timeout: Duration,
    /// How long an answer waits for its recording before it is given out as `unrecorded` (2 s).
    pub commit_wait: Duration,
    /// How long recording is tried (60 s); then the record reads as unknown.
    pub settle_for: Duration,
    /// How often a shared store is asked for its health (5 s).
    pub watch: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            store_timeout: Duration::from_millis(250),
            commit_wait: Duration::from_secs(2),
            settle_for: Duration::from_secs(60),
            watch: Duration::from_secs(5),
        }
    }
}

impl Engine {
    /// An engine on a memory store with a random secret: for one process that may forget at its end.
    #[must_use]
    pub fn memory() -> Self {
        let env = Env::system();
        let secret = Secret::random(&*env.rng);
        Self::builder(Arc::new(MemoryStore::new(&env, Capacity::default())), secret).env(env).build()
    }

    /// An engine on a store, with the deployment's secret.
    pub fn builder(store: Arc<dyn Store>, secret: Secret) -> EngineBuilder {
        EngineBuilder {
            store,
            secret,
            env: Env::system(),
            observers: Vec::new(),
            limits: Limits::default(),
            times: Times::default(),
            tier: TierConfig::default(),
        }
    }

    /// The same engine, with a count of references of its own. Each call counts up and down some of them, and threads that
    /// share a count take it from each other: a server with a runtime for each processor gives each its own handle.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self(Arc::new(Inner(Arc::clone(&self.0.0))))
    }

    /// The deployment's secret, for identities and fingerprints.
    #[must_use]
    pub fn secret(&self) -> &Secret {
        &self.0.secret
    }

    /// The seam to the outside that the engine uses.
    #[must_use]
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// What the store can promise.
    #[must_use]
    pub fn facts(&self) -> StoreFacts {
        self.0.facts
    }

    /// Claims, and hands out the grant. The two-step form: what streaming answers and consumers need.
    ///
    /// Cancel safe: a claim whose grant nobody takes is released. Waits for an attempt under way where the policy says so.
    pub async fn begin(&self, call: Call) -> Begin {
        running::begin(&self.0, call).await
    }

    /// Owned work: claims, waits if the policy says so, runs `work`, settles.
    ///
    /// Nobody stops what it has begun. The caller polls claim, work and settlement where it is, without a task; dropped
    /// before its end, the future moves them into a task of the engine ([`Tasks`](crate::env::Tasks)), in the span they
    /// were begun in. Dropped before its first poll it has begun nothing; dropped while it waits for another's attempt it
    /// stops waiting. `work` is dropped as soon as the claim is not ours, before any waiting.
    ///
    /// What was begun goes on while the future is polled, and after it is dropped, but not in between: a caller that keeps
    /// it without polling it holds up its work, its place among the running, and a drain. `max_hold` bounds that for
    /// everybody else: the record reads as unknown then. Servers poll a request or drop it. Work that hands something out
    /// before its end, a stream say, needs its future spawned by then, since whoever takes that does not poll for more.
    ///
    /// Dropped where there is no runtime, or while it shuts down, the work is dropped too; observers are told, and its
    /// record reads as unknown. [`drain`](Self::drain) is for that.
    ///
    /// Cost: one box for claim, work and settlement, one for the settlement's own future, and no task unless the caller
    /// leaves. Two round trips to the store for a fresh call, one for a duplicate.
    pub fn run<T, W, F>(&self, call: Call, work: W) -> impl Future<Output = Answer<T>> + Send
    where
        W: FnOnce(Run) -> F + Send + 'static,
        F: Future<Output = Ran<T>> + Send + 'static,
        T: Send + 'static,
    {
        running::owned(&self.0, call, work)
    }

    /// Inline work: borrows allowed. Dropped before its first poll it is released; later its outcome is unknown, or
    /// released where `on_cancel` says that nothing takes effect without its end.
    pub async fn run_inline<T, F>(&self, call: Call, on_cancel: OnCancel, work: impl FnOnce(Run) -> F) -> Answer<T>
    where
        F: Future<Output = Ran<T>>,
    {
        running::inline(&self.0, call, on_cancel, work).await
    }

    /// What the store shows of an identity.
    ///
    /// # Errors
    /// The store's.
    pub async fn status(&self, id: &Identity) -> Result<Option<Record>, StoreError> {
        let inner = &self.0;
        let pass = inner.admit()?;
        let seen = inner.within(StoreCall::Get, id, inner.store.get(id)).await;
        inner.ended(pass, &seen);
        Ok(seen?.record)
    }

    /// Tells the observers of something that an entrance in front of the engine decided by itself.
    pub fn tell(&self, event: &Event<'_>) {
        self.0.emit(event);
    }

    /// How many callers wait and how much work runs now, in this process.
    #[must_use]
    pub fn load(&self) -> Load {
        Load { running: self.0.bounds.running(), waiting: self.0.flights.waiting() }
    }

    /// What this process makes of its store now.
    #[must_use]
    pub fn store_state(&self) -> StoreState {
        let inner = &self.0;
        let (lost, lost_at) = inner.store_health.losses();
        StoreState {
            breaker_open: inner.breaker.is_open(),
            full: inner.store_health.is_full(inner.now()),
            lost,
            since_lost: (lost > 0).then(|| inner.now().since(lost_at)),
            local: inner.tier.counts(),
        }
    }

    /// Waits for owned work and open settlements, at most until `deadline`. Call it after the server has stopped and
    /// before `main` returns: tasks die with the runtime.
    pub async fn drain(&self, deadline: Duration) -> Drained {
        let clock = &self.0.env.clock;
        let before = self.0.bounds.active();
        let until = clock.now() + deadline;
        tokio::select! {
            biased;
            () = self.0.bounds.idle() => {}
            () = clock.sleep_until(until) => {}
        }
        let abandoned = self.0.bounds.active();
        Drained { finished: before.saturating_sub(abandoned), abandoned }
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({}, {:?})", self.0.facts.name, self.load())
    }
}

/// What goes on in an engine at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Load {
    /// Work under a claim.
    pub running: usize,
    /// Callers who wait for another's attempt.
    pub waiting: usize,
}

/// What a process makes of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StoreState {
    /// Whether the breaker is open: the store did not answer, and is asked by one call a second only.
    pub breaker_open: bool,
    /// Whether it refuses claims because it has no room: since one was refused so, until one is granted, and no longer than
    /// 15 s after the last. Of every store, whatever its [`Health`](crate::store::Health) says.
    pub full: bool,
    /// How often the store was found to have lost its records.
    pub lost: u64,
    /// How long ago that was noticed last.
    pub since_lost: Option<Duration>,
    /// What was answered here, without the store.
    pub local: Local,
}

/// How a drain ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drained {
    /// How much of what was open came to its end.
    pub finished: usize,
    /// How much is still open; its records will read as unknown.
    pub abandoned: usize,
}

/// Builds an [`Engine`].
#[must_use = "a builder does nothing until `build`"]
pub struct EngineBuilder {
    store: Arc<dyn Store>,
    secret: Secret,
    env: Env,
    observers: Vec<Arc<dyn Observer>>,
    limits: Limits,
    times: Times,
    tier: TierConfig,
}

impl EngineBuilder {
    /// Another clock, random source or runtime.
    pub fn env(mut self, env: Env) -> Self {
        self.env = env;
        self
    }

    /// Tells `observer` of every event, after those that were named before.
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.push(observer);
        self
    }

    /// Other bounds.
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Other patience with the store.
    pub const fn times(mut self, times: Times) -> Self {
        self.times = times;
        self
    }

    /// How much of a shared store's outcomes this process remembers.
    pub const fn tier(mut self, tier: TierConfig) -> Self {
        self.tier = tier;
        self
    }

    /// The engine. Starts nothing: its tasks begin with the first claim. A shared store hears whom to tell of changes.
    #[must_use]
    pub fn build(self) -> Engine {
        let facts = self.store.facts();
        let tier = Arc::new(Tier::new(facts.shared, self.tier));
        if tier.remembers() {
            let changes: Arc<dyn Changes> = Arc::clone(&tier) as _;
            self.store.tell_changes(Arc::downgrade(&changes));
        }
        let shared = Shared {
            facts,
            tier,
            breaker: Breaker::new(facts.shared),
            store_health: Arc::default(),
            store: self.store,
            keeper: Arc::new(Keeper::default()),
            hourglass: Hourglass::new(self.env.clone(), self.times.store_timeout),
            flights: Arc::new(Flights::default()),
            bounds: Bounds::default(),
            store_clock: StoreClock::default(),
            env: self.env,
            secret: self.secret,
            observers: self.observers,
            limits: self.limits,
            times: self.times,
        };
        Engine(Arc::new(Inner(Arc::new(shared))))
    }
}

impl fmt::Debug for EngineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EngineBuilder")
    }
}

impl Inner {
    /// For a task that ends with the engine, whichever of its handles was the last.
    fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }

    fn upgrade(shared: &Weak<Shared>) -> Option<Arc<Self>> {
        shared.upgrade().map(|shared| Arc::new(Self(shared)))
    }

    fn now(&self) -> Tick {
        self.env.clock.now()
    }

    fn emit(&self, event: &Event<'_>) {
        for observer in &self.observers {
            observer.on(event);
        }
    }

    /// An answer of the store within the store's time-out. One that is ready costs neither a timer nor an allocation.
    fn within<'a, T>(
        &'a self,
        call: StoreCall,
        id: &'a Identity,
        reply: Reply<'a, T>,
    ) -> impl Future<Output = Result<T, StoreError>> + use<'a, T> {
        self.within_time(self.times.store_timeout, call, id, reply)
    }

    // Not an async function: that would keep `reply` twice, and this future is part of every other.
    fn within_time<'a, T>(
        &'a self,
        time: Duration,
        call: StoreCall,
        id: &'a Identity,
        reply: Reply<'a, T>,
    ) -> impl Future<Output = Result<T, StoreError>> + use<'a, T> {
        let ready = reply.split();
        async move {
            let result = match ready {
                Ok(result) => result,
                Err(pending) => self.awaited(time, pending).await,
            };
            self.heard(call, id, &result);
            result
        }
    }

    /// An answer that takes its time, of which it gets no more than `time`.
    fn awaited<'a, T>(&self, time: Duration, pending: Pending<'a, Result<T, StoreError>>) -> Bound<'a, T> {
        self.hourglass.bound(pending, self.now() + time)
    }

    /// Tells of a call that failed.
    fn heard<T>(&self, call: StoreCall, id: &Identity, result: &Result<T, StoreError>) {
        if let Err(error) = result {
            self.emit(&Event::new(id, "", What::StoreFailed { call, error }));
        }
    }

    /// A fresh owner for a claim.
    fn owner(&self) -> Owner {
        let mut bytes = [0; 16];
        self.env.rng.fill(&mut bytes);
        Owner::from_bytes(bytes)
    }

    /// A duration between `d` and `d` + 25 %, so that many do not come at once.
    fn jittered(&self, d: Duration) -> Duration {
        let mut byte = [0; 1];
        self.env.rng.fill(&mut byte);
        jittered(d, byte[0])
    }
}

/// A duration between `d` and `d` + 25 %, as a random byte says.
fn jittered(d: Duration, byte: u8) -> Duration {
    // In whole numbers: to divide a `Duration` takes several times as long.
    let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
    d.saturating_add(Duration::from_nanos(nanos / (4 * 255) * u64::from(byte)))
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.keeper.close();
        self.hourglass.close();
        // Nothing else would tell that a drain was left out.
        let claims = self.bounds.cut();
        if claims > 0 {
            tracing::warn!(
                claims,
                "claims were running when the runtime ended: their outcomes are unknown. Call `engine.drain(..)` before \
                 the process ends"
            );
        }
    }
}
