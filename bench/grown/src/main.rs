//! One call at a time against a store, however many records it holds.
//!
//! ```text
//! semel-bench-grown WHERE template        one finished record, for a server's own tools to multiply
//! semel-bench-grown WHERE fill FROM TO    those records, each by a claim and its completion
//! semel-bench-grown WHERE ask SIZE        one line of figures
//! ```
//!
//! `WHERE` is the URL of a shared store, or a folder for the embedded one. `ask` asks in passes, and keeps of each call the
//! least of the passes' medians: what else runs on the machine makes calls slower, never faster.

#![expect(clippy::disallowed_methods, reason = "a measuring program reads the machine's clock")]

use std::{
    future::Future,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    env::Env,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    record::{Format, Meta, Outcome, Payload, Rest},
    store::{Ask, AskFor, Claim, Claimed, Filter, Settled, Settlement, StoreAdmin},
};
use semel_embedded::EmbeddedStore;
use semel_redis::RedisStore;
use semel_sql::{MySqlStore, PostgresStore};

const DAY: Duration = Duration::from_secs(86_400);
/// Long enough that the fill ends before they do.
const LEASE: Duration = Duration::from_secs(600);
const PASSES: usize = 3;
/// Of each call, in each pass.
const CALLS: u64 = 400;
/// Pages in a pass, of so many records.
const PAGES: usize = 20;
const PAGE: usize = 100;
/// Records that have ended for each purge, and purges in a pass.
const ENDED: u64 = 100;
const PURGES: usize = 5;
/// Keys that no fill uses.
const FRESH: u64 = 1 << 40;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let [place, what @ ..] = args.as_slice() else { panic!("semel-bench-grown WHERE template|fill|ask …") };
    let store = open(place).await;
    let number = |text: &&str| text.parse::<u64>().expect("a number");
    match what {
        ["template"] => finish(&*store, 0).await,
        ["fill", from, to] => fill(&store, number(from), number(to)).await,
        ["ask", size] => ask_all(&store, number(size)).await,
        _ => panic!("semel-bench-grown WHERE template|fill|ask …"),
    }
}

async fn open(place: &str) -> Arc<dyn StoreAdmin> {
    let env = Env::system();
    match place.split_once("://").map_or("", |(scheme, _)| scheme) {
        "redis" => Arc::new(RedisStore::connect(place, &env, Default::default()).await.expect("a Redis")),
        "postgres" => Arc::new(PostgresStore::connect(place, &env, Default::default()).await.expect("a PostgreSQL")),
        "mysql" => Arc::new(MySqlStore::connect(place, &env, Default::default()).await.expect("a MariaDB")),
        _ => Arc::new(EmbeddedStore::open(Path::new(place), &env, &Default::default()).expect("a folder")),
    }
}

