//! What calls cost: statements, writes, indexes.

use semel_core::store::{Filter, Renewal, Store, StoreAdmin};
use semel_testkit::conformance::Bed as _;

use super::{
    asking::{LEASE, ask, done, hold, id},
    bed::Bed,
};

/// How many statements of the store's the server ran.
async fn statements<const POOLED: bool>(bed: &Bed<POOLED>) -> u64 {
    let count = "SELECT coalesce(sum(calls), 0)::text FROM pg_stat_statements \
                 WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) \
                 AND query LIKE 'WITH t AS MATERIALIZED%'";
    bed.ask(count).await.parse().unwrap()
}

async fn each_call_is_one_statement<const POOLED: bool>() {
    let bed = Bed::<POOLED>::start().await;
    let store = bed.store().await;
    let before = statements(&bed).await;
    let claim = hold(&store, 1).await;
    assert_eq!(statements(&bed).await - before, 1, "a fresh claim");
    let _ = store.claim(&ask(1)).await.unwrap();
    assert_eq!(statements(&bed).await - before, 2, "a duplicate");
    let batch = [Renewal { claim: &claim, lease: LEASE, keep: LEASE }];
    let _ = store.renew(&batch).await.unwrap();
    assert_eq!(statements(&bed).await - before, 3, "a renewal");
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    assert_eq!(statements(&bed).await - before, 4, "a settlement, which nobody waited for");
    let _ = store.claim(&ask(1)).await.unwrap();
    assert_eq!(statements(&bed).await - before, 5, "a replay");
    let _ = store.list(&Filter::default(), None, 10).await.unwrap();
    let _ = store.purge(10).await.unwrap();
    assert_eq!(statements(&bed).await - before, 7, "a list and a purge");
}

#[tokio::test]
async fn each_call_is_one_statement_straight() {
    each_call_is_one_statement::<false>().await;
}

#[tokio::test]
async fn each_call_is_one_statement_through_a_pooler() {
    each_call_is_one_statement::<true>().await;
}

/// So that the conformance suite's `a_duplicate_writes_nothing` counts something.
#[tokio::test]
async fn what_is_written_is_counted() {
    let bed = Bed::<false>::start().await;
    let store = bed.store().await;
    let empty = bed.written().await.unwrap();
    let claim = hold(&store, 1).await;
    let claimed = bed.written().await.unwrap();
    let _ = store.settle(&claim, &done(b"x")).await.unwrap();
    assert!(empty < claimed && claimed < bed.written().await.unwrap());
}

/// On a table that is worth an index.
#[tokio::test]
async fn no_call_reads_the_whole_table_and_renewals_touch_no_index() {
    let bed = Bed::<false>::start().await;
    bed.ask(
        "INSERT INTO semel_record SELECT sha256(int4send(n)), 1, 2, 4, 1, sha256(int4send(n)), '\\x00112233445566778899aabbccddeeff', \
         1, 1, 0, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 1000000 * (n - 5000)::bigint, 'http:orders', 'k', \
         'submit', '\\x00' FROM generate_series(1, 50000) AS n; ANALYZE semel_record",
    )
    .await;
    let before = scans(&bed).await;
    let store = bed.store().await;
    for n in 0..20 {
        let claim = hold(&store, n).await;
        let _ = store.claim(&ask(n)).await.unwrap();
        let others = hold(&store, 1_000 + n).await;
        for _ in 0..10 {
            let renewal = |claim| Renewal { claim, lease: LEASE, keep: LEASE };
            let _ = store.renew(&[renewal(&claim), renewal(&others)]).await.unwrap();
        }
        let _ = store.settle(&claim, &done(b"x")).await.unwrap();
        let _ = store.get(&id(n)).await.unwrap();
        let page = store.list(&Filter::default(), None, 10).await.unwrap();
        assert_eq!(page.entries.len(), 10);
        assert_eq!(store.purge(100).await.unwrap().removed, 100);
    }
    store.close();
    drop(store);
    // A session tells what it did when it ends.
    let gone =
        "SELECT count(*)::text FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    for _ in 0..500 {
        if bed.ask(gone).await == "0" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let after = scans(&bed).await;
    assert_eq!(after.sequential - before.sequential, 0, "a call read the whole table");
    let (updated, hot) = (after.updated - before.updated, after.hot - before.hot);
    assert!(updated >= 420 && hot >= 380, "of {updated} updates {hot} stayed in their page; 400 were renewals");
}

struct Scans {
    sequential: i64,
    updated: i64,
    hot: i64,
}

async fn scans<const POOLED: bool>(bed: &Bed<POOLED>) -> Scans {
    bed.ask("SELECT pg_stat_force_next_flush()::text").await;
    let said = bed
        .ask(
            "SELECT seq_scan || ' ' || n_tup_upd || ' ' || n_tup_hot_upd FROM pg_stat_user_tables \
             WHERE relname = 'semel_record'",
        )
        .await;
    let numbers: Vec<i64> = said.split(' ').map(|n| n.parse().unwrap()).collect();
    Scans { sequential: numbers[0], updated: numbers[1], hot: numbers[2] }
}
