//! Waiting copies are told, by other processes too, and only where somebody waits.

use std::time::Duration;

use semel_core::store::Store;
use semel_sql::Options;
use semel_testkit::conformance::Bed as _;
use sqlx::postgres::PgListener;

use super::{
    asking::{done, hold, id, now},
    bed::Bed,
};

/// Longer than any notification takes.
const LONG: Duration = Duration::from_secs(10);

async fn wakes<const POOLED: bool>(bed: &Bed<POOLED>, options: Options) {
    let (waiting, running) = (bed.store_with(options).await, bed.store().await);
    for n in 0..5 {
        let claim = hold(&running, n).await;
        let began = now();
        let identity = id(n);
        let (told, ()) =
            tokio::join!(tokio::time::timeout(LONG, waiting.wait(&identity, Some(claim.fence()))), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let _ = running.settle(&claim, &done(b"x")).await.unwrap();
            });
        assert!(told.is_ok(), "nobody was told");
        // The first one may be told that somebody listens from now on.
        assert!(n == 0 || now().since(began) >= Duration::from_millis(100), "told before there was anything to tell");
        assert!(waiting.get(&identity).await.unwrap().record.is_some());
    }
}

#[tokio::test]
async fn a_settlement_elsewhere_wakes_who_waits() {
    let bed = Bed::<false>::start().await;
    wakes(&bed, Options::default()).await;
}

#[tokio::test]
async fn behind_a_pooler_a_url_of_its_own_is_listened_at() {
    let bed = Bed::<true>::start().await;
    let listen_url = Some(bed.place.server.url_of(&bed.database));
    wakes(&bed, Options { listen_url, ..Options::default() }).await;
}

/// Nothing to hear: the wait never resolves, and the engine's own looks go on.
#[tokio::test]
async fn behind_a_pooler_alone_nobody_is_told_and_nothing_is_marked() {
    let bed = Bed::<true>::start().await;
    let store = bed.store().await;
    let claim = hold(&store, 1).await;
    let identity = id(1);
    let wait = store.wait(&identity, Some(claim.fence()));
    assert!(tokio::time::timeout(Duration::from_millis(200), wait).await.is_err());
    assert_eq!(bed.ask("SELECT flags::text FROM semel_record").await, "0");
}

#[tokio::test]
async fn what_is_over_already_is_told_at_once() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    let claim = hold(&store, 1).await;
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    let identity = id(1);
    tokio::time::timeout(LONG, store.wait(&identity, Some(claim.fence()))).await.unwrap();
}

/// A wait that is begun again and again, as the engine does, marks the record once.
#[tokio::test]
async fn a_record_is_marked_once_and_only_watched_ones_are_told_of() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    let mut everything = PgListener::connect(&bed.url()).await.unwrap();
    everything.listen("semel").await.unwrap();
    let (watched, other) = (hold(&store, 1).await, hold(&store, 2).await);
    let (identity, before) = (id(1), bed.written().await.unwrap());
    for _ in 0..5 {
        let wait = store.wait(&identity, Some(watched.fence()));
        let _ = tokio::time::timeout(Duration::from_millis(50), wait).await;
    }
    let marked = bed.written().await.unwrap() - before;
    assert!((1..=2).contains(&marked), "{marked} writes for one mark");
    let _ = store.settle(&other, &done(b"x")).await.unwrap();
    let _ = store.settle(&watched, &done(b"x")).await.unwrap();
    let said = tokio::time::timeout(LONG, everything.recv()).await.unwrap().unwrap();
    assert_eq!(said.payload(), identity.prefix().to_string());
}
