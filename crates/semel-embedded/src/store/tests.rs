mod durability;
mod faults;
mod memory;

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, SystemTime},
};

use semel_core::{
    Owner, StoreTime,
    env::{BoxFuture, Clock, Env, Tick},
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Record, Rest},
    store::{Ask, AskFor, Claim, Claimed, Releasing, Settled, Settlement, Store, StoreError},
};

use super::{EmbeddedStore, Shared};
use crate::{Options, disk::faulty::Faulty, open::store_clock, space::Space};

const MINUTE: Duration = Duration::from_secs(60);

/// A clock whose hands the test moves, wall and boot time apart.
#[derive(Default)]
struct Hands {
    boot: AtomicU64,
    wall: AtomicU64,
}

const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::SeqCst;

impl Hands {
    fn at(wall: u64) -> Arc<Self> {
        Arc::new(Self { boot: AtomicU64::new(1), wall: AtomicU64::new(wall) })
    }

    fn advance(&self, by: Duration) {
        self.boot.fetch_add(u64::try_from(by.as_nanos()).unwrap(), ORDER);
    }
}

impl Clock for Hands {
    fn now(&self) -> Tick {
        Tick::from_nanos(self.boot.load(ORDER))
    }

    fn sleep_until(&self, _t: Tick) -> BoxFuture {
        Box::pin(std::future::pending())
    }

    fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.wall.load(ORDER))
    }
}

fn env(clock: &Arc<Hands>) -> Env {
    Env { clock: Arc::clone(clock) as Arc<dyn Clock>, ..Env::system() }
}

fn options() -> Options {
    Options { reserve: 0, headroom: 0, ..Options::default() }
}

/// A store on a disk that fails when told to.
fn on(disk: &Arc<Faulty>, clock: &Arc<Hands>, options: &Options) -> EmbeddedStore {
    let dir = std::env::temp_dir();
    let env = env(clock);
    let mark = disk.mark();
    let space = Space::watch(&dir, dir.join("semel-unused-reserve"), options, Arc::clone(&env.clock));
    let shared = Shared::new(&dir, Arc::clone(disk) as _, space, options, store_clock(&env, mark));
    let records = disk.records().into_iter().map(|(d, b)| (d, Record::decode(&b)));
    shared.take_in(records.filter(|(_, r)| r.is_unresolved() || !r.is_readable()));
    EmbeddedStore::start(shared, Arc::clone(disk) as _, mark, None, None).unwrap()
}

fn identity(n: u64) -> Identity {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new(&n, Display::Full);
    Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key)
}

fn meta() -> bytes::Bytes {
    let (namespace, rule, key) = ("http:t", "r", "k");
    Meta { kind: Kind::Key, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

/// A question about key `n` by its `copy`-th owner.
fn ask(n: u64, copy: u64) -> Ask {
    asking(n, copy, false)
}

fn asking(n: u64, copy: u64, needs_token: bool) -> Ask {
    let mut owner = [0; 16];
    owner[..8].copy_from_slice(&n.to_be_bytes());
    owner[8..].copy_from_slice(&copy.to_be_bytes());
    Ask::new(
        Owner::from_bytes(owner),
        AskFor {
            identity: identity(n),
            fingerprint: Fingerprint::NONE,
            lease: MINUTE,
            hold: MINUTE,
            keep: MINUTE,
            grace: Duration::ZERO,
            needs_token,
            takeover: false,
            not_after: StoreTime::MAX,
            rest: Rest::write(&meta(), &Payload::Nothing),
        },
    )
}

fn done(body: usize, ttl: Duration) -> Settlement {
    let outcome = Outcome::new(Format::HTTP, &b"head"[..], vec![7; body]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    Settlement::Done { fingerprint: Fingerprint::NONE, rest, body_kept: true, ttl }
}

fn free(claim: &Claim) -> Releasing<'_> {
    Releasing::Held { claim, counts: true, park: false, keep: MINUTE, rest: meta() }
}

/// Waits for a reply on this thread.
fn now<T>(reply: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(reply)
}

fn claim(store: &EmbeddedStore, ask: &Ask) -> Claim {
    match now(store.claim(ask)).unwrap() {
        Claimed::Granted { claim, .. } => claim,
        other => panic!("{other:?}"),
    }
}

fn found(store: &EmbeddedStore, ask: &Ask) -> Record {
    match now(store.claim(ask)).unwrap() {
        Claimed::Found { record: Some(record), .. } => record,
        other => panic!("{other:?}"),
    }
}

fn settle(store: &EmbeddedStore, claim: &Claim, to: &Settlement) {
    assert!(matches!(now(store.settle(claim, to)), Ok(Settled::Ok { .. })));
}

/// Claims and completes key `n`.
fn run(store: &EmbeddedStore, n: u64, body: usize, ttl: Duration) {
    let claim = claim(store, &ask(n, 0));
    settle(store, &claim, &done(body, ttl));
}
