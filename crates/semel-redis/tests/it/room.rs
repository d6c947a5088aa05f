//! How much room records take, and where.

use std::sync::Arc;

use semel_core::store::{Claimed, Filter, Store, StoreAdmin};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Cluster, Redis, Setup};
use tokio::task::JoinSet;

use crate::{
    beds::connect,
    questions::{about, done, granted, id, rest, stands},
};

const RECORDS: u64 = 100_000;

/// Claims that many records and settles them.
async fn fill(store: RedisStore, records: u64) {
    let store = Arc::new(store);
    let mut tasks = JoinSet::new();
    for worker in 0..64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            for n in (worker..records).step_by(64) {
                let Ok(Claimed::Granted { claim, .. }) = store.claim(&about(n)).await else { panic!("it is free") };
                stands(store.settle(&claim, &done()).await);
            }
        });
    }
    tasks.join_all().await;
}

/// One hundredth of the third, not of all. By chance a master's share lies within it in 97 of 100 sets of keys (149 records are
/// one standard deviation); the keys are the same in every run, and so are the shares.
#[tokio::test]
async fn a_hundred_thousand_records_lie_a_third_on_each_of_three_masters() {
    let cluster = Cluster::start(&Setup::new()).await;
    fill(connect(&cluster.url(), "semel").await, RECORDS).await;
    let mut all = 0;
    for master in 0..3 {
        let node = &cluster.nodes[master];
        let keys = node.tell(&["DBSIZE"]).await.number().expect("a number");
        let marks = node.tell(&["KEYS", "*mark*"]).await.list().len();
        let records = u64::try_from(keys).expect("it is none below zero") - marks as u64;
        assert!(records.abs_diff(RECORDS / 3) <= RECORDS / 300, "master {master} holds {records}");
        all += records;
    }
    assert_eq!(all, RECORDS);
}

/// What the documentation says: 84 bytes, what core writes, the key's name, and at most 160 that the server adds.
#[tokio::test]
async fn a_record_takes_what_the_documentation_says() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let claim = granted(store.claim(&about(RECORDS)).await);
    stands(store.settle(&claim, &done()).await);
    let used = async || server.info("memory", "used_memory").await.parse::<u64>().expect("a number");
    let before = used().await;
    fill(store, 20_000).await;
    let each = (used().await - before) / 20_000;
    let content = (84 + rest().len() + format!("semel:{}", id(1)).len()) as u64;
    assert!((content..=content + 160).contains(&each), "{each} bytes a record, of which {content} are content");
}

/// A page that nothing passes read a million records before it ended: eight seconds.
#[tokio::test]
async fn a_page_that_nothing_passes_looks_at_a_bounded_number_of_keys() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    fill(connect(&server.url(), "semel").await, 25_000).await;
    let nothing = Filter { rule: Some("no such rule".to_owned()), ..Filter::default() };
    let page = store.list(&nothing, None, 100).await.expect("it answers");
    assert!(page.entries.is_empty());
    let next = page.next.expect("more than 20,000 keys are there");
    let scans = server.info("commandstats", "cmdstat_scan").await;
    assert!(scans.starts_with("calls=40,"), "{scans}");
    let (mut after, mut pages) = (Some(next), 1);
    while let Some(cursor) = after {
        let page = store.list(&nothing, Some(&cursor), 100).await.expect("it answers");
        assert!(page.entries.is_empty());
        (after, pages) = (page.next, pages + 1);
        assert!(pages < 20, "it ends");
    }
}
