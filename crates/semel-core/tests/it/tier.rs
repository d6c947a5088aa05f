//! What a process answers by itself, without its store: counted, not assumed.

use semel_core::{
    engine::{Answer, Call, EngineBuilder, TierConfig},
    judge::Caller,
    policy::{OnDuplicate, OnInFlight, Policy},
    record::StateCode,
    refusal::Refusal,
    store::{Did, StoreAdmin},
};
use semel_testkit::faults::{Fault, Op};
use tokio::task::JoinHandle;

use crate::stage::{Ignore, Stage, after, answer, asked, go, millis, refusal, secs};

fn storm(stage: &Stage, n: usize) -> Vec<JoinHandle<Answer<&'static str>>> {
    (0..n).map(|_| stage.run(stage.call(1), secs(2), "charged")).collect()
}

async fn all_charged(storm: Vec<JoinHandle<Answer<&'static str>>>) {
    for copy in storm {
        assert_eq!(answer(&copy.await.unwrap()), "charged");
    }
}

/// The usual call about the first key, with another question.
fn other_question(stage: &Stage) -> Call {
    Call::new(stage.id(1), asked(2), Policy::key().build().unwrap())
}

fn by(n: u8) -> Caller {
    Caller { credentials: Some([n; 16]), request: Some([n; 16]) }
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_copies_costs_the_store_three_commands() {
    let stage = Stage::far();
    all_charged(storm(&stage, 100)).await;
    assert_eq!(stage.effects(), 1);
    // Its time, the claim, the outcome.
    assert!(stage.store.counted() <= 3, "{} commands", stage.store.counted());
    assert_eq!(stage.engine.store_state().local.joined, 99);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn copies_that_come_while_the_claim_is_on_its_way_send_none_of_their_own() {
    let stage = Stage::far();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let storm = storm(&stage, 100);
    after(millis(200)).await;
    stage.store.let_go();
    all_charged(storm).await;
    assert_eq!((stage.effects(), stage.store.count(Op::Claim)), (1, 1));
    assert!(stage.store.counted() <= 3, "{} commands", stage.store.counted());
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn replays_of_a_remembered_outcome_cost_the_store_nothing() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    let before = stage.store.counted();
    for _ in 0..100 {
        let got = stage.ran(stage.call(1), secs(1), "never").await;
        assert!(matches!(got, Answer::Replayed { waited: false, .. }), "{got:?}");
    }
    assert_eq!(stage.store.counted(), before);
    assert_eq!(stage.engine.store_state().local.remembered, 100);
}

#[tokio::test(start_paused = true)]
async fn what_another_process_recorded_is_asked_for_once() {
    let stage = Stage::far();
    let other = stage.neighbour();
    other.ran(other.call(1), secs(1), "charged").await.ignore();
    for _ in 0..50 {
        assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    }
    assert_eq!(stage.store.count(Op::Claim), 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_remembered_for_ten_seconds() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    after(millis(9_900)).await;
    stage.ran(stage.call(1), secs(1), "never").await.ignore();
    assert_eq!(stage.store.count(Op::Claim), 1);
    after(millis(200)).await;
    stage.ran(stage.call(1), secs(1), "never").await.ignore();
    assert_eq!(stage.store.count(Op::Claim), 2);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_not_remembered_past_its_end() {
    let stage = Stage::far();
    let call = || stage.call_with(1, Policy::key().ttl(secs(3)).on_in_flight(OnInFlight::Reject));
    stage.ran(call(), secs(1), "first").await.ignore();
    after(millis(2_900)).await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "never").await), "first");
    after(millis(200)).await;
    assert_eq!(answer(&stage.ran(call(), secs(1), "second").await), "second");
}

#[tokio::test(start_paused = true)]
async fn another_question_gets_no_remembered_outcome() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    let before = stage.store.counted();
    let refused = refusal(stage.ran(other_question(&stage), secs(1), "never").await);
    assert_eq!((refused, stage.store.counted()), (Refusal::KeyReused, before));
}

#[tokio::test(start_paused = true)]
async fn another_question_joins_no_attempt() {
    let stage = Stage::far();
    let first = stage.run(stage.call(1), secs(2), "charged");
    after(secs(1)).await;
    let refused = refusal(stage.ran(other_question(&stage), secs(1), "never").await);
    assert_eq!((refused, stage.store.count(Op::Claim)), (Refusal::KeyReused, 1));
    first.await.unwrap().ignore();
}

