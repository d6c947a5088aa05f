//! Waking those who wait.

#![expect(clippy::disallowed_methods, reason = "a waiter is a task of the test")]

use std::{sync::Arc, time::Duration};

use semel_core::store::{Claim, Store};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Redis, Setup};
use tokio::{task::JoinHandle, time::timeout};

use crate::{
    beds::{connect, shared},
    questions::{about, done, granted, id, stands},
};

const SOON: Duration = Duration::from_secs(10);

fn waiting(store: &Arc<RedisStore>, n: u64, claim: &Claim) -> JoinHandle<()> {
    let (store, fence) = (Arc::clone(store), claim.fence());
    tokio::spawn(async move { store.wait(&id(n), Some(fence)).await })
}

/// Who waits has said so once the record shows it.
async fn is_watched(store: &RedisStore, n: u64) {
    for _ in 0..500 {
        let seen = store.get(&id(n)).await.expect("the store works");
        if seen.record.is_some_and(|record| record.flags.has(semel_core::record::Flags::WATCHED)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody watches");
}

async fn settlements_wake(url: &str, prefix: &str) {
    let (one, other) = (connect(url, prefix).await, Arc::new(connect(url, prefix).await));
    for n in 0..4 {
        let claim = granted(one.claim(&about(n)).await);
        let waiter = waiting(&other, n, &claim);
        is_watched(&one, n).await;
        // The first who waits also begins to listen, and is woken when that works: it may have missed something.
        assert!(n == 0 || !waiter.is_finished(), "woken by nothing");
        stands(one.settle(&claim, &done()).await);
        timeout(SOON, waiter).await.expect("it is told").expect("it works");
    }
}

#[tokio::test]
async fn a_settlement_wakes_who_waits_in_another_process() {
    let server = Redis::start(&Setup::new()).await;
    settlements_wake(&server.url(), "semel").await;
}

#[tokio::test]
async fn a_settlement_wakes_who_waits_in_another_process_of_a_cluster() {
    settlements_wake(&shared::cluster().await.url(), &format!("wake{}", std::process::id())).await;
}

#[tokio::test]
async fn a_settlement_wakes_who_waits_under_sentinel() {
    settlements_wake(&shared::sentinels().await.url(), &format!("wake{}", std::process::id())).await;
}

#[tokio::test]
async fn who_comes_late_does_not_wait() {
    let server = Redis::start(&Setup::new()).await;
    let store = Arc::new(connect(&server.url(), "semel").await);
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    timeout(SOON, waiting(&store, 1, &claim)).await.expect("it has changed already").expect("it works");
}

#[tokio::test]
async fn nothing_is_published_where_nobody_waits() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    // Whether the user may was looked at.
    let before = server.calls("publish").await;
    let claim = granted(store.claim(&about(1)).await);
    stands(store.settle(&claim, &done()).await);
    assert_eq!(server.calls("publish").await, before);
}

#[tokio::test]
async fn a_broken_connection_wakes_everybody_and_is_made_again() {
    let server = Redis::start(&Setup::new()).await;
    let (one, other) = (connect(&server.url(), "semel").await, Arc::new(connect(&server.url(), "semel").await));
    let claim = granted(one.claim(&about(1)).await);
    let waiter = waiting(&other, 1, &claim);
    is_watched(&one, 1).await;
    while server.tell(&["PUBSUB", "NUMSUB", "semel:wake"]).await.list()[1].number() != Some(1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.tell(&["CLIENT", "KILL", "TYPE", "pubsub"]).await;
    // A hint that comes early does no harm; one that never comes would.
    timeout(SOON, waiter).await.expect("it is told").expect("it works");
    let waiter = waiting(&other, 1, &claim);
    while server.tell(&["PUBSUB", "NUMSUB", "semel:wake"]).await.list()[1].number() != Some(1) {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stands(one.settle(&claim, &done()).await);
    timeout(SOON, waiter).await.expect("it is told").expect("it works");
}
