//! Copies in flight get the answer of the attempt they met, whatever it is.

use semel_core::{
    engine::{Answer, Begin, Grant, Kept, Limits, Ran, Verdict},
    identity::{Principal, PrincipalKind, Scope},
    policy::{OnInFlight, Policy},
    refusal::Refusal,
    store::{Capacity, Did},
};
use semel_testkit::faults::{Fault, Op};
use tokio::task::JoinHandle;

use crate::stage::{Stage, after, answer, go, millis, outcome, refusal, secs};

/// What ten copies get that come while an attempt is under way that ends in `verdict`.
async fn met(stage: &Stage, verdict: Verdict) -> Vec<Answer<&'static str>> {
    let first = stage.run_to(stage.call(1), secs(3), verdict);
    after(secs(1)).await;
    let copies: Vec<JoinHandle<_>> = (0..10).map(|_| stage.run(stage.call(1), secs(1), "never")).collect();
    let _first = first.await.unwrap();
    let mut got = Vec::new();
    for copy in copies {
        got.push(copy.await.unwrap());
    }
    assert_eq!(stage.effects(), 0);
    stage.is_quiet().await;
    got
}

#[tokio::test(start_paused = true)]
async fn waiters_get_an_outcome() {
    for got in met(&Stage::new(), Verdict::Keep(outcome("charged"))).await {
        assert!(matches!(got, Answer::Replayed { waited: true, .. }), "{got:?}");
        assert_eq!(answer(&got), "charged");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_told_of_an_unknown() {
    for got in met(&Stage::new(), Verdict::Unknown { last: Some("reset".into()) }).await {
        let refused = refusal(got);
        assert!(matches!(&refused, Refusal::OutcomeUnknown { last: Some(l), .. } if &**l == "reset"), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_share_the_answer_of_a_released_attempt_and_none_of_them_runs() {
    let stage = Stage::new();
    for got in met(&stage, Verdict::Release { counts: true, answer: Some(outcome("try again")) }).await {
        assert_eq!(answer(&got), "try again");
    }
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_released_attempt_without_an_answer_may_come_again() {
    for got in met(&Stage::new(), Verdict::Release { counts: true, answer: None }).await {
        let refused = refusal(got);
        assert!(matches!(refused, Refusal::InFlight { retry_after } if retry_after <= millis(100)), "{refused:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_panic_are_told_of_an_unknown() {
    let stage = Stage::new();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let first = go(async move {
        engine
            .run(call, async |_run| -> Ran<()> {
                after(secs(3)).await;
                panic!("at last")
            })
            .await
    });
    after(secs(1)).await;
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    assert!(matches!(first.await.unwrap(), Answer::Broken(_)));
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_parked_attempt_are_told_so() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().max_attempts(1));
    let failed = Verdict::Release { counts: true, answer: None };
    let _failed = stage.run_to(call(), millis(1), failed).await.unwrap();
    stage.store.fail(Op::Release, 1, Fault::HoldCall);
    let last = stage.run(call(), secs(1), "never");
    after(millis(50)).await;
    let waiter = stage.run(call(), secs(1), "never");
    after(millis(50)).await;
    assert_eq!(stage.engine.load().waiting, 1);
    stage.store.let_go();
    assert_eq!(refusal(last.await.unwrap()), Refusal::Parked { attempts: 1 });
    assert_eq!(refusal(waiter.await.unwrap()), Refusal::Parked { attempts: 1 });
}

#[tokio::test(start_paused = true)]
async fn waiters_hear_of_another_processs_attempt() {
    let (stage, verdict) = (Stage::new(), Verdict::Keep(outcome("charged")));
    let neighbour = stage.neighbour();
    let first = neighbour.run_to(stage.call(1), secs(3), verdict);
    after(secs(1)).await;
    let start = tokio::time::Instant::now();
    let copies: Vec<_> = (0..50).map(|_| stage.run(stage.call(1), secs(1), "never")).collect();
    for copy in copies {
        assert_eq!(answer(&copy.await.unwrap()), "charged");
    }
    assert!(start.elapsed() <= millis(3_300), "{:?}", start.elapsed());
    let _first = first.await.unwrap();
    // One watcher for all of them.
    assert!(stage.store.count(Op::Get) < 12, "{}", stage.store.count(Op::Get));
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_hear_of_a_lease_that_ends() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let Begin::Granted(grant) = neighbour.engine.begin(stage.call(1)).await else { panic!("not granted") };
    neighbour.store.outage(Some(Did::Nothing));
    let start = tokio::time::Instant::now();
    let call = stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Wait(secs(60))));
    let refused = refusal(stage.ran(call, secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    assert!(start.elapsed() <= millis(10_020), "{:?}", start.elapsed());
    neighbour.store.outage(None);
    drop(grant);
}

#[tokio::test(start_paused = true)]
async fn who_waited_long_enough_is_told_when_to_come_back() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(60), "charged");
    after(secs(1)).await;
    let start = tokio::time::Instant::now();
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert_eq!(start.elapsed().as_secs(), 10);
    assert!(matches!(refused, Refusal::InFlight { retry_after } if retry_after <= secs(10)), "{refused:?}");
    assert!(refused.retry_after().is_some_and(|t| t >= millis(100)));
    assert_eq!(stage.engine.load().waiting, 0);
    assert_eq!(answer(&first.await.unwrap()), "charged");
}

#[tokio::test(start_paused = true)]
async fn under_reject_nobody_waits() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    let call = stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Reject));
    let refused = refusal(stage.ran(call, secs(1), "never").await);
    assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
    assert_eq!(stage.store.count(Op::Get), 0);
    assert_eq!(answer(&first.await.unwrap()), "charged");
}

#[tokio::test(start_paused = true)]
async fn nobody_looks_when_the_last_waiter_has_left() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let Begin::Granted(grant) = neighbour.engine.begin(stage.call(1)).await else { panic!("not granted") };
    let copies: Vec<_> = (0..3).map(|_| stage.run(stage.call(1), secs(1), "never")).collect();
    after(secs(2)).await;
    assert_eq!(stage.engine.load().waiting, 3);
    for copy in copies {
        copy.abort();
    }
    after(millis(10)).await;
    assert_eq!(stage.engine.load().waiting, 0);
    let looks = stage.store.count(Op::Get);
    after(secs(100)).await;
    assert_eq!(stage.store.count(Op::Get), looks);
    // One who comes later is served by a watcher of its own.
    let late = stage.run(stage.call(1), secs(1), "never");
    after(secs(1)).await;
    assert_eq!(grant.settle(Verdict::Keep(outcome("charged"))).await, semel_core::engine::Kept::Stored);
    assert_eq!(answer(&late.await.unwrap()), "charged");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_outlast_a_store_that_does_not_answer() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let first = neighbour.run(stage.call(1), secs(5), "charged");
    after(secs(1)).await;
    let copy = stage.run(stage.call(1), secs(1), "never");
    after(secs(1)).await;
    stage.store.outage(Some(Did::Unknown));
    after(secs(2)).await;
    stage.store.outage(None);
    assert_eq!(answer(&copy.await.unwrap()), "charged");
    assert_eq!(answer(&first.await.unwrap()), "charged");
}

/// How many of `n` copies of a call are turned away at once while it runs.
async fn turned_away(stage: &Stage, call: impl Fn(usize) -> semel_core::engine::Call, n: usize) -> usize {
    let copies: Vec<_> = (0..n).map(|i| stage.run(call(i), secs(1), "never")).collect();
    after(millis(100)).await;
    let mut away = 0;
    for copy in copies {
        if copy.is_finished() {
            assert_eq!(refusal(copy.await.unwrap()), Refusal::TooManyWaiters);
            away += 1;
        }
    }
    away
}

#[tokio::test(start_paused = true)]
async fn waiters_are_bounded_per_key() {
    let stage = Stage::with(Capacity::default(), |b| b.limits(Limits { waiters_per_key: 3, ..Limits::default() }));
    let first = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    assert_eq!(turned_away(&stage, |_| stage.call(1), 5).await, 2);
    assert_eq!(stage.engine.load().waiting, 3);
    assert_eq!(answer(&first.await.unwrap()), "charged");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_are_bounded_per_scope_and_the_shared_scope_is_none() {
    let limits = Limits { waiters_per_scope: 3, ..Limits::default() };
    let stage = Stage::with(Capacity::default(), |b| b.limits(limits));
    let tag = |who: &'static str| Scope::of(Principal::new(PrincipalKind::Subject, who.as_bytes())).tag();
    let first = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    assert_eq!(turned_away(&stage, |_| stage.call(1).in_scope(tag("anna")), 5).await, 2);
    assert_eq!(turned_away(&stage, |_| stage.call(1).in_scope(tag("bert")), 4).await, 1);
    assert_eq!(turned_away(&stage, |_| stage.call(1), 20).await, 0);
    assert_eq!(answer(&first.await.unwrap()), "charged");
    stage.is_quiet().await;
    // All of them have left, so there is room again.
    let second = stage.run(stage.call(2), secs(3), "charged");
    after(secs(1)).await;
    assert_eq!(turned_away(&stage, |_| stage.call(2).in_scope(tag("anna")), 5).await, 2);
    assert_eq!(answer(&second.await.unwrap()), "charged");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_are_bounded_per_process() {
    let stage = Stage::with(Capacity::default(), |b| b.limits(Limits { waiters: 4, ..Limits::default() }));
    let running: Vec<_> = (0..2).map(|n| stage.run(stage.call(n), secs(3), "charged")).collect();
    after(secs(1)).await;
    assert_eq!(turned_away(&stage, |i| stage.call(i as u64 % 2), 10).await, 6);
    for run in running {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    stage.is_quiet().await;
}

/// The attempt that was met is over, and another's runs at once: who waited for the first does not wait for the second.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_wait_for_the_next_attempt() {
    let stage = Stage::new();
    let (first, second) = (stage.neighbour(), stage.neighbour());
    let Begin::Granted(grant) = first.engine.begin(first.call(1)).await else { panic!("not granted") };
    let call = stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Wait(secs(60))));
    let copy = stage.run(call, secs(1), "never");
    after(secs(1)).await;
    let release = Verdict::Release { counts: true, answer: None };
    // Nobody looks between the two.
    assert_eq!(grant.settle(release).await, Kept::Released);
    let Begin::Granted(next) = second.engine.begin(second.call(1)).await else { panic!("not granted") };
    leaves_while_the_next_runs(copy, next).await;
}

/// Neither does it where that is this process's own.
#[tokio::test(start_paused = true)]
async fn a_waiter_does_not_wait_for_the_next_attempt_of_its_own_process() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let Begin::Granted(grant) = other.engine.begin(other.call(1)).await else { panic!("not granted") };
    let call = || stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Wait(secs(60))));
    let copy = stage.run(call(), secs(1), "never");
    after(secs(1)).await;
    assert_eq!(grant.settle(Verdict::Release { counts: true, answer: None }).await, Kept::Released);
    let Begin::Granted(next) = stage.engine.begin(call()).await else { panic!("not granted") };
    leaves_while_the_next_runs(copy, next).await;
}

/// The attempt that was waited for is over, and another one runs, of which the waiter knows nothing.
async fn leaves_while_the_next_runs(copy: JoinHandle<Answer<&'static str>>, next: Grant) {
    let began = tokio::time::Instant::now();
    let refused = refusal(copy.await.unwrap());
    assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
    assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
    assert_eq!(next.settle(Verdict::Keep(outcome("charged"))).await, Kept::Stored);
}

/// A hint may come early, and again at once: a store that hints without end is not asked without end.
#[tokio::test(start_paused = true)]
async fn hints_that_say_nothing_are_followed_with_a_pause() {
    let stage = Stage::new();
    let neighbour = stage.neighbour();
    let first = neighbour.run(stage.call(1), secs(2), "charged");
    after(secs(1)).await;
    stage.store.inner().hint_in_vain(10_000);
    let copy = stage.run(stage.call(1), secs(1), "never");
    for run in [first, copy] {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    let looks = stage.store.count(Op::Get);
    assert!((100..=205).contains(&looks), "{looks} looks within a second");
}
