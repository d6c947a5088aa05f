//! From a question to a grant: lost replies, late grants, races, and what a record that is there means.

use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::{
    engine::{Answer, Begin, Call, Kept, Verdict},
    fingerprint::{Fingerprint, Version},
    judge::Caller,
    policy::{OnDuplicate, Policy},
    record::{Format, Outcome, StateCode, Withheld},
    refusal::Refusal,
    store::{Ask, Capacity, Claimed, Did, NewToken, Store, StoreError},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore as _, Stage, after, answer, asked, go, millis, refusal, secs};

const fn unavailable(did: Did) -> Refusal {
    Refusal::StoreUnavailable { did, retry_after: None }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_is_asked_for_again_by_the_same_owner() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    let got = stage.ran(stage.call(1), secs(1), "charged").await;
    assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
    assert_eq!((stage.store.count(Op::Claim), stage.effects()), (2, 1));
    assert_eq!(stage.told(), ["failed claim", "granted 1", "settled keep Stored"]);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_unknown_fate_is_not_run_and_is_taken_back() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    stage.store.fail(Op::Claim, 2, Fault::LoseReply);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), unavailable(Did::Unknown));
    assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
    stage.is_quiet().await;
    assert_eq!((stage.state(1).await, stage.effects()), (Some((StateCode::Free, 0)), 0));
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_back_however_long_the_store_is_away() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    stage.store.fail(Op::Claim, 2, Fault::LoseReply);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), unavailable(Did::Unknown));
    stage.store.outage(Some(Did::Unknown));
    after(secs(600)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    stage.store.outage(None);
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// The copy whose reply nobody saw reaches the store after the record was freed for it, within its `not_after`.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_strands_nothing_in_either_order() {
    for arrives in [millis(100), millis(499), millis(600), secs(5)] {
        let stage = Stage::new();
        stage.ran(stage.call(9), secs(1), "the store's clock is known").await.ignore();
        let strays = Arc::<Mutex<Vec<Ask>>>::default();
        let kept = Arc::clone(&strays);
        stage.store.inner().hook(move |ask| {
            kept.lock().push(ask.clone());
            Some(Err(StoreError::unavailable(Did::Unknown)))
        });
        assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), unavailable(Did::Unknown));
        stage.store.inner().unhook();
        after(arrives).await;
        let strays = std::mem::take(&mut *strays.lock());
        assert_eq!(strays.len(), 2);
        assert_eq!(strays[0].owner(), strays[1].owner());
        for ask in &strays {
            let _granted_to_nobody = stage.store.inner().claim(ask).await;
        }
        stage.is_quiet().await;
        let state = stage.state(1).await;
        assert!(matches!(state, None | Some((StateCode::Free, 0))), "after {arrives:?}: {state:?}");
    }
}

/// The reply to a claim is lost, its repeat is granted, the work is released, another's attempt too: the first copy
/// finds a free record. Its owner settled long ago, and takes it back.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_granted_claim_strands_nothing() {
    let stage = Stage::new();
    stage.ran(stage.call(9), secs(1), "the store's clock is known").await.ignore();
    let stray = Arc::<Mutex<Option<Ask>>>::default();
    let kept = Arc::clone(&stray);
    stage.store.inner().hook(move |ask| {
        let mut kept = kept.lock();
        kept.is_none().then(|| {
            *kept = Some(ask.clone());
            Err(StoreError::unavailable(Did::Unknown))
        })
    });
    let release = || Verdict::Release { counts: false, answer: None };
    stage.run_to(stage.call(1), millis(10), release()).await.unwrap().ignore();
    stage.run_to(stage.call(1), millis(10), release()).await.unwrap().ignore();
    let ask = stray.lock().take().unwrap();
    stage.store.inner().unhook();
    assert!(matches!(stage.store.inner().claim(&ask).await, Ok(Claimed::Granted { .. })));
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_not_sent_is_not_taken_back() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::Refuse);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), unavailable(Did::Nothing));
    stage.is_quiet().await;
    assert_eq!((stage.store.count(Op::Claim), stage.store.count(Op::Release)), (1, 0));
}

