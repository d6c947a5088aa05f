//! The usual questions, and what the answers have to be.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claim, Claimed, Releasing, Settlement, Store, StoreError},
};
use semel_sql::MySqlStore;

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const TTL: Duration = Duration::from_secs(3600);

pub(crate) fn id(n: u64) -> Identity {
    id_under(&Secret::from_material(b"of these tests alone").unwrap(), n)
}

/// Two secrets that make the same identities are one.
pub(crate) fn id_under(secret: &Secret, n: u64) -> Identity {
    let namespace = Namespace::http("orders").unwrap();
    Identity::new(secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full))
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [1; 32])
}

fn meta() -> Bytes {
    let (kind, key, namespace) = (Kind::Key, "4711", "http:orders");
    let meta = Meta {
        kind,
        parameters: 0,
        max_attempts: 10,
        namespace,
        rule: "submit",
        key,
        credentials: None,
        request: None,
    };
    meta.encode()
}

pub(crate) fn plain() -> Bytes {
    Rest::write(&meta(), &Payload::Nothing)
}

pub(crate) fn about(n: u64) -> AskFor {
    AskFor {
        identity: id(n),
        fingerprint: fingerprint(),
        lease: LEASE,
        hold: 10 * LEASE,
        keep: 2 * TTL,
        grace: Duration::ZERO,
        needs_token: false,
        takeover: false,
        not_after: StoreTime::MAX,
        rest: plain(),
    }
}

/// A question by an owner that nobody had before.
pub(crate) fn ask(n: u64) -> Ask {
    ask_for(about(n))
}

pub(crate) fn ask_for(what: AskFor) -> Ask {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut owner = [0x5e; 16];
    owner[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Ask::new(Owner::from_bytes(owner), what)
}

pub(crate) fn done(body: &[u8]) -> Settlement {
    let outcome = Outcome::new(Format::HTTP, &b"200"[..], Bytes::copy_from_slice(body));
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    Settlement::Done { fingerprint: fingerprint(), rest, body_kept: true, ttl: TTL }
}

pub(crate) fn unknown() -> Settlement {
    Settlement::Unknown { fingerprint: fingerprint(), rest: plain(), ttl: TTL }
}

pub(crate) fn free(claim: &Claim) -> Releasing<'_> {
    Releasing::Held { claim, counts: true, park: false, keep: TTL, rest: plain() }
}

#[track_caller]
pub(crate) fn granted(answer: Result<Claimed, StoreError>) -> Claim {
    match answer {
        Ok(Claimed::Granted { claim, .. }) => claim,
        other => panic!("expected a grant, got {other:?}"),
    }
}

pub(crate) async fn hold(store: &MySqlStore, n: u64) -> Claim {
    granted(store.claim(&ask(n)).await)
}
