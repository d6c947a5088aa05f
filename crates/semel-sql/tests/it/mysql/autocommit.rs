//! A server whose sessions begin without autocommit (`autocommit = 0` for all): a store that took it as it is would claim in
//! a transaction that nobody ends, and lose it with the connection.

use semel_core::{
    record::StateCode,
    store::{Claimed, Renewal, Store, StoreAdmin},
};

use super::{
    calls::{LEASE, TTL, ask, done, free, hold, id},
    place::Place,
};

#[tokio::test]
async fn on_a_server_without_autocommit_each_call_stands_by_itself() {
    let place = Place::alone(&["--autocommit=0"]).await;
    assert_eq!(place.text("SELECT CAST(@@global.autocommit AS CHAR)").await, "OFF");
    let (one, other) = (place.store().await, place.store().await);
    let claims = [hold(&one, 1).await, hold(&one, 2).await, hold(&one, 3).await];
    match other.claim(&ask(1)).await {
        Ok(Claimed::Found { record: Some(found), .. }) => {
            assert!(found.belongs_to(claims[0].owner(), claims[0].fence()));
        }
        answer => panic!("another connection does not see the claim: {answer:?}"),
    }
    let _ = one.settle(&claims[0], &done(b"x")).await.unwrap();
    let _ = one.release(&free(&claims[1])).await.unwrap();
    let renewed = one.renew(&[Renewal { claim: &claims[2], lease: 3 * LEASE, keep: TTL }]).await.unwrap();
    assert!(renewed.iter().all(Result::is_ok), "{renewed:?}");
    one.audit("somebody did something").await.unwrap();

    // What a session did not commit goes with it.
    place.end_sessions().await;
    let after = place.store().await;
    let mut states = Vec::new();
    for n in 1..=3 {
        let seen = after.get(&id(n)).await.unwrap();
        let record = seen.record.unwrap();
        states.push((record.state, record.lease_until.since(seen.now) > 2 * LEASE));
    }
    assert_eq!(states, [(StateCode::Done, false), (StateCode::Free, false), (StateCode::InFlight, true)]);
    assert_eq!(after.audited(10).await.unwrap().len(), 1);
}
