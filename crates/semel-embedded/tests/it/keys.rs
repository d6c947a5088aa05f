//! Questions and outcomes for the tests, by number.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Body, Format, Meta, Outcome, Payload, Record, Rest},
    store::{Ask, AskFor, Claim, Claimed, Releasing, Reply, Settlement, Store, StoreError},
};
use semel_embedded::{EmbeddedStore, Options};

pub(crate) const HOUR: Duration = Duration::from_secs(3_600);

/// A directory in memory, where there is such a place: a sync costs nothing there, and the end of a process is no less of
/// an end.
pub(crate) fn quick_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// No reserve, no headroom.
pub(crate) fn options() -> Options {
    Options { reserve: 0, headroom: 0, ..Options::default() }
}

pub(crate) fn identity(n: u64) -> Identity {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new(&n, Display::Full);
    Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key)
}

pub(crate) fn meta() -> Bytes {
    let (namespace, rule, key) = ("http:t", "r", "k");
    Meta { kind: Kind::Key, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

/// A question about key `n` by `owner`.
pub(crate) fn ask(n: u64, owner: u64) -> Ask {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    bytes[8..].copy_from_slice(&owner.to_be_bytes());
    Ask::new(
        Owner::from_bytes(bytes),
        AskFor {
            identity: identity(n),
            fingerprint: Fingerprint::NONE,
            lease: HOUR,
            hold: HOUR,
            keep: HOUR,
            grace: Duration::ZERO,
            needs_token: false,
            takeover: false,
            not_after: StoreTime::MAX,
            rest: Rest::write(&meta(), &Payload::Nothing),
        },
    )
}

/// An outcome whose body is `len` times the byte `fill`.
pub(crate) fn done(fill: u8, len: usize) -> Settlement {
    let outcome = Outcome::new(Format::HTTP, &b"head"[..], vec![fill; len]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    Settlement::Done { fingerprint: Fingerprint::NONE, rest, body_kept: true, ttl: HOUR }
}

pub(crate) fn free(claim: &Claim) -> Releasing<'_> {
    Releasing::Held { claim, counts: true, park: false, keep: HOUR, rest: meta() }
}

/// Waits for a reply on this thread.
pub(crate) fn now<T>(reply: Reply<'_, T>) -> Result<T, StoreError> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let mut reply = match reply.try_ready() {
        Ok(answer) => return answer,
        Err(reply) => reply,
    };
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match Pin::new(&mut reply).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => std::thread::park(),
        }
    }
}

pub(crate) fn claim(store: &EmbeddedStore, ask: &Ask) -> Claim {
    match now(store.claim(ask)).unwrap() {
        Claimed::Granted { claim, .. } => claim,
        other => panic!("{other:?}"),
    }
}

pub(crate) fn record(store: &EmbeddedStore, n: u64) -> Option<Record> {
    now(store.get(&identity(n))).unwrap().record
}

/// The body of a record that is done.
pub(crate) fn body(record: &Record) -> Option<Bytes> {
    match Rest::read(&record.rest).ok()?.payload {
        Payload::Outcome { outcome: Outcome { body: Body::Whole(body), .. }, .. } => Some(body),
        _ => None,
    }
}
