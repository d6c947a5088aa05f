//! Every transition is one event, in order; the end of an unknown is one too.

use std::sync::Arc;

use semel_core::{
    engine::{Begin, Verdict},
    policy::Policy,
    record::StateCode,
    store::Did,
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Stage, after, millis, secs};

#[tokio::test(start_paused = true)]
async fn each_transition_is_told_once_and_in_order() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(2), "charged");
    after(secs(1)).await;
    let _waited = stage.ran(stage.call(1), secs(1), "never").await;
    let _first = first.await.unwrap();
    let _later = stage.ran(stage.call(1), secs(1), "never").await;
    assert_eq!(stage.told(), ["granted 1", "waiting", "settled keep Stored", "replayed waited", "replayed"]);

    let release = Verdict::Release { counts: true, answer: None };
    let _failed = stage.run_to(stage.call(2), secs(1), release).await.unwrap();
    let _again = stage.run_to(stage.call(2), secs(1), Verdict::Unknown { last: None }).await.unwrap();
    let _refused = stage.ran(stage.call(2), secs(1), "never").await;
    let told =
        ["granted 1", "settled release Released", "granted 2", "settled unknown Unknown", "refused outcome-unknown"];
    assert_eq!(stage.told(), told);
}

/// A grant that nobody used was told as settled without ever having been told as granted.
#[tokio::test(start_paused = true)]
async fn a_grant_that_is_given_back_is_told_as_granted_and_settled() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let run = stage.run(stage.call_with(1, Policy::key().lease(millis(100))), secs(1), "never");
    after(millis(150)).await;
    stage.store.let_go();
    let _refused = run.await.unwrap();
    assert_eq!(stage.told(), ["granted 1", "settled release Released", "refused store-unavailable"]);
}

#[tokio::test(start_paused = true)]
async fn the_sweeper_tells_of_unknowns_that_nobody_resolved() {
    let stage = Stage::new();
    let call = |n| stage.call_with(n, Policy::key().ttl(secs(60)));
    let Begin::Granted(grant) = stage.engine.begin(call(1)).await else { panic!("not granted") };
    let _kept = grant.settle(Verdict::Unknown { last: None }).await;
    let _done = stage.ran(call(2), secs(1), "charged").await;
    stage.told();
    stage.engine.sweep(Arc::new(stage.store.clone()), secs(10));
    after(secs(50)).await;
    assert_eq!(stage.told(), [""; 0]);
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    after(secs(30)).await;
    assert_eq!(stage.told(), ["unknownexpired"]);
    after(secs(600)).await;
    assert_eq!(stage.told(), [""; 0]);
}

/// A process that ended sooner than its sweeper began, each time, removed nothing.
#[tokio::test(start_paused = true)]
async fn the_sweeper_begins_at_once() {
    let stage = Stage::new();
    let call = stage.call_with(1, Policy::key().ttl(secs(60)));
    let Begin::Granted(grant) = stage.engine.begin(call).await else { panic!("not granted") };
    let _kept = grant.settle(Verdict::Unknown { last: None }).await;
    after(secs(70)).await;
    stage.told();
    stage.engine.sweep(Arc::new(stage.store.clone()), secs(3_600));
    after(secs(1)).await;
    assert_eq!(stage.told(), ["unknownexpired"]);
}

/// What a purge found in one look at a large store was taken for all that is left, and the rest waited for the next round.
#[tokio::test(start_paused = true)]
async fn the_sweeper_goes_on_while_there_is_more_and_rests_between_looks() {
    let stage = Stage::new();
    for n in 0..5 {
        let call = stage.call_with(n, Policy::key().ttl(secs(60)));
        let Begin::Granted(grant) = stage.engine.begin(call).await else { panic!("not granted") };
        let _kept = grant.settle(Verdict::Unknown { last: None }).await;
    }
    after(secs(70)).await;
    stage.told();
    stage.store.inner().purge_slowly(secs(2), 1);
    stage.engine.sweep(Arc::new(stage.store.clone()), secs(3_600));
    // Two seconds of work, and 98 of rest.
    after(secs(50)).await;
    assert_eq!(stage.told(), ["unknownexpired"; 1]);
    after(secs(100)).await;
    assert_eq!(stage.told(), ["unknownexpired"; 1]);
    after(secs(300)).await;
    assert_eq!(stage.told(), ["unknownexpired"; 3]);
    after(secs(100)).await;
    assert_eq!(stage.store.count(Op::Purge), 6, "the last one said that there is no more");
    after(secs(3_000)).await;
    assert_eq!(stage.store.count(Op::Purge), 6);
}

#[tokio::test(start_paused = true)]
async fn a_claim_in_the_place_of_an_unknown_that_ended_tells_of_it() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().ttl(secs(60)));
    let Begin::Granted(grant) = stage.engine.begin(call()).await else { panic!("not granted") };
    let _kept = grant.settle(Verdict::Unknown { last: None }).await;
    after(secs(61)).await;
    stage.told();
    let _run = stage.ran(call(), secs(1), "charged").await;
    assert_eq!(stage.told(), ["unknownexpired", "granted 1", "settled keep Stored"]);
}

#[tokio::test(start_paused = true)]
async fn a_sweeper_outlives_a_store_that_does_not_answer_and_ends_with_its_engine() {
    let stage = Stage::new();
    let (store, engine) = (stage.store.clone(), stage.engine.clone());
    engine.sweep(Arc::new(store.clone()), secs(10));
    store.outage(Some(Did::Unknown));
    after(secs(100)).await;
    store.outage(None);
    let before = store.count(Op::Purge);
    after(secs(100)).await;
    assert!((9..=10).contains(&(store.count(Op::Purge) - before)));
    drop((engine, stage));
    after(secs(20)).await;
    let end = store.count(Op::Purge);
    after(secs(1_000)).await;
    assert_eq!(store.count(Op::Purge), end);
}