#[tokio::test(start_paused = true)]
async fn another_question_during_the_claim_is_told_what_the_record_says() {
    let stage = Stage::far();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let first = stage.run(stage.call(1), secs(2), "charged");
    let other = stage.run(other_question(&stage), secs(1), "never");
    after(millis(100)).await;
    stage.store.let_go();
    assert_eq!((refusal(other.await.unwrap()), stage.store.count(Op::Claim)), (Refusal::KeyReused, 1));
    first.await.unwrap().ignore();
}

#[tokio::test(start_paused = true)]
async fn a_stranger_gets_nothing_that_is_known_here() {
    let stage = Stage::far();
    let first = stage.run(stage.call(1).by(by(1)), secs(2), "charged");
    after(secs(1)).await;
    assert_eq!(refusal(stage.ran(stage.call(1).by(by(2)), secs(1), "never").await), Refusal::Stranger);
    first.await.unwrap().ignore();
    assert_eq!(refusal(stage.ran(stage.call(1).by(by(2)), secs(1), "never").await), Refusal::Stranger);
    assert_eq!(refusal(stage.ran(stage.call(1), secs(1), "never").await), Refusal::Stranger);
    assert_eq!(answer(&stage.ran(stage.call(1).by(by(1)), secs(1), "never").await), "charged");
    assert_eq!(stage.store.count(Op::Claim), 1);
}

#[tokio::test(start_paused = true)]
async fn a_remembered_outcome_is_rejected_or_replayed_as_the_rule_says() {
    let stage = Stage::far();
    let call = || stage.call_with(1, Policy::key().on_duplicate(OnDuplicate::Reject));
    stage.ran(call().by(Caller { request: Some([1; 16]), ..Caller::default() }), secs(1), "charged").await.ignore();
    let click = stage.ran(call().by(Caller { request: Some([2; 16]), ..Caller::default() }), secs(1), "never").await;
    assert!(matches!(refusal(click), Refusal::Duplicate { rest_of_window: Some(_), .. }));
    let retry = stage.ran(call().by(Caller { request: Some([1; 16]), ..Caller::default() }), secs(1), "never").await;
    assert_eq!((answer(&retry), stage.store.count(Op::Claim)), ("charged", 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_but_a_recorded_outcome_is_remembered() {
    let stage = Stage::far();
    let unknown = semel_core::engine::Verdict::Unknown { last: None };
    stage.run_to(stage.call(1), secs(1), unknown).await.unwrap().ignore();
    for n in 2..5 {
        let refused = refusal(stage.ran(stage.call(1), secs(1), "never").await);
        assert!(matches!(refused, Refusal::OutcomeUnknown { .. }));
        assert_eq!(stage.store.count(Op::Claim), n);
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_or_time_nothing_is_remembered() {
    let off: [fn(EngineBuilder) -> EngineBuilder; 2] = [
        |b| b.tier(TierConfig { bytes: 0, ..TierConfig::default() }),
        |b| b.tier(TierConfig { ttl: secs(0), ..TierConfig::default() }),
    ];
    for off in off {
        let stage = Stage::far_with(off);
        all_charged(storm(&stage, 10)).await;
        assert_eq!(stage.store.count(Op::Claim), 1, "copies still join");
        stage.ran(stage.call(1), secs(1), "never").await.ignore();
        assert_eq!(stage.store.count(Op::Claim), 2);
        assert!(stage.store.inner().listeners().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_remembered_is_bounded_by_bytes() {
    let bytes = 64 << 10;
    let stage = Stage::far_with(|b| b.tier(TierConfig { bytes, ..TierConfig::default() }));
    for n in 0..1_000 {
        stage.ran(stage.call(n), millis(1), "charged").await.ignore();
    }
    let held = stage.engine.store_state().local.bytes;
    assert!(held > bytes / 4 && held <= bytes, "{held} bytes");
}

#[tokio::test(start_paused = true)]
async fn a_store_of_this_process_is_always_asked() {
    let stage = Stage::new();
    for _ in 0..3 {
        stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    }
    assert_eq!((stage.store.count(Op::Claim), stage.store.count(Op::Health)), (3, 1));
    assert_eq!(stage.engine.store_state().local, semel_core::engine::Local::default());
}

#[tokio::test(start_paused = true)]
async fn what_a_person_deletes_is_forgotten_when_it_is_published() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "first").await.ignore();
    let store = stage.store.inner();
    assert!(store.delete(&stage.id(1), StateCode::Done).await.unwrap());
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "first", "nobody has said a word");
    for listener in store.listeners() {
        listener.changed(stage.id(1).digest());
    }
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "second").await), "second");
}

#[tokio::test(start_paused = true)]
async fn where_nobody_publishes_a_deletion_is_seen_within_ten_seconds() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "first").await.ignore();
    assert!(stage.store.inner().delete(&stage.id(1), StateCode::Done).await.unwrap());
    after(millis(10_100)).await;
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "second").await), "second");
}

