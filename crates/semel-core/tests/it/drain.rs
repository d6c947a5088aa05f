//! What a drain waits for.

use semel_core::{
    engine::{Begin, Drained},
    record::StateCode,
    store::Did,
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Stage, after, millis, secs};

#[tokio::test(start_paused = true)]
async fn a_drain_of_nothing_ends_at_once() {
    let start = tokio::time::Instant::now();
    let drained = Stage::new().engine.drain(secs(60)).await;
    assert_eq!((drained, start.elapsed().as_millis()), (Drained { finished: 0, abandoned: 0 }, 0));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_work_whose_caller_has_left() {
    let stage = Stage::new();
    stage.run(stage.call(1), secs(3), "charged").abort();
    let caller = stage.run(stage.call(2), secs(5), "charged");
    after(millis(10)).await;
    caller.abort();
    let start = tokio::time::Instant::now();
    let drained = stage.engine.drain(secs(60)).await;
    assert_eq!((drained.abandoned, stage.effects()), (0, 1));
    assert_eq!(start.elapsed().as_millis(), 4_990);
}

#[tokio::test(start_paused = true)]
async fn a_drain_gives_up_at_its_deadline_and_says_what_is_left() {
    let stage = Stage::new();
    let _short = stage.run(stage.call(1), secs(3), "charged");
    let _long = stage.run(stage.call(2), secs(60), "charged");
    after(millis(10)).await;
    let drained = stage.engine.drain(secs(10)).await;
    assert_eq!(drained, Drained { finished: 1, abandoned: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_open_settlements() {
    let stage = Stage::new();
    let running = stage.run(stage.call(1), secs(1), "charged");
    after(millis(500)).await;
    stage.store.outage(Some(Did::Unknown));
    let _unrecorded = running.await.unwrap();
    let (engine, store) = (stage.engine.clone(), stage.store.clone());
    let draining = crate::stage::go(async move { engine.drain(secs(60)).await });
    after(secs(10)).await;
    assert!(!draining.is_finished());
    store.outage(None);
    assert_eq!(draining.await.unwrap().abandoned, 0);
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

/// A claim on its way was nobody's: the drain ended, the runtime with it, and the grant stood in the store.
#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_claims_on_their_way() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    stage.store.fail(Op::Claim, 2, Fault::HoldReply);
    let run = stage.run(stage.call(1), secs(1), "charged");
    let engine = stage.engine.clone();
    let begin = stage.call(2);
    let begun = crate::stage::go(async move { drop(engine.begin(begin).await) });
    after(millis(50)).await;
    run.abort();
    begun.abort();
    after(millis(50)).await;
    let engine = stage.engine.clone();
    let draining = crate::stage::go(async move { engine.drain(secs(60)).await });
    after(millis(50)).await;
    assert!(!draining.is_finished());
    stage.store.let_go();
    assert_eq!(draining.await.unwrap().abandoned, 0);
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
    assert_eq!(stage.state(2).await, Some((StateCode::Free, 0)));
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_a_grant_that_is_out() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    assert_eq!(stage.engine.drain(secs(1)).await, Drained { finished: 0, abandoned: 1 });
    drop(grant);
    stage.is_quiet().await;
}
