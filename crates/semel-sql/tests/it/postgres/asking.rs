//! The usual questions, and the answers that are expected.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    env::{Env, Tick},
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claim, Claimed, Settlement, Store, StoreError},
};

pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) fn secret() -> Secret {
    Secret::from_material(b"a secret of these tests").unwrap()
}

pub(crate) fn id(n: u64) -> Identity {
    let namespace = Namespace::http("orders").unwrap();
    Identity::new(&secret(), Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full))
}

fn meta() -> Meta<'static> {
    Meta {
        kind: Kind::Key,
        parameters: 0,
        max_attempts: 10,
        namespace: "http:orders",
        rule: "submit",
        key: "4711",
        credentials: None,
        request: None,
    }
}

pub(crate) fn asked() -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [1; 32])
}

/// A question about the `n`-th key by a new owner.
pub(crate) fn ask(n: u64) -> Ask {
    ask_for(about(n))
}

/// A question by a new owner.
pub(crate) fn ask_for(what: AskFor) -> Ask {
    let mut owner = [0; 16];
    Env::system().rng.fill(&mut owner);
    Ask::new(Owner::from_bytes(owner), what)
}

pub(crate) fn about(n: u64) -> AskFor {
    AskFor {
        identity: id(n),
        fingerprint: asked(),
        lease: LEASE,
        hold: Duration::from_secs(600),
        keep: Duration::from_secs(7200),
        grace: Duration::ZERO,
        needs_token: false,
        takeover: false,
        not_after: StoreTime::MAX,
        rest: meta().rest(),
    }
}

pub(crate) fn answer(body: &[u8]) -> Bytes {
    let outcome = Outcome::new(Format::HTTP, &b"200"[..], Bytes::copy_from_slice(body));
    Rest::write(&meta().encode(), &Payload::Outcome { outcome, settled_at: StoreTime::default() })
}

pub(crate) fn done(body: &[u8]) -> Settlement {
    Settlement::Done { fingerprint: asked(), rest: answer(body), body_kept: true, ttl: Duration::from_secs(3600) }
}

/// The grant of a claim that has to be granted.
#[track_caller]
pub(crate) fn granted(claimed: Result<Claimed, StoreError>) -> Claim {
    match claimed {
        Ok(Claimed::Granted { claim, .. }) => claim,
        other => panic!("expected a grant, got {other:?}"),
    }
}

/// The grant of the `n`-th key.
pub(crate) async fn hold(store: &impl Store, n: u64) -> Claim {
    granted(store.claim(&ask(n)).await)
}

pub(crate) fn now() -> Tick {
    Env::system().clock.now()
}
