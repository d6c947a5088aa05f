//! A purge of a store that is larger than what one call looks at.

use std::time::Duration;

use semel_core::store::{Filter, Store, StoreAdmin};
use semel_testkit::servers::redis::{Cluster, Redis, Setup};

use crate::{
    beds::{connect, move_back},
    questions::{LEASE, TTL, about, granted, id},
};

/// Keys of the store's own pattern that hold no record, as many as two calls look at and more.
async fn fill(server: &Redis, keys: u32) {
    let script =
        "for n = 1, tonumber(ARGV[1]) do redis.call('SET', 'semel:http:filler:k:' .. n, '') end return 'filled'";
    assert_eq!(server.ask(&["EVAL", script, "0", &keys.to_string()]).await.text(), "filled");
}

/// What purges told of, call by call, until one said that there is no more.
async fn purged(store: &dyn StoreAdmin) -> Vec<usize> {
    let mut told = Vec::new();
    loop {
        let purged = store.purge(1_000).await.expect("the store works");
        assert_eq!(purged.removed, purged.unresolved.len(), "nothing else has ended");
        told.push(purged.removed);
        assert!(told.len() < 100, "a walk over {told:?} has no end");
        if !purged.more {
            return told;
        }
    }
}

/// One call looks at 20,000 keys. It was taken for the end of all by whoever went by how many it removed.
#[tokio::test]
async fn a_purge_of_many_keys_goes_on_until_none_is_left() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    for n in 0..100 {
        granted(store.claim(&about(n)).await);
    }
    fill(&server, 45_000).await;
    assert_eq!(purged(&store).await.iter().sum::<usize>(), 0);
    move_back(server.port(), "semel", 11 * LEASE + TTL).await;
    let told = purged(&store).await;
    assert!(told.len() >= 3, "one call looked at more than it should: {told:?}");
    assert_eq!(told.iter().sum::<usize>(), 100);
    for n in 0..100 {
        assert!(store.get(&id(n)).await.expect("the store works").record.is_none());
    }
    assert_eq!(purged(&store).await.iter().sum::<usize>(), 0);
    // Their fences were of a moment ago: what is left of them for those goes by itself.
    for n in 0..100 {
        let is_gone = async || server.ask(&["EXISTS", &format!("semel:{}", id(n))]).await.number() == Some(0);
        for _ in 0..1_000 {
            if is_gone().await {
                break;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert!(is_gone().await);
    }
}

/// A master that goes takes its cursor along, and its keys turn up at another one.
#[tokio::test]
async fn a_purge_that_meets_other_servers_begins_from_the_front() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    for n in 0..60 {
        granted(store.claim(&about(n)).await);
    }
    for node in &cluster.nodes[..3] {
        move_back(node.port(), "semel", 11 * LEASE + TTL).await;
    }
    let first = store.purge(5).await.expect("the store works");
    assert!((first.removed, first.more) == (5, true), "{first:?}");
    for replica in 3..6 {
        cluster.fail_over_to(replica).await;
    }
    cluster.settled().await;
    // The client still takes those for masters that are replicas by now, which show keys and answer for none.
    let told = purged(&store).await;
    assert_eq!(told.iter().sum::<usize>(), 55, "{told:?}");
}

/// A list of a client that has not heard of the failover had no record in it.
#[tokio::test]
async fn a_list_after_a_failover_shows_every_record() {
    let cluster = Cluster::start(&Setup::new()).await;
    let store = connect(&cluster.url(), "semel").await;
    for n in 0..60 {
        granted(store.claim(&about(n)).await);
    }
    for replica in 3..6 {
        cluster.fail_over_to(replica).await;
    }
    cluster.settled().await;
    let page = store.list(&Filter::default(), None, 100).await.expect("the store works");
    assert_eq!((page.entries.len(), page.next), (60, None));
}
