//! What a drain waits for.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use semel_core::{
    engine::{Begin, Drained, Engine, Ran},
    env::Env,
    identity::Secret,
    observe::{Event, What},
    record::StateCode,
    store::{Capacity, Did, MemoryStore},
};
use semel_testkit::faults::{Fault, Op};
use tracing_subscriber::{
    Layer,
    layer::{Context, SubscriberExt},
};

use crate::stage::{Ignore, Stage, after, call_on, millis, secs};

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
    stage.ran(stage.call(9), millis(1), "the store's clock is known").await.ignore();
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

/// Leaving the drain out was silent: the tasks died with the runtime, and nobody was told of their claims.
#[test]
fn a_claim_that_is_cut_with_its_runtime_is_told() {
    let told = Arc::new(AtomicUsize::new(0));
    let observer = {
        let told = Arc::clone(&told);
        move |event: &Event<'_>| {
            if matches!(event.what, What::SettlementAbandoned) {
                told.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let env = Env::system();
    let store = Arc::new(MemoryStore::new(&env, Capacity::default()));
    let secret = Secret::from_material(b"the tests' own secret").unwrap();
    let engine = Engine::builder(store, secret).env(env).observe(Arc::new(observer)).build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let forever = engine.run(call_on(&engine, 1), |_| std::future::pending::<Ran<()>>());
        tokio::select! {
            biased;
            _never = forever => unreachable!("it does not end"),
            () = tokio::task::yield_now() => {}
        }
    });
    drop(runtime);
    assert_eq!(told.load(Ordering::Relaxed), 1);
    let warned = Arc::new(AtomicUsize::new(0));
    let log = tracing_subscriber::registry().with(Warned(Arc::clone(&warned)));
    tracing::subscriber::with_default(log, || drop(engine));
    assert_eq!(warned.load(Ordering::Relaxed), 1, "the log names the drain");
}

/// Counts warnings.
struct Warned(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warned {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == tracing::Level::WARN), Ordering::Relaxed);
    }
}
