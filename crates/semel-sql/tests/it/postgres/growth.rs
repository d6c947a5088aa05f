//! On a table that is worth an index every call goes through one, however often its statement was planned.
//!
//! `SEMEL_TEST_ROWS=1000000` runs it on so many rows (of fewer than 40,000 a list with a filter rightly reads all), and tells
//! what calls took.

use std::time::Duration;

use semel_core::{
    Owner,
    record::StateCode,
    store::{
        Cursor, Filter, NewToken, Releasing, Renewal, Resolution, Resolved, Settlement, Store, StoreAdmin, Target,
    },
};
use semel_sql::{Options, PostgresStore};
use semel_testkit::conformance::Bed as _;

use super::{
    asking::{LEASE, answer, ask, asked, done, hold, id},
    bed::Bed,
};
use crate::figures::figures;

/// A session plans a statement anew five times, then perhaps once for all.
const TIMES: u64 = 12;

/// A tenth of the records has ended.
async fn fill(bed: &Bed<false>, rows: u64) {
    bed.ask(&format!(
        "INSERT INTO semel_record SELECT sha256(int8send(n)), 1, 2, 4, 1, sha256(int8send(n)), \
         '\\x00112233445566778899aabbccddeeff', 1, 1, 0, \
         (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + 100000000 * (n - {rows} / 10), 'http:orders', 'k', \
         CASE n % 1000 WHEN 0 THEN 'rare' ELSE 'submit' END, sha256(int8send(n)) FROM generate_series(1::bigint, {rows}) AS n; \
         INSERT INTO semel_audit (line) SELECT 'line ' || n FROM generate_series(1, 9900) AS n; \
         ANALYZE semel_record; ANALYZE semel_audit"
    ))
    .await;
}

async fn every_call(store: &PostgresStore, n: u64) {
    let rest = answer(b"x");
    let claims = [hold(store, n).await, hold(store, n + 1).await, hold(store, n + 2).await];
    let _ = store.claim(&ask(n)).await.unwrap();
    let renewals = claims.each_ref().map(|claim| Renewal { claim, lease: LEASE, keep: LEASE });
    let _ = store.renew(&renewals).await.unwrap();
    let (first, watched) = (id(n), claims[0].fence());
    let _ = tokio::time::timeout(Duration::from_millis(1), store.wait(&first, Some(watched))).await;
    let _ = store.settle(&claims[0], &done(b"x")).await.unwrap();
    let _ = store.get(&first).await.unwrap();
    assert!(store.delete(&first, StateCode::Done).await.unwrap());
    let unknown = Settlement::Unknown { fingerprint: asked(), rest: rest.clone(), ttl: LEASE };
    let _ = store.settle(&claims[1], &unknown).await.unwrap();
    let (identity, resolver) = (id(n + 1), Owner::from_bytes([9; 16]));
    let target = Target { identity: &identity, fence: claims[1].fence(), resolver };
    let word = Resolution::Failed { keep: LEASE, rest: rest.clone() };
    assert!(matches!(store.resolve(target, &word).await.unwrap(), Resolved::Ok(_)));
    let free = Releasing::Held { claim: &claims[2], counts: true, park: false, keep: LEASE, rest: rest.clone() };
    let _ = store.release(&free).await.unwrap();
    let token = NewToken { identity: id(n + 3), ttl: LEASE, max_life: 3 * LEASE, rest };
    let _ = store.issue(&token).await.unwrap();
    let _ = store.extend(&id(n + 3), 2 * LEASE).await.unwrap();
    assert!(store.withdraw(&id(n + 3)).await.unwrap());
    let page = store.list(&Filter::default(), None, 10).await.unwrap();
    assert_eq!(page.entries.len(), 10);
    let rare = Filter { rule: Some("rare".into()), state: Some(StateCode::Done), ..Filter::default() };
    let _ = store.list(&rare, page.next.as_ref(), 10).await.unwrap();
    let _ = store.list(&rare, Some(&Cursor(vec![0x80; 32].into())), 1_000).await.unwrap();
    assert_eq!(store.purge(50).await.unwrap().removed, 50);
    store.audit("somebody did something").await.unwrap();
    assert_eq!(store.audited(20).await.unwrap().len(), 20);
    let _ = store.health().await.unwrap();
}

/// Whole reads of the two tables that grow.
async fn whole_reads(bed: &Bed<false>) -> String {
    bed.ask("SELECT pg_stat_force_next_flush()::text").await;
    let sum = "SELECT string_agg(relname || ' ' || seq_scan, ', ' ORDER BY relname) FROM pg_stat_user_tables \
               WHERE relname IN ('semel_record', 'semel_audit')";
    bed.ask(sum).await
}

#[tokio::test]
async fn every_statement_goes_through_an_index() {
    let rows = std::env::var("SEMEL_TEST_ROWS").ok();
    let bed = Bed::<false>::start().await;
    fill(&bed, rows.as_deref().map_or(40_000, |n| n.parse().unwrap())).await;
    let before = whole_reads(&bed).await;
    // One connection: all calls through the same session.
    let store =
        bed.store_with(Options { connections: 1, call_timeout: Duration::from_secs(30), ..Options::default() }).await;
    for n in 0..TIMES {
        every_call(&store, 10 * n).await;
    }
    if rows.is_some() {
        figures(&store, ask, &done(b"x"), 1_000).await;
    }
    store.close();
    drop(store);
    // A session tells what it did when it ends. The one that listens did nothing, and ends later.
    let left = "SELECT count(*)::text FROM pg_stat_activity \
                WHERE datname = current_database() AND query LIKE 'WITH t AS%'";
    for _ in 0..1_000 {
        if bed.ask(left).await == "0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(whole_reads(&bed).await, before, "a call read a whole table");
}
