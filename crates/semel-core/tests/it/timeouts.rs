//! How long a call of the store may take, and who sees to that when runtimes come and go.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use semel_core::{
    engine::{Answer, Engine, Ran},
    env::{Env, TokioTasks},
    identity::Secret,
    refusal::Refusal,
    store::{Capacity, Did, MemoryStore},
};
use semel_testkit::{
    clock::ManualClock,
    faults::{Fault, Faults, Op},
};

use crate::stage::{call_on, millis, refusal};

type Caller = Pin<Box<dyn Future<Output = Answer<()>> + Send>>;

/// An engine on a clock that a test moves, on a store that answers no claim.
fn unanswered() -> (Engine, ManualClock) {
    let clock = ManualClock::new();
    let env = Env { clock: Arc::new(clock.clone()), tasks: Arc::new(TokioTasks), ..Env::system() };
    let store = Faults::new(MemoryStore::new(&env, Capacity::default()));
    for claim in 1..=20 {
        store.fail(Op::Claim, claim, Fault::HoldCall);
    }
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    (Engine::builder(Arc::new(store), secret).env(env).build(), clock)
}

fn caller(engine: &Engine, n: u64) -> Caller {
    let (engine, call) = (engine.clone(), call_on(engine, n));
    Box::pin(async move { engine.run(call, |_| std::future::pending::<Ran<()>>()).await })
}

fn poll(caller: &mut Caller) -> Poll<Answer<()>> {
    caller.as_mut().poll(&mut Context::from_waker(Waker::noop()))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime")
}

/// Two time-outs of 250 ms, one for each copy of the claim.
async fn is_refused_after_its_time_outs(clock: &ManualClock, caller: &mut Caller) {
    for passed in 0..2 {
        clock.advance(millis(249));
        tokio::task::yield_now().await;
        assert!(poll(caller).is_pending(), "refused before time-out {passed} was over");
        clock.advance(millis(1));
        // One turn for the engine's task, which has the timer; one for what it wakes.
        tokio::task::yield_now().await;
        tokio::task::yield_now().await;
        if passed == 0 {
            assert!(poll(caller).is_pending(), "there is a second copy");
            tokio::task::yield_now().await;
        }
    }
    let Poll::Ready(answer) = poll(caller) else { panic!("the store's time is over") };
    assert_eq!(refusal(answer), Refusal::StoreUnavailable { did: Did::Unknown, retry_after: None });
}

#[test]
fn a_time_out_is_kept_by_the_millisecond_of_each_caller() {
    let (engine, clock) = unanswered();
    runtime().block_on(async {
        let (mut first, mut second) = (caller(&engine, 1), caller(&engine, 2));
        assert!(poll(&mut first).is_pending());
        tokio::task::yield_now().await;
        clock.advance(millis(100));
        tokio::task::yield_now().await;
        assert!(poll(&mut second).is_pending());
        drop(first);
        is_refused_after_its_time_outs(&clock, &mut second).await;
        drop(second);
        // The engine's task has found nobody, and sleeps.
        let mut third = caller(&engine, 3);
        clock.advance(millis(10_000));
        tokio::task::yield_now().await;
        assert!(poll(&mut third).is_pending());
        tokio::task::yield_now().await;
        is_refused_after_its_time_outs(&clock, &mut third).await;
    });
}

#[test]
fn a_time_out_outlives_the_runtime_in_which_it_began() {
    let (engine, clock) = unanswered();
    let mut waits = caller(&engine, 1);
    let first = runtime();
    first.block_on(async {
        assert!(poll(&mut waits).is_pending());
        tokio::task::yield_now().await;
    });
    // With it goes the engine's task.
    drop(first);
    runtime().block_on(async {
        assert!(poll(&mut waits).is_pending());
        tokio::task::yield_now().await;
        is_refused_after_its_time_outs(&clock, &mut waits).await;
        drop(waits);
        tokio::task::yield_now().await;
    });
}

#[test]
fn a_time_out_is_kept_where_there_is_no_runtime_for_the_engines_task() {
    let (engine, clock) = unanswered();
    let mut waits = caller(&engine, 1);
    assert!(poll(&mut waits).is_pending());
    for _ in 0..2 {
        assert!(poll(&mut waits).is_pending());
        clock.advance(millis(250));
    }
    let Poll::Ready(answer) = poll(&mut waits) else { panic!("the store's time is over") };
    assert_eq!(refusal(answer), Refusal::StoreUnavailable { did: Did::Unknown, retry_after: None });
}
