//! Redis under Sentinel. A failover may lose what was acknowledged last: that is measured, not hidden.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::{Collector, Fences, Promise},
    servers::redis::{Redis, Sentinels, Setup},
    sim::Seeded,
};

use super::{
    backing::{Backing, forgotten},
    end::{SEEN, SHARED},
    field::{Plan, play},
    storms::storms,
};

struct Watched(Sentinels);

impl Watched {
    async fn start() -> Self {
        // A primary that nobody follows any more takes no writes: without this it goes on until it is told.
        let setup = Setup::new().keeps().set("min-replicas-to-write", "1").set("min-replicas-max-lag", "1");
        Self(Sentinels::start(&setup).await)
    }
}

/// Waits until a server has become a replica and has all that its primary had then.
pub(super) async fn follows(server: &Redis) {
    for _ in 0..300 {
        if server.info("replication", "master_link_status").await == "up" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("it follows nobody: {}", server.tell(&["INFO", "replication"]).await.text());
}

impl Backing for Watched {
    fn url(&self, _: Option<SocketAddr>) -> String {
        self.0.url()
    }

    fn fates(&self) -> &'static [&'static str] {
        &["failover ordered", "primary killed, a replica promoted", "primary cut off, a replica promoted"]
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, _: &Seeded) {
        let began = collector.forgot(None);
        match fate {
            "failover ordered" => {
                let before = self.0.primary().await;
                self.0.fail_over().await;
                follows(&self.0.servers[before]).await;
            }
            "primary killed, a replica promoted" => {
                let before = self.0.primary().await;
                self.0.servers[before].kill();
                self.0.promoted(before).await;
                self.0.servers[before].start_again().await;
                follows(&self.0.servers[before]).await;
            }
            // It goes on later, and believes for a moment that it is the primary still.
            "primary cut off, a replica promoted" => {
                let before = self.0.primary().await;
                self.0.servers[before].pause();
                self.0.promoted(before).await;
                self.0.servers[before].resume();
                follows(&self.0.servers[before]).await;
            }
            other => panic!("{other}"),
        }
        // What the old primary took meanwhile is gone with its turning into a replica.
        forgotten(collector, began).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_storms_over_gateways_have_one_effect_per_key() {
    storms(Watched::start().await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_only_what_a_failover_lost_runs_again() {
    let promise = Promise { fences: Fences::Advisory, ..SHARED };
    play(Watched::start().await, &Plan { gateways: 2, rule: "", promise, expected: SEEN }).await;
}
