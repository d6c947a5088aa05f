//! Redis under Sentinel. A failover may lose what was acknowledged last, unless all replicas are awaited: that is measured, not
//! hidden.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::{Collector, Fences, Promise},
    servers::redis::{Redis, Sentinels, Setup},
    sim::Seeded,
};

use super::{
    backing::{Backing, REMEMBERS, forgotten},
    end::{SEEN, SHARED},
    field::{LEASE, Plan, play},
    storms::storms,
};

struct Watched {
    set: Sentinels,
    /// What counts is on both replicas: nothing may be lost.
    awaits: bool,
}

impl Watched {
    async fn start(awaits: bool) -> Self {
        // A primary that nobody follows any more takes no writes: without this it goes on until it is told.
        let setup = Setup::new().keeps().set("min-replicas-to-write", "1").set("min-replicas-max-lag", "1");
        Self { set: Sentinels::start(&setup).await, awaits }
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
        self.set.url()
    }

    fn of_store(&self) -> &'static str {
        if self.awaits { "local_ttl = \"1s\"\nreplicas = 2" } else { REMEMBERS }
    }

    fn only_its_own(&self) -> bool {
        self.awaits
    }

    fn fates(&self) -> &'static [&'static str] {
        &["failover ordered", "primary killed, a replica promoted", "primary cut off, a replica promoted"]
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, _: &Seeded) {
        let loss = if self.awaits { None } else { Some(collector.forgets(None)) };
        let before = self.set.primary().await;
        match fate {
            "failover ordered" => {
                self.set.fail_over().await;
            }
            "primary killed, a replica promoted" => {
                self.set.servers[before].kill();
                self.set.promoted(before).await;
                self.set.servers[before].start_again().await;
            }
            // It goes on later, and believes for a moment that it is the primary still.
            "primary cut off, a replica promoted" => {
                self.set.servers[before].pause();
                self.set.promoted(before).await;
                self.set.servers[before].resume();
            }
            other => panic!("{other}"),
        }
        follows(&self.set.servers[before]).await;
        match loss {
            // What the old primary took meanwhile is gone with its turning into a replica.
            Some(loss) => forgotten(collector, loss, 1).await,
            // Outcomes that waited for a replica are told again by then.
            None => tokio::time::sleep(3 * LEASE).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_storms_over_gateways_have_one_effect_per_key() {
    storms(Watched::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_only_what_a_failover_lost_runs_again() {
    let promise = Promise { fences: Fences::Advisory, ..SHARED };
    play(Watched::start(false).await, &Plan { gateways: 2, rule: "", promise, expected: SEEN }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_what_all_replicas_have_never_runs_again() {
    let promise = Promise { fences: Fences::Advisory, ..SHARED };
    let expected = &["fresh", "replayed", "store-unavailable"];
    let report = play(Watched::start(true).await, &Plan { gateways: 2, rule: "", promise, expected }).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}
