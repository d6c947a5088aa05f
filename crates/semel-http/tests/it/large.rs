//! Fingerprints of large bodies hold nobody up.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use parking_lot::Mutex;
use semel_core::{
    engine::Engine,
    env::{BoxFuture, Env, Tasks, TokioTasks, Work},
    identity::Secret,
    store::{Capacity, MemoryStore},
};
use semel_http::{
    RuleBuilder,
    fingerprint::{FingerprintMode, Json},
};

use crate::support::*;

/// What becomes of long computations.
#[derive(Clone, Copy, PartialEq)]
enum Threads {
    /// They run, as always.
    There,
    /// There are no threads for them.
    None,
    /// They begin when the test says so.
    Held,
}

struct Watched {
    threads: Threads,
    asked: AtomicUsize,
    held: Mutex<Vec<Work>>,
}

impl Tasks for Watched {
    fn spawn(&self, name: &'static str, future: BoxFuture) -> bool {
        TokioTasks.spawn(name, future)
    }

    fn compute(&self, work: Work) -> Result<(), Work> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        match self.threads {
            Threads::There => TokioTasks.compute(work),
            Threads::None => Err(work),
            Threads::Held => {
                self.held.lock().push(work);
                Ok(())
            }
        }
    }
}

struct Bed {
    tasks: Arc<Watched>,
    engine: Engine,
    effects: Effects,
}

impl Bed {
    fn new(threads: Threads) -> Self {
        let tasks = Arc::new(Watched { threads, asked: AtomicUsize::new(0), held: Mutex::default() });
        let env = Env { tasks: Arc::clone(&tasks) as Arc<dyn Tasks>, ..Env::system() };
        let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
        let engine = Engine::builder(store, Secret::random(&*env.rng)).env(env).build();
        Self { tasks, engine, effects: Effects::default() }
    }

    fn service(&self, rule: RuleBuilder) -> impl Guarded + use<> {
        let effects = self.effects.clone();
        guard(&self.engine, rule, move |_| {
            effects.happen();
            async { answer(201, "done") }
        })
    }

    fn asked(&self) -> usize {
        self.tasks.asked.load(Ordering::SeqCst)
    }
}

fn json(key: &str, len: usize) -> http::Request<axum::body::Body> {
    let body = format!("[{}]", "1".repeat(len - 2));
    post(key, body).with("content-type", "application/json")
}

#[tokio::test]
async fn only_what_takes_long_goes_to_another_thread_and_means_the_same_there() {
    let canonical = || FingerprintMode::Json(Json::default());
    for (mode, small, large) in [
        (FingerprintMode::Bytes, 64 << 10, 256 << 10),
        (canonical(), 2 << 10, 64 << 10),
        (FingerprintMode::Form, 2 << 10, 64 << 10),
    ] {
        for threads in [Threads::There, Threads::None] {
            let bed = Bed::new(threads);
            let service = bed.service(rule().fingerprint(mode.clone()));
            assert_eq!(send(&service, json("small", small)).await.became(), "fresh");
            assert_eq!(bed.asked(), 0, "{mode:?}");
            assert_eq!(send(&service, json("large", large)).await.became(), "fresh");
            assert_eq!(bed.asked(), 1, "{mode:?}");
            assert_eq!(send(&service, json("large", large)).await.became(), "replayed");
            assert_eq!(send(&service, json("large", large + 1)).await.problem(), "key-reused");
            assert_eq!((bed.asked(), bed.effects.count()), (3, 2), "{mode:?}");
        }
    }
    let bed = Bed::new(Threads::There);
    for (key, mode) in [("route", FingerprintMode::Route), ("none", FingerprintMode::None)] {
        let service = bed.service(rule().fingerprint(mode));
        assert_eq!(send(&service, json(key, 1 << 20)).await.status, 201);
    }
    assert_eq!(bed.asked(), 0, "the body does not count");
}

/// Who leaves frees no turn that is in use, or a crowd of clients that leave would have one thread each.
#[tokio::test]
async fn no_more_run_at_a_time_than_there_are_processors_whoever_leaves() {
    let bed = Bed::new(Threads::Held);
    let service = bed.service(rule());
    let turns = std::thread::available_parallelism().unwrap().get();
    let ask = |n: usize| {
        let service = service.clone();
        #[expect(clippy::disallowed_methods, reason = "clients of the test, not work of the library")]
        tokio::spawn(async move { send(&service, json(&format!("k{n}"), 1 << 20)).await })
    };
    let leaving: Vec<_> = (0..turns).map(ask).collect();
    until("every turn is taken", || bed.asked() == turns).await;
    let staying = ask(turns);
    for one in leaving {
        one.abort();
        assert!(one.await.unwrap_err().is_cancelled());
    }
    // All that can run now has run: whoever waits for a turn would have it.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(bed.asked(), turns, "those that left are still at it");
    assert!(!staying.is_finished());
    let held = std::mem::take(&mut *bed.tasks.held.lock());
    held.into_iter().for_each(|work| work());
    until("the next has its turn", || bed.asked() == turns + 1).await;
    let work = bed.tasks.held.lock().pop().unwrap();
    work();
    assert_eq!(staying.await.unwrap().became(), "fresh");
    assert_eq!(bed.effects.count(), 1, "those that left have claimed nothing");
}
