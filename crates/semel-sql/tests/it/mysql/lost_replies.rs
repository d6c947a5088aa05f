//! Answers that never arrive: the call says so, and its repeat gets the answer that the first one had.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use semel_core::{
    env::Env,
    judge::{Caller, Judgement, judge},
    record::StateCode,
    store::{Ask, AskFor, Claimed, Did, Releasing, Renewal, Renewed, Settled, Settlement, Store, StoreError},
};
use semel_sql::{MySqlStore, Options};
use semel_testkit::servers::proxy::{Proxy, Rule, Speaks, Then};

use super::{
    calls::{LEASE, TTL, about, ask, ask_for, done, free, granted, hold, id, plain},
    place::{Place, options},
};

struct Line {
    place: Place,
    proxy: Proxy,
    store: MySqlStore,
}

/// A store behind a proxy, on one connection.
async fn line() -> Line {
    let place = Place::shared().await;
    let server = SocketAddr::from((Ipv4Addr::LOCALHOST, place.server.port()));
    let proxy = Proxy::speaking(Speaks::MySql, server).await;
    let url = format!("mysql://root@{}/{}", proxy.address(), place.database);
    let options = Options { connections: 1, call_timeout: Duration::from_secs(2), ..options() };
    let store = MySqlStore::connect(&url, &Env::system(), options).await.unwrap();
    Line { place, proxy, store }
}

#[track_caller]
fn nobody_knows<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert_eq!(answer.expect_err("the reply was lost").did, Did::Unknown);
}

/// What the repeat of a claim finds.
async fn own(store: &MySqlStore, ask: &Ask) -> semel_core::store::Claim {
    let Ok(Claimed::Found { record, now }) = store.claim(ask).await else { panic!("it was granted the first time") };
    match judge(ask, record.as_ref(), now, &Caller::default()) {
        Judgement::Again { claim, .. } => claim,
        other => panic!("it is its own grant: {other:?}"),
    }
}

const WAYS: [Then; 2] = [Then::Close, Then::Silence];

#[tokio::test]
async fn a_claim_whose_reply_was_lost_finds_its_own_grant() {
    for then in WAYS {
        let Line { store, proxy, place: _place } = line().await;
        let lost = proxy.rule(Rule::runs("INSERT INTO semel_record").lose_reply(then));
        let asked = ask(1);
        nobody_knows(store.claim(&asked).await);
        assert_eq!(lost.count(), 1);
        let claim = own(&store, &asked).await;
        assert!(matches!(store.settle(&claim, &done(b"x")).await, Ok(Settled::Ok { restored: false })));
    }
}

#[tokio::test]
async fn a_takeover_whose_reply_was_lost_finds_its_own_grant() {
    for then in WAYS {
        let Line { store, proxy, place: _place } = line().await;
        let takeover = || ask_for(AskFor { takeover: true, ..about(1) });
        let first = granted(store.claim(&takeover()).await);
        store.shift(2 * LEASE).await.unwrap();
        proxy.rule(Rule::runs("UPDATE semel_record").lose_reply(then));
        let asked = takeover();
        nobody_knows(store.claim(&asked).await);
        let claim = own(&store, &asked).await;
        assert_eq!(claim.attempt(), 2);
        assert!(claim.fence() > first.fence());
        assert!(matches!(store.settle(&first, &done(b"late")).await, Ok(Settled::Lost(_))));
    }
}

#[tokio::test]
async fn a_claim_that_never_arrived_is_granted_when_it_is_sent_again() {
    let Line { store, proxy, place: _place } = line().await;
    proxy.rule(Rule::runs("INSERT INTO semel_record").lose_request(Then::Close));
    let asked = ask(1);
    nobody_knows(store.claim(&asked).await);
    granted(store.claim(&asked).await);
}

#[tokio::test]
async fn a_settlement_whose_reply_was_lost_stands() {
    for then in WAYS {
        let Line { store, proxy, place: _place } = line().await;
        let claim = hold(&store, 1).await;
        proxy.rule(Rule::runs("UPDATE semel_record").lose_reply(then));
        nobody_knows(store.settle(&claim, &done(b"x")).await);
        let was = store.get(&id(1)).await.unwrap().record.unwrap();
        assert_eq!(was.state, StateCode::Done);
        assert!(matches!(store.settle(&claim, &done(b"x")).await, Ok(Settled::Ok { restored: false })));
        assert_eq!(store.get(&id(1)).await.unwrap().record.unwrap().encode(), was.encode());
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_stands() {
    let Line { store, proxy, place: _place } = line().await;
    let claim = hold(&store, 1).await;
    proxy.rule(Rule::runs("UPDATE semel_record").lose_reply(Then::Close));
    nobody_knows(store.release(&free(&claim)).await);
    assert!(matches!(store.release(&free(&claim)).await, Ok(Settled::Ok { restored: false })));
    assert_eq!(hold(&store, 1).await.attempt(), 2);
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_answered_alike() {
    let Line { store, proxy, place: _place } = line().await;
    let claim = hold(&store, 1).await;
    proxy.rule(Rule::runs("UPDATE semel_record").lose_reply(Then::Close));
    let batch = [Renewal { claim: &claim, lease: 3 * LEASE, keep: TTL }];
    nobody_knows(store.renew(&batch).await);
    let [Ok(Renewed::Left(left))] = store.renew(&batch).await.unwrap()[..] else { panic!("it is held") };
    assert!(left > 2 * LEASE);
}

/// The claim's request is slow: its owner gives up and takes it back, before or after it arrives.
#[tokio::test]
async fn an_abandoned_claim_frees_the_record_also_while_its_reply_is_on_its_way() {
    let Line { store, proxy, place } = line().await;
    proxy.rule(Rule::runs("INSERT INTO semel_record").lose_reply(Then::Silence));
    let asked = ask(1);
    nobody_knows(store.claim(&asked).await);
    let fate = Releasing::Fate { identity: &asked.identity, owner: asked.owner(), keep: TTL, rest: plain() };
    assert!(matches!(store.release(&fate).await, Ok(Settled::Ok { restored: false })));
    assert_eq!(hold(&place.store().await, 1).await.attempt(), 1);
}

/// A caller that leaves in the middle of an answer leaves a connection that nobody may take for his own.
#[tokio::test]
async fn a_dropped_call_leaves_its_answer_to_nobody() {
    let Line { store, proxy, place: _place } = line().await;
    let claims = [hold(&store, 1).await, hold(&store, 2).await];
    let _ = store.settle(&claims[0], &done(&[b'a'; 3000])).await.unwrap();
    let _ = store.settle(&claims[1], &done(&[b'b'; 3000])).await.unwrap();
    for n in 0..30 {
        proxy.rule(Rule::runs("SELECT").delay_reply(Duration::from_millis(n)));
        let left = tokio::time::timeout(Duration::from_millis(n / 2), store.get(&id(1))).await;
        drop(left);
        let seen = store.get(&id(2)).await.unwrap().record.unwrap();
        assert_eq!(seen.rest, rest_of(&done(&[b'b'; 3000])), "somebody else's answer");
    }
}

fn rest_of(settled: &Settlement) -> bytes::Bytes {
    match settled {
        Settlement::Done { rest, .. } => rest.clone(),
        other => panic!("it has an outcome: {other:?}"),
    }
}