/// The second copy was certainly not done; but of the first nobody knows.
#[tokio::test(start_paused = true)]
async fn a_repeat_that_was_refused_does_not_hide_the_first_copy() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    stage.store.fail(Op::Claim, 2, Fault::Refuse);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), unavailable(Did::Unknown));
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_comes_past_its_deadline_is_released_unused() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let run = stage.run(stage.call_with(1, Policy::key().lease(millis(100))), secs(1), "never");
    after(millis(150)).await;
    stage.store.let_go();
    assert_eq!(refusal(run.await.unwrap()), unavailable(Did::Nothing));
    stage.is_quiet().await;
    assert_eq!((stage.state(1).await, stage.effects()), (Some((StateCode::Free, 0)), 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_late_by_a_clock_that_stepped_is_sent_once_more() {
    let stage = Stage::new();
    stage.ran(stage.call(1), secs(1), "the store's clock is known").await.ignore();
    let before = stage.store.count(Op::Claim);
    stage.store_clock.step(secs(3_600));
    assert_eq!(answer(&stage.ran(stage.call(2), secs(1), "charged").await), "charged");
    assert_eq!(stage.store.count(Op::Claim), before + 2);
    assert_eq!(answer(&stage.ran(stage.call(3), secs(1), "charged").await), "charged");
    assert_eq!(stage.store.count(Op::Claim), before + 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_while_the_store_is_slow_strands_nothing() {
    for fault in [Fault::HoldCall, Fault::HoldReply] {
        let stage = Stage::new();
        stage.store.fail(Op::Claim, 1, fault);
        let (engine, call) = (stage.engine.clone(), stage.call(1));
        let caller = go(async move { drop(engine.begin(call).await) });
        after(millis(100)).await;
        caller.abort();
        after(millis(10)).await;
        stage.store.let_go();
        stage.is_quiet().await;
        assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn owned_work_whose_caller_left_while_the_store_was_slow_runs() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldCall);
    let caller = stage.run(stage.call(1), secs(1), "charged");
    after(millis(100)).await;
    caller.abort();
    after(millis(10)).await;
    stage.store.let_go();
    stage.is_quiet().await;
    assert_eq!((stage.state(1).await, stage.effects()), (Some((StateCode::Done, 1)), 1));
}

#[tokio::test(start_paused = true)]
async fn the_fourth_race_answers_in_flight() {
    let stage = Stage::new();
    let now = stage.store_now().await;
    stage.store.inner().hook(move |_| Some(Ok(Claimed::Found { record: None, now })));
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
    assert_eq!((stage.store.count(Op::Claim), stage.effects()), (4, 0));
}

#[tokio::test(start_paused = true)]
async fn a_race_that_is_won_later_runs() {
    let stage = Stage::new();
    let now = stage.store_now().await;
    let mut left = 3;
    stage.store.inner().hook(move |_| {
        left -= 1;
        (left >= 0).then_some(Ok(Claimed::Found { record: None, now }))
    });
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn another_question_under_the_same_key_is_refused() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    let policy = || Policy::key().build().unwrap();
    let other = || Call::new(stage.id(1), asked(2), policy());
    assert_eq!(refusal(stage.ran(other(), secs(1), "never").await), Refusal::KeyReused);
    running.await.unwrap().ignore();
    assert_eq!(refusal(stage.ran(other(), secs(1), "never").await), Refusal::KeyReused);
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_released_key_takes_a_corrected_question() {
    let stage = Stage::new();
    let release = Verdict::Release { counts: false, answer: None };
    stage.run_to(stage.call(1), millis(1), release).await.unwrap().ignore();
    let corrected = Call::new(stage.id(1), asked(2), Policy::key().build().unwrap());
    assert_eq!(answer(&stage.ran(corrected, secs(1), "charged").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn a_fingerprint_of_another_version_is_unavailable_and_never_a_run() {
    let stage = Stage::new();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    let newer = Fingerprint::stored(Version { algorithm: 7, parameters: 0 }, [1; 32]);
    let call = Call::new(stage.id(1), newer, Policy::key().build().unwrap());
    assert_eq!(refusal(stage.ran(call, secs(1), "never").await), Refusal::OutcomeUnavailable { kept: None });
    assert_eq!(stage.effects(), 1);
}

/// Two rules with different ways to compare a question share one key space. A key that was running under one of them and
/// came to the other was let wait, and then got the running one's answer: another question's, and another caller's.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_the_answer_to_a_question_that_cannot_be_compared() {
    let stage = Stage::new();
    let by = |call: Call, n: u8| call.by(Caller { credentials: Some([n; 16]), request: None });
    let running = stage.run(by(stage.call(1), 1), secs(3), "charged");
    after(secs(1)).await;
    for version in [Version { algorithm: 7, parameters: 0 }, Version { algorithm: 1, parameters: 9 }] {
        for caller in [1, 2] {
            let other = Call::new(stage.id(1), Fingerprint::stored(version, [1; 32]), Policy::key().build().unwrap());
            let refused = refusal(stage.ran(by(other, caller), secs(1), "never").await);
            assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
        }
    }
    assert_eq!(answer(&running.await.unwrap()), "charged");
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stranger_gets_no_stored_byte() {
    let stage = Stage::new();
    let by = |n: u8| stage.call(1).by(Caller { credentials: Some([n; 16]), request: None });
    let running = stage.run(by(1), secs(3), "charged");
    after(secs(1)).await;
    let nothing = Refusal::Stranger;
    assert_eq!(refusal(stage.ran(by(2), secs(1), "never").await), nothing);
    running.await.unwrap().ignore();
    assert_eq!(refusal(stage.ran(by(2), secs(1), "never").await), nothing);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), nothing);
    assert_eq!(answer(&stage.ran(by(1), secs(1), "never").await), "charged");
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn under_reject_a_networks_retry_waits_and_replays_and_a_second_click_does_not() {
    let stage = Stage::new();
    let from = |request: u8| {
        let caller = Caller { credentials: None, request: Some([request; 16]) };
        stage.call_with(1, Policy::key().on_duplicate(OnDuplicate::Reject)).by(caller)
    };
    let first = stage.run(from(1), secs(3), "charged");
    after(secs(1)).await;
    let (retry, click) = (stage.run(from(1), secs(3), "never"), stage.run(from(2), secs(3), "never"));
    assert!(matches!(refusal(click.await.unwrap()), Refusal::Duplicate { .. }));
    assert_eq!(answer(&retry.await.unwrap()), "charged");
    first.await.unwrap().ignore();
    assert_eq!(answer(&stage.ran(from(1), secs(3), "never").await), "charged");
    assert!(matches!(refusal(stage.ran(from(2), secs(3), "never").await), Refusal::Duplicate { .. }));
    let nobody = stage.call_with(1, Policy::key().on_duplicate(OnDuplicate::Reject));
    assert!(matches!(refusal(stage.ran(nobody, secs(3), "never").await), Refusal::Duplicate { .. }));
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_not_issued_runs_nothing_and_one_that_was_runs_once() {
    let stage = Stage::new();
    let call = || stage.call(1).needs_token();
    assert_eq!(refusal(stage.ran(call(), secs(1), "never").await), Refusal::NotIssued);
    let meta = stage.record_meta();
    let token = NewToken { identity: stage.id(1), ttl: secs(60), max_life: secs(60), rest: meta };
    let _issued = stage.store.issue(&token).await.unwrap();
    assert_eq!(answer(&stage.ran(call(), secs(1), "used").await), "used");
    assert_eq!(answer(&stage.ran(call(), secs(1), "again").await), "used");
    assert_eq!(stage.effects(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_token_whose_claim_is_of_unknown_fate_can_be_used_later() {
    let stage = Stage::new();
    let call = || stage.call(1).needs_token();
    let token = NewToken { identity: stage.id(1), ttl: secs(60), max_life: secs(60), rest: stage.record_meta() };
    let _issued = stage.store.issue(&token).await.unwrap();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    stage.store.fail(Op::Claim, 2, Fault::LoseReply);
    assert_eq!(refusal(stage.ran(call(), secs(1), "never").await), unavailable(Did::Unknown));
    stage.is_quiet().await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "used").await), "used");
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_claims_and_runs_nothing() {
    let stage = Stage::with(Capacity { records: 1, bytes: 1 << 20 }, |b| b);
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
    assert_eq!(refusal(stage.ran(stage.call(2), secs(1), "never").await), Refusal::StoreFull);
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    assert_eq!(stage.effects(), 1);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn attempts_that_count_end_in_a_parked_record() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().max_attempts(2));
    let failed = || Verdict::Release { counts: true, answer: None };
    for attempt in 1..=2 {
        stage.run_to(call(), millis(1), failed()).await.unwrap().ignore();
        assert_eq!(stage.state(1).await, Some((StateCode::Free, attempt)));
    }
    for _ in 0..2 {
        assert_eq!(refusal(stage.ran(call(), secs(1), "never").await), Refusal::Parked { attempts: 2 });
        assert_eq!(stage.state(1).await, Some((StateCode::Parked, 2)));
    }
    assert_eq!(stage.effects(), 0);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn work_that_was_not_sent_gives_its_attempt_back() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().max_attempts(2));
    for _ in 0..5 {
        let unsent = Verdict::Release { counts: false, answer: None };
        stage.run_to(call(), millis(1), unsent).await.unwrap().ignore();
        assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
    }
    assert_eq!(answer(&stage.ran(call(), secs(1), "charged").await), "charged");
}

/// Parking waited for the store for as long as a settlement does, and the caller with it.
#[tokio::test(start_paused = true)]
async fn parking_keeps_nobody_waiting_for_a_store_that_is_away() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().max_attempts(1));
    stage.run_to(call(), millis(1), Verdict::Release { counts: true, answer: None }).await.unwrap().ignore();
    for n in 1..=8 {
        stage.store.fail(Op::Release, n, Fault::LoseCall);
    }
    let start = tokio::time::Instant::now();
    assert_eq!(refusal(stage.ran(call(), secs(1), "never").await), Refusal::Parked { attempts: 1 });
    assert!(start.elapsed() <= millis(2_001), "{:?}", start.elapsed());
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Parked, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_taken_over_until_the_attempts_are_used_up() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().takeover(secs(5)).max_attempts(3));
    for attempt in 1..=3 {
        let process = stage.neighbour();
        let Begin::Granted(grant) = process.engine.begin(call()).await else { panic!("not granted") };
        assert_eq!(grant.run().attempt(), attempt);
        process.store.outage(Some(Did::Nothing));
        std::mem::drop(go(async move {
            after(secs(1_000_000)).await;
            drop(grant);
        }));
        after(secs(11)).await;
        if attempt < 3 {
            // The lease is over, the grace is not.
            assert!(matches!(stage.engine.begin(call()).await, Begin::Refused(Refusal::InFlight { .. })));
        }
        after(secs(5)).await;
    }
    assert_eq!(refusal(stage.ran(call(), secs(1), "never").await), Refusal::Parked { attempts: 3 });
}

#[tokio::test(start_paused = true)]
async fn a_settled_outcome_is_replayed_for_its_time_and_then_runs_again() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().ttl(secs(60)));
    assert_eq!(answer(&stage.ran(call(), secs(1), "first").await), "first");
    after(secs(59)).await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "never").await), "first");
    after(secs(2)).await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "second").await), "second");
}

/// What is left of an answer may be too little to be replayed: for a second click it is a duplicate all the same.
#[tokio::test(start_paused = true)]
async fn under_reject_a_second_click_on_an_answer_without_its_body_is_a_duplicate() {
    let stage = Stage::new();
    let by = |request: u8| Caller { credentials: None, request: Some([request; 16]) };
    let click = |n| stage.call_with(1, Policy::key().on_duplicate(OnDuplicate::Reject)).by(by(n));
    let brief = || Verdict::Keep(Outcome::without_body(Format::HTTP, &b"200"[..], Withheld::TooLarge { len: 1 << 30 }));
    stage.run_to(click(1), millis(1), brief()).await.unwrap().ignore();
    let refused = refusal(stage.run_to(click(2), millis(1), brief()).await.unwrap());
    assert!(matches!(refused, Refusal::Duplicate { rest_of_window: Some(_), .. }), "{refused:?}");
    let refused = refusal(stage.run_to(click(1), millis(1), brief()).await.unwrap());
    assert!(matches!(refused, Refusal::OutcomeUnavailable { kept: Some(_) }), "{refused:?}");
}
