//! A store that does not answer is not asked by everybody; what belongs to running work is sent all the same.

use semel_core::{
    engine::{Answer, Kept},
    refusal::Refusal,
    store::Did,
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, millis, refusal, secs};

/// A store that has answered once, and then does not until the breaker is open.
async fn opened(did: Did) -> Stage {
    let stage = Stage::far();
    stage.ran(stage.call(0), millis(1), "charged").await.ignore();
    stage.store.outage(Some(did));
    for n in 1..=30 {
        let refused = refusal(stage.ran(stage.call(n), secs(1), "never").await);
        assert!(matches!(refused, Refusal::StoreUnavailable { .. }), "{refused:?}");
    }
    assert!(stage.told().contains(&"breakeropened".to_owned()));
    assert!(stage.engine.store_state().breaker_open);
    stage
}

#[tokio::test(start_paused = true)]
async fn while_it_is_open_claims_fail_at_once_and_unsent() {
    let stage = opened(Did::Nothing).await;
    let (before, began) = (stage.store.count(Op::Claim), tokio::time::Instant::now());
    assert!(before < 25, "{before} claims were sent");
    for n in 100..200 {
        let refused = refusal(stage.ran(stage.call(n), secs(1), "never").await);
        assert_eq!(refused, Refusal::StoreUnavailable { did: Did::Nothing, retry_after: Some(secs(1)) });
    }
    assert_eq!(stage.store.count(Op::Claim), before);
    assert!(began.elapsed() < millis(1), "nobody waits");
    stage.store.outage(None);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_replayed_while_it_is_open() {
    let stage = opened(Did::Nothing).await;
    assert_eq!(answer(&stage.ran(stage.call(0), secs(1), "never").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn it_closes_by_itself_a_second_after_the_store_is_back() {
    let stage = opened(Did::Nothing).await;
    stage.store.outage(None);
    after(millis(1_100)).await;
    assert!(stage.told().contains(&"breakerclosed".to_owned()));
    assert!(!stage.engine.store_state().breaker_open);
    let got = stage.ran(stage.call(100), secs(1), "charged").await;
    assert!(matches!(got, Answer::Executed { .. }), "{got:?}");
}

#[tokio::test(start_paused = true)]
async fn one_call_a_second_finds_out() {
    let stage = opened(Did::Nothing).await;
    let before = stage.store.count(Op::Health);
    after(secs(10)).await;
    let probes = stage.store.count(Op::Health) - before;
    assert!((9..=11).contains(&probes), "{probes} probes in 10 s");
    assert!(stage.engine.store_state().breaker_open);
}

/// Running work outlasts an outage: its outcome is tried again and again, whatever the breaker says.
#[tokio::test(start_paused = true)]
async fn an_outcome_is_recorded_through_an_open_breaker() {
    let stage = Stage::far();
    stage.ran(stage.call(0), millis(1), "charged").await.ignore();
    let run = stage.run(stage.call(50), secs(5), "charged");
    after(millis(100)).await;
    stage.store.outage(Some(Did::Nothing));
    for n in 1..=30 {
        stage.ran(stage.call(n), secs(1), "never").await.ignore();
    }
    assert!(stage.engine.store_state().breaker_open);
    let got = run.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Unrecorded, .. }), "{got:?}");
    after(secs(20)).await;
    stage.store.outage(None);
    stage.is_quiet().await;
    let other = stage.neighbour();
    assert_eq!(answer(&other.ran(other.call(50), secs(1), "never").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn conflicts_and_refusals_of_a_store_that_answers_do_not_open_it() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let policy = || semel_core::policy::Policy::key().on_in_flight(semel_core::policy::OnInFlight::Reject);
    let there: Vec<_> = (0..60).map(|n| other.run(other.call_with(n, policy()), secs(30), "there")).collect();
    after(millis(10)).await;
    for n in 0..60 {
        let refused = refusal(stage.ran(stage.call_with(n, policy()), secs(1), "never").await);
        assert!(matches!(refused, Refusal::InFlight { .. }));
    }
    stage.store.inner().hook(|_| Some(Err(semel_core::store::StoreError::full())));
    // More than all that was answered well before.
    for n in 100..300 {
        assert_eq!(refusal(stage.ran(stage.call(n), secs(1), "never").await), Refusal::StoreFull);
    }
    stage.store.inner().hook(|_| Some(Ok(semel_core::store::Claimed::Late { now: semel_core::StoreTime::default() })));
    for n in 300..600 {
        stage.ran(stage.call(n), secs(1), "never").await.ignore();
    }
    assert!(!stage.engine.store_state().breaker_open);
    stage.store.inner().unhook();
    for run in there {
        run.await.unwrap().ignore();
    }
}

#[tokio::test(start_paused = true)]
async fn a_third_of_the_calls_failing_does_not_open_it() {
    let stage = Stage::far();
    for n in 0..40 {
        if n % 2 == 0 {
            stage.store.fail(Op::Claim, 1, Fault::Refuse);
        }
        stage.ran(stage.call(n), millis(1), "charged").await.ignore();
    }
    // Every second claim fails; with the settlements of the others that is one call in three.
    assert!(!stage.engine.store_state().breaker_open);
}

#[tokio::test(start_paused = true)]
async fn a_store_of_this_process_is_asked_whatever_it_says() {
    let stage = Stage::new();
    stage.ran(stage.call(0), millis(1), "charged").await.ignore();
    stage.store.outage(Some(Did::Nothing));
    for n in 1..=100 {
        stage.ran(stage.call(n), secs(1), "never").await.ignore();
    }
    assert_eq!(stage.store.count(Op::Claim), 101);
    assert!(!stage.engine.store_state().breaker_open);
}

/// Who waits for an attempt looks at the store now and then: not while that does not answer.
#[tokio::test(start_paused = true)]
async fn who_waits_does_not_look_while_it_is_open() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let there = other.run(other.call(50), secs(8), "charged");
    after(secs(1)).await;
    let copy = stage.run(stage.call(50), secs(1), "never");
    after(secs(1)).await;
    stage.store.outage(Some(Did::Nothing));
    for n in 1..=30 {
        stage.ran(stage.call(n), secs(1), "never").await.ignore();
    }
    assert!(stage.engine.store_state().breaker_open);
    let looks = stage.store.count(Op::Get);
    after(millis(4_500)).await;
    // One of them may be the call in each second that finds out.
    assert!(stage.store.count(Op::Get) - looks <= 1, "{} looks", stage.store.count(Op::Get) - looks);
    stage.store.outage(None);
    for run in [there, copy] {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
}
