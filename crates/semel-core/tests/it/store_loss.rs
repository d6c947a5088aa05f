//! A shared store that lost its records is noticed.

use semel_testkit::faults::Op;

use crate::stage::{Ignore, Stage, after, millis, secs};

async fn begun() -> Stage {
    let stage = Stage::far();
    stage.store.inner().is_born(true);
    stage.ran(stage.call(1), millis(1), "charged").await.ignore();
    stage.told();
    stage
}

fn losses(stage: &Stage) -> usize {
    stage.told().iter().filter(|t| *t == "storelostrecords").count()
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_was_made_anew_is_told_once() {
    let stage = begun().await;
    after(secs(20)).await;
    assert_eq!((losses(&stage), stage.engine.store_state().lost), (0, 0));
    stage.store.inner().is_born(true);
    after(secs(20)).await;
    let state = stage.engine.store_state();
    assert_eq!((losses(&stage), state.lost), (1, 1));
    assert!(state.since_lost.is_some_and(|ago| ago <= secs(20)), "{state:?}");
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_is_gone_and_put_back_is_one_loss() {
    let stage = begun().await;
    stage.store.inner().is_born(false);
    after(secs(20)).await;
    stage.store.inner().is_born(true);
    after(secs(20)).await;
    assert_eq!((losses(&stage), stage.engine.store_state().lost), (1, 1));
    stage.store.inner().is_born(true);
    after(secs(20)).await;
    assert_eq!(losses(&stage), 1, "another loss");
}

#[tokio::test(start_paused = true)]
async fn one_task_looks_at_the_store_and_ends_with_its_engine() {
    let stage = begun().await;
    let before = stage.store.count(Op::Health);
    after(secs(50)).await;
    let looks = stage.store.count(Op::Health) - before;
    assert!((9..=10).contains(&looks), "{looks} looks in 50 s");
    let Stage { engine, store, .. } = stage;
    drop(engine);
    let before = store.count(Op::Health);
    after(secs(50)).await;
    assert_eq!(store.count(Op::Health), before);
}

#[tokio::test(start_paused = true)]
async fn a_store_of_this_process_is_not_looked_at() {
    let stage = Stage::new();
    stage.ran(stage.call(1), millis(1), "charged").await.ignore();
    after(secs(100)).await;
    assert_eq!(stage.store.count(Op::Health), 1);
}
