//! Copies of claims that arrive late, when whoever sent them has gone on: each would stand until its time ends.

use std::sync::Arc;

use parking_lot::Mutex;
use semel_core::{
    Owner,
    engine::{Answer, Kept, Ran, Run, Times, Verdict},
    policy::{OnInFlight, OnStoreError, Policy},
    record::StateCode,
    refusal::Refusal,
    store::{Ask, Capacity, Claimed, Did, Store, StoreError},
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Ignore, Stage, after, answer, go, millis, refusal, secs};

type Strays = Arc<Mutex<Vec<Ask>>>;

/// The next `n` claims seem to be lost on their way, and are kept to arrive later.
fn strays(stage: &Stage, n: usize) -> Strays {
    let strays = Strays::default();
    let kept = Arc::clone(&strays);
    stage.store.inner().hook(move |ask| {
        let mut kept = kept.lock();
        (kept.len() < n).then(|| {
            kept.push(ask.clone());
            Err(StoreError::unavailable(Did::Unknown))
        })
    });
    strays
}

/// The last of them arrives, and is granted; everything that was begun comes to its end.
async fn arrives(stage: &Stage, strays: &Strays) {
    let ask = strays.lock().pop().unwrap();
    stage.store.inner().unhook();
    let granted = stage.store.inner().claim(&ask).await;
    assert!(matches!(granted, Ok(Claimed::Granted { .. })), "{granted:?}");
    stage.is_quiet().await;
}

fn release() -> Verdict {
    Verdict::Release { counts: false, answer: None }
}

