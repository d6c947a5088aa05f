//! Replies that are lost: the call took place, and nobody was told.

#![expect(clippy::disallowed_methods, reason = "the peer is the test")]

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use semel_core::{
    StoreTime,
    judge::{Caller, Judgement, judge},
    record::{Flags, StateCode},
    store::{Claimed, Did, Extended, Issued, NewToken, Releasing, Renewal, Renewed, Settlement, Store},
};
use semel_redis::RedisStore;
use semel_testkit::servers::redis::{Redis, Setup};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::{
    beds::connect,
    questions::{LEASE, TTL, about, done, fingerprint, granted, id, rest, stands},
};

/// A way to a server on which the next reply is lost, and the connection with it.
struct Lossy {
    _server: Redis,
    store: RedisStore,
    loses: Arc<AtomicBool>,
}

impl Lossy {
    async fn start() -> Self {
        let server = Redis::start(&Setup::new()).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let (here, there) = (listener.local_addr().expect("it has an address"), server.address());
        let loses = Arc::new(AtomicBool::new(false));
        let losing = Arc::clone(&loses);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (there, losing) = (there.clone(), Arc::clone(&losing));
                tokio::spawn(async move { pass(near, &there, &losing).await });
            }
        });
        let store = connect(&format!("redis://{here}"), "semel").await;
        // The server has every script now: what is lost later is the answer, not the wish for the script.
        let claim = granted(store.claim(&about(1_000)).await);
        let _renewed = store.renew(&[Renewal { claim: &claim, lease: LEASE, keep: TTL }]).await.expect("it works");
        stands(store.settle(&claim, &done()).await);
        let claim = granted(store.claim(&about(1_001)).await);
        stands(store.settle(&claim, &nobody_knows()).await);
        let claim = granted(store.claim(&about(1_002)).await);
        let what = Releasing::Held { claim: &claim, counts: false, park: false, keep: TTL, rest: rest() };
        stands(store.release(&what).await);
        let token = NewToken { identity: id(1_003), ttl: TTL, max_life: TTL, rest: rest() };
        let _issued = store.issue(&token).await.expect("it works");
        let _extended = store.extend(&token.identity, TTL).await.expect("it works");
        Self { _server: server, store, loses }
    }

    /// The next reply is lost.
    fn lose(&self) {
        self.loses.store(true, Ordering::Release);
    }
}

async fn pass(near: TcpStream, there: &str, losing: &AtomicBool) -> io::Result<()> {
    let far = TcpStream::connect(there).await?;
    let ((mut near_in, mut near_out), (mut far_in, mut far_out)) = (near.into_split(), far.into_split());
    let asks = tokio::io::copy(&mut near_in, &mut far_out);
    let answers = async {
        let mut bytes = vec![0; 1 << 16];
        loop {
            let n = far_in.read(&mut bytes).await?;
            if n == 0 || losing.swap(false, Ordering::AcqRel) {
                return io::Result::Ok(());
            }
            near_out.write_all(&bytes[..n]).await?;
        }
    };
    tokio::select! {
        _ = asks => Ok(()),
        done = answers => done,
    }
}

fn nobody_knows() -> Settlement {
    Settlement::Unknown { fingerprint: fingerprint(), rest: rest(), ttl: TTL }
}

#[track_caller]
fn is_unknown<T: std::fmt::Debug>(answer: Result<T, semel_core::store::StoreError>) {
    assert_eq!(answer.expect_err("its reply was lost").did, Did::Unknown);
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_finds_its_own_grant() {
    let lossy = Lossy::start().await;
    let ask = about(1);
    lossy.lose();
    is_unknown(lossy.store.claim(&ask).await);
    let Ok(Claimed::Found { record, now }) = lossy.store.claim(&ask).await else { panic!("it was granted before") };
    let judged = judge(&ask, record.as_ref(), now, &Caller::default());
    let Judgement::Again { claim, .. } = judged else { panic!("it is its own: {judged:?}") };
    stands(lossy.store.settle(&claim, &done()).await);
}

#[tokio::test]
async fn a_settlement_whose_reply_was_lost_stands_when_sent_again() {
    let lossy = Lossy::start().await;
    for (n, to) in (0..).zip([done(), nobody_knows()]) {
        let claim = granted(lossy.store.claim(&about(n)).await);
        lossy.lose();
        is_unknown(lossy.store.settle(&claim, &to).await);
        stands(lossy.store.settle(&claim, &to).await);
    }
}

#[tokio::test]
async fn a_release_whose_reply_was_lost_stands_when_sent_again() {
    let lossy = Lossy::start().await;
    for park in [false, true] {
        let claim = granted(lossy.store.claim(&about(u64::from(park))).await);
        let what = Releasing::Held { claim: &claim, counts: false, park, keep: TTL, rest: rest() };
        lossy.lose();
        is_unknown(lossy.store.release(&what).await);
        stands(lossy.store.release(&what).await);
        let record = lossy.store.get(&id(u64::from(park))).await.expect("it works").record.expect("it is there");
        assert_eq!((record.attempt, record.state == StateCode::Parked), (0, park), "the attempt was given back once");
    }
}

#[tokio::test]
async fn a_renewal_whose_reply_was_lost_is_answered_alike() {
    let lossy = Lossy::start().await;
    let claim = granted(lossy.store.claim(&about(1)).await);
    let batch = [Renewal { claim: &claim, lease: 2 * LEASE, keep: TTL }];
    lossy.lose();
    is_unknown(lossy.store.renew(&batch).await.expect("each has an answer of its own").remove(0));
    let again = lossy.store.renew(&batch).await.expect("the store works");
    assert!(matches!(again.as_slice(), [Ok(Renewed::Left(left))] if *left > LEASE), "{again:?}");
}

#[tokio::test]
async fn a_token_whose_reply_was_lost_is_there() {
    let lossy = Lossy::start().await;
    let token = NewToken { identity: id(1), ttl: TTL, max_life: 2 * TTL, rest: rest() };
    lossy.lose();
    is_unknown(lossy.store.issue(&token).await);
    assert_eq!(lossy.store.issue(&token).await.expect("the store works"), Issued::Exists);
    let record = lossy.store.get(&id(1)).await.expect("the store works").record.expect("it is there");
    assert!(record.flags.has(Flags::ISSUED));
    lossy.lose();
    is_unknown(lossy.store.extend(&id(1), 2 * TTL).await);
    let Ok(Extended::Until(end)) = lossy.store.extend(&id(1), TTL).await else { panic!("it is a token") };
    assert!(end > record.expires_at && end < StoreTime::MAX, "it was extended before, and is not shortened");
}
