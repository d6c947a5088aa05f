//! How much may run at once: per rule, per scope, per process.

use std::sync::Arc;

use semel_core::{
    engine::{Call, Limits},
    identity::{Principal, PrincipalKind, Scope},
    policy::Policy,
    record::StateCode,
    refusal::Refusal,
    store::Capacity,
};

use crate::stage::{Stage, after, answer, asked, refusal, secs};

/// Of `n` calls on different keys, how many run; the claims of the others are given back, and do not count.
async fn places(stage: &Stage, call: impl Fn(u64) -> Call, n: u64) -> usize {
    let runs: Vec<_> = (0..n).map(|i| stage.run(call(i), secs(3), "charged")).collect();
    after(secs(1)).await;
    let counted = stage.engine.load().running;
    let (away, inside): (Vec<_>, Vec<_>) = (0..).zip(runs).partition(|(_, run)| run.is_finished());
    let running = inside.len();
    assert_eq!(counted, running, "whoever runs has a place");
    for (i, run) in away {
        assert_eq!(refusal(run.await.unwrap()), Refusal::TooManyRunning);
        assert_eq!(stage.state(i).await, Some((StateCode::Free, 0)));
    }
    for (_, run) in inside {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    stage.is_quiet().await;
    // Whoever was turned away finds room now.
    for i in 0..n {
        assert_eq!(answer(&stage.ran(call(i), secs(1), "charged").await), "charged");
    }
    running
}

#[tokio::test(start_paused = true)]
async fn work_is_bounded_per_rule() {
    let stage = Stage::new();
    let policy = Policy::key().max_running(3).build().unwrap();
    let call = |n| Call::new(stage.id(n), asked(1), Arc::clone(&policy));
    assert_eq!(places(&stage, call, 5).await, 3);
}

#[tokio::test(start_paused = true)]
async fn work_is_bounded_per_scope() {
    let limits = Limits { running_per_scope: 2, ..Limits::default() };
    let stage = Stage::with(Capacity::default(), |b| b.limits(limits));
    let tag = Scope::of(Principal::new(PrincipalKind::Subject, &b"anna"[..])).tag();
    assert_eq!(places(&stage, |n| stage.call(n).in_scope(tag), 5).await, 2);
}

#[tokio::test(start_paused = true)]
async fn work_is_bounded_per_process() {
    let limits = Limits { running: 4, ..Limits::default() };
    let stage = Stage::with(Capacity::default(), |b| b.limits(limits));
    assert_eq!(places(&stage, |n| stage.call(n), 6).await, 4);
}

/// Whoever finds no room in its scope leaves none taken elsewhere.
#[tokio::test(start_paused = true)]
async fn work_that_its_scope_refuses_takes_no_place_of_its_rule() {
    let limits = Limits { running_per_scope: 1, ..Limits::default() };
    let stage = Stage::with(Capacity::default(), |b| b.limits(limits));
    let policy = Policy::key().max_running(2).build().unwrap();
    let tag = |who: &'static str| Scope::of(Principal::new(PrincipalKind::Subject, who.as_bytes())).tag();
    let call = |n, who| Call::new(stage.id(n), asked(1), Arc::clone(&policy)).in_scope(tag(who));
    let first = stage.run(call(1, "anna"), secs(3), "charged");
    after(secs(1)).await;
    for n in 2..6 {
        assert_eq!(refusal(stage.ran(call(n, "anna"), secs(1), "never").await), Refusal::TooManyRunning);
    }
    assert_eq!(answer(&stage.ran(call(9, "bert"), secs(1), "charged").await), "charged");
    assert_eq!(answer(&first.await.unwrap()), "charged");
    stage.is_quiet().await;
}
