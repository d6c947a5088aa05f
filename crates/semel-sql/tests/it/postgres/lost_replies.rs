//! Answers that never arrive: the call says that nobody knows, and its repeat gets the answer that the first one had.

use std::time::Duration;

use semel_core::{
    env::Env,
    judge::{Caller, Judgement, judge},
    record::{Record, StateCode},
    store::{Ask, Claim, Claimed, Did, Releasing, Renewal, Renewed, Settled, Settlement, Store, StoreError},
};
use semel_sql::{Options, PostgresStore};
use semel_testkit::{
    conformance::Bed as _,
    servers::proxy::{Fired, Proxy, Rule, Speaks, Then},
};

use super::{
    asking::{LEASE, about, answer, ask, ask_for, asked, done, granted, hold, id},
    bed::Bed,
};

const KEEP: Duration = Duration::from_secs(3600);
const WAYS: [Then; 2] = [Then::Close, Then::Silence];

/// The statements, by their numbers.
const CLAIM: &str = "WHERE $1 = 1::bigint";
const COMPLETE: &str = "WHERE $1 = 2::bigint";
const UNKNOWN: &str = "WHERE $1 = 3::bigint";
const RELEASE: &str = "WHERE $1 = 4::bigint";
const RENEW: &str = "WHERE $1 = 12::bigint";

struct Line {
    bed: Bed<false>,
    proxy: Proxy,
    store: PostgresStore,
}

/// A store behind a proxy. A connection that fell silent keeps its place until it is given up.
async fn line() -> Line {
    let bed = Bed::<false>::start().await;
    let proxy = Proxy::speaking(Speaks::Postgres, ([127, 0, 0, 1], bed.place.server.port()).into()).await;
    let ports = [bed.place.server.port(), proxy.port()].map(|port| format!(":{port}/"));
    let url = bed.url().replace(&ports[0], &ports[1]);
    let options = Options { connections: 4, call_timeout: Duration::from_secs(2), ..Options::default() };
    let store = PostgresStore::connect(&url, &Env::system(), options).await.unwrap();
    Line { bed, proxy, store }
}

impl Line {
    fn loses(&self, statement: &str, then: Then) -> Fired {
        self.proxy.rule(Rule::runs(statement).lose_reply(then))
    }

    async fn record(&self, n: u64) -> Record {
        self.store.get(&id(n)).await.unwrap().record.unwrap()
    }
}

#[track_caller]
fn nobody_knows<T: std::fmt::Debug>(answer: Result<T, StoreError>, lost: &Fired) {
    assert_eq!(answer.expect_err("the reply was lost").did, Did::Unknown);
    assert_eq!(lost.count(), 1);
}

#[track_caller]
fn stands(answer: Result<Settled, StoreError>) {
    let settled = answer.expect("it works");
    assert!(matches!(settled, Settled::Ok { restored: false }), "{settled:?}");
}

/// What the repeat of a claim finds.
async fn own(store: &PostgresStore, ask: &Ask) -> Claim {
    let Ok(Claimed::Found { record, now }) = store.claim(ask).await else { panic!("it was granted the first time") };
    match judge(ask, record.as_ref(), now, &Caller::default()) {
        Judgement::Again { claim, .. } => claim,
        other => panic!("it is its own grant: {other:?}"),
    }
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_finds_its_own_grant() {
    for then in WAYS {
        let line = line().await;
        let lost = line.loses(CLAIM, then);
        let asked = ask(1);
        nobody_knows(line.store.claim(&asked).await, &lost);
        let claim = own(&line.store, &asked).await;
        stands(line.store.settle(&claim, &done(b"x")).await);
    }
}

#[tokio::test]
async fn a_takeover_whose_reply_was_lost_finds_its_own_grant() {
    for then in WAYS {
        let line = line().await;
        let takeover = || ask_for(semel_core::store::AskFor { takeover: true, ..about(1) });
        let first = granted(line.store.claim(&takeover()).await);
        line.bed.advance(2 * LEASE).await;
        let lost = line.loses(CLAIM, then);
        let asked = takeover();
        nobody_knows(line.store.claim(&asked).await, &lost);
        let claim = own(&line.store, &asked).await;
        assert_eq!(claim.attempt(), 2);
        assert!(claim.fence() > first.fence());
        assert!(matches!(line.store.settle(&first, &done(b"late")).await, Ok(Settled::Lost(_))));
        stands(line.store.settle(&claim, &done(b"x")).await);
    }
}

#[tokio::test]
async fn a_claim_that_never_arrived_is_granted_when_it_is_sent_again() {
    let line = line().await;
    let lost = line.proxy.rule(Rule::runs(CLAIM).lose_request(Then::Close));
    let asked = ask(1);
    nobody_knows(line.store.claim(&asked).await, &lost);
    granted(line.store.claim(&asked).await);
}

fn unknown() -> Settlement {
    Settlement::Unknown { fingerprint: asked(), rest: answer(b""), ttl: KEEP }
}

#[tokio::test]
async fn a_settlement_whose_reply_was_lost_stands_and_its_repeat_writes_nothing() {
    for then in WAYS {
        for (statement, to, state) in
            [(COMPLETE, done(b"x"), StateCode::Done), (UNKNOWN, unknown(), StateCode::Unknown)]
        {
            let line = line().await;
            let claim = hold(&line.store, 1).await;
            let lost = line.loses(statement, then);
            nobody_knows(line.store.settle(&claim, &to).await, &lost);
            let (was, written) = (line.record(1).await, line.bed.written().await);
            assert_eq!(was.state, state);
            for _ in 0..3 {
                stands(line.store.settle(&claim, &to).await);
            }
            assert_eq!((line.record(1).await.encode(), line.bed.written().await), (was.encode(), written));
        }
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_stands() {
    for then in WAYS {
        let line = line().await;
        let claim = hold(&line.store, 1).await;
        let free = || Releasing::Held { claim: &claim, counts: true, park: false, keep: KEEP, rest: answer(b"") };
        let lost = line.loses(RELEASE, then);
        nobody_knows(line.store.release(&free()).await, &lost);
        assert_eq!(line.record(1).await.state, StateCode::Free);
        stands(line.store.release(&free()).await);
        assert_eq!(hold(&line.store, 1).await.attempt(), 2);
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_answered_alike() {
    for then in WAYS {
        let line = line().await;
        let claim = hold(&line.store, 1).await;
        let lost = line.loses(RENEW, then);
        let batch = [Renewal { claim: &claim, lease: 3 * LEASE, keep: KEEP }];
        nobody_knows(line.store.renew(&batch).await, &lost);
        let [Ok(Renewed::Left(left))] = line.store.renew(&batch).await.unwrap()[..] else { panic!("it is held") };
        assert!(left > 2 * LEASE, "{left:?}");
    }
}

/// The claim's reply is on its way: its owner gives up and takes it back.
#[tokio::test]
async fn an_abandoned_claim_frees_the_record_also_while_its_reply_is_on_its_way() {
    let line = line().await;
    let lost = line.loses(CLAIM, Then::Silence);
    let asked = ask(1);
    nobody_knows(line.store.claim(&asked).await, &lost);
    let fate = Releasing::Fate { identity: &asked.identity, owner: asked.owner(), keep: KEEP, rest: answer(b"") };
    stands(line.store.release(&fate).await);
    assert_eq!(hold(&line.store, 1).await.attempt(), 1);
}
