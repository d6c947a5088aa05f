//! Copies that come to one process at the same time, while their store does not answer all of them.

use semel_core::{
    engine::{Answer, Call},
    policy::{OnStoreError, Policy},
    record::StateCode,
    refusal::Refusal,
    store::Did,
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, millis, refusal, secs};

fn open(stage: &Stage) -> Call {
    stage.call_with(1, Policy::key().on_store_error(OnStoreError::Open))
}

/// On a store of this process each copy sends its own claim: that none is answered is known to all of them at once.
#[tokio::test(start_paused = true)]
async fn of_copies_whose_claims_nobody_answers_one_runs_without_a_grant() {
    let stage = Stage::new();
    (1..=20).for_each(|n| stage.store.fail(Op::Claim, n, Fault::HoldCall));
    let copies: Vec<_> = (0..10).map(|_| stage.run(open(&stage), secs(1), "charged")).collect();
    let mut unguarded = 0;
    for copy in copies {
        let got = copy.await.unwrap();
        assert_eq!(answer(&got), "charged");
        unguarded += usize::from(matches!(got, Answer::Unguarded { .. }));
    }
    assert_eq!((stage.effects(), unguarded), (1, 1));
    stage.store.let_go();
    stage.is_quiet().await;
}

/// One whose claim takes long finds that another has run meanwhile, and cannot be recorded.
#[tokio::test(start_paused = true)]
async fn a_copy_whose_claim_nobody_answers_gets_the_end_of_one_that_is_not_recorded_yet() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldCall);
    stage.store.fail(Op::Claim, 2, Fault::Refuse);
    stage.store.fail(Op::Claim, 3, Fault::HoldCall);
    (1..=10).for_each(|n| stage.store.fail(Op::Settle, n, Fault::Refuse));
    let copy = stage.run(open(&stage), secs(1), "twice");
    after(millis(10)).await;
    let first = stage.run(open(&stage), millis(100), "charged");
    for run in [first, copy] {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    assert_eq!(stage.effects(), 1);
    stage.store.let_go();
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

/// The store did not answer the one, which runs without a grant, and granted the other.
#[tokio::test(start_paused = true)]
async fn a_grant_is_given_back_where_a_copy_runs_without_one() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldCall);
    stage.store.fail(Op::Claim, 2, Fault::HoldCall);
    stage.store.fail(Op::Claim, 3, Fault::HoldReply);
    let first = stage.run(open(&stage), secs(5), "charged");
    after(millis(300)).await;
    let second = stage.run(open(&stage), secs(5), "twice");
    after(millis(220)).await;
    stage.store.let_go();
    let refused = refusal(second.await.unwrap());
    assert!(matches!(refused, Refusal::InFlight { .. }), "{refused:?}");
    let first = first.await.unwrap();
    assert!(matches!(first, Answer::Unguarded { value: "charged", .. }), "{first:?}");
    assert_eq!(stage.effects(), 1);
    stage.is_quiet().await;
}

/// What a rule does when its store does not answer is for each copy to say.
#[tokio::test(start_paused = true)]
async fn an_open_copy_runs_although_it_joined_the_claim_of_a_closed_one() {
    let stage = Stage::far();
    stage.ran(stage.call(2), millis(1), "the store's clock is known").await.ignore();
    (1..=2).for_each(|n| stage.store.fail(Op::Claim, n, Fault::HoldCall));
    let closed = stage.run(stage.call(1), secs(1), "never");
    after(millis(10)).await;
    let open = stage.run(open(&stage), secs(1), "charged");
    after(millis(100)).await;
    stage.store.outage(Some(Did::Nothing));
    assert!(matches!(refusal(closed.await.unwrap()), Refusal::StoreUnavailable { .. }));
    let open = open.await.unwrap();
    assert!(matches!(open, Answer::Unguarded { value: "charged", .. }), "{open:?}");
    stage.store.outage(None);
    stage.store.let_go();
    stage.is_quiet().await;
}