/// The store's clock may be behind what is believed here by as long as a call took. So a copy can be granted although the
/// claim was taken back two time-outs after it was sent.
#[tokio::test(start_paused = true)]
async fn a_claim_is_taken_back_until_no_copy_of_it_can_be_granted() {
    let stage = Stage::new();
    stage.store.fail(Op::Health, 1, Fault::HoldCall);
    let strays = strays(&stage, 2);
    let copy = stage.run(stage.call(1), secs(1), "never");
    after(millis(200)).await;
    stage.store.let_go();
    let refused = refusal(copy.await.unwrap());
    assert!(matches!(refused, Refusal::StoreUnavailable { did: Did::Unknown, .. }), "{refused:?}");
    after(millis(600)).await;
    assert_eq!(stage.store.count(Op::Release), 1);
    arrives(&stage, &strays).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// The reply to claiming again was lost, the work came to nothing, and so did another's: the copy finds a free record.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_made_again_strands_nothing() {
    let stage = Stage::new();
    let (engine, call, store) = (stage.engine.clone(), stage.call(1), stage.store.clone());
    let running = go(async move {
        let work = async move |_run: Run| {
            while store.count(Op::Claim) < 3 {
                after(millis(1)).await;
            }
            Ran { value: (), verdict: release() }
        };
        engine.run(call, work).await
    });
    after(secs(1)).await;
    let strays = strays(&stage, 1);
    stage.forget(1);
    running.await.unwrap().ignore();
    stage.run_to(stage.call(1), millis(10), release()).await.unwrap().ignore();
    arrives(&stage, &strays).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// The repeat of a claim found another's attempt, and nobody knew of the first copy any more.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_that_found_another_strands_nothing() {
    let stage = Stage::new();
    let other = stage.neighbour();
    let there = other.run_to(other.call(1), millis(100), release());
    after(millis(50)).await;
    let strays = strays(&stage, 1);
    let reject = stage.call_with(1, Policy::key().on_in_flight(OnInFlight::Reject));
    assert!(matches!(refusal(stage.ran(reject, secs(1), "never").await), Refusal::InFlight { .. }));
    there.await.unwrap().ignore();
    arrives(&stage, &strays).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// Whoever runs without a grant has settled when its own claim arrives after all.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_that_ran_without_a_grant_strands_nothing() {
    let stage = Stage::new();
    let strays = strays(&stage, 2);
    let open = stage.call_with(1, Policy::key().on_store_error(OnStoreError::Open));
    let got = stage.run_to(open, millis(10), release()).await.unwrap();
    assert!(matches!(got, Answer::Unguarded { kept: Kept::Released, .. }), "{got:?}");
    arrives(&stage, &strays).await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// And whoever found that a copy runs here without a grant.
#[tokio::test(start_paused = true)]
async fn a_stray_copy_of_a_claim_that_joined_a_run_without_a_grant_strands_nothing() {
    let stage = Stage::new();
    let open = || stage.call_with(1, Policy::key().on_store_error(OnStoreError::Open));
    let strays = strays(&stage, 1);
    stage.store.fail(Op::Claim, 2, Fault::HoldCall);
    stage.store.fail(Op::Claim, 3, Fault::Refuse);
    let copy = stage.run(open(), secs(1), "twice");
    after(millis(10)).await;
    let first = stage.run(open(), millis(400), "charged");
    after(millis(300)).await;
    stage.store.inner().unhook();
    let ask = strays.lock().pop().unwrap();
    let granted = stage.store.inner().claim(&ask).await;
    assert!(matches!(granted, Ok(Claimed::Granted { .. })), "{granted:?}");
    for run in [first, copy] {
        assert_eq!(answer(&run.await.unwrap()), "charged");
    }
    assert_eq!(stage.effects(), 1);
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
}

/// A short lease is over before two time-outs are: a claim that arrives then is of no use to anybody.
#[tokio::test(start_paused = true)]
async fn a_claim_is_refused_once_the_lease_that_it_asks_for_would_be_over() {
    let stage = Stage::new();
    stage.ran(stage.call(9), millis(1), "the store's clock is known").await.ignore();
    let strays = strays(&stage, 2);
    let call = stage.call_with(1, Policy::key().lease(millis(300)));
    stage.ran(call, secs(1), "never").await.ignore();
    after(millis(290)).await;
    let ask = strays.lock().pop().unwrap();
    let late = stage.store.inner().memory().claim(&ask).await;
    assert!(matches!(late, Ok(Claimed::Late { .. })), "{late:?}");
    stage.is_quiet().await;
}

/// It ran without a grant, its own claim came meanwhile, and nobody could have that one to record the outcome by: it was called
/// lost, and the record of what had run was freed with it.
#[tokio::test(start_paused = true)]
async fn what_ran_without_a_grant_and_was_not_recorded_is_not_freed_with_its_own_claim() {
    let times = Times { settle_for: millis(600), ..Times::default() };
    let stage = Stage::with(Capacity::default(), |builder| builder.times(times));
    let strays = strays(&stage, 2);
    let open = stage.call_with(1, Policy::key().on_store_error(OnStoreError::Open));
    let run = stage.run(open, secs(1), "charged");
    after(millis(100)).await;
    let ask = strays.lock().pop().unwrap();
    stage.store.inner().unhook();
    assert!(matches!(stage.store.inner().claim(&ask).await, Ok(Claimed::Granted { .. })));
    (1..1_000).for_each(|nth| stage.store.fail(Op::Claim, nth, Fault::LoseCall));
    let got = run.await.unwrap();
    let Answer::Unguarded { kept, .. } = got else { panic!("it ran without a grant: {got:?}") };
    after(secs(10)).await;
    assert_eq!((kept, stage.effects()), (Kept::Unrecorded, 1));
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    let told = stage.told();
    assert!(!told.contains(&"latesettlementrefused".to_owned()), "{told:?}");
}

/// A copy may be under way for longer than the work takes. A store that does not look at its time when it comes has to be told.
#[tokio::test(start_paused = true)]
async fn a_claim_whose_copy_may_come_is_taken_back_however_long_its_work_took() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    stage.ran(stage.call(1), secs(60), "done").await.ignore();
    stage.is_quiet().await;
    assert_eq!((stage.store.count(Op::Claim), stage.store.count(Op::Release)), (2, 1));
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

/// Between a renewal that found no record and the claim that was to put it back, another claimed it.
#[tokio::test(start_paused = true)]
async fn a_record_that_another_claimed_before_it_was_claimed_again_is_lost() {
    let stage = Stage::new();
    // It ends after the first renewal, and before the next.
    let running = stage.run(stage.call(1), secs(5), "mine");
    after(secs(1)).await;
    stage.forget(1);
    let shared = stage.store.inner().clone();
    stage.store.inner().hook(move |ask| {
        let theirs = Ask::new(Owner::from_bytes([7; 16]), (**ask).clone());
        let granted = shared.memory().claim(&theirs).try_ready();
        drop(granted);
        None
    });
    let got = running.await.unwrap();
    assert!(matches!(got, Answer::Executed { kept: Kept::Lost { recorded: None }, .. }), "{got:?}");
    let told = stage.told();
    assert!(told.contains(&"leaselost".to_owned()), "{told:?}");
}

/// The reply to its claim was lost, the repeat was granted, the work ran, and the store did not answer until nobody tried to
/// record it any more: then the record was freed with the first copy, as if nothing had run.
#[tokio::test(start_paused = true)]
async fn what_ran_and_was_not_recorded_is_not_freed_with_a_stray_copy() {
    let times = Times { settle_for: millis(100), ..Times::default() };
    let stage = Stage::with(Capacity::default(), |builder| builder.times(times));
    stage.store.fail(Op::Claim, 1, Fault::LoseReply);
    (1..1_000).for_each(|nth| stage.store.fail(Op::Settle, nth, Fault::LoseCall));
    let Answer::Executed { kept, .. } = stage.run(stage.call(1), millis(10), "done").await.unwrap() else {
        panic!("its repeat is granted")
    };
    assert_eq!((kept, stage.store.count(Op::Claim)), (Kept::Unrecorded, 2));
    after(secs(5)).await;
    assert_eq!(stage.state(1).await, Some((StateCode::InFlight, 1)));
}
