//! Recording: it outlasts an outage, falls back without a body, and says what became of it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicUsize, Ordering},
};

use semel_core::{
    engine::{Answer, Begin, Engine, Kept, Verdict},
    observe::{Event, What},
    record::{Body, StateCode, Withheld},
    refusal::Refusal,
    store::{Capacity, Did},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Stage, after, answer, millis, outcome, refusal, secs};

#[tokio::test(start_paused = true)]
async fn a_settlement_outlasts_an_outage() {
    let stage = Stage::new();
    let start = tokio::time::Instant::now();
    let running = stage.run(stage.call(1), secs(1), "charged");
    after(millis(500)).await;
    stage.store.outage(Some(Did::Unknown));
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Unrecorded, .. }), "{got:?}");
    assert_eq!(start.elapsed().as_secs(), 3);
    after(secs(30)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    stage.store.outage(None);
    after(secs(5)).await;
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    let told = stage.told();
    assert!(told.contains(&"settled keep Stored".to_owned()), "{told:?}");
    assert!(!told.contains(&"settlementabandoned".to_owned()), "{told:?}");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_settlement_that_is_given_up_reads_as_unknown_and_is_told() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(1), "charged");
    after(millis(500)).await;
    stage.store.outage(Some(Did::Nothing));
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Unrecorded, .. }), "{got:?}");
    assert_eq!(stage.engine.load().running, 1);
    after(secs(70)).await;
    assert_eq!(stage.engine.load().running, 0);
    let mut told = stage.told();
    told.retain(|t| !t.starts_with("failed"));
    assert_eq!(told, ["granted 1", "settlementabandoned", "settled keep Unrecorded"]);
    stage.store.outage(None);
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_settlement_is_asked_for_again() {
    for fault in [Fault::LoseReply, Fault::LoseCall, Fault::Refuse] {
        let stage = Stage::new();
        stage.store.fail(Op::Settle, 1, fault);
        let got = stage.ran(stage.call(1), secs(1), "charged").await;
        assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{fault:?}: {got:?}");
        assert_eq!(stage.store.count(Op::Settle), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_larger_than_the_store_takes_is_recorded_without_its_body() {
    let stage = Stage::with(Capacity { records: 100, bytes: 4_000 }, |b| b);
    let large: &'static str = "x".repeat(2_000).leak();
    let running = stage.run(stage.call(1), secs(2), large);
    after(secs(1)).await;
    let waiter = stage.run(stage.call(1), secs(2), "never");
    assert_eq!(answer(&running.await.unwrap()), large);
    let later = stage.ran(stage.call(1), secs(1), "never").await;
    for got in [waiter.await.unwrap(), later] {
        let Refusal::OutcomeUnavailable { kept: Some(kept) } = refusal(got) else { panic!("another refusal") };
        assert_eq!(kept.outcome.body, Body::Withheld(Withheld::TooLarge { len: 2_000 }));
        assert_eq!(&kept.outcome.head[..], b"200");
    }
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_without_room_is_recorded_without_its_body() {
    let stage = Stage::new();
    stage.store.inner().full_for(1);
    let got = stage.ran(stage.call(1), secs(1), "charged").await;
    assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnavailable { kept: Some(_) }), "{refused:?}");
}

/// Without a body there was no room either: the settlement was given up at once instead of after `settle_for`.
#[tokio::test(start_paused = true)]
async fn a_settlement_waits_for_room() {
    for (verdict, says) in
        [(Verdict::Keep(outcome("charged")), StateCode::Done), (Verdict::Unknown { last: None }, StateCode::Unknown)]
    {
        let stage = Stage::new();
        stage.store.inner().full_for(4);
        let _answer = stage.run_to(stage.call(1), secs(1), verdict).await.unwrap();
        stage.is_quiet().await;
        assert_eq!(stage.record(1).await.unwrap().state, says);
        assert!(!stage.told().contains(&"settlementabandoned".to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn every_verdict_says_what_became_of_it() {
    let stage = Stage::new();
    for (n, verdict, state, kept) in [
        (1, Verdict::Keep(outcome("charged")), StateCode::Done, Kept::Stored),
        (2, Verdict::Release { counts: true, answer: None }, StateCode::Free, Kept::Released),
        (3, Verdict::Unknown { last: Some("connection reset".into()) }, StateCode::Unknown, Kept::Unknown),
    ] {
        let Begin::Granted(grant) = stage.engine.begin(stage.call(n)).await else { panic!("not granted") };
        assert_eq!(grant.settle(verdict).await, kept);
        assert_eq!(stage.state(n).await, Some((state, 1)));
    }
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_becomes_done_when_its_owner_completes_late() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    stage.store.outage(Some(Did::Nothing));
    after(secs(20)).await;
    stage.store.outage(None);
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    assert_eq!(grant.settle(Verdict::Keep(outcome("charged"))).await, Kept::Stored);
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
}

/// Who comes back when it hears of the end finds room.
#[tokio::test(start_paused = true)]
async fn a_place_is_free_before_the_end_of_its_work_is_told() {
    let (engine, seen) = (Arc::<OnceLock<Engine>>::default(), Arc::new(AtomicUsize::new(usize::MAX)));
    let observer = {
        let (engine, seen) = (Arc::clone(&engine), Arc::clone(&seen));
        move |event: &Event<'_>| {
            if let (What::Settled { .. }, Some(engine)) = (event.what, engine.get()) {
                seen.store(engine.load().running, Ordering::SeqCst);
            }
        }
    };
    let stage = Stage::with(Capacity::default(), |b| b.observe(Arc::new(observer)));
    engine.set(stage.engine.clone()).expect("it is set once");
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
    assert_eq!(seen.load(Ordering::SeqCst), 0, "running when it was told");
}
