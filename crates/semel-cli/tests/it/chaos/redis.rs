//! One Redis.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::Collector,
    servers::{
        SmallDisk,
        proxy::{Request, Speaks},
        redis::{Redis, Setup},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, forgotten},
    end::{SEEN, SEEN_OPEN, SHARED},
    fates::between,
    field::{LEASE, Plan, play},
    storms::storms,
};
use semel_testkit::checker::{Fences, Promise};

/// A server that keeps what it acknowledged over its own end.
struct One(Redis);

impl One {
    async fn start() -> Self {
        Self(Redis::start(&Setup::new().keeps()).await)
    }
}

/// Claims and completions are told apart by the part of a record that they bring, which begins with its state; renewals by
/// how many arguments they take.
pub(super) fn is(call: StoreCall, request: &Request<'_>) -> bool {
    // The name of the key stands before it; the rest of the record is none of this.
    let begin = &request.bytes[..request.bytes.len().min(512)];
    let brings = |part: &[u8]| begin.windows(part.len()).any(|bytes| bytes == part);
    let (claims, completes) = (brings(b"\r\n$24\r\nSML\x01\x01"), brings(b"\r\n$40\r\nSML\x01\x02"));
    match call {
        StoreCall::Claim => claims,
        StoreCall::Complete => completes,
        StoreCall::Renew => begin.starts_with(b"*8\r\n$7\r\nEVALSHA\r\n") && !completes,
    }
}

impl Backing for One {
    fn url(&self, through: Option<SocketAddr>) -> String {
        through.map_or_else(|| self.0.url(), |proxy| format!("redis://{proxy}"))
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { server: self.0.address().parse().unwrap(), speaks: Speaks::Redis, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        &["redis killed, its data kept", "redis restarted empty", "redis paused", "redis at its memory limit"]
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            "redis killed, its data kept" => {
                self.0.kill();
                tokio::time::sleep(time).await;
                self.0.start_again().await;
            }
            "redis restarted empty" => {
                self.0.kill();
                tokio::time::sleep(time).await;
                let loss = collector.forgets(None);
                self.0.start_empty().await;
                forgotten(collector, loss, 1).await;
            }
            "redis paused" => {
                self.0.pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.0.resume();
            }
            "redis at its memory limit" => {
                self.0.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
                tokio::time::sleep(time).await;
                self.0.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_storms_over_gateways_have_one_effect_per_key() {
    storms(One::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_only_what_it_forgot_runs_again() {
    let promise = Promise { fences: Fences::Advisory, ..SHARED };
    let report = play(One::start().await, &Plan { gateways: 3, rule: "", promise, expected: SEEN }).await;
    assert!(report.doubles.loss > 0, "losses are seen and counted: {report}");
}

/// While the store is away each gateway runs what comes, and says so; two of them may run the same.
#[tokio::test(flavor = "multi_thread")]
async fn on_redis_an_open_rule_runs_without_it_and_every_answer_says_whether_it_was_guarded() {
    let promise = Promise { fences: Fences::Advisory, open: true, ..SHARED };
    let plan = Plan { gateways: 2, rule: "on_store_error = \"open\"\n", promise, expected: SEEN_OPEN };
    let report = play(One::start().await, &plan).await;
    assert!(report.unguarded > 0, "{report}");
}

/// A server whose append-only file has no room.
struct Filled {
    server: Redis,
    disk: SmallDisk,
}

impl Filled {
    async fn start() -> Self {
        let disk = SmallDisk::mount(16);
        // Under `always` a server that cannot write ends, which is another fate's story; under this one it refuses.
        let setup = Setup::new()
            .set("appendonly", "yes")
            .set("appendfsync", "everysec")
            .set("auto-aof-rewrite-percentage", "0")
            .set("dir", &disk.path().display().to_string());
        Self { server: Redis::start(&setup).await, disk }
    }

    /// How many commands it refused because it could not write.
    async fn refused(&self) -> u64 {
        let count = self.server.info("errorstats", "errorstat_MISCONF").await;
        count.strip_prefix("count=").and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

impl Backing for Filled {
    fn url(&self, _: Option<SocketAddr>) -> String {
        self.server.url()
    }

    fn only_its_own(&self) -> bool {
        true
    }

    fn fates(&self) -> &'static [&'static str] {
        &["disk full"]
    }

    async fn suffer(&mut self, _: &'static str, collector: &Collector, random: &Seeded) {
        let told = || collector.told("store-unavailable");
        let before = (self.refused().await, told());
        self.disk.fill();
        for n in 0.. {
            if self.refused().await > before.0 && told() > before.1 {
                break;
            }
            assert!(n < 3_000, "it took everything: {}", self.server.process().said());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(between(random, LEASE / 10, LEASE)).await;
        self.disk.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_a_full_disk_doubles_nothing() {
    let promise = Promise { fences: Fences::Advisory, ..SHARED };
    let expected = &["fresh", "replayed", "store-unavailable"];
    let report = play(Filled::start().await, &Plan { gateways: 2, rule: "", promise, expected }).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}
