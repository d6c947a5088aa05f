//! What a person changes is told to every process, so that none replays from memory what is no longer true.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use semel_core::{
    engine::{Answer, Call, Engine, Ran, Run, TierConfig, Verdict},
    policy::{OnStoreError, Policy},
    record::{Format, Outcome, StateCode},
    store::{Changes, Claimed, Settled, Store, StoreAdmin},
};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Redis, Sentinels, Setup};

use crate::{
    beds::{connect, shared},
    questions::{about, done, fingerprint, id},
};

/// Counts what an engine would be told.
#[derive(Default)]
struct Spy {
    changed: AtomicUsize,
    missed: AtomicUsize,
}

impl Changes for Spy {
    fn changed(&self, _: &[u8; 32]) {
        self.changed.fetch_add(1, Ordering::SeqCst);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Spy {
    /// One that is told of everything from now on.
    async fn of(store: &RedisStore) -> Arc<Self> {
        let spy = Arc::new(Self::default());
        let changes: Arc<dyn Changes> = Arc::clone(&spy) as _;
        store.tell_changes(Arc::downgrade(&changes));
        until(|| spy.missed() > 0, "it listens").await;
        spy
    }

    fn missed(&self) -> usize {
        self.missed.load(Ordering::SeqCst)
    }
}

/// Looks for two minutes at most.
async fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    for _ in 0..12_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to it: {what}");
}

/// An engine that would remember for longer than any test runs.
fn engine(store: &Arc<RedisStore>) -> Engine {
    let tier = TierConfig { ttl: Duration::from_secs(3_600), ..TierConfig::default() };
    Engine::builder(Arc::clone(store) as _, store.secret().clone()).tier(tier).build()
}

/// Whether the key's work ran.
async fn runs(engine: &Engine, n: u64) -> bool {
    runs_under(engine, n, OnStoreError::Closed).await
}

async fn runs_under(engine: &Engine, n: u64, on_store_error: OnStoreError) -> bool {
    let policy = Policy::key().on_store_error(on_store_error).build().expect("it is one");
    let call = Call::new(id(n), fingerprint(), policy).shown("4711");
    let work = async |_: Run| {
        let outcome = Outcome::new(Format::HTTP, &b"200"[..], &b"charged"[..]);
        Ran { value: (), verdict: Verdict::Keep(outcome) }
    };
    match engine.run(call, work).await {
        Answer::Executed { .. } | Answer::Unguarded { .. } => true,
        Answer::Replayed { .. } => false,
        other => panic!("neither run nor replayed: {other:?}"),
    }
}

async fn deletions_are_told(url: &str, prefix: &str) {
    let stores = [Arc::new(connect(url, prefix).await), Arc::new(connect(url, prefix).await)];
    let spies = [Spy::of(&stores[0]).await, Spy::of(&stores[1]).await];
    let [one, other] = stores.each_ref().map(engine);
    for n in 0..4 {
        assert!(runs(&one, n).await && !runs(&other, n).await);
        let before = other.store_state().local.remembered;
        assert!(!runs(&other, n).await);
        assert_eq!(other.store_state().local.remembered, before + 1, "the second time it was remembered");
    }
    assert_eq!(spies[1].changed.load(Ordering::SeqCst), 0, "nobody has changed anything");
    for n in 0..4 {
        assert!(stores[0].delete(&id(n), StateCode::Done).await.expect("the store works"));
        // Its own process hears before the answer.
        assert!(runs(&one, n).await, "{n}");
        assert!(stores[0].delete(&id(n), StateCode::Done).await.expect("the store works"));
    }
    until(|| spies[1].changed.load(Ordering::SeqCst) >= 8, "all of it is told").await;
    for n in 0..4 {
        assert!(runs(&other, n).await, "{n} was replayed from memory after it had been deleted");
    }
}

#[tokio::test]
async fn what_is_deleted_through_one_process_is_not_replayed_from_anothers_memory() {
    let server = Redis::start(&Setup::new()).await;
    deletions_are_told(&server.url(), "semel").await;
}

#[tokio::test]
async fn what_is_deleted_is_told_over_all_masters_of_a_cluster() {
    deletions_are_told(&shared::cluster().await.url(), &format!("changes{}", std::process::id())).await;
}

#[tokio::test]
async fn what_is_deleted_is_told_under_sentinel() {
    deletions_are_told(&shared::sentinels().await.url(), &format!("changes{}", std::process::id())).await;
}

/// Whoever did not listen for a while has missed something, and remembers nothing from before.
#[tokio::test]
async fn after_a_broken_subscription_nothing_from_before_is_replayed() {
    let server = Redis::start(&Setup::new()).await;
    let stores = [Arc::new(connect(&server.url(), "semel").await), Arc::new(connect(&server.url(), "semel").await)];
    let spy = Spy::of(&stores[1]).await;
    let [one, other] = stores.each_ref().map(engine);
    assert!(runs(&one, 1).await && !runs(&other, 1).await && !runs(&other, 1).await);
    assert_eq!(other.store_state().local.remembered, 1);
    let before = spy.missed();
    server.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    // Once for the connection that broke, once for the one that took its place.
    until(|| spy.missed() >= before + 2, "it listens again").await;
    assert!(!runs(&other, 1).await);
    assert_eq!(other.store_state().local.remembered, 1, "it asked the store");
    assert!(stores[0].delete(&id(1), StateCode::Done).await.expect("the store works"));
    until(|| spy.changed.load(Ordering::SeqCst) == 1, "it is told again").await;
    assert!(runs(&other, 1).await);
}

/// With the server the line breaks on which changes are told, and engines forgot all they knew: under `open` the next copy
/// ran a second time in the same process.
#[tokio::test]
async fn what_was_recorded_before_the_server_went_away_is_not_run_without_it() {
    let mut server = Redis::start(&Setup::new().keeps()).await;
    let store = Arc::new(connect(&server.url(), "semel").await);
    let engine = engine(&store);
    let spy = Spy::of(&store).await;
    assert!(runs_under(&engine, 1, OnStoreError::Open).await);
    let before = spy.missed();
    server.kill();
    until(|| spy.missed() > before, "the line breaks").await;
    for _ in 0..3 {
        assert!(!runs_under(&engine, 1, OnStoreError::Open).await, "it ran again in the same process");
    }
    server.start_again().await;
    assert!(!runs_under(&engine, 1, OnStoreError::Open).await, "the record is there");
}

/// The one that is told by the primary of before hears nothing any more: it follows.
#[tokio::test]
async fn after_a_failover_changes_are_told_by_the_new_primary() {
    let set = Sentinels::start(&Setup::new()).await;
    let stores = [Arc::new(connect(&set.url(), "semel").await), Arc::new(connect(&set.url(), "semel").await)];
    let spy = Spy::of(&stores[1]).await;
    let before = spy.missed();
    set.caught_up().await;
    set.fail_over().await;
    until(|| spy.missed() > before, "it listens to the new one").await;
    // Until it listens to the new primary what is deleted is told to nobody there, and missed.
    for n in 0..600 {
        if let Ok(Claimed::Granted { claim, .. }) = stores[0].claim(&about(n)).await
            && matches!(stores[0].settle(&claim, &done()).await, Ok(Settled::Ok { .. }))
        {
            let _gone = stores[0].delete(&id(n), StateCode::Done).await;
        }
        if spy.changed.load(Ordering::SeqCst) > 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("nothing is told after the failover");
}
