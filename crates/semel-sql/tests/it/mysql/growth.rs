//! No statement reads a whole table.
//!
//! `SEMEL_TEST_ROWS=1000000` runs it on so many rows, and tells what calls took.

use std::time::Duration;

use semel_core::env::Env;
use semel_sql::{MySqlStore, Options};

use super::{
    calls::{ask, done},
    cost::{Counter, calls},
    place::{Place, options},
};
use crate::figures::figures;

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
        figures(&store, ask, &done(b"x"), 200).await;
    }
}
