//! Records that were shortened or changed by hand, or by a disk: a cut body was replayed as if it were the whole one.

use std::time::Duration;

use semel_core::{
    StoreTime,
    judge::{Caller, Judgement, judge},
    record::{Format, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claimed, Settlement, Store},
};
use semel_testkit::servers::redis::{Redis, Said, Setup};

use crate::{
    beds::connect,
    questions::{TTL, about, about_as, an_owner, fingerprint, granted, id, rest, stands},
};

const HEADER: usize = 84;

/// What a copy of the request gets now.
async fn copy(store: &impl Store) -> Judgement {
    let ask = about(1);
    match store.claim(&ask).await.expect("it works") {
        Claimed::Found { record, now } => judge(&ask, record.as_ref(), now, &Caller::default()),
        other => panic!("it runs again: {other:?}"),
    }
}

#[tokio::test]
async fn a_record_that_was_cut_or_damaged_is_neither_replayed_nor_run_again() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    let claim = granted(store.claim(&about(1)).await);
    let meta = rest();
    let outcome = Outcome::new(Format::JSON, &b"201"[..], &b"{\"paid\":4711}"[..]);
    let rest = Rest::write(
        &meta[..Rest::read(&meta).expect("it was written").meta_len],
        &Payload::Outcome { outcome, settled_at: StoreTime::from_micros(1) },
    );
    stands(
        store.settle(&claim, &Settlement::Done { fingerprint: fingerprint(), rest, body_kept: true, ttl: TTL }).await,
    );
    assert!(matches!(copy(&store).await, Judgement::Replay(_)), "as it was written it is replayed");

    let key = format!("semel:{}", id(1));
    let Said::Text(whole) = server.tell(&["GET", &key]).await else { panic!("it is there") };
    for cut in 0..whole.len() {
        server.ask_bytes(&[b"SET", key.as_bytes(), &whole[..cut]]).await;
        let said = copy(&store).await;
        let closed = if cut < HEADER {
            matches!(said, Judgement::InFlight(_))
        } else {
            matches!(said, Judgement::Unavailable { kept: None })
        };
        assert!(closed, "cut to {cut} of {}: {said:?}", whole.len());
    }
    for at in HEADER..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x10;
        server.ask_bytes(&[b"SET", key.as_bytes(), &damaged]).await;
        let said = copy(&store).await;
        assert!(matches!(said, Judgement::Unavailable { kept: None }), "byte {at}: {said:?}");
    }
    server.ask_bytes(&[b"SET", key.as_bytes(), &whole]).await;
    assert!(matches!(copy(&store).await, Judgement::Replay(_)), "as it was written it is replayed");
}

/// What a claim says of its question was of version 1 before there was a sum; a server may have such when its program is
/// replaced.
#[tokio::test]
async fn a_claim_of_version_1_is_taken_over_as_one_of_version_2_is() {
    let server = Redis::start(&Setup::new()).await;
    let store = connect(&server.url(), "semel").await;
    // Long enough that its claimant is told of each before it ends, however busy the machine.
    let lease = Duration::from_secs(1);
    let asked = |version: u8| {
        let what = AskFor { takeover: true, lease, ..about_as(u64::from(version)) };
        Ask::new(an_owner(), what)
    };
    let mut made = Vec::new();
    for version in [1_u8, 2, 3] {
        made.push((version, granted(store.claim(&asked(version)).await)));
        let key = format!("semel:{}", id(u64::from(version)));
        server.ask_bytes(&[b"SETRANGE", key.as_bytes(), b"84", &[version]]).await;
    }
    // By the server's clock, which is the machine's.
    tokio::time::sleep(lease + Duration::from_millis(50)).await;
    for (version, first) in made {
        match store.claim(&asked(version)).await.expect("it works") {
            Claimed::Granted { claim, .. } => assert!(version < 3 && claim.fence() > first.fence()),
            Claimed::Found { .. } => assert_eq!(version, 3, "an unknown version is nobody's to take"),
            other @ Claimed::Late { .. } => panic!("{other:?}"),
        }
    }
}
