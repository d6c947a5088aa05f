//! `on_store_error = "open"`: what runs without a grant is marked, counted, run once in each process, and recorded if
//! that can be.

use semel_core::{
    engine::{Answer, Begin, Call, Kept, OpenReason, TierConfig, Times, Verdict},
    policy::{OnStoreError, Policy},
    record::{Format, Outcome, Payload, Rest, StateCode, Withheld},
    refusal::Refusal,
    store::{Capacity, Did, StoreAdmin},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, millis, outcome, refusal, secs};

/// The store goes away, and with it the line on which it tells what people change.
fn goes_away(stage: &Stage) {
    stage.store.outage(Some(Did::Nothing));
    stage.store.inner().listeners().iter().for_each(|listener| listener.missed());
}

fn open(stage: &Stage, n: u64) -> Call {
    stage.call_with(n, Policy::key().on_store_error(OnStoreError::Open))
}

/// Near and far: the store may be anything that does not answer.
fn stages() -> [Stage; 2] {
    [Stage::new(), Stage::far()]
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_away_an_open_rule_runs_and_says_so() {
    for stage in stages() {
        stage.store.outage(Some(Did::Unknown));
        let got = stage.ran(open(&stage, 1), secs(1), "charged").await;
        let kept = Kept::Unrecorded;
        assert!(
            matches!(&got, Answer::Unguarded { value: "charged", why: OpenReason::StoreDown, kept: k } if *k == kept),
            "{got:?}"
        );
        assert!(stage.told().contains(&"unguarded store-down".to_owned()));
        let closed = refusal(stage.ran(stage.call(2), secs(1), "never").await);
        assert!(matches!(closed, Refusal::StoreUnavailable { .. }));
        stage.store.outage(None);
        stage.is_quiet().await;
        assert_eq!(stage.effects(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn copies_of_one_process_run_once_without_a_grant_too() {
    for stage in stages() {
        stage.store.outage(Some(Did::Unknown));
        let storm: Vec<_> = (0..50).map(|_| stage.run(open(&stage, 1), secs(2), "charged")).collect();
        let mut unguarded = 0;
        for copy in storm {
            let got = copy.await.unwrap();
            assert_eq!(answer(&got), "charged");
            unguarded += usize::from(matches!(got, Answer::Unguarded { .. }));
        }
        assert_eq!((stage.effects(), unguarded), (1, 1));
        stage.store.outage(None);
        stage.is_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn copies_that_come_after_its_end_get_its_answer_while_it_is_still_to_be_recorded() {
    for stage in stages() {
        stage.store.outage(Some(Did::Nothing));
        stage.ran(open(&stage, 1), secs(1), "charged").await.ignore();
        after(secs(5)).await;
        let got = stage.ran(open(&stage, 1), secs(1), "never").await;
        assert!(matches!(got, Answer::Replayed { waited: false, .. }), "{got:?}");
        assert_eq!(stage.effects(), 1);
        stage.store.outage(None);
        stage.is_quiet().await;
        assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn its_outcome_is_recorded_when_the_store_is_back() {
    for stage in stages() {
        stage.store.outage(Some(Did::Nothing));
        let run = stage.run(open(&stage, 1), secs(1), "charged");
        after(millis(500)).await;
        stage.store.outage(None);
        let got = run.await.unwrap();
        assert!(matches!(got, Answer::Unguarded { kept: Kept::Stored, .. }), "nothing was restored: {got:?}");
        let other = stage.neighbour();
        assert_eq!(answer(&other.ran(open(&other, 1), secs(1), "never").await), "charged");
        stage.is_quiet().await;
    }
}

/// Whoever waited for an attempt without a grant got its outcome as one that is there, without the body that is not.
#[tokio::test(start_paused = true)]
async fn copies_of_an_outcome_without_its_body_are_told_that_it_was_done() {
    for stage in stages() {
        stage.store.outage(Some(Did::Nothing));
        let bodiless = Outcome::without_body(Format::HTTP, &b"200"[..], Withheld::NoStore);
        let run = stage.run_to(open(&stage, 1), secs(1), Verdict::Keep(bodiless));
        after(millis(500)).await;
        let waiter = stage.run(open(&stage, 1), secs(1), "never");
        run.await.unwrap().ignore();
        let later = stage.ran(open(&stage, 1), secs(1), "never").await;
        for copy in [waiter.await.unwrap(), later] {
            assert!(matches!(&copy, Answer::Refused(Refusal::OutcomeUnavailable { kept: Some(_) })), "{copy:?}");
        }
        stage.store.outage(None);
        stage.is_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn another_question_joins_no_attempt_without_a_grant() {
    let stage = Stage::new();
    stage.store.outage(Some(Did::Nothing));
    let run = stage.run(open(&stage, 1), secs(1), "charged");
    after(millis(500)).await;
    let policy = Policy::key().on_store_error(OnStoreError::Open).build().unwrap();
    let other = Call::new(stage.id(1), crate::stage::asked(2), policy);
    assert_eq!(refusal(stage.ran(other, secs(1), "never").await), Refusal::KeyReused);
    run.await.unwrap().ignore();
}

/// The price of `open`, and its bound: an outcome of no grant takes nobody's place.
#[tokio::test(start_paused = true)]
async fn it_is_written_over_nobody_elses_attempt() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let there = other.run(other.call(1), secs(3), "granted");
    after(millis(100)).await;
    stage.store.outage(Some(Did::Nothing));
    let here = stage.run(open(&stage, 1), secs(1), "open");
    after(millis(500)).await;
    stage.store.outage(None);
    let here = here.await.unwrap();
    assert!(matches!(&here, Answer::Unguarded { kept: Kept::Lost { recorded: None }, .. }), "{here:?}");
    let there = there.await.unwrap();
    assert!(matches!(there, Answer::Executed { kept: Kept::Stored, .. }), "{there:?}");
    assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "never").await), "granted");
    assert_eq!(stage.effects(), 2, "which the operator has accepted");
    stage.is_quiet().await;
}

/// The replies to the claim were lost, and the claim was not: it keeps others out while the work runs, and its outcome
/// is the record's.
#[tokio::test(start_paused = true)]
async fn a_claim_that_stands_after_all_is_settled_by_its_owner() {
    for stage in stages() {
        stage.store.fail(Op::Claim, 1, Fault::LoseReply);
        stage.store.fail(Op::Claim, 2, Fault::LoseReply);
        let run = stage.run(open(&stage, 1), secs(3), "charged");
        after(secs(1)).await;
        assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
        let other = stage.neighbour();
        let copy = other.run(open(&other, 1), secs(1), "never");
        let got = run.await.unwrap();
        assert!(matches!(got, Answer::Unguarded { kept: Kept::Stored, .. }), "{got:?}");
        assert_eq!(answer(&copy.await.unwrap()), "charged");
        stage.is_quiet().await;
        assert_eq!((stage.effects(), stage.state(1).await), (1, Some((StateCode::Done, 1))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_released_attempt_leaves_nothing_and_the_next_copy_runs() {
    for stage in stages() {
        stage.store.outage(Some(Did::Unknown));
        let release = Verdict::Release { counts: true, answer: None };
        stage.run_to(open(&stage, 1), secs(1), release).await.unwrap().ignore();
        assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "charged").await), "charged");
        stage.store.outage(None);
        stage.is_quiet().await;
        assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_nobody_can_tell_is_one_without_a_grant_too() {
    for stage in stages() {
        stage.store.outage(Some(Did::Unknown));
        let unknown = Verdict::Unknown { last: Some("reset".into()) };
        stage.run_to(open(&stage, 1), secs(1), unknown).await.unwrap().ignore();
        let refused = refusal(stage.ran(open(&stage, 1), secs(1), "never").await);
        assert!(matches!(&refused, Refusal::OutcomeUnknown { last: Some(l), .. } if &**l == "reset"), "{refused:?}");
        stage.store.outage(None);
        stage.is_quiet().await;
        let record = stage.record(1).await.unwrap();
        assert_eq!(record.state, StateCode::Unknown);
        assert_eq!(Rest::read(&record.rest).unwrap().payload, Payload::Words("reset".into()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_has_answered_and_keeps_an_open_rule_closed() {
    let stage = Stage::with(Capacity { records: 1, ..Capacity::default() }, |b| b);
    stage.ran(open(&stage, 1), secs(1), "charged").await.ignore();
    assert_eq!(refusal(stage.ran(open(&stage, 2), secs(1), "never").await), Refusal::StoreFull);
}

/// What every store says by its answers, whatever it knows of itself.
#[tokio::test(start_paused = true)]
async fn a_store_counts_as_full_from_a_refused_claim_to_a_grant_and_no_longer_than_a_while() {
    let stage = Stage::with(Capacity { records: 1, ..Capacity::default() }, |b| b);
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    assert!(!stage.engine.store_state().full);
    let refused = async || refusal(stage.ran(stage.call(2), secs(1), "never").await);
    assert_eq!(refused().await, Refusal::StoreFull);
    assert!(stage.engine.store_state().full);
    stage.ran(stage.call(1), secs(1), "never").await.ignore();
    assert!(stage.engine.store_state().full, "a replay takes no room");
    // Nobody asks any more, as nobody is sent here: then it is tried again.
    after(secs(15)).await;
    assert!(!stage.engine.store_state().full);
    assert_eq!(refused().await, Refusal::StoreFull);
    stage.forget(1);
    stage.ran(stage.call(2), secs(1), "charged").await.ignore();
    assert!(!stage.engine.store_state().full, "there was room");
}

#[tokio::test(start_paused = true)]
async fn its_answer_waits_for_no_store_that_did_not_answer_before() {
    let stage = Stage::far();
    stage.ran(stage.call(2), secs(1), "charged").await.ignore();
    for n in 1..5 {
        stage.store.fail(Op::Claim, n, Fault::HoldCall);
        stage.store.fail(Op::Settle, n, Fault::HoldCall);
    }
    let began = tokio::time::Instant::now();
    stage.ran(open(&stage, 1), millis(100), "charged").await.ignore();
    // Two tries to claim, the work, one try to record.
    assert!(began.elapsed() < millis(900), "{:?}", began.elapsed());
    stage.store.let_go();
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn work_without_a_grant_is_bounded_and_stopped_like_any_other() {
    let stage = Stage::new();
    stage.store.outage(Some(Did::Nothing));
    let policy = Policy::key().on_store_error(OnStoreError::Open).max_running(1).max_hold(secs(20)).build().unwrap();
    let call = |n| Call::new(stage.id(n), crate::stage::asked(1), std::sync::Arc::clone(&policy));
    let first = stage.run(call(1), secs(60), "never");
    after(secs(1)).await;
    assert_eq!(refusal(stage.ran(call(2), secs(1), "never").await), Refusal::TooManyRunning);
    let first = first.await.unwrap();
    assert!(matches!(first, Answer::Broken(semel_core::engine::Broken::Overheld)), "{first:?}");
    stage.store.outage(None);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn the_two_step_form_says_that_there_is_no_grant() {
    let stage = Stage::new();
    stage.store.outage(Some(Did::Nothing));
    let Begin::Unguarded { grant, why } = stage.engine.begin(open(&stage, 1)).await else { panic!("it says nothing") };
    assert_eq!((why, grant.run().unguarded()), (OpenReason::StoreDown, Some(OpenReason::StoreDown)));
    stage.store.outage(None);
    assert_eq!(grant.settle(Verdict::Keep(outcome("charged"))).await, Kept::Stored);
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

/// An outcome was recorded, the store went away a moment later, and the engine forgot all outcomes because the line broke
/// on which changes are told: the next copy ran a second time in the same process.
#[tokio::test(start_paused = true)]
async fn what_was_recorded_before_the_store_went_away_is_not_run_again() {
    let stage = Stage::far();
    let got = stage.ran(open(&stage, 1), secs(1), "charged").await;
    assert!(matches!(got, Answer::Executed { kept: Kept::Stored, .. }), "{got:?}");
    goes_away(&stage);
    for _ in 0..3 {
        let got = stage.ran(open(&stage, 1), secs(1), "never").await;
        assert!(matches!(got, Answer::Replayed { waited: false, .. }), "{got:?}");
    }
    let policy = Policy::key().on_store_error(OnStoreError::Open).build().unwrap();
    let other = Call::new(stage.id(1), crate::stage::asked(2), policy);
    assert_eq!(refusal(stage.ran(other, secs(1), "never").await), Refusal::KeyReused);
    assert_eq!((stage.effects(), stage.engine.store_state().local.remembered), (1, 4));
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_longer_than_its_time_is_for_a_store_that_is_away() {
    let stage = Stage::far();
    let call = || stage.call_with(1, Policy::key().ttl(secs(600)).on_store_error(OnStoreError::Open));
    stage.ran(call(), secs(1), "charged").await.ignore();
    after(secs(500)).await;
    let asked = stage.store.count(Op::Claim);
    stage.ran(call(), secs(1), "never").await.ignore();
    assert_eq!(stage.store.count(Op::Claim), asked + 1, "the store answers, so it is asked");
    after(secs(50)).await;
    stage.store.outage(Some(Did::Nothing));
    assert_eq!(answer(&stage.ran(call(), secs(1), "never").await), "charged");
    // Never past the record's own end.
    after(secs(100)).await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "again").await), "again");
    assert_eq!(stage.effects(), 2);
    stage.store.outage(None);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_closed_rule_is_refused_whatever_is_remembered_of_before_the_line_broke() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    goes_away(&stage);
    let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::StoreUnavailable { .. }), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_answers_is_asked_and_what_it_says_takes_the_place_of_what_was_remembered() {
    let stage = Stage::far();
    stage.ran(open(&stage, 1), secs(1), "first").await.ignore();
    goes_away(&stage);
    assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "never").await), "first");
    // It comes back without the record: a person deleted it, and nobody heard.
    stage.store.outage(None);
    stage.forget(1);
    let release = Verdict::Release { counts: true, answer: None };
    stage.run_to(open(&stage, 1), secs(1), release).await.unwrap().ignore();
    goes_away(&stage);
    assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "second").await), "second");
    stage.store.outage(None);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_person_deleted_before_the_store_went_away_runs() {
    let stage = Stage::far();
    stage.ran(open(&stage, 1), secs(1), "first").await.ignore();
    assert!(stage.store.inner().delete(&stage.id(1), StateCode::Done).await.unwrap());
    stage.store.inner().listeners().iter().for_each(|listener| listener.changed(stage.id(1).digest()));
    goes_away(&stage);
    assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "second").await), "second");
    stage.store.outage(None);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_nobody_can_tell_keeps_copies_out_while_the_store_is_away() {
    let stage = Stage::far();
    let unknown = Verdict::Unknown { last: Some("reset".into()) };
    stage.run_to(open(&stage, 1), secs(1), unknown).await.unwrap().ignore();
    // What another process recorded so, and this one was told.
    let other = stage.neighbour();
    other.run_to(other.call(2), secs(1), Verdict::Unknown { last: None }).await.unwrap().ignore();
    assert!(matches!(refusal(stage.ran(open(&stage, 2), secs(1), "never").await), Refusal::OutcomeUnknown { .. }));
    goes_away(&stage);
    for n in 1..3 {
        let refused = refusal(stage.ran(open(&stage, n), secs(1), "never").await);
        assert!(matches!(&refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    }
    stage.is_quiet().await;
}

/// Recording is given up after `settle_for`: what the attempt came to was forgotten then, and the next copy ran.
#[tokio::test(start_paused = true)]
async fn an_outcome_whose_recording_was_given_up_keeps_copies_out_while_the_store_is_away() {
    for is_guarded in [true, false] {
        let stage = Stage::far();
        let first = if is_guarded {
            let first = stage.run(open(&stage, 1), secs(2), "charged");
            after(secs(1)).await;
            goes_away(&stage);
            first.await.unwrap()
        } else {
            goes_away(&stage);
            stage.ran(open(&stage, 1), secs(2), "charged").await
        };
        assert_eq!(answer(&first), "charged");
        after(secs(300)).await;
        assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "never").await), "charged");
        assert_eq!(stage.effects(), 1, "guarded: {is_guarded}");
        stage.is_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_outcome_too_large_to_be_remembered_keeps_copies_out_while_the_store_is_away() {
    let stage = Stage::far_with(|b| b.tier(TierConfig { bytes: 64 << 10, ..TierConfig::default() }));
    let large = Outcome::new(Format::JSON, b"".as_slice(), vec![b'x'; 16 << 10]);
    stage.run_to(open(&stage, 1), secs(1), Verdict::Keep(large)).await.unwrap().ignore();
    let asked = stage.store.count(Op::Claim);
    let run = |n| stage.run_to(open(&stage, n), secs(1), Verdict::Unknown { last: None });
    assert!(matches!(run(1).await.unwrap(), Answer::Replayed { .. }), "the store has all of it");
    assert_eq!(stage.store.count(Op::Claim), asked + 1);
    goes_away(&stage);
    let refused = run(1).await.unwrap();
    assert!(matches!(refused, Answer::Refused(Refusal::OutcomeUnavailable { .. })), "{refused:?}");
    stage.is_quiet().await;
}

/// Another's outcome stood where this process wanted to record its own: that is known here when the store goes away.
#[tokio::test(start_paused = true)]
async fn what_refused_a_settlement_keeps_copies_out_while_the_store_is_away() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let first = stage.run(open(&stage, 1), secs(2), "mine");
    after(secs(1)).await;
    stage.forget(1);
    other.ran(open(&other, 1), millis(10), "theirs").await.ignore();
    assert!(matches!(first.await.unwrap(), Answer::Executed { kept: Kept::Lost { .. }, .. }));
    goes_away(&stage);
    assert_eq!(answer(&stage.ran(open(&stage, 1), secs(1), "again").await), "theirs");
    assert_eq!(stage.effects(), 2);
    stage.store.outage(None);
    stage.is_quiet().await;
}

/// What is remembered because it could not be recorded is for a store that is away. One that answers is asked.
#[tokio::test(start_paused = true)]
async fn an_outcome_whose_recording_was_given_up_is_not_given_in_place_of_a_store_that_answers() {
    let stage = Stage::far_with(|b| b.times(Times { settle_for: secs(5), ..Times::default() }));
    let first = stage.run(open(&stage, 1), secs(2), "charged");
    after(secs(1)).await;
    stage.store.outage(Some(Did::Nothing));
    assert_eq!(answer(&first.await.unwrap()), "charged");
    // It was given up ten seconds after the beginning at the latest, and the lease ended then.
    after(secs(9)).await;
    stage.store.outage(None);
    let asked = stage.store.count(Op::Claim);
    let refused = refusal(stage.ran(open(&stage, 1), secs(1), "never").await);
    assert!(matches!(refused, Refusal::OutcomeUnknown { .. }), "{refused:?}");
    assert_eq!(stage.store.count(Op::Claim), asked + 1);
    stage.is_quiet().await;
}
