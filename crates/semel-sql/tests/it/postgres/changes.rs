//! What a person changes is told to every process, so that none replays from memory what is no longer true.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Owner,
    engine::{Answer, Call, Engine, Ran, Run, TierConfig, Verdict},
    policy::Policy,
    record::{Format, Outcome, StateCode},
    store::{Changes, Grade, NewToken, Resolution, Resolved, Store, StoreAdmin, Target},
};
use semel_sql::{Options, PostgresStore};
use semel_testkit::{conformance::Bed as _, servers::proxy::Proxy};

use super::{
    asking::{LEASE, answer, asked, done, hold, id, secret},
    bed::Bed,
};

/// What an engine would be told.
#[derive(Default)]
struct Spy {
    changed: Mutex<Vec<[u8; 32]>>,
    missed: AtomicUsize,
}

impl Changes for Spy {
    fn changed(&self, digest: &[u8; 32]) {
        self.changed.lock().push(*digest);
    }

    fn missed(&self) {
        self.missed.fetch_add(1, Ordering::SeqCst);
    }
}

impl Spy {
    /// One that the store tells of everything from now on.
    async fn of(store: &PostgresStore) -> Arc<Self> {
        let spy = Self::silent(store);
        until(|| spy.missed() > 0, "it listens, and what it remembered before is told to go").await;
        spy
    }

    fn silent(store: &PostgresStore) -> Arc<Self> {
        let spy = Arc::new(Self::default());
        let changes: Arc<dyn Changes> = Arc::clone(&spy) as _;
        store.tell_changes(Arc::downgrade(&changes));
        spy
    }

    fn missed(&self) -> usize {
        self.missed.load(Ordering::SeqCst)
    }

    fn changed(&self) -> Vec<[u8; 32]> {
        self.changed.lock().clone()
    }
}

/// Looks for a minute at most.
async fn until(mut is_so: impl FnMut() -> bool, what: &str) {
    for _ in 0..6_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to it: {what}");
}

/// An engine that would remember for longer than any test runs.
fn engine(store: &Arc<PostgresStore>) -> Engine {
    let tier = TierConfig { ttl: Duration::from_secs(3_600), ..TierConfig::default() };
    Engine::builder(Arc::clone(store) as _, secret()).tier(tier).build()
}

/// Whether the first key's work ran.
async fn runs(engine: &Engine) -> bool {
    let call = Call::new(id(1), asked(), Policy::key().build().unwrap()).shown("4711");
    let work = async |_: Run| Ran { value: (), verdict: Verdict::Keep(Outcome::new(Format::HTTP, &b"200"[..], "x")) };
    match engine.run(call, work).await {
        Answer::Executed { .. } => true,
        Answer::Replayed { .. } => false,
        other => panic!("neither run nor replayed: {other:?}"),
    }
}

