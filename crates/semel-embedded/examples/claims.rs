//! Claims, claims with their completion, and replays per second, beside a bare loop that appends and syncs.
//!
//! ```text
//! cargo run --release -p semel-embedded --example claims [DIR]
//! ```
//!
//! Absolute numbers are the disk's; the ratios are the store's. One line per concurrency: how many calls are under way at
//! once is how many records the bare loop puts into one sync.
#![expect(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a measuring program")]

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use semel_core::{
    Owner, StoreTime,
    env::Env,
    fingerprint::Fingerprint,
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claimed, Settlement, Store},
};
use semel_embedded::{EmbeddedStore, Options};

const TIME: Duration = Duration::from_secs(3);
const HOUR: Duration = Duration::from_secs(3_600);
/// What a claim takes in the journal, about.
const RECORD: usize = 216;

fn main() {
    let dir = match std::env::args().nth(1) {
        Some(parent) => tempfile::tempdir_in(parent).unwrap(),
        None => tempfile::tempdir().unwrap(),
    };
    println!(
        "{:>6} {:>12} {:>12} {:>7} {:>14} {:>12}",
        "at once", "bare rec/s", "claims/s", "ratio", "claim+done/s", "replays/s"
    );
    for at_once in [1, 32, 256] {
        let bare = bare(dir.path(), at_once);
        let store = Arc::new(
            EmbeddedStore::open(&dir.path().join(format!("c{at_once}")), &Env::system(), &Options::default()).unwrap(),
        );
        let claims = drive(&store, at_once, 1, false);
        let pairs = drive(&store, at_once, 1 << 32, true);
        let replays = drive(&store, at_once, 1 << 32, false);
        println!("{at_once:>6} {bare:>12.0} {claims:>12.0} {:>7.2} {pairs:>14.0} {replays:>12.0}", claims / bare);
    }
}

fn bare(dir: &Path, batch: u64) -> f64 {
    let mut file = File::create(dir.join(format!("bare{batch}"))).unwrap();
    let record = [7; RECORD];
    let (start, mut n) = (Instant::now(), 0);
    while start.elapsed() < TIME {
        let bytes: Vec<u8> = (0..batch).flat_map(|_| record).collect();
        file.write_all(&bytes).unwrap();
        file.sync_data().unwrap();
        n += batch;
    }
    n as f64 / start.elapsed().as_secs_f64()
}

/// Claims keys from `first` on, and completes them if told to; keys that are there already are replays.
fn drive(store: &Arc<EmbeddedStore>, at_once: u64, first: u64, complete: bool) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let next = Arc::new(AtomicU64::new(first));
    let replays = !complete && first > 1;
    let start = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..at_once)
            .map(|task| {
                let (store, next) = (Arc::clone(store), Arc::clone(&next));
                tokio::spawn(async move {
                    let mut n = 0_u64;
                    while start.elapsed() < TIME {
                        n += 1;
                        let key = if replays { first + n % 1_000 } else { next.fetch_add(1, Ordering::Relaxed) };
                        let ask = ask(key, task << 40 | n);
                        match store.claim(&ask).await.unwrap() {
                            Claimed::Granted { claim, .. } if complete => {
                                drop(store.settle(&claim, &done()).await.unwrap());
                            }
                            Claimed::Granted { .. } | Claimed::Found { .. } => {}
                            Claimed::Late { .. } => unreachable!(),
                        }
                        if replays && n.is_multiple_of(1_024) {
                            tokio::task::yield_now().await;
                        }
                    }
                    n
                })
            })
            .collect();
        let mut n = 0;
        for task in tasks {
            n += task.await.unwrap();
        }
        n as f64 / start.elapsed().as_secs_f64()
    })
}

fn meta() -> bytes::Bytes {
    let (namespace, rule, key) = ("http:orders", "submit", "8e03…(36)");
    Meta { kind: Kind::Key, parameters: 0, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

fn done() -> Settlement {
    let outcome = Outcome::new(Format::HTTP, &[7; 60][..], vec![7; 200]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    Settlement::Done { fingerprint: Fingerprint::NONE, rest, body_kept: true, ttl: HOUR }
}

fn ask(n: u64, owner: u64) -> Ask {
    let secret = Secret::from_material(b"0123456789abcdef").unwrap();
    let key = Key::new(&n, Display::Full);
    let identity = Identity::new(&secret, Kind::Key, Namespace::http("t").unwrap(), &Scope::shared(), &key);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_be_bytes());
    bytes[8..].copy_from_slice(&owner.to_be_bytes());
    Ask::new(
        Owner::from_bytes(bytes),
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
