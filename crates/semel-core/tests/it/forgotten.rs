//! A store that forgot a claim whose work goes on: it is claimed again, and what that leaves as it was.

use semel_core::{
    engine::{Answer, Call, Kept},
    judge::Caller,
    policy::{OnInFlight, Policy},
    record::StateCode,
    store::{Did, StoreError},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, asked, millis, secs};

#[tokio::test(start_paused = true)]
async fn a_claim_made_again_ends_at_the_same_max_hold() {
    let stage = Stage::new();
    let running = stage.run(stage.call_with(1, Policy::key().max_hold(secs(20))), secs(15), "charged");
    after(secs(1)).await;
    let before = stage.record(1).await.unwrap();
    stage.forget(1);
    after(secs(10)).await;
    let again = stage.record(1).await.unwrap();
    assert!(again.fence > before.fence);
    let later = again.expires_at.since(before.expires_at);
    assert!(later < millis(10), "it ends {later:?} later");
    assert_eq!(answer(&running.await.unwrap()), "charged");
}

/// It belongs to running work: a breaker that holds up new claims is no reason to leave its record to others.
#[tokio::test(start_paused = true)]
async fn a_claim_is_made_again_through_an_open_breaker() {
    let stage = Stage::far();
    let running = stage.run(stage.call(1), secs(30), "charged");
    after(secs(1)).await;
    let id = stage.id(1);
    stage.store.inner().hook(move |ask| (ask.identity != id).then(|| Err(StoreError::unavailable(Did::Nothing))));
    (1..=100).for_each(|n| stage.store.fail(Op::Health, n, Fault::Refuse));
    for n in 2..40 {
        stage.ran(stage.call(n), secs(1), "never").await.ignore();
    }
    assert!(stage.engine.store_state().breaker_open);
    stage.forget(1);
    // The first renewal comes after a third of the lease and a quarter of that.
    after(secs(4)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
    assert!(stage.engine.store_state().breaker_open);
    assert_eq!(answer(&running.await.unwrap()), "charged");
}

/// Who came after that has met the attempt under its later fence, and hears of its end like everybody else.
#[tokio::test(start_paused = true)]
async fn who_waits_under_the_later_fence_is_told_of_the_end() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(30), "charged");
    after(secs(1)).await;
    stage.forget(1);
    after(secs(10)).await;
    let wait = Policy::key().on_in_flight(OnInFlight::Wait(secs(60)));
    let copy = stage.run(stage.call_with(1, wait), secs(1), "never");
    after(secs(1)).await;
    // The store tells nothing from here on: it has to come from whoever settles.
    (1..=10_000).for_each(|n| stage.store.fail(Op::Get, n, Fault::Refuse));
    assert_eq!(answer(&first.await.unwrap()), "charged");
    let ended = tokio::time::Instant::now();
    assert_eq!(answer(&copy.await.unwrap()), "charged");
    assert!(ended.elapsed() < millis(100), "{:?} later", ended.elapsed());
}

/// An attempt of this process is trusted to tell its end, but not for as long as a long lease lasts: another may have the
/// record.
#[tokio::test(start_paused = true)]
async fn who_waits_for_an_attempt_that_lost_its_record_does_not_wait_for_the_end_of_a_long_lease() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let call = || stage.call_with(1, Policy::key().lease(secs(120)).on_in_flight(OnInFlight::Wait(secs(300))));
    let first = stage.run(call(), secs(280), "mine");
    after(secs(1)).await;
    let copy = stage.run(call(), secs(1), "never");
    after(secs(1)).await;
    stage.forget(1);
    other.ran(call(), millis(10), "theirs").await.ignore();
    let began = tokio::time::Instant::now();
    assert_eq!(answer(&copy.await.unwrap()), "theirs");
    // A third of the lease and a quarter of that until the renewal, which is refused; then a look within ten seconds.
    assert!(began.elapsed() < secs(70), "{:?}", began.elapsed());
    first.await.unwrap().ignore();
    stage.is_quiet().await;
}

/// Whoever lost its claim gets the outcome that stands in its place, if it may: not one of another question, nor another
/// caller's.
#[tokio::test(start_paused = true)]
async fn who_lost_its_claim_is_told_no_outcome_that_is_not_its_own() {
    let by = |n: u8| Caller { credentials: Some([n; 16]), request: None };
    for (asks, who, is_told) in [(1, 1, true), (2, 1, false), (1, 2, false)] {
        let stage = Stage::new();
        let other = stage.neighbour();
        let call =
            |asks, who| Call::new(stage.id(1), asked(asks), Policy::key().build().unwrap()).shown("4711").by(by(who));
        let running = stage.run(call(1, 1), secs(30), "mine");
        after(secs(1)).await;
        stage.forget(1);
        other.ran(call(asks, who), millis(10), "theirs").await.ignore();
        let got = running.await.unwrap();
        let Answer::Executed { kept: Kept::Lost { recorded }, .. } = got else { panic!("not lost: {got:?}") };
        assert_eq!(recorded.is_some(), is_told, "question {asks}, caller {who}");
    }
}
