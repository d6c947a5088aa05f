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
    calls::are_told_apart,
    end::{SEEN, SEEN_FULL, SEEN_OPEN, SHARED},
    fates::{between, is_told_full, until},
    field::{LEASE, Plan, play},
    storms::storms,
};
use semel_testkit::checker::{Fences, Promise};

/// A server that keeps what it acknowledged over its own end.
struct One {
    server: Redis,
    /// Whether somebody takes what it kept.
    may_lose: bool,
}

impl One {
    async fn start(may_lose: bool) -> Self {
        Self { server: Redis::start(&Setup::new().keeps()).await, may_lose }
    }
}

/// Claims and completions are told apart by the part of a record that they bring, which begins with its state; renewals by
/// how many arguments they take.
pub(super) fn is(call: StoreCall, request: &Request<'_>) -> bool {
    // The name of the key stands before it; the rest of the record is none of this.
    let begin = &request.bytes[..request.bytes.len().min(512)];
    let brings = |part: &[u8]| begin.windows(part.len()).any(|bytes| bytes == part);
    let (claims, completes) = (brings(b"\r\nSML\x01\x01"), brings(b"\r\nSML\x01\x02"));
    match call {
        StoreCall::Claim => claims,
        StoreCall::Complete => completes,
        // So many parts have claims and completions as well.
        StoreCall::Renew => begin.starts_with(b"*8\r\n$7\r\nEVALSHA\r\n") && !claims && !completes,
    }
}

impl Backing for One {
    fn url(&self, through: &[SocketAddr]) -> String {
        format!("redis://{}", through[0])
    }

    fn wire(&self) -> Option<Wire> {
        Some(Wire { servers: vec![self.server.address().parse().unwrap()], speaks: Speaks::Redis, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        if self.may_lose {
            &["redis restarted empty", "redis killed, its data kept"]
        } else {
            &["redis killed, its data kept", "redis paused", "redis at its memory limit"]
        }
    }

    fn loses_its_mark(&self, fate: &str) -> bool {
        fate == "redis restarted empty"
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let time = between(random, LEASE / 10, LEASE);
        match fate {
            "redis killed, its data kept" => {
                self.server.kill();
                tokio::time::sleep(time).await;
                self.server.start_again().await;
            }
            "redis restarted empty" => {
                self.server.kill();
                tokio::time::sleep(time).await;
                let loss = collector.forgets(None);
                self.server.start_empty().await;
                forgotten(collector, loss, 1).await;
            }
            "redis paused" => {
                self.server.pause();
                tokio::time::sleep(time + Duration::from_millis(300)).await;
                self.server.resume();
            }
            "redis at its memory limit" => {
                let before = (self.server.refused("OOM").await, collector.told("store-full"));
                self.server.tell(&["CONFIG", "SET", "maxmemory", "1"]).await;
                is_told_full(collector, before.1).await;
                assert!(self.server.refused("OOM").await > before.0, "it was the server that refused");
                tokio::time::sleep(time).await;
                self.server.tell(&["CONFIG", "SET", "maxmemory", "0"]).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PROMISE: Promise = Promise { fences: Fences::Advisory, ..SHARED };

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_faults_meet_the_calls_they_are_about() {
    are_told_apart(One::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_storms_over_gateways_have_one_effect_per_key() {
    storms(One::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_no_fault_doubles_anything() {
    let plan = Plan { gateways: 3, rule: "", promise: PROMISE, expected: SEEN_FULL };
    let report = play(One::start(false).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_only_what_it_forgot_runs_again() {
    let report = play(One::start(true).await, &Plan { gateways: 3, rule: "", promise: PROMISE, expected: SEEN }).await;
    assert!(report.doubles.loss > 0, "losses are seen and counted: {report}");
}

/// While the store is away each gateway runs what comes, and says so; two of them may run the same.
#[tokio::test(flavor = "multi_thread")]
async fn on_redis_an_open_rule_runs_without_it_and_every_answer_says_whether_it_was_guarded() {
    let promise = Promise { open: true, ..PROMISE };
    let plan = Plan { gateways: 2, rule: "on_store_error = \"open\"\n", promise, expected: SEEN_OPEN };
    let report = play(One::start(false).await, &plan).await;
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
}

impl Backing for Filled {
    fn url(&self, _: &[SocketAddr]) -> String {
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
        let before = (self.server.refused("MISCONF").await, told());
        self.disk.fill();
        until("the server cannot write", async || self.server.refused("MISCONF").await > before.0 && told() > before.1)
            .await;
        tokio::time::sleep(between(random, LEASE / 10, LEASE)).await;
        self.disk.clear();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_redis_a_full_disk_doubles_nothing() {
    let expected = &["fresh", "replayed", "store-unavailable"];
    let report = play(Filled::start().await, &Plan { gateways: 2, rule: "", promise: PROMISE, expected }).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}