async fn fill(store: &Arc<dyn StoreAdmin>, from: u64, to: u64) {
    const AT_ONCE: u64 = 2_048;
    let workers = (0..AT_ONCE).map(|worker| {
        let store = Arc::clone(store);
        tokio::spawn(async move {
            for n in (from + worker..to).step_by(AT_ONCE as usize) {
                finish(&*store, n).await;
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.expect("a filled store");
    }
}

/// Median, in microseconds, of one call.
#[derive(Default)]
struct Took(Vec<f64>);

impl Took {
    /// A store of this process does its work before there is a future.
    async fn note<T, F: Future<Output = T>>(&mut self, call: impl FnOnce() -> F) -> T {
        let start = Instant::now();
        let answer = call().await;
        self.0.push(start.elapsed().as_secs_f64() * 1e6);
        answer
    }

    fn median(mut self) -> f64 {
        self.0.sort_by(f64::total_cmp);
        self.0[self.0.len() / 2]
    }
}

const NAMES: [&str; 6] = ["claim", "complete", "duplicate", "page", "filtered page", "purge"];

async fn ask_all(store: &Arc<dyn StoreAdmin>, size: u64) {
    let mut least = [f64::MAX; NAMES.len()];
    let mut fresh = FRESH + (u64::from(std::process::id()) << 24);
    let (mut seen, mut gone) = (0, 0);
    for _ in 0..PASSES {
        let medians = pass(&**store, &mut fresh, &mut seen, &mut gone).await;
        for (least, median) in least.iter_mut().zip(medians) {
            *least = least.min(median);
        }
    }
    let figures = least.map(|us| format!("{us:.0}")).join("\t");
    // Seen in a whole pass of pages, removed by a call of purge: on Redis a call looks at a part of the keys.
    println!("{size}\t{figures}\t{}\t{}", seen / PASSES, gone / (PASSES * PURGES));
}

async fn pass(store: &dyn StoreAdmin, fresh: &mut u64, seen: &mut usize, gone: &mut usize) -> [f64; NAMES.len()] {
    let [mut claims, mut completes, mut duplicates, mut pages, mut filtered, mut purges] = <[Took; 6]>::default();
    let outcome = done();
    for _ in 0..CALLS {
        *fresh += 1;
        let ask = about(*fresh);
        let claim = granted(claims.note(|| store.claim(&ask)).await.expect("it answers"));
        stands(completes.note(|| store.settle(&claim, &outcome)).await.expect("it answers"));
        let again = about(*fresh);
        let Claimed::Found { record: Some(_), .. } = duplicates.note(|| store.claim(&again)).await.expect("it answers")
        else {
            panic!("it is there");
        };
    }
    // Pages one after the other, as people turn them; and pages that nothing passes, which have to end as well.
    let nothing = Filter { rule: Some("no such rule".to_owned()), ..Filter::default() };
    for (filter, took) in [(Filter::default(), &mut pages), (nothing, &mut filtered)] {
        let mut after = None;
        for _ in 0..PAGES {
            let page = took.note(|| store.list(&filter, after.as_ref(), PAGE)).await.expect("it answers");
            *seen += page.entries.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    for _ in 0..PURGES {
        for _ in 0..ENDED {
            *fresh += 1;
            let claim = granted(store.claim(&about(*fresh)).await.expect("it answers"));
            stands(store.settle(&claim, &soon_over()).await.expect("it answers"));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        *gone += purges.note(|| store.purge(ENDED as usize)).await.expect("it answers").removed;
    }
    [claims, completes, duplicates, pages, filtered, purges].map(Took::median)
}

async fn finish(store: &dyn StoreAdmin, n: u64) {
    let claim = granted(store.claim(&about(n)).await.expect("it answers"));
    stands(store.settle(&claim, &done()).await.expect("it answers"));
}

fn granted(claimed: Claimed) -> Claim {
    match claimed {
        Claimed::Granted { claim, .. } => claim,
        other => panic!("expected a grant, got {other:?}"),
    }
}

fn stands(settled: Settled) {
    assert!(matches!(settled, Settled::Ok { restored: false }), "{settled:?}");
}

fn fingerprint() -> Fingerprint {
    Fingerprint::stored(Version { algorithm: 1, parameters: 7 }, [1; 32])
}

fn meta() -> Bytes {
    let (namespace, rule, key) = ("http:bench", "submit", "8e03…(36)");
    Meta { kind: Kind::Key, parameters: 7, max_attempts: 10, namespace, rule, key, credentials: None, request: None }
        .encode()
}

/// An answer such as bench/compare's upstream gives.
fn done() -> Settlement {
    let outcome = Outcome::new(Format::HTTP, vec![7; 60], vec![7; 52]);
    let rest = Rest::write(&meta(), &Payload::Outcome { outcome, settled_at: StoreTime::default() });
    Settlement::Done { fingerprint: fingerprint(), rest, body_kept: true, ttl: DAY }
}

fn soon_over() -> Settlement {
    let rest = Rest::write(&meta(), &Payload::Words("connection reset".into()));
    Settlement::Unknown { fingerprint: fingerprint(), rest, ttl: Duration::from_millis(1) }
}

/// A question about the `n`-th key by an owner that nobody had before.
fn about(n: u64) -> Ask {
    let mut owner = [0; 16];
    Env::system().rng.fill(&mut owner);
    let secret = Secret::from_material(b"the same in every run").expect("it is long enough");
    let namespace = Namespace::http("bench").expect("it is a name");
    let identity = Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full));
    let rest = Rest::write(&meta(), &Payload::Nothing);
    let (grace, not_after) = (Duration::ZERO, StoreTime::MAX);
    Ask::new(
        Owner::from_bytes(owner),
        AskFor {
            identity,
            fingerprint: fingerprint(),
            lease: LEASE,
            hold: LEASE,
            keep: DAY,
            grace,
            needs_token: false,
            takeover: false,
            not_after,
            rest,
        },
    )
}
