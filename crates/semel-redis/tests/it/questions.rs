//! The usual questions.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    env::Env,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Meta, Payload, Rest},
    store::{Ask, AskFor, Claim, Claimed, Settled, Settlement, StoreError},
};

pub(crate) const LEASE: Duration = Duration::from_secs(60);
pub(crate) const TTL: Duration = Duration::from_secs(3600);

/// The identity of the `n`-th key, the same in every run.
pub(crate) fn id(n: u64) -> Identity {
    let secret = Secret::from_material(b"the same in every run").expect("it is long enough");
    let namespace = Namespace::http("orders").expect("it is a name");
    Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full))
}

pub(crate) fn fingerprint() -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 7 }, [1; 32])
}

pub(crate) fn rest() -> Bytes {
    let meta = Meta {
        kind: Kind::Key,
        parameters: 7,
        max_attempts: 10,
        namespace: "http:orders",
        rule: "submit",
        key: "4711",
        credentials: None,
        request: None,
    };
    Rest::write(&meta.encode(), &Payload::Nothing)
}

/// An owner that nobody was before.
pub(crate) fn an_owner() -> Owner {
    let mut owner = [0; 16];
    Env::system().rng.fill(&mut owner);
    Owner::from_bytes(owner)
}

/// A question about the `n`-th key by an owner that nobody had before.
pub(crate) fn about(n: u64) -> Ask {
    Ask::new(an_owner(), about_as(n))
}

/// What it asks for.
pub(crate) fn about_as(n: u64) -> AskFor {
    AskFor {
        identity: id(n),
        fingerprint: fingerprint(),
        lease: LEASE,
        hold: 10 * LEASE,
        keep: TTL,
        grace: Duration::ZERO,
        needs_token: false,
        takeover: false,
        not_after: StoreTime::MAX,
        rest: rest(),
    }
}

pub(crate) fn done() -> Settlement {
    Settlement::Done { fingerprint: fingerprint(), rest: rest(), body_kept: false, ttl: TTL }
}

#[track_caller]
pub(crate) fn granted(answer: Result<Claimed, StoreError>) -> Claim {
    match answer {
        Ok(Claimed::Granted { claim, .. }) => claim,
        other => panic!("expected a grant, got {other:?}"),
    }
}

#[track_caller]
pub(crate) fn stands(answer: Result<Settled, StoreError>) {
    match answer {
        Ok(Settled::Ok { restored: false }) => {}
        other => panic!("expected it to stand, got {other:?}"),
    }
}
