//! No statement reads a whole table.
//!
//! `SEMEL_TEST_ROWS=1000000` runs it on so many rows, and tells what calls took.

use std::time::Duration;

use semel_core::{
    env::Env,
    store::{Filter, Store, StoreAdmin},
};
use semel_sql::{MySqlStore, Options};

use super::{
    calls::{ask, done, granted},
    cost::{Counter, calls},
    place::{Place, options},
};

const TIMES: u64 = 12;

#[tokio::test]
async fn every_statement_goes_through_an_index() {
    let chosen = std::env::var("SEMEL_TEST_ROWS").ok();
    let rows: u64 = chosen.as_deref().map_or(20_000, |n| n.parse().unwrap());
    let place = Place::alone(&[]).await;
    let mut counter = Counter::of(&place).await;
    // A tenth of the records has ended.
    let fill = format!(
        "INSERT INTO semel_record SELECT UNHEX(SHA2(seq, 256)), 1, 2, 0, 0, NULL, UNHEX(MD5(seq)), seq, 1, 0, \
         TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) + 100000000 * (CAST(seq AS SIGNED) - {rows} DIV 10), '', \
         'http:orders', 'k', '' FROM seq_1_to_{rows}; ANALYZE TABLE semel_record"
    );
    place.run(&fill).await;
    let one = Options { connections: 1, call_timeout: Duration::from_secs(60), ..options() };
    let store = MySqlStore::connect(&place.url(), &Env::system(), one).await.unwrap();
    let before = counter.value("Handler_read_rnd_next").await;
    for n in 0..TIMES {
        calls(&store, 10 * n).await;
    }
    // What the counter reads of itself is some hundreds.
    let read = counter.value("Handler_read_rnd_next").await - before;
    assert!(read < rows / 4, "{read} rows were read one after the other");
    if chosen.is_some() {
        figures(&store).await;
    }
}

#[expect(clippy::print_stderr, reason = "figures, shown with --no-capture")]
async fn figures(store: &MySqlStore) {
    const CALLS: u32 = 500;
    let now = || Env::system().clock.now();
    let tell = |what: &str, began, calls: u32| eprintln!("{what}: {:?}", now().since(began) / calls);
    let began = now();
    let mut claims = Vec::new();
    for n in 0..u64::from(CALLS) {
        claims.push(granted(store.claim(&ask(10_000 + n)).await));
    }
    tell("fresh claim", began, CALLS);
    let began = now();
    for n in 0..u64::from(CALLS) {
        let _ = store.claim(&ask(10_000 + n)).await.unwrap();
    }
    tell("duplicate", began, CALLS);
    let began = now();
    for claim in &claims {
        let _ = store.settle(claim, &done(b"x")).await.unwrap();
    }
    tell("completion", began, CALLS);
    let began = now();
    let mut after = None;
    for _ in 0..20 {
        after = store.list(&Filter::default(), after.as_ref(), 100).await.unwrap().next;
    }
    tell("page of 100", began, 20);
    let began = now();
    let mut removed = 0;
    for _ in 0..3 {
        removed += store.purge(200).await.unwrap().removed;
    }
    tell(&format!("purge of 200 ({removed} removed)"), began, 3);
}
