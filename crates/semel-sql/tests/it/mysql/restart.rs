//! The server goes and comes back.

use std::sync::Arc;

use semel_core::store::{Claimed, Did, Durability, Settled, Store, StoreError, StoreErrorKind};
use semel_sql::{MySqlStore, Options};
use semel_testkit::servers::MariaDb;

use super::{
    calls::{ask, done, hold, id, id_under, unknown},
    place::{Place, options},
};

fn sole(place: &mut Place) -> &mut MariaDb {
    Arc::get_mut(&mut place.server).expect("the server is this test's alone")
}

/// Until the store has noticed that its connections are gone.
async fn again<T>(mut call: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    for _ in 0..20 {
        if let Ok(answer) = call().await {
            return answer;
        }
    }
    panic!("the store does not come back")
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_killed_server() {
    let mut place = Place::alone(&[]).await;
    let store = place.store().await;
    assert_eq!(store.facts().durability, Durability::Power);
    let claims = [hold(&store, 1).await, hold(&store, 2).await, hold(&store, 3).await];
    let _ = store.settle(&claims[1], &done(b"kept")).await.unwrap();
    let _ = store.settle(&claims[2], &unknown()).await.unwrap();
    let mut was = Vec::new();
    for n in 1..4 {
        was.push(store.get(&id(n)).await.unwrap().record.unwrap().encode());
    }
    let birth = store.health().await.unwrap().birth;
    sole(&mut place).kill();
    let refused = store.claim(&ask(4)).await.unwrap_err();
    assert_eq!(refused.kind, StoreErrorKind::Unavailable);
    // By now it knows that there is no connection left, and makes none.
    assert_eq!(store.claim(&ask(4)).await.unwrap_err().did, Did::Nothing);
    sole(&mut place).restart().await;
    let health = again(async || store.health().await).await;
    assert_eq!(health.birth, birth, "it lost nothing");
    for (n, was) in (1..4).zip(was) {
        assert_eq!(store.get(&id(n)).await.unwrap().record.unwrap().encode(), was);
    }
    assert!(matches!(store.claim(&ask(1)).await, Ok(Claimed::Found { record: Some(_), .. })));
    assert!(matches!(store.settle(&claims[0], &done(b"x")).await, Ok(Settled::Ok { restored: false })));
}

/// Claims come all the time, on several connections, while the server is killed: what was granted is there afterwards.
#[tokio::test]
async fn no_grant_is_lost_when_the_server_is_killed_under_load() {
    let mut place = Place::alone(&[]).await;
    let store = Arc::new(place.store().await);
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8_u64 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let mut granted = Vec::new();
            for n in 0.. {
                let n = task * 1_000_000 + n;
                match store.claim(&ask(n)).await {
                    Ok(Claimed::Granted { claim, .. }) => granted.push((n, claim)),
                    Ok(other) => panic!("nobody else has it: {other:?}"),
                    Err(_) => return granted,
                }
            }
            granted
        });
    }
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    sole(&mut place).kill();
    let granted: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    sole(&mut place).restart().await;
    again(async || store.health().await).await;
    assert!(granted.len() > 20, "{} grants are no load", granted.len());
    for (n, claim) in granted {
        let r = store.get(&id(n)).await.unwrap().record.expect("a grant is durable before it is answered");
        assert!(r.belongs_to(claim.owner(), claim.fence()));
    }
}

#[tokio::test]
async fn a_store_that_lost_its_records_is_born_anew() {
    let place = Place::shared().await;
    let (store, other) = (place.store().await, place.store().await);
    let birth = store.health().await.unwrap().birth.unwrap();
    assert_eq!(other.health().await.unwrap().birth, Some(birth));
    hold(&store, 1).await;
    place.run("DELETE FROM semel_record; DELETE FROM semel_mark").await;
    let after = store.health().await.unwrap().birth.unwrap();
    assert_ne!(after, birth);
    assert_eq!(other.health().await.unwrap().birth, Some(after), "the first writer wins");
    // With the same secret as before: identities do not change.
    let third = place.store().await;
    assert_eq!(id_under(third.secret(), 1), id_under(store.secret(), 1));
}

#[tokio::test]
async fn a_new_connection_puts_the_mark_back_too() {
    let place = Place::shared().await;
    let store = place.store().await;
    place.run("DELETE FROM semel_mark").await;
    place.end_sessions().await;
    let _granted = again(async || store.claim(&ask(1)).await).await;
    assert_eq!(place.number("SELECT CAST(COUNT(*) AS CHAR) FROM semel_mark").await, 1);
}

#[tokio::test]
async fn another_deployments_mark_closes_the_store() {
    let place = Place::shared().await;
    let store = place.store().await;
    place.run("DELETE FROM semel_mark").await;
    let secret = semel_core::identity::Secret::from_material(b"another deployment's").unwrap();
    let other: MySqlStore = place.store_with(Options { secret: Some(secret), ..options() }).await;
    other.health().await.unwrap();
    let closed = store.health().await.unwrap_err();
    assert_eq!((closed.did, closed.kind), (Did::Nothing, StoreErrorKind::Closed));
}
