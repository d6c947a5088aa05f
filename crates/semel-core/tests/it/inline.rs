//! Inline work: it borrows, and says what becomes of a caller that leaves.

use std::{cell::Cell, future::Future, pin::pin, time::Duration};

use semel_core::{
    engine::{Answer, Broken, OnCancel, Ran, Run, Verdict},
    policy::Policy,
    record::StateCode,
};
use semel_testkit::faults::{Fault, Op};

use crate::stage::{Stage, after, answer, millis, said, secs};

/// Polls `future` for `time` and drops it.
async fn leave_after<T>(time: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(time, future).await.ok()
}

#[tokio::test(start_paused = true)]
async fn inline_work_may_borrow() {
    let stage = Stage::new();
    let times = Cell::new(0);
    for _ in 0..3 {
        let work = async |_run: Run| {
            times.set(times.get() + 1);
            said("charged")
        };
        let got = stage.engine.run_inline(stage.call(1), OnCancel::Unknown, work).await;
        assert_eq!(answer(&got), "charged");
    }
    assert_eq!(times.get(), 1);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn inline_work_dropped_before_its_first_poll_is_released() {
    let stage = Stage::new();
    stage.store.fail(Op::Claim, 1, Fault::HoldReply);
    let began = Cell::new(false);
    let work = async |_run: Run| {
        began.set(true);
        said("never")
    };
    let run = stage.engine.run_inline(stage.call(1), OnCancel::Unknown, work);
    assert!(leave_after(millis(100), run).await.is_none());
    stage.store.let_go();
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 0)));
    assert!(!began.get());
}

#[tokio::test(start_paused = true)]
async fn inline_work_dropped_later_is_unknown() {
    let stage = Stage::new();
    let work = async |_run: Run| {
        after(secs(10)).await;
        said("never")
    };
    let run = stage.engine.run_inline(stage.call(1), OnCancel::Unknown, work);
    assert!(leave_after(secs(1), run).await.is_none());
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
}

#[tokio::test(start_paused = true)]
async fn transactional_inline_work_dropped_later_is_released_and_counts() {
    let stage = Stage::new();
    let work = async |_run: Run| {
        after(secs(10)).await;
        said("never")
    };
    let run = stage.engine.run_inline(stage.call(1), OnCancel::Release, work);
    assert!(leave_after(secs(1), run).await.is_none());
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Free, 1)));
    let again = async |_run: Run| said("charged");
    assert_eq!(answer(&stage.engine.run_inline(stage.call(1), OnCancel::Release, again).await), "charged");
}

#[tokio::test(start_paused = true)]
async fn inline_work_is_stopped_at_max_hold() {
    for (on_cancel, state) in [(OnCancel::Unknown, StateCode::Unknown), (OnCancel::Release, StateCode::Free)] {
        let stage = Stage::new();
        let call = stage.call_with(1, Policy::key().max_hold(secs(60)));
        let work = async |_run: Run| -> Ran<()> {
            after(secs(1_000)).await;
            unreachable!("it is stopped")
        };
        let got = stage.engine.run_inline(call, on_cancel, work).await;
        assert!(matches!(got, Answer::Broken(Broken::Overheld)), "{got:?}");
        assert_eq!(stage.state(1).await, Some((state, 1)));
        stage.is_quiet().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_inline_work_is_the_callers_and_leaves_an_unknown() {
    let stage = Stage::new();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let caller = crate::stage::go(async move {
        let work = async |_run: Run| -> Ran<()> { panic!("inline") };
        engine.run_inline(call, OnCancel::Unknown, work).await
    });
    assert!(caller.await.unwrap_err().is_panic());
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_settlement_outlives_the_inline_caller() {
    let stage = Stage::new();
    stage.store.fail(Op::Settle, 1, Fault::HoldCall);
    let work = async |_run: Run| said("charged");
    let run = stage.engine.run_inline(stage.call(1), OnCancel::Unknown, work);
    assert!(leave_after(millis(100), run).await.is_none());
    stage.store.let_go();
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Done, 1)));
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_drops_inline_work_before_it_waits() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    let heavy = std::sync::Arc::new(());
    let held = std::sync::Arc::clone(&heavy);
    let run = stage.engine.run_inline(stage.call(1), OnCancel::Unknown, move |_run: Run| {
        let _held = held;
        std::future::ready(Ran { value: "never", verdict: Verdict::Unknown { last: None } })
    });
    let mut run = pin!(run);
    assert!(leave_after(secs(1), run.as_mut()).await.is_none());
    assert_eq!(std::sync::Arc::strong_count(&heavy), 1);
    assert_eq!(answer(&run.await), "charged");
    assert_eq!(answer(&first.await.unwrap()), "charged");
}
