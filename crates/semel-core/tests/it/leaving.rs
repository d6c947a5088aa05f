//! Callers that leave owned work, at every moment there is, and what becomes of it.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Waker},
};

use parking_lot::Mutex;
use semel_core::{
    engine::{Answer, Engine, Ran, Run},
    env::{BoxFuture, Env, Tasks, TokioTasks},
    identity::Secret,
    observe::{Event, What},
    policy::Policy,
    record::StateCode,
    store::{Capacity, MemoryStore, Store},
    testing,
};
use semel_testkit::{
    clock::ManualClock,
    faults::{Fault, Op},
};

use crate::stage::{Ignore, Stage, after, answer, call_on, id_on, millis, said, secs};

/// Polls `future` `polls` times, letting others go first in between, and drops it. `true` where it came to its end.
async fn leave_after_polls<T>(polls: usize, future: impl Future<Output = T>) -> bool {
    let mut future = Box::pin(future);
    for _ in 0..polls {
        if future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return true;
        }
        tokio::task::yield_now().await;
    }
    false
}

/// Runs work with several awaits before its effect and after it.
fn run_work<'a>(
    stage: &'a Stage,
    effects: &Arc<AtomicUsize>,
) -> impl Future<Output = Answer<&'static str>> + Send + use<'a> {
    let effects = Arc::clone(effects);
    stage.engine.run(stage.call(1), async move |_run| {
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        effects.fetch_add(1, Ordering::SeqCst);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        said("charged")
    })
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_leave_at_any_await_and_the_work_goes_on_and_settles_once() {
    for held in [None, Some(Op::Claim), Some(Op::Settle)] {
        for polls in 1..16 {
            let (stage, effects) = (Stage::new(), Arc::default());
            if let Some(op) = held {
                stage.store.fail(op, 1, Fault::HoldReply);
            }
            let ended = leave_after_polls(polls, run_work(&stage, &effects)).await;
            after(millis(10)).await;
            stage.store.let_go();
            stage.is_quiet().await;
            let case = format!("left after {polls} polls, {held:?} held, ended: {ended}");
            assert_eq!(
                (stage.state(1).await, effects.load(Ordering::SeqCst)),
                (Some((StateCode::Done, 1)), 1),
                "{case}"
            );
            assert_eq!(stage.told(), ["granted 1", "settled keep Stored"], "{case}");
            assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "again").await), "charged", "{case}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_never_polled_claims_nothing() {
    let (stage, effects) = (Stage::new(), Arc::default());
    assert!(!leave_after_polls(0, run_work(&stage, &effects)).await);
    after(secs(1)).await;
    assert_eq!((stage.state(1).await, effects.load(Ordering::SeqCst)), (None, 0));
    assert_eq!(stage.told(), [""; 0]);
    stage.is_quiet().await;
}

/// Its progress is the caller's: it is not lost, it is late.
#[tokio::test(start_paused = true)]
async fn a_caller_that_stops_polling_holds_its_work_up_until_it_leaves() {
    let (stage, effects) = (Stage::new(), Arc::default());
    let mut run = Box::pin(run_work(&stage, &effects));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    after(secs(30)).await;
    // Renewed all the while.
    assert_eq!((stage.state(1).await, stage.engine.load().running), (Some((StateCode::InFlight, 1)), 1));
    assert_eq!(effects.load(Ordering::SeqCst), 0);
    drop(run);
    stage.is_quiet().await;
    assert_eq!((stage.state(1).await, effects.load(Ordering::SeqCst)), (Some((StateCode::Done, 1)), 1));
}

#[tokio::test(start_paused = true)]
async fn the_record_of_a_caller_that_stops_polling_is_unknown_after_max_hold() {
    let stage = Stage::new();
    let call = stage.call_with(1, Policy::key().max_hold(secs(60)));
    let mut run = Box::pin(stage.engine.run(call, |_| std::future::pending::<Ran<()>>()));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    after(secs(90)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    drop(run);
    stage.is_quiet().await;
    assert!(stage.told().contains(&"settled unknown Unknown".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn work_may_run_other_work_and_both_go_on_when_the_caller_leaves() {
    let stage = Stage::new();
    let (engine, inner) = (stage.engine.clone(), stage.call(2));
    let outer = stage.engine.run(stage.call(1), async move |_run| {
        let slow = async |_run: Run| {
            after(secs(1)).await;
            said("the inner one")
        };
        engine.run(inner, slow).await.ignore();
        said("the outer one")
    });
    assert!(!leave_after_polls(2, outer).await);
    stage.is_quiet().await;
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "again").await), "the outer one");
    assert_eq!(answer(&stage.ran(stage.call(2), secs(1), "again").await), "the inner one");
}

#[tokio::test(start_paused = true)]
async fn a_settlement_whose_caller_leaves_while_the_store_is_slow_goes_on() {
    let stage = Stage::new();
    stage.store.fail(Op::Settle, 1, Fault::HoldCall);
    let caller = stage.run(stage.call(1), secs(1), "charged");
    after(millis(1_100)).await;
    caller.abort();
    after(millis(10)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
    stage.store.let_go();
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

/// An engine on a clock that a test moves, and how often it told that a claim was cut off.
fn without_runtime() -> (Engine, Arc<MemoryStore>, ManualClock, Arc<AtomicUsize>) {
    let (clock, cut) = (ManualClock::new(), Arc::<AtomicUsize>::default());
    let env = Env { clock: Arc::new(clock.clone()), tasks: Arc::new(TokioTasks), ..Env::system() };
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let told = Arc::clone(&cut);
    let observer = move |event: &Event<'_>| {
        if matches!(event.what, What::SettlementAbandoned) {
            told.fetch_add(1, Ordering::SeqCst);
        }
    };
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    let engine = Engine::builder(Arc::clone(&store) as _, secret).env(env).observe(Arc::new(observer)).build();
    (engine, store, clock, cut)
}

/// What the record of the first call says once its lease is over.
fn reads_as(engine: &Engine, store: &MemoryStore, clock: &ManualClock) -> Option<StateCode> {
    clock.advance(secs(60));
    let seen = store.get(&id_on(engine, 1)).try_ready().unwrap().unwrap();
    seen.record.map(|record| record.reads_as(seen.now))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().unwrap()
}

#[test]
fn a_caller_that_leaves_outside_a_runtime_leaves_an_unknown() {
    let (engine, store, clock, cut) = without_runtime();
    let mut run = Box::pin(engine.run(call_on(&engine, 1), |_| std::future::pending::<Ran<()>>()));
    let runtime = runtime();
    runtime.block_on(async { assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending()) });
    drop(runtime);
    drop(run);
    assert_eq!((cut.load(Ordering::SeqCst), engine.load().running), (1, 0));
    assert_eq!(reads_as(&engine, &store, &clock), Some(StateCode::Unknown));
}

#[test]
fn a_caller_that_ends_with_its_runtime_leaves_an_unknown() {
    let (engine, store, clock, cut) = without_runtime();
    let runtime = runtime();
    let (owned, call) = (engine.clone(), call_on(&engine, 1));
    let _caller = runtime.spawn(async move {
        let answer: Answer<()> = owned.run(call, |_| std::future::pending::<Ran<()>>()).await;
        unreachable!("it does not end: {answer:?}");
    });
    runtime.block_on(tokio::task::yield_now());
    assert_eq!(engine.load().running, 1);
    drop(runtime);
    assert_eq!((cut.load(Ordering::SeqCst), engine.load().running), (1, 0));
    assert_eq!(reads_as(&engine, &store, &clock), Some(StateCode::Unknown));
}

#[test]
fn what_a_caller_leaves_goes_on_in_the_span_it_was_begun_in() {
    let _subscriber = tracing::subscriber::set_default(tracing_subscriber::registry());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let engine = testing::engine();
        let span = tracing::info_span!("request");
        let seen = Arc::new(Mutex::new(None));
        let see = Arc::clone(&seen);
        let mut run = Box::pin(engine.run(call_on(&engine, 1), async move |_run| {
            after(secs(1)).await;
            *see.lock() = tracing::Span::current().id();
            said("charged")
        }));
        let polled = span.in_scope(|| run.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        assert!(polled.is_pending());
        // Whoever drops it is elsewhere by now.
        drop(run);
        assert_eq!(engine.drain(secs(10)).await.abandoned, 0);
        assert!(span.id().is_some() && *seen.lock() == span.id());
    });
}

/// A runtime that loses the work of a caller that has left, and nothing else.
struct LosesWork(Arc<dyn Tasks>);

impl Tasks for LosesWork {
    fn spawn(&self, name: &'static str, future: BoxFuture) -> bool {
        if name == "semel work" {
            drop(future);
            return false;
        }
        self.0.spawn(name, future)
    }
}

/// It may have taken effect: nobody may run it again.
#[tokio::test(start_paused = true)]
async fn owned_work_that_is_dropped_is_unknown() {
    let env = testing::env();
    let tasks = Arc::new(LosesWork(Arc::clone(&env.tasks)));
    let env = Env { tasks, ..env };
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    let engine = Engine::builder(Arc::clone(&store) as _, secret).env(env).build();
    let mut run = Box::pin(engine.run(call_on(&engine, 1), |_| std::future::pending::<Ran<()>>()));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(run);
    assert_eq!(engine.drain(secs(10)).await.abandoned, 0);
    let seen = store.get(&id_on(&engine, 1)).await.unwrap();
    assert_eq!(seen.record.map(|record| record.state), Some(StateCode::Unknown));
}
