//! One Redis.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::Collector,
    servers::{
        proxy::{Request, Speaks},
        redis::{Redis, Setup},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall, Wire, forgotten},
    end::{AFTER_SUCCESS_SHARED, SEEN},
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

/// Scripts are told apart by how many arguments they take.
pub(super) fn is(call: StoreCall, request: &Request<'_>) -> bool {
    let words: &[u8] = match call {
        StoreCall::Claim => b"*15\r\n$7\r\nEVALSHA\r\n",
        StoreCall::Renew => b"*8\r\n$7\r\nEVALSHA\r\n",
        StoreCall::Complete => b"*12\r\n$7\r\nEVALSHA\r\n",
    };
    request.bytes.starts_with(words)
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
                let began = collector.forgot(None);
                self.0.start_empty().await;
                forgotten(collector, began).await;
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
    let promise = Promise { fences: Fences::Advisory, ..Promise::strict(AFTER_SUCCESS_SHARED) };
    let report = play(One::start().await, &Plan { gateways: 3, rule: "", promise, expected: SEEN }).await;
    assert!(report.doubles.loss > 0, "losses are seen and counted: {report}");
}
