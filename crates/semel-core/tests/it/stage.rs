//! What a test works with: an engine under paused time, on a memory store that fails on demand, and what it told.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use semel_core::{
    StoreTime,
    engine::{Answer, Call, Engine, EngineBuilder, Ran, Run, Verdict},
    env::{BoxFuture, Clock, Env, Tick},
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    judge::Recorded,
    observe::{Event, What},
    policy::{Policy, PolicyBuilder},
    record::{Body, Format, Meta, Outcome, Payload, Record, Rest, StateCode},
    refusal::Refusal,
    store::{Capacity, MemoryStore, Store},
    testing,
};
use semel_testkit::faults::Faults;
use tokio::task::JoinHandle;

use crate::shared::Shared;

pub(crate) const fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub(crate) const fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

pub(crate) async fn after(d: Duration) {
    tokio::time::sleep(d).await;
}

#[expect(clippy::disallowed_methods, reason = "a test's callers are tasks of its own")]
pub(crate) fn go<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    tokio::spawn(future)
}

/// The engine's clock, whose readings are counted; the store's runs with it unless a test moves that.
pub(crate) struct TestClock {
    clock: testing::PausedClock,
    looks: AtomicUsize,
    ahead: AtomicU64,
}

impl TestClock {
    /// Moves this clock, and nobody's timers.
    pub(crate) fn step(&self, by: Duration) {
        self.ahead.fetch_add(u64::try_from(by.as_nanos()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Tick {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.clock.now() + Duration::from_nanos(self.ahead.load(Ordering::SeqCst))
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        self.looks.fetch_add(1, Ordering::SeqCst);
        self.clock.sleep_until(t)
    }

    fn wall(&self) -> SystemTime {
        self.clock.wall()
    }
}

pub(crate) struct Stage {
    pub(crate) engine: Engine,
    pub(crate) store: Faults<Shared>,
    pub(crate) clock: Arc<TestClock>,
    pub(crate) store_clock: Arc<TestClock>,
    env: Env,
    told: Arc<Mutex<Vec<String>>>,
    effects: Arc<AtomicUsize>,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(Capacity::default(), |builder| builder)
    }

    /// On a store that other processes work on too.
    pub(crate) fn far() -> Self {
        Self::far_with(|builder| builder)
    }

    pub(crate) fn far_with(more: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        Self::on(Capacity::default(), Shared::far, more)
    }

    pub(crate) fn with(capacity: Capacity, more: impl FnOnce(EngineBuilder) -> EngineBuilder) -> Self {
        Self::on(capacity, Shared::new, more)
    }

    fn on(
        capacity: Capacity,
        shared: impl FnOnce(MemoryStore) -> Shared,
        more: impl FnOnce(EngineBuilder) -> EngineBuilder,
    ) -> Self {
        let paused = testing::PausedClock::start();
        let clock = || Arc::new(TestClock { clock: paused, looks: AtomicUsize::new(0), ahead: AtomicU64::new(0) });
        let (clock, store_clock) = (clock(), clock());
        let env = Env { clock: clock.clone(), ..testing::env() };
        let memory = MemoryStore::new(&Env { clock: store_clock.clone(), ..env.clone() }, capacity);
        let store = Faults::new(shared(memory));
        let (engine, told) = engine_on(&store, &env, more);
        Self { engine, store, clock, store_clock, env, told, effects: Arc::default() }
    }

    /// Another process on the same store: its own engine, its own faults.
    pub(crate) fn neighbour(&self) -> Self {
        let store = Faults::new(self.store.inner().clone());
        let (engine, told) = engine_on(&store, &self.env, |builder| builder);
        let (clock, store_clock) = (Arc::clone(&self.clock), Arc::clone(&self.store_clock));
        Self { engine, store, clock, store_clock, env: self.env.clone(), told, effects: Arc::clone(&self.effects) }
    }

    /// The usual call about the `n`-th key.
    pub(crate) fn call(&self, n: u64) -> Call {
        self.call_with(n, Policy::key())
    }

    pub(crate) fn call_with(&self, n: u64, policy: PolicyBuilder) -> Call {
        Call::new(self.id(n), asked(1), policy.build().unwrap()).shown("4711")
    }

    pub(crate) fn id(&self, n: u64) -> Identity {
        id_on(&self.engine, n)
    }

    /// Runs work that takes `time`, takes effect at its end and answers `says`.
    pub(crate) fn run(&self, call: Call, time: Duration, says: &'static str) -> JoinHandle<Answer<&'static str>> {
        let (engine, effects) = (self.engine.clone(), Arc::clone(&self.effects));
        go(async move {
            let work = async move |_run: Run| {
                after(time).await;
                effects.fetch_add(1, Ordering::SeqCst);
                said(says)
            };
            engine.run(call, work).await
        })
    }

    /// The same to its end.
    pub(crate) async fn ran(&self, call: Call, time: Duration, says: &'static str) -> Answer<&'static str> {
        self.run(call, time, says).await.unwrap()
    }

    /// Starts work that gives `verdict` after `time`.
    pub(crate) fn run_to(&self, call: Call, time: Duration, verdict: Verdict) -> JoinHandle<Answer<()>> {
        let engine = self.engine.clone();
        go(async move {
            let work = async move |_run: Run| {
                after(time).await;
                Ran { value: (), verdict }
            };
            engine.run(call, work).await
        })
    }

    /// How often the engine has looked at its clock, or set a timer.
    pub(crate) fn looks(&self) -> usize {
        self.clock.looks.load(Ordering::SeqCst)
    }

    pub(crate) fn effects(&self) -> usize {
        self.effects.load(Ordering::SeqCst)
    }

    /// The `n`-th key's record behind all faults.
    pub(crate) async fn record(&self, n: u64) -> Option<Record> {
        self.store.inner().get(&self.id(n)).await.unwrap().record
    }

    /// What the `n`-th key's record says now, with the attempts counted.
    pub(crate) async fn state(&self, n: u64) -> Option<(StateCode, u32)> {
        let now = self.store_now().await;
        self.record(n).await.map(|r| (r.reads_as(now), r.attempt))
    }

    /// What a record of these tests carries.
    pub(crate) fn record_meta(&self) -> bytes::Bytes {
        let (namespace, rule, key) = ("http:orders", "default", "4711");
        let kind = Kind::Key;
        let meta =
            Meta { kind, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None };
        Rest::write(&meta.encode(), &Payload::Nothing)
    }

    pub(crate) async fn store_now(&self) -> StoreTime {
        self.store.inner().health().await.unwrap().now
    }

    /// The `n`-th key's record goes, as by a flush.
    pub(crate) fn forget(&self, n: u64) {
        self.store.inner().memory().plant(&self.id(n), None);
    }

    /// What the engine told since the last time it was asked.
    pub(crate) fn told(&self) -> Vec<String> {
        std::mem::take(&mut *self.told.lock())
    }

    /// Nothing runs, nobody waits, nothing is left open.
    pub(crate) async fn is_quiet(&self) {
        let drained = self.engine.drain(secs(3_600)).await;
        assert_eq!(drained.abandoned, 0, "{drained:?}");
        let load = self.engine.load();
        assert_eq!((load.running, load.waiting), (0, 0), "{load:?}");
    }
}

fn engine_on(
    store: &Faults<Shared>,
    env: &Env,
    more: impl FnOnce(EngineBuilder) -> EngineBuilder,
) -> (Engine, Arc<Mutex<Vec<String>>>) {
    let told = Arc::<Mutex<Vec<String>>>::default();
    let observer = {
        let told = Arc::clone(&told);
        move |event: &Event<'_>| told.lock().push(words(event))
    };
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    let builder = Engine::builder(Arc::new(store.clone()), secret).env(env.clone()).observe(Arc::new(observer));
    (more(builder).build(), told)
}

fn words(event: &Event<'_>) -> String {
    match event.what {
        What::Granted => format!("granted {}", event.attempt),
        What::Replayed { waited } => format!("replayed{}", if waited { " waited" } else { "" }),
        What::Refused(refusal) => format!("refused {}", refusal.name()),
        What::Settled { verdict, kept } => {
            let kept = format!("{kept:?}");
            format!("settled {} {}", verdict.name(), kept.split(' ').next().unwrap_or_default())
        }
        What::StoreFailed { call, .. } => format!("failed {}", call.name()),
        What::StoreForgot(_) => "store forgot".into(),
        What::Unguarded(why) => format!("unguarded {}", why.name()),
        What::Panicked(words) => format!("panicked {words}"),
        other => format!("{other:?}").to_lowercase(),
    }
}

pub(crate) fn id_on(engine: &Engine, n: u64) -> Identity {
    let key = Key::new(&n, Display::Full);
    Identity::new(engine.secret(), Kind::Key, Namespace::http("orders").unwrap(), &Scope::shared(), &key)
}

/// The usual call of an engine without a stage.
pub(crate) fn call_on(engine: &Engine, n: u64) -> Call {
    Call::new(id_on(engine, n), asked(1), Policy::key().build().unwrap())
}

/// The fingerprint of the `n`-th question.
pub(crate) fn asked(n: u8) -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [n; 32])
}

pub(crate) fn outcome(says: &'static str) -> Outcome {
    Outcome::new(Format::HTTP, &b"200"[..], says.as_bytes())
}

pub(crate) fn said(says: &'static str) -> Ran<&'static str> {
    Ran { value: says, verdict: Verdict::Keep(outcome(says)) }
}

/// What a recorded outcome says.
pub(crate) fn text(recorded: &Recorded) -> &str {
    match &recorded.outcome.body {
        Body::Whole(body) => std::str::from_utf8(body).unwrap(),
        Body::Withheld(why) => panic!("{why:?}"),
    }
}

/// What was answered, whoever ran.
pub(crate) fn answer<T: AsRef<str>>(answer: &Answer<T>) -> &str {
    match answer {
        Answer::Executed { value, .. } | Answer::Unguarded { value, .. } => value.as_ref(),
        Answer::Replayed { recorded, .. } => text(recorded),
        Answer::Refused(refusal) => refusal.name(),
        Answer::Broken(broken) => panic!("{broken:?}"),
        _ => unreachable!(),
    }
}

pub(crate) fn refusal<T: std::fmt::Debug>(answer: Answer<T>) -> Refusal {
    match answer {
        Answer::Refused(refusal) => refusal,
        other => panic!("not refused: {other:?}"),
    }
}

/// For answers that say nothing about the case.
pub(crate) trait Ignore: Sized {
    fn ignore(self) {}
}

impl<T> Ignore for Answer<T> {}
