//! What a case works with: a store on a bed, and the usual questions.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    judge::{Caller, Judgement, judge},
    record::{Format, Meta, Outcome, Payload, Record, Rest},
    store::{
        Ask, AskFor, Claim, Claimed, NewToken, Releasing, Renewal, Renewed, Resolution, Resolved, Settled, Settlement,
        StoreAdmin, StoreError, Target,
    },
};

use super::{Bed, expect};

pub(super) const LEASE: Duration = Duration::from_secs(60);
pub(super) const HOLD: Duration = Duration::from_secs(600);
pub(super) const KEEP: Duration = Duration::from_secs(7200);
pub(super) const TTL: Duration = Duration::from_secs(3600);

/// A bed with a client of its store.
pub struct Stage<B> {
    pub(super) bed: B,
    pub(super) store: Arc<dyn StoreAdmin>,
    owners: AtomicU64,
}

impl<B> fmt::Debug for Stage<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stage({})", self.store.facts().name)
    }
}

/// The identity of the `n`-th key.
pub(super) fn id(n: u64) -> Identity {
    id_in("orders", n)
}

pub(super) fn id_in(service: &str, n: u64) -> Identity {
    let secret = Secret::from_material(b"the conformance suite's own").expect("it is long enough");
    let namespace = Namespace::http(service).expect("it is a name");
    Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full))
}

/// The fingerprint of the `n`-th question.
pub(super) fn asked(n: u8) -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 0 }, [n; 32])
}

pub(super) fn meta() -> Bytes {
    meta_of("http:orders", "submit")
}

pub(super) fn meta_of(namespace: &str, rule: &str) -> Bytes {
    let (kind, key) = (Kind::Key, "4711");
    Meta { kind, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }.encode()
}

pub(super) fn plain() -> Bytes {
    Rest::write(&meta(), &Payload::Nothing)
}

pub(super) fn words(text: &str) -> Bytes {
    Rest::write(&meta(), &Payload::Words(text.into()))
}

pub(super) fn answer(body: &str) -> Bytes {
    let outcome = Outcome::new(Format::HTTP, &b"200"[..], Bytes::copy_from_slice(body.as_bytes()));
    Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() })
}

/// The usual question about the `n`-th key.
pub(super) fn about(n: u64) -> AskFor {
    AskFor {
        identity: id(n),
        fingerprint: asked(1),
        lease: LEASE,
        hold: HOLD,
        keep: KEEP,
        grace: Duration::ZERO,
        needs_token: false,
        takeover: false,
        not_after: StoreTime::MAX,
        rest: plain(),
    }
}

pub(super) fn done(body: &str) -> Settlement {
    Settlement::Done { fingerprint: asked(1), rest: answer(body), body_kept: true, ttl: TTL }
}

pub(super) fn nobody_knows() -> Settlement {
    Settlement::Unknown { fingerprint: asked(1), rest: words("connection reset"), ttl: TTL }
}

pub(super) fn free(claim: &Claim) -> Releasing<'_> {
    Releasing::Held { claim, counts: true, park: false, keep: TTL, rest: plain() }
}

pub(super) fn park(claim: &Claim) -> Releasing<'_> {
    Releasing::Held { claim, counts: true, park: true, keep: TTL, rest: words("failed ten times") }
}

pub(super) fn abandon(ask: &Ask) -> Releasing<'_> {
    Releasing::Fate { identity: &ask.identity, owner: ask.owner(), keep: TTL, rest: plain() }
}

pub(super) fn token(n: u64) -> NewToken {
    NewToken { identity: id(n), ttl: TTL, max_life: 3 * TTL, rest: plain() }
}

pub(super) fn completed() -> Resolution {
    Resolution::Completed { rest: answer("as a person said"), body_kept: true, ttl: TTL }
}

pub(super) fn failed() -> Resolution {
    Resolution::Failed { keep: TTL, rest: plain() }
}

impl<B: Bed> Stage<B> {
    pub(super) async fn set() -> Self {
        let bed = B::start().await;
        let store = bed.client().await;
        Self { bed, store, owners: AtomicU64::new(1) }
    }

    /// An owner that nobody had before.
    pub(super) fn owner(&self) -> Owner {
        let n = self.owners.fetch_add(1, Ordering::Relaxed);
        let mut bytes = [0x5e; 16];
        bytes[8..].copy_from_slice(&n.to_be_bytes());
        Owner::from_bytes(bytes)
    }

    /// A question by a new owner.
    pub(super) fn ask(&self, what: AskFor) -> Ask {
        Ask::new(self.owner(), what)
    }

    pub(super) async fn claim(&self, what: AskFor) -> Result<Claimed, StoreError> {
        self.store.claim(&self.ask(what)).await
    }

    /// A grant of the `n`-th key, asked for in the usual way.
    pub(super) async fn hold(&self, n: u64) -> Claim {
        expect::granted(self.claim(about(n)).await)
    }

    pub(super) async fn settle(&self, claim: &Claim, to: Settlement) -> Result<Settled, StoreError> {
        self.store.settle(claim, &to).await
    }

    pub(super) async fn release(&self, what: Releasing<'_>) -> Result<Settled, StoreError> {
        self.store.release(&what).await
    }

    pub(super) async fn renew(&self, claim: &Claim, lease: Duration) -> Renewed {
        let batch = [Renewal { claim, lease, keep: KEEP }];
        let mut answers = expect::answers(self.store.renew(&batch).await);
        assert_eq!(answers.len(), 1);
        answers.remove(0)
    }

    pub(super) async fn resolve(&self, record: &Record, n: u64, to: Resolution) -> Result<Resolved, StoreError> {
        let fence = record.fence.expect("it was granted once");
        let target = Target { identity: &id(n), fence, resolver: self.owner() };
        self.store.resolve(target, &to).await
    }

    /// The `n`-th key's record, if it is here.
    pub(super) async fn record(&self, n: u64) -> Option<Record> {
        self.store.get(&id(n)).await.expect("the store works").record
    }

    /// The `n`-th key's record, which has to be here.
    pub(super) async fn the_record(&self, n: u64) -> Record {
        self.record(n).await.expect("the record is here")
    }

    pub(super) async fn now(&self) -> StoreTime {
        self.store.health().await.expect("the store works").now
    }

    pub(super) async fn advance(&self, by: Duration) {
        self.bed.advance(by).await;
    }

    /// Puts a record in place behind the store's back.
    pub(super) async fn plant(&self, n: u64, record: &Record) {
        self.bed.plant(&id(n), Some(Bytes::from(record.encode()))).await;
    }

    /// Takes a record away behind the store's back.
    pub(super) async fn forget(&self, n: u64) {
        self.bed.plant(&id(n), None).await;
    }
}

/// What `found` means to the one who asked.
pub(super) fn judged(ask: &Ask, (record, now): (Option<Record>, StoreTime)) -> Judgement {
    judge(ask, record.as_ref(), now, &Caller::default())
}