/// The reply of a claim was on its way when the record that it shows was deleted.
#[tokio::test(start_paused = true)]
async fn what_was_read_before_a_deletion_is_not_remembered_after_it() {
    let stage = Stage::far();
    let other = stage.neighbour();
    other.ran(other.call(1), secs(1), "first").await.ignore();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let copy = stage.run(stage.call(1), secs(1), "never");
    after(millis(100)).await;
    let store = stage.store.inner();
    assert!(store.delete(&stage.id(1), StateCode::Done).await.unwrap());
    for listener in store.listeners() {
        listener.changed(stage.id(1).digest());
    }
    stage.store.let_go();
    assert_eq!(answer(&copy.await.unwrap()), "first", "it came before the deletion");
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "second").await), "second");
}

#[tokio::test(start_paused = true)]
async fn all_is_forgotten_when_changes_may_have_been_missed() {
    let stage = Stage::far();
    stage.ran(stage.call(1), secs(1), "charged").await.ignore();
    stage.store.inner().listeners().iter().for_each(|l| l.missed());
    stage.ran(stage.call(1), secs(1), "never").await.ignore();
    assert_eq!(stage.store.count(Op::Claim), 2);
}

#[tokio::test(start_paused = true)]
async fn copies_share_the_refusal_of_a_claim_that_nobody_answered() {
    let stage = Stage::far();
    stage.ran(stage.call(2), secs(1), "charged").await.ignore();
    let before = stage.store.count(Op::Claim);
    stage.store.fail(Op::Claim, 1, Fault::HoldCall);
    stage.store.fail(Op::Claim, 2, Fault::HoldCall);
    for copy in storm(&stage, 50) {
        assert!(matches!(refusal(copy.await.unwrap()), Refusal::StoreUnavailable { .. }));
    }
    assert_eq!(stage.store.count(Op::Claim) - before, 2, "the claim and its repeat");
    stage.store.let_go();
    stage.is_quiet().await;
}

/// The one whose claim the others wait for may leave before it is answered.
#[tokio::test(start_paused = true)]
async fn a_caller_who_leaves_strands_none_of_those_who_wait_for_its_claim() {
    let stage = Stage::far();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let first = go(async move { drop(engine.begin(call).await) });
    after(millis(50)).await;
    let storm = storm(&stage, 10);
    after(millis(50)).await;
    first.abort();
    stage.store.let_go();
    // Nobody took the grant: it was given back, and they may come again.
    let began = tokio::time::Instant::now();
    for copy in storm {
        let refused = refusal(copy.await.unwrap());
        assert!(matches!(refused, Refusal::InFlight { retry_after } if retry_after <= millis(100)), "{refused:?}");
    }
    assert!(began.elapsed() < millis(100));
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "charged").await), "charged");
    stage.is_quiet().await;
}

/// One whose claim the others wait for may hold its future and never look at it again.
#[tokio::test(start_paused = true)]
async fn a_caller_who_does_not_poll_holds_up_nobody_else() {
    let stage = Stage::far();
    stage.ran(stage.call(2), millis(1), "charged").await.ignore();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let reject = || stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Reject));
    let mut first = Box::pin(stage.engine.begin(reject()));
    tokio::select! {
        biased;
        _ = &mut first => panic!("the reply is held"),
        () = after(millis(1)) => {}
    }
    stage.store.let_go();
    let began = tokio::time::Instant::now();
    let refused = refusal(stage.ran(reject(), secs(1), "never").await);
    assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
    assert!(began.elapsed() <= secs(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn copies_of_an_attempt_elsewhere_share_one_claim() {
    let stage = Stage::far();
    let other = stage.neighbour();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let there = other.run(other.call(1), secs(3), "charged");
    after(millis(10)).await;
    let storm = storm(&stage, 50);
    after(millis(100)).await;
    stage.store.let_go();
    all_charged(storm).await;
    there.await.unwrap().ignore();
    assert_eq!((stage.effects(), stage.store.count(Op::Claim)), (1, 1));
}

/// A copy came after the outcome was known elsewhere, joined a claim whose reply was older than that and still on its
/// way, and was told that the attempt is under way.
#[tokio::test(start_paused = true)]
async fn a_copy_is_not_refused_for_what_was_so_before_it_came() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let reject = |stage: &Stage| stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Reject));
    let there = other.run(reject(&other), millis(100), "charged");
    after(millis(50)).await;
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let early = stage.run(reject(&stage), secs(1), "never");
    after(millis(100)).await;
    there.await.unwrap().ignore();
    let late: Vec<_> = (0..50).map(|_| stage.run(reject(&stage), secs(1), "never")).collect();
    after(millis(10)).await;
    stage.store.let_go();
    assert!(matches!(refusal(early.await.unwrap()), Refusal::InFlight { .. }), "it was so when it came");
    all_charged(late).await;
    assert_eq!(stage.store.count(Op::Claim), 2, "one for all that came too late for the first");
}

