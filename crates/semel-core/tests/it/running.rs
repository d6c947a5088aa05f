//! Owned work: one effect, panics, `max_hold`, callers that leave.

use semel_core::{
    engine::{Answer, Begin, Broken, Kept, Ran, Run, Verdict},
    policy::{OnDuplicate, Policy},
    record::StateCode,
    refusal::Refusal,
    testing,
};

use crate::stage::{Stage, after, answer, millis, outcome, refusal, said, secs};

#[tokio::test(start_paused = true)]
async fn a_hundred_copies_take_effect_once_and_get_one_answer() {
    let stage = Stage::new();
    let copies: Vec<_> = (0..100).map(|_| stage.run(stage.call(1), secs(3), "charged")).collect();
    let mut executed = 0;
    for copy in copies {
        let got = copy.await.unwrap();
        assert_eq!(answer(&got), "charged");
        executed += usize::from(matches!(got, Answer::Executed { kept: Kept::Stored, .. }));
    }
    assert_eq!((executed, stage.effects()), (1, 1));
    let later = stage.ran(stage.call(1), secs(3), "charged again").await;
    assert!(matches!(later, Answer::Replayed { waited: false, .. }), "{later:?}");
    assert_eq!((answer(&later), stage.effects()), ("charged", 1));
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn under_reject_ninety_nine_copies_are_refused_and_so_is_a_later_one() {
    let stage = Stage::new();
    let call = || stage.call_with(1, Policy::key().on_duplicate(OnDuplicate::Reject).message("Once is enough."));
    let copies: Vec<_> = (0..100).map(|_| stage.run(call(), secs(3), "charged")).collect();
    let mut refused = 0;
    for copy in copies {
        match copy.await.unwrap() {
            Answer::Executed { .. } => {}
            other => {
                let Refusal::Duplicate { message, .. } = refusal(other) else { panic!("another refusal") };
                assert_eq!(message.as_deref(), Some("Once is enough."));
                refused += 1;
            }
        }
    }
    assert_eq!((refused, stage.effects()), (99, 1));
    let later = refusal(stage.ran(call(), secs(3), "again").await);
    assert!(matches!(later, Refusal::Duplicate { rest_of_window: Some(rest), .. } if rest > secs(86_000)), "{later:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn copies_in_parallel_threads_take_effect_once() {
    let stage = Stage::new();
    let (engine, call) = (stage.engine.clone(), stage.call(1));
    let got = testing::assert_once(64, move |effect| {
        let (engine, call) = (engine.clone(), call.clone());
        async move {
            let work = async move |_run: Run| {
                effect.happened();
                tokio::task::yield_now().await;
                said("charged")
            };
            answer(&engine.run(call, work).await).to_owned()
        }
    });
    assert_eq!(got.await, "charged");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_caller_never_stops_owned_work() {
    let stage = Stage::new();
    let caller = stage.run(stage.call(1), secs(3), "charged");
    after(secs(1)).await;
    caller.abort();
    after(secs(5)).await;
    assert_eq!(stage.effects(), 1);
    assert_eq!(answer(&stage.ran(stage.call(1), secs(3), "again").await), "charged");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_leaves_an_unknown_and_a_usable_engine() {
    let stage = Stage::new();
    let broken = stage.engine.run(stage.call(1), async |_run| -> Ran<()> { panic!("secret words") }).await;
    assert!(matches!(broken, Answer::Broken(Broken::Panicked)), "{broken:?}");
    let told = stage.told();
    assert_eq!(told, ["granted 1", "panicked secret words", "settled unknown Unknown"]);
    let Refusal::OutcomeUnknown { last, .. } = refusal(stage.ran(stage.call(1), secs(1), "again").await) else {
        panic!("another refusal")
    };
    assert_eq!(last.as_deref(), Some("panicked"));
    assert_eq!(answer(&stage.ran(stage.call(2), secs(1), "another").await), "another");
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_there_is_a_future_leaves_an_unknown() {
    let stage = Stage::new();
    let work = |_run: Run| -> std::future::Ready<Ran<()>> { panic!("early") };
    assert!(matches!(stage.engine.run(stage.call(1), work).await, Answer::Broken(Broken::Panicked)));
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn max_hold_stops_work_and_leaves_an_unknown() {
    let stage = Stage::new();
    let call = stage.call_with(1, Policy::key().max_hold(secs(60)));
    let start = tokio::time::Instant::now();
    let broken = stage.ran(call, secs(3_600), "never").await;
    assert!(matches!(broken, Answer::Broken(Broken::Overheld)), "{broken:?}");
    assert_eq!(start.elapsed().as_secs(), 60);
    assert_eq!((stage.state(1).await, stage.effects()), (Some((StateCode::Unknown, 1)), 0));
    assert_eq!(stage.told(), ["granted 1", "overheld", "settled unknown Unknown"]);
    after(secs(3_600)).await;
    assert_eq!(stage.effects(), 0);
    stage.is_quiet().await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_dropped_is_unknown() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    assert!(grant.still_good() && grant.run().still_good());
    assert_eq!(grant.fence(), grant.run().fence());
    drop(grant);
    stage.is_quiet().await;
    assert_eq!(stage.state(1).await, Some((StateCode::Unknown, 1)));
}

/// Settling was an async function: dropped before its first poll, it dropped the verdict, and the record said unknown.
#[tokio::test(start_paused = true)]
async fn a_settlement_that_nobody_polls_is_recorded_all_the_same() {
    let stage = Stage::new();
    let Begin::Granted(grant) = stage.engine.begin(stage.call(1)).await else { panic!("not granted") };
    drop(grant.settle(Verdict::Keep(outcome("charged"))));
    stage.is_quiet().await;
    assert_eq!(answer(&stage.ran(stage.call(1), secs(1), "again").await), "charged");
}

#[tokio::test(start_paused = true)]
async fn work_sees_its_grant() {
    let stage = Stage::new();
    let id = stage.id(1);
    let work = async move |run: Run| {
        assert_eq!((run.attempt(), run.identity()), (1, &id));
        assert!(run.still_good() && !run.lost().is_cancelled());
        said("charged")
    };
    assert_eq!(answer(&stage.engine.run(stage.call(1), work).await), "charged");
}

#[tokio::test(start_paused = true)]
async fn a_caller_may_leave_while_it_waits_and_come_back() {
    let stage = Stage::new();
    let first = stage.run(stage.call(1), secs(3), "charged");
    after(millis(10)).await;
    let copy = stage.run(stage.call(1), secs(3), "again");
    after(millis(10)).await;
    assert_eq!(stage.engine.load().waiting, 1);
    copy.abort();
    after(millis(10)).await;
    assert_eq!(stage.engine.load().waiting, 0);
    assert_eq!(answer(&first.await.unwrap()), "charged");
    stage.is_quiet().await;
}
