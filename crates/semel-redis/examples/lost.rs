//! What failovers lose of the claims that were granted, and what it costs to wait for replicas.
//!
//! Eight callers claim fresh keys, each pausing 5 ms between two, while a primary with two replicas under Sentinel, or a master
//! of a Cluster with a replica each, is replaced. Then every claim that was granted is looked for. At last a primary is cut off
//! from its replicas and all Sentinels, and the callers with it. `lost cut` does the last alone.

#![expect(clippy::disallowed_methods, clippy::print_stdout, reason = "it is a command that reads the machine's clock")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    env::Env,
    fingerprint::{Fingerprint, Version},
    identity::{Display, Identity, Key, Kind, Namespace, Scope, Secret},
    store::{Ask, AskFor, Claimed, Store},
};
use semel_redis::{Options, RedisStore};
use semel_testkit::servers::redis::{Cluster, Redis, Sentinels, Setup};

fn about(n: u64) -> Ask {
    let mut owner = [0; 16];
    Env::system().rng.fill(&mut owner);
    let secret = Secret::from_material(b"the same in every run").expect("it is long enough");
    let namespace = Namespace::http("lost").expect("it is a name");
    let identity = Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &Key::new(&n, Display::Full));
    let fingerprint = Fingerprint::stored(Version { algorithm: 1, parameters: 7 }, [1; 32]);
    let (lease, keep) = (Duration::from_secs(60), Duration::from_secs(3_600));
    let (grace, not_after, rest) = (Duration::ZERO, StoreTime::MAX, Bytes::new());
    let (needs_token, takeover, hold) = (false, false, lease);
    let what = AskFor { identity, fingerprint, lease, hold, keep, grace, needs_token, takeover, not_after, rest };
    Ask::new(Owner::from_bytes(owner), what)
}

struct Granted {
    n: u64,
    took: Duration,
    at: Instant,
}

/// Callers that claim until they are told to end; each call has 250 ms, as in the gateway.
struct Load {
    over: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    callers: Vec<tokio::task::JoinHandle<Vec<Granted>>>,
}