#[tokio::test]
async fn what_is_deleted_through_one_process_is_not_replayed_from_anothers_memory() {
    let bed = Bed::<false>::start().await;
    let stores = [Arc::new(bed.store().await), Arc::new(bed.store().await)];
    for store in &stores {
        assert!(store.facts().tells_changes);
        Spy::of(store).await;
    }
    let [one, two] = stores.each_ref().map(engine);
    assert!(runs(&one).await && !runs(&two).await && !runs(&two).await);
    assert_eq!(two.store_state().local.remembered, 1, "the second time it was remembered");
    assert!(stores[0].delete(&id(1), StateCode::Done).await.unwrap());
    let mut ran = false;
    for _ in 0..1_000 {
        ran = runs(&two).await;
        if ran {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(ran, "it replays what was deleted");
    one.drain(LEASE).await;
    two.drain(LEASE).await;
}

#[tokio::test]
async fn what_people_settle_delete_and_withdraw_is_told_and_nothing_else() {
    let bed = Bed::<false>::start().await;
    let (store, other) = (bed.store().await, bed.store().await);
    let spy = Spy::of(&other).await;
    let claim = hold(&store, 1).await;
    // Refused, so that nothing changed.
    assert!(!store.delete(&id(1), StateCode::Done).await.unwrap());
    assert!(!store.withdraw(&id(1)).await.unwrap());
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    assert!(store.delete(&id(1), StateCode::Done).await.unwrap());

    let unclear = hold(&store, 2).await;
    let rest = answer(b"x");
    let unknown = semel_core::store::Settlement::Unknown {
        fingerprint: asked(),
        rest: rest.clone(),
        ttl: Duration::from_secs(60),
    };
    let _ = store.settle(&unclear, &unknown).await.unwrap();
    let (resolver, identity) = (Owner::from_bytes([9; 16]), id(2));
    let target = Target { identity: &identity, fence: unclear.fence(), resolver };
    let word = Resolution::Failed { keep: LEASE, rest: rest.clone() };
    assert!(matches!(store.resolve(target, &word).await.unwrap(), Resolved::Ok(_)));

    let token = NewToken { identity: id(3), ttl: LEASE, max_life: LEASE, rest };
    let _ = store.issue(&token).await.unwrap();
    assert!(store.withdraw(&id(3)).await.unwrap());

    let expected = [1, 2, 3].map(|n| *id(n).digest());
    until(|| spy.changed().len() >= expected.len(), "three changes are told").await;
    assert_eq!(spy.changed(), expected);
    assert_eq!(spy.missed(), 1, "nothing was missed but what was before");
}

#[tokio::test]
async fn a_connection_that_broke_is_told_when_it_broke_and_when_there_is_another() {
    let bed = Bed::<false>::start().await;
    let (store, other) = (bed.store().await, bed.store().await);
    let spy = Spy::of(&other).await;
    let listeners = "SELECT count(pg_terminate_backend(pid, 5000))::text FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE 'LISTEN%'";
    assert_eq!(bed.ask(listeners).await, "1");
    until(|| spy.missed() == 3, "it broke, and there is another").await;
    let claim = hold(&store, 1).await;
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    assert!(store.delete(&id(1), StateCode::Done).await.unwrap());
    until(|| !spy.changed().is_empty(), "the change is heard on the new connection").await;
}

/// Nothing is closed, and nothing comes: a quiet server looks like that.
#[tokio::test]
async fn a_network_that_swallows_everything_is_not_taken_for_a_quiet_server() {
    let bed = Bed::<true>::start().await;
    let server = bed.place.server.port();
    let proxy = Proxy::start(([127, 0, 0, 1], server).into()).await;
    let through =
        bed.place.server.url_of(&bed.database).replace(&server.to_string(), &proxy.address().port().to_string());
    let (idle_check, call_timeout) = (Duration::from_secs(1), Duration::from_secs(3));
    let store =
        bed.store_with(Options { listen_url: Some(through), idle_check, call_timeout, ..Options::default() }).await;
    let spy = Spy::of(&store).await;
    proxy.stall();
    until(|| spy.missed() >= 2, "the silence is noticed").await;
    proxy.heal();
    until(|| spy.missed() >= 3, "it listens again").await;
}

#[tokio::test]
async fn behind_a_pooler_without_a_way_around_it_nothing_is_told_and_that_is_said() {
    let bed = Bed::<true>::start().await;
    let deaf = bed.store().await;
    let spy = Spy::silent(&deaf);
    assert!(!deaf.facts().tells_changes);
    let found = deaf.inspect().await.unwrap();
    let finding = found.iter().find(|f| f.what.contains("listen")).expect("people are told");
    assert!(finding.grade == Grade::Warning && finding.why.contains("deleted"), "{finding}");

    let listen_url = Some(bed.place.server.url_of(&bed.database));
    let store = bed.store_with(Options { listen_url, ..Options::default() }).await;
    assert!(store.facts().tells_changes);
    let heard = Spy::of(&store).await;
    let claim = hold(&deaf, 1).await;
    let _ = deaf.settle(&claim, &done(b"x")).await.unwrap();
    assert!(deaf.delete(&id(1), StateCode::Done).await.unwrap());
    until(|| heard.changed() == [*id(1).digest()], "who listens past the pooler is told").await;
    assert!(spy.changed().is_empty() && spy.missed() == 0);
}

/// An engine may be built before there is a runtime, and a runtime may end.
#[test]
fn whoever_asks_first_listens_where_there_was_no_runtime_before() {
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let first = runtime();
    let (bed, store) = first.block_on(async {
        let bed = Bed::<false>::start().await;
        let store = bed.store().await;
        (bed, store)
    });
    let spy = Spy::silent(&store);
    first.block_on(async {
        hold(&store, 1).await;
        until(|| spy.missed() == 1, "it listens").await;
    });
    let second = runtime();
    drop(first);
    second.block_on(async {
        // Its connections ended with the first runtime.
        let _ = store.claim(&super::asking::ask(2)).await;
        until(|| spy.missed() == 2, "it listens in the second runtime").await;
    });
    second.block_on(async { drop(bed) });
}
