//! Rows that somebody else holds: waiting, losing, going on.

use std::time::Duration;

use semel_core::store::{Claimed, Did, Renewal, Renewed, Store, StoreAdmin};
use semel_sql::Options;
use sqlx::{AssertSqlSafe, mysql::MySqlConnection};

use super::{
    calls::{LEASE, TTL, ask, done, hold, id, unknown},
    place::{Place, options},
};

async fn tell(connection: &mut MySqlConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await.unwrap();
}

fn hex(n: u64) -> String {
    id(n).digest().iter().map(|b| format!("{b:02x}")).collect()
}

/// Begins a transaction in which somebody inserts the row of `n`.
async fn inserting(place: &Place, n: u64) -> MySqlConnection {
    let mut other = place.connection().await;
    tell(&mut other, "BEGIN").await;
    let values = "1, 2, 0, 0, NULL, REPEAT(CHAR(1), 16), 7, 1, 0, 9000000000000000, '', 'http:orders', 'k', 'submit'";
    tell(&mut other, &format!("INSERT INTO semel_record VALUES (x'{}', {values})", hex(n))).await;
    other
}

/// Begins a transaction in which somebody holds the row of `n`.
async fn holding(place: &Place, n: u64) -> MySqlConnection {
    let mut other = place.connection().await;
    tell(&mut other, "BEGIN").await;
    tell(&mut other, &format!("SELECT v FROM semel_record WHERE id = x'{}' FOR UPDATE", hex(n))).await;
    other
}

/// A claim of a key that somebody inserts: once he takes it back the claim is granted, and its lease counts from the moment
/// at which it was asked for.
#[tokio::test]
async fn a_claim_waiting_for_a_row_lock_gets_no_longer_a_lease() {
    let place = Place::shared().await;
    let store = place.store_with(Options { lock_timeout: Duration::from_secs(10), ..options() }).await;
    let mut other = inserting(&place, 1).await;
    let before = store.health().await.unwrap().now;
    let asked = ask(1);
    // Half of it is what a busy machine may take to begin.
    let waits = Duration::from_secs(4);
    let (answer, ()) = tokio::join!(store.claim(&asked), async {
        tokio::time::sleep(waits).await;
        tell(&mut other, "ROLLBACK").await;
    });
    let Ok(Claimed::Granted { claim, now, .. }) = answer else { panic!("it is free by now: {answer:?}") };
    let after = store.health().await.unwrap().now;
    assert!(after.since(before) >= waits, "it waited");
    let r = store.get(&id(1)).await.unwrap().record.unwrap();
    assert!(r.belongs_to(claim.owner(), claim.fence()));
    assert!(r.lease_until <= before + LEASE + waits / 2, "the lease counts from the end of the wait");
    assert!(now <= before + waits / 2);
}

#[tokio::test]
async fn a_claim_that_waited_for_an_outcome_finds_it() {
    let place = Place::shared().await;
    let store = place.store().await;
    let mut other = inserting(&place, 1).await;
    let asked = ask(1);
    let (answer, ()) = tokio::join!(store.claim(&asked), async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        tell(&mut other, "COMMIT").await;
    });
    let Ok(Claimed::Found { record: Some(record), .. }) = answer else { panic!("it is there: {answer:?}") };
    assert_eq!(record.fence.map(|f| f.get()), Some(7));
}

/// Longer than a statement waits: a claim is told what is there (nothing, which the judge calls a race), a settlement that
/// nothing was done.
#[tokio::test]
async fn a_row_that_is_held_for_long_is_not_waited_for() {
    let place = Place::shared().await;
    let store = place.store_with(Options { lock_timeout: Duration::from_secs(1), ..options() }).await;
    let claim = hold(&store, 2).await;
    let (_inserting, _holding) = (inserting(&place, 1).await, holding(&place, 2).await);
    let (fresh, duplicate, settlement) = (ask(1), ask(2), unknown());
    let (fresh, duplicate, settled) =
        tokio::join!(store.claim(&fresh), store.claim(&duplicate), store.settle(&claim, &settlement));
    assert!(matches!(fresh, Ok(Claimed::Found { record: None, .. })), "{fresh:?}");
    assert!(matches!(duplicate, Ok(Claimed::Found { record: Some(_), .. })), "{duplicate:?}");
    assert_eq!(settled.unwrap_err().did, Did::Nothing);
}

#[tokio::test]
async fn a_row_that_is_held_keeps_no_other_lease_from_being_renewed() {
    let place = Place::shared().await;
    let store = place.store_with(Options { lock_timeout: Duration::from_secs(1), ..options() }).await;
    let claims = [hold(&store, 1).await, hold(&store, 2).await, hold(&store, 3).await];
    let _holding = holding(&place, 2).await;
    let batch = claims.each_ref().map(|claim| Renewal { claim, lease: 3 * LEASE, keep: TTL });
    let answers = store.renew(&batch).await.unwrap();
    let left: Vec<_> = answers
        .iter()
        .map(|answer| match answer {
            Ok(Renewed::Left(left)) => *left > 2 * LEASE,
            other => panic!("all three are held: {other:?}"),
        })
        .collect();
    assert_eq!(left, [true, false, true]);
}

/// Of those who wait for an insert that is taken back, all but one lose to a deadlock: the server says so to them, and the
/// store sends them again.
#[tokio::test]
async fn claims_that_lose_to_a_deadlock_are_sent_again() {
    let place = Place::alone(&[]).await;
    let store = place.store().await;
    let deadlocks = "SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'";
    let before = place.number(deadlocks).await;
    for n in 0..10 {
        let mut other = inserting(&place, n).await;
        let asks = [ask(n), ask(n), ask(n)];
        let (one, two, three, ()) =
            tokio::join!(store.claim(&asks[0]), store.claim(&asks[1]), store.claim(&asks[2]), async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                tell(&mut other, "ROLLBACK").await;
            });
        let granted = [one, two, three].into_iter().filter(|a| matches!(a, Ok(Claimed::Granted { .. }))).count();
        assert_eq!(granted, 1);
    }
    assert!(place.number(deadlocks).await > before, "no deadlock came about");
}

#[tokio::test]
async fn two_purges_at_once_tell_each_unknown_once() {
    let place = Place::shared().await;
    let (one, two) = (place.store().await, place.store().await);
    for n in 0..60 {
        let claim = hold(&one, n).await;
        if n % 2 == 0 {
            let _ = one.settle(&claim, &done(b"x")).await.unwrap();
        }
    }
    one.shift(100 * TTL).await.unwrap();
    let (a, b) = tokio::join!(one.purge(1000), two.purge(1000));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.removed + b.removed, 60);
    let mut told: Vec<_> = a.unresolved.iter().chain(&b.unresolved).map(|id| *id.digest()).collect();
    told.sort_unstable();
    let mut expected: Vec<_> = (0..60).filter(|n| n % 2 == 1).map(|n| *id(n).digest()).collect();
    expected.sort_unstable();
    assert_eq!(told, expected);
}