impl Load {
    async fn start(url: &str, replicas: u32, callers: u64, pause: Duration) -> Self {
        let mut options = Options::default();
        options.replicas = replicas;
        let store = RedisStore::connect(url, &Env::system(), options).await.expect("the store opens");
        let store = Arc::new(store);
        let (over, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let caller = |caller: u64| {
            let (store, over, refused) = (Arc::clone(&store), Arc::clone(&over), Arc::clone(&refused));
            tokio::spawn(async move {
                let mut granted = Vec::new();
                for n in 0.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let (key, ask) = (caller * 10_000_000 + n, about(caller * 10_000_000 + n));
                    let began = Instant::now();
                    match tokio::time::timeout(Duration::from_millis(250), store.claim(&ask)).await {
                        Ok(Ok(Claimed::Granted { .. })) => {
                            granted.push(Granted { n: key, took: began.elapsed(), at: Instant::now() });
                        }
                        _ => {
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                }
                granted
            })
        };
        let callers = (0..callers).map(caller).collect();
        Self { over, refused, callers }
    }

    async fn end(self) -> (Vec<Granted>, u64) {
        self.over.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        for caller in self.callers {
            all.extend(caller.await.expect("a caller ends"));
        }
        (all, self.refused.load(Ordering::Relaxed))
    }
}

const PAUSE: Duration = Duration::from_millis(5);
const QUIET: Duration = Duration::from_secs(2);

async fn follows(server: &Redis) {
    for _ in 0..1_000 {
        if server.info("replication", "master_link_status").await == "up" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it follows nobody");
}

/// Those of them that are on none of the servers that take writes.
async fn lost<'a>(granted: &'a [Granted], servers: &[&Redis]) -> Vec<&'a Granted> {
    let mut there = std::collections::HashSet::new();
    for server in servers {
        if server.info("replication", "role").await == "master" {
            there.extend(server.tell(&["KEYS", "semel:*"]).await.list().iter().map(|key| key.text()));
        }
    }
    granted.iter().filter(|one| !there.contains(&format!("semel:{}", about(one.n).identity))).collect()
}

fn row(what: &str, replicas: u32, granted: usize, refused: u64, lost: usize) {
    println!("| {what} | {replicas} | {granted} | {refused} | {lost} |");
}

async fn sentinel(fate: &str, replicas: u32) {
    let mut set = Sentinels::start(&Setup::new()).await;
    let load = Load::start(&set.url(), replicas, 8, PAUSE).await;
    tokio::time::sleep(QUIET).await;
    let before = set.primary().await;
    match fate {
        "ordered" => {
            set.fail_over().await;
            follows(&set.servers[before]).await;
        }
        "killed" => {
            set.servers[before].kill();
            set.promoted(before).await;
            set.servers[before].start_again().await;
            follows(&set.servers[before]).await;
        }
        _ => {
            set.servers[before].pause();
            set.promoted(before).await;
            set.servers[before].resume();
            follows(&set.servers[before]).await;
        }
    }
    tokio::time::sleep(QUIET).await;
    let (granted, refused) = load.end().await;
    let lost = lost(&granted, &set.servers.iter().collect::<Vec<_>>()).await;
    row(&format!("Sentinel, {fate}"), replicas, granted.len(), refused, lost.len());
}

async fn cluster(fate: &str, replicas: u32) {
    let mut cluster = Cluster::start(&Setup::new()).await;
    let load = Load::start(&cluster.url(), replicas, 8, PAUSE).await;
    tokio::time::sleep(QUIET).await;
    match fate {
        "ordered" => cluster.fail_over_to(3).await,
        "killed" => {
            cluster.nodes[0].kill();
            cluster.promoted(3).await;
            cluster.nodes[0].start_again().await;
        }
        _ => {
            cluster.nodes[0].pause();
            cluster.promoted(3).await;
            cluster.nodes[0].resume();
        }
    }
    follows(&cluster.nodes[0]).await;
    tokio::time::sleep(QUIET).await;
    let (granted, refused) = load.end().await;
    let lost = lost(&granted, &cluster.nodes.iter().collect::<Vec<_>>()).await;
    row(&format!("Cluster, {fate}"), replicas, granted.len(), refused, lost.len());
}

/// How long the callers' side is cut off from the other.
const CUT: Duration = Duration::from_secs(15);

async fn cut_off(max_lag: Option<u32>) {
    let mut setup = Setup::new();
    if let Some(max_lag) = max_lag {
        setup = setup.set("min-replicas-to-write", "1").set("min-replicas-max-lag", &max_lag.to_string());
    }
    let (set, way) = Sentinels::start_with_a_way(&setup).await;
    let ways = set.ways().await;
    let load = Load::start(&ways.url(), 0, 8, PAUSE).await;
    tokio::time::sleep(QUIET).await;
    let cut = Instant::now();
    way.stall();
    ways.leave_the_first();
    set.promoted(0).await;
    let promoted = cut.elapsed();
    tokio::time::sleep(CUT.saturating_sub(promoted)).await;
    way.heal();
    ways.heal();
    follows(&set.servers[0]).await;
    tokio::time::sleep(QUIET).await;
    let (granted, refused) = load.end().await;
    let lost = lost(&granted, &set.servers.iter().collect::<Vec<_>>()).await;
    let last = lost.iter().map(|one| one.at.saturating_duration_since(cut)).max().unwrap_or_default();
    let lag = max_lag.map_or("none".to_owned(), |lag| format!("{lag} s"));
    let (granted, lost) = (granted.len(), lost.len());
    println!(
        "| {lag} | {:.1} s | {granted} | {refused} | {lost} | {:.1} s |",
        promoted.as_secs_f64(),
        last.as_secs_f64()
    );
}

async fn cost(callers: u64, replicas: u32) {
    const FOR: Duration = Duration::from_secs(3);
    let primary = Redis::start(&Setup::new()).await;
    let replica = Redis::start(&Setup::new().set("replicaof", &format!("127.0.0.1 {}", primary.port()))).await;
    follows(&replica).await;
    let load = Load::start(&primary.url(), replicas, callers, Duration::ZERO).await;
    tokio::time::sleep(FOR).await;
    let (mut granted, _) = load.end().await;
    granted.sort_by_key(|one| one.took);
    let at = |part: usize| granted.get(granted.len() * part / 100).map_or(0, |one| one.took.as_micros());
    let rate = granted.len() / 3;
    println!("| {callers} callers | {replicas} | {rate}/s | p50 {} µs | p99 {} µs |", at(50), at(99));
}

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() != Some("cut") {
        failovers().await;
        for callers in [1, 8, 64] {
            for replicas in 0..2 {
                cost(callers, replicas).await;
            }
        }
        println!();
    }
    println!("| cut off for {CUT:?}: max-lag | promoted after | granted | refused | lost | the last of these after |");
    println!("|---|---|---|---|---|---|");
    for max_lag in [None, Some(1), Some(10)] {
        cut_off(max_lag).await;
    }
}

async fn failovers() {
    println!("| what | replicas | granted | refused | of the granted lost |\n|---|---|---|---|---|");
    for fate in ["ordered", "killed", "hung"] {
        for replicas in 0..3 {
            sentinel(fate, replicas).await;
        }
        for replicas in 0..2 {
            cluster(fate, replicas).await;
        }
    }
    println!();
}
