//! What the engine costs on the memory store, one kind of operation at a time.
//!
//! `cost` prints times of all kinds. `cost KIND N` does `N` operations of a kind and nothing else, on a clock that only
//! counts, for counting instructions and allocations: `bench/instructions.sh` runs it twice and takes the difference.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the machine's clock")]
#![expect(clippy::print_stdout, reason = "it is a command")]

use std::{
    hint::black_box,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use semel_core::{
    engine::{Answer, Begin, Call, Engine, Kept, Ran, Verdict},
    env::{BootClock, BoxFuture, Clock, Env, Tick},
    fingerprint::{Fingerprint, Version},
    identity::{Identity, Kind, Namespace, Secret},
    policy::Policy,
    record::{Format, Outcome},
    store::{Capacity, MemoryStore},
};

/// One kind of operation.
#[derive(Clone, Copy)]
enum Cost {
    /// Claim, owned work, completion.
    Run,
    /// Claim and completion by the caller.
    Begin,
    /// The recorded outcome.
    Replay,
}

const KINDS: [(&str, Cost); 3] = [("run", Cost::Run), ("begin", Cost::Begin), ("replay", Cost::Replay)];

/// Ten microseconds pass with each look. Costs nothing that counts, and no valgrind keeps it from working.
#[derive(Default)]
struct CountingClock(AtomicU64);

impl Clock for CountingClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.0.fetch_add(10_000, Ordering::Relaxed))
    }

    fn sleep_until(&self, t: Tick) -> BoxFuture {
        Box::pin(tokio::time::sleep(t.since(self.now())))
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(1_780_000_000)
    }
}

fn counting() -> Env {
    Env { clock: Arc::new(CountingClock::default()), ..Env::system() }
}

struct Bench {
    engine: Engine,
    namespace: Namespace,
    policy: Arc<Policy>,
    outcome: Outcome,
}

impl Bench {
    fn on(env: Env) -> Self {
        let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
        let secret = Secret::random(&*env.rng);
        let head = b"200 content-type: application/json".as_slice();
        Self {
            engine: Engine::builder(store, secret).env(env).build(),
            namespace: Namespace::http("orders").expect("it is a name"),
            policy: Policy::key().build().expect("the defaults are a policy"),
            outcome: Outcome::new(Format::HTTP, head, br#"{"id":4711,"state":"charged"}"#.as_slice()),
        }
    }

    fn call(&self, n: u64) -> Call {
        // Spread as digests are.
        let mut digest = [0; 32];
        for (i, part) in digest.chunks_mut(8).enumerate() {
            part.copy_from_slice(&(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ ((i as u64) << 7)).to_be_bytes());
        }
        let identity = Identity::stored(digest, self.namespace, Kind::Key);
        let asked = Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [1; 32]);
        Call::new(identity, asked, Arc::clone(&self.policy)).shown("8e03…(36)")
    }

    async fn once(&self, n: u64) {
        let outcome = self.outcome.clone();
        let work = async move |_run| Ran { value: (), verdict: Verdict::Keep(outcome) };
        let answer = self.engine.run(self.call(n), work).await;
        assert!(matches!(black_box(answer), Answer::Executed { kept: Kept::Stored, .. }));
    }

    async fn operate(&self, cost: Cost, n: u64) {
        match cost {
            Cost::Run => self.once(n).await,
            Cost::Begin => {
                let Begin::Granted(grant) = self.engine.begin(self.call(n)).await else { panic!("not granted") };
                let kept = grant.settle(Verdict::Keep(self.outcome.clone())).await;
                assert_eq!(black_box(kept), Kept::Stored);
            }
            Cost::Replay => {
                let answer =
                    self.engine.run(self.call(0), async |_run| -> Ran<()> { unreachable!("it is done") }).await;
                assert!(matches!(black_box(answer), Answer::Replayed { .. }));
            }
        }
    }

    async fn many(&self, cost: Cost, n: u64) -> Duration {
        if matches!(cost, Cost::Replay) {
            self.once(0).await;
        }
        let start = Instant::now();
        for i in 0..n {
            self.operate(cost, i).await;
        }
        start.elapsed()
    }
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime starts");
    let mut words = std::env::args().skip(1);
    if let Some(kind) = words.next() {
        let (_, cost) = KINDS.into_iter().find(|(name, _)| *name == kind).expect("a kind: run, begin or replay");
        let n = words.next().and_then(|n| n.parse().ok()).expect("how many");
        runtime.block_on(Bench::on(counting()).many(cost, n));
        return;
    }
    for (name, cost) in KINDS {
        let n: u32 = 100_000;
        // The best of five: what the machine does beside is no part of it.
        let best = (0..5)
            .map(|_| runtime.block_on(Bench::on(Env::system()).many(cost, u64::from(n))))
            .min()
            .unwrap_or_default();
        println!("{name:8} {:6.0} ns", best.as_secs_f64() * 1e9 / f64::from(n));
    }
    let start = Instant::now();
    for _ in 0..100_000 {
        black_box(BootClock.now());
    }
    println!("a look at the clock {:6.0} ns", start.elapsed().as_secs_f64() * 1e4);
}
