//! `on_store_error = "open"`: what runs without a grant is marked, counted, run once in each process, and recorded if
//! that can be.

use semel_core::{
    engine::{Answer, Begin, Call, Kept, OpenReason, Verdict},
    policy::{OnStoreError, Policy},
    record::{Payload, Rest, StateCode},
    refusal::Refusal,
    store::{Capacity, Did},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, millis, outcome, refusal, secs};

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
