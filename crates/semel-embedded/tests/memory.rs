//! What a finished record takes in memory, counted by the allocator and not guessed from the process's size. A binary of its
//! own, because the allocator counts all that its process does.

#![expect(clippy::unwrap_used, reason = "all of this file is tests")]

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    env::Env,
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claimed, Settlement, Store},
};
use semel_embedded::{EmbeddedStore, Options};
use semel_testkit::memory::{alone, most_for_each};

semel_testkit::count_allocations!();

const HEAD: usize = 90;
const HOUR: Duration = Duration::from_secs(3_600);

struct Bench {
    // Dropped before the directory.
    store: EmbeddedStore,
    _dir: tempfile::TempDir,
    done: u64,
}

impl Bench {
    fn new(cache: usize) -> Self {
        // In memory, where there is such a place: a sync costs nothing there.
        let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let options = Options { cache, reserve: 0, headroom: 0, ..Options::default() };
        Self { store: EmbeddedStore::open(dir.path(), &Env::system(), &options).unwrap(), _dir: dir, done: 0 }
    }

    /// Finishes `count` records, a hundred at a time, each with a head and `body` bytes.
    async fn finish(&mut self, count: u64, body: usize) {
        for _ in 0..count / 100 {
            let first = self.done;
            self.done += 100;
            let store = &self.store;
            futures_util::future::join_all((first..self.done).map(|n| finish_one(store, n, body))).await;
        }
    }
}

async fn finish_one(store: &EmbeddedStore, n: u64, body: usize) {
    let ask = ask(n);
    let Claimed::Granted { claim, .. } = store.claim(&ask).await.unwrap() else { panic!("{n} is fresh") };
    let outcome = Outcome::new(Format::HTTP, vec![7; HEAD], vec![7; body]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    let done = Settlement::Done { fingerprint: Fingerprint::NONE, rest, body_kept: true, ttl: HOUR };
    drop(store.settle(&claim, &done).await.unwrap());
}

fn meta() -> Bytes {
    let (namespace, rule, key) = ("http:orders", "submit", "8e03…(36)");
    Meta { kind: Kind::Key, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

fn ask(n: u64) -> Ask {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new(&n, Display::Full);
    let identity = Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key);
    let mut owner = [1; 16];
    owner[..8].copy_from_slice(&n.to_be_bytes());
    Ask::new(
        Owner::from_bytes(owner),
        AskFor {
            identity,
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

#[test]
fn a_record_finished_lately_takes_at_most_twice_its_payload_and_400_bytes() {
    for body in [0, 60, 1_000, 5_000] {
        alone(async {
            let mut bench = Bench::new(256 << 20);
            bench.finish(100, body).await;
            let most = most_for_each(500, async || bench.finish(500, body).await).await;
            let bound = 2 * (HEAD + body) + 400;
            assert!(most <= bound, "{most} bytes for a payload of {}, the bound is {bound}", HEAD + body);
        });
    }
}

/// Beyond the cache only the index grows; and what is noted of the newest segment, which is bounded.
#[test]
fn a_record_that_left_the_cache_takes_at_most_its_place_in_the_index_and_a_note() {
    alone(async {
        let mut bench = Bench::new(1 << 20);
        bench.finish(10_000, 60).await;
        let most = most_for_each(1_000, async || bench.finish(1_000, 60).await).await;
        assert!(most <= 140, "{most} bytes");
    });
}