/// The outcome was recorded and the reply to that was lost: others knew it, and copies here were told of an attempt under
/// way.
#[tokio::test(start_paused = true)]
async fn a_copy_is_not_told_of_an_attempt_whose_outcome_others_know() {
    for wait in [OnInFlight::Reject, OnInFlight::Wait(secs(10))] {
        let stage = Stage::far();
        let call = || stage.call_with(1, Policy::key().on_in_flight(wait));
        stage.store.fail(Op::Settle, 1, Fault::HoldReply);
        let mut hold = |n| stage.store.fail(Op::Settle, n, Fault::HoldCall);
        (2..20).for_each(&mut hold);
        let first = stage.run(call(), secs(1), "charged");
        after(millis(1_100)).await;
        let other = stage.neighbour();
        assert_eq!(answer(&other.ran(other.call(1), secs(1), "never").await), "charged", "it is known");
        let began = tokio::time::Instant::now();
        assert_eq!(answer(&stage.ran(call(), secs(1), "never").await), "charged", "{wait:?}");
        assert!(began.elapsed() < secs(1), "{:?}", began.elapsed());
        stage.store.let_go();
        first.await.unwrap().ignore();
        stage.is_quiet().await;
    }
}

/// What this process believes of an attempt ends with its lease: another may hold the record by then.
#[tokio::test(start_paused = true)]
async fn once_the_lease_is_over_here_the_store_is_asked() {
    let stage = Stage::far();
    let call = || stage.call_with(1, Policy::key().lease(secs(4)).on_in_flight(OnInFlight::Reject));
    let first = stage.run(call(), secs(12), "charged");
    after(millis(100)).await;
    stage.store.outage(Some(Did::Unknown));
    after(secs(5)).await;
    stage.store.outage(None);
    let before = stage.store.count(Op::Claim);
    // The record stands with its lease over, or renewed meanwhile; in either case it is the store that says so.
    stage.ran(call(), secs(1), "never").await.ignore();
    assert_eq!(stage.store.count(Op::Claim), before + 1);
    assert_eq!(answer(&first.await.unwrap()), "charged");
}

/// A flight whose attempt was refused at its end has nobody to tell it; its waiters must not sleep until the lease ends.
#[tokio::test(start_paused = true)]
async fn waiters_of_an_attempt_that_came_too_late_hear_from_the_store() {
    let stage = Stage::far();
    let first = stage.run(stage.call(1), secs(2), "charged");
    after(secs(1)).await;
    let copy = stage.run(stage.call(1), secs(1), "never");
    after(millis(100)).await;
    // Another process has it by now.
    stage.forget(1);
    let other = stage.neighbour();
    other.ran(other.call(1), millis(10), "elsewhere").await.ignore();
    let began = tokio::time::Instant::now();
    assert_eq!(answer(&copy.await.unwrap()), "elsewhere");
    assert!(began.elapsed() < secs(2), "{:?}", began.elapsed());
    first.await.unwrap().ignore();
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_waiter_was_told_of_an_attempt_elsewhere_is_remembered() {
    let stage = Stage::far();
    let other = stage.neighbour();
    let there = other.run(other.call(1), secs(2), "charged");
    after(secs(1)).await;
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    there.await.unwrap().ignore();
    let before = stage.store.counted();
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "never").await), "charged");
    assert_eq!(stage.store.counted(), before);
}
