//! A primary that is cut off together with the gateway that uses it, from its replicas, from all Sentinels and from the other
//! gateway. Whoever is on its side goes on; what it takes there is lost when the two sides meet again.
//!
//! Proxies in user space drop everything between the sides, and nothing within them.

use std::time::Duration;

use semel_testkit::servers::redis::{Sentinels, Setup as Server, Ways};

use super::sentinel::{BUSY, DOWN, follows};
use crate::system::{
    alone,
    client::Ask,
    gateway::{Gateway, Setup},
    upstream::Upstream,
};

/// Copies are answered by the store alone, so that what it has shows.
const OF_STORE: &str = "local_ttl = \"1ms\"\ntimeout = \"2s\"";

const RULE: &str = "[[rule]]\nname = \"orders\"\nmatch = \"/*\"\n";

/// A gateway and its ways to the store.
pub(super) struct Side<W> {
    gateway: Gateway,
    pub(super) ways: W,
}

impl Side<Ways> {
    async fn of(set: &Sentinels, upstream: &Upstream) -> Self {
        let ways = set.ways().await;
        let url = ways.url();
        Self::start(ways, &url, upstream).await
    }
}

impl<W> Side<W> {
    pub(super) async fn start(ways: W, url: &str, upstream: &Upstream) -> Self {
        let setup = Setup::new(&upstream.url(), url).of_store(OF_STORE).with(RULE);
        let gateway = tokio::task::spawn_blocking(move || setup.start()).await.unwrap();
        Self { gateway, ways }
    }

    pub(super) async fn ask(&self, key: &str) -> String {
        let answer = Ask::post("/status/200").key(key).send(self.gateway.http).await;
        if answer.status == 200 { answer.idempotency_status().to_owned() } else { answer.problem() }
    }

    /// Until a new order is answered like this, whatever comes before.
    pub(super) async fn until(&self, name: &str, answer: &str) {
        for n in 0..600 {
            if self.ask(&format!("{name}-{n}")).await == answer {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no new order is answered with {answer}: {}", self.gateway.said());
    }

    /// Asks for one order until it is answered like this; a store on a busy machine may miss its replicas for a moment.
    pub(super) async fn gets(&self, key: &str, answer: &str) {
        let mut said = String::new();
        for _ in 0..600 {
            said = self.ask(key).await;
            if said == answer {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{key} is answered with {said}: {}", self.gateway.said());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn under_sentinel_a_primary_cut_off_with_its_gateway_grants_until_it_misses_its_replicas() {
    let _alone = alone().await;
    let server = Server::new().keeps().set("min-replicas-to-write", "1").set("min-replicas-max-lag", "1");
    let (set, way) = Sentinels::start_with_a_way(&server).await;
    set.down_after(BUSY).await;
    let upstream = Upstream::start().await;
    let (cut_off, other) = (Side::of(&set, &upstream).await, Side::of(&set, &upstream).await);
    cut_off.until("before", "fresh").await;
    other.until("before", "replayed").await;
    // Each of its threads has a connection of its own, and makes it when it is first asked; it cannot any more, later.
    for n in 0..40 {
        cut_off.ask(&format!("early-{n}")).await;
    }

    way.stall();
    cut_off.ways.leave_the_first();
    other.ways.servers[0].stall();
    set.down_after(DOWN).await;
    let promoted = set.promoted(0).await;
    set.down_after(BUSY).await;
    other.until("other", "fresh").await;
    // By then the old primary has not heard of its replicas for longer than it may; a busy machine has other reasons as well.
    let refused = async || set.servers[0].refused("NOREPLICAS").await;
    let before = refused().await;
    for n in 0.. {
        cut_off.until(&format!("alone-{n}"), "store-unavailable").await;
        if refused().await > before {
            break;
        }
        assert!(n < 600, "the server does not refuse: {}", set.servers[0].process().said());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let role = set.servers[0].info("replication", "role").await;
    assert_eq!(role, "master", "it is the primary, for all it knows");
    for n in 0..20 {
        assert_eq!(cut_off.ask(&format!("refused-{n}")).await, "store-unavailable");
        // The other side has a primary.
        other.gets(&format!("refused-{n}"), "fresh").await;
    }

    way.heal();
    cut_off.ways.heal();
    other.ways.heal();
    follows(&set.servers[0]).await;
    assert_eq!(set.primary().await, promoted);
    cut_off.until("after", "fresh").await;
    for n in 0..20 {
        let key = format!("refused-{n}");
        cut_off.gets(&key, "replayed").await;
        assert_eq!(upstream.effects(&key).len(), 1, "{key}");
    }
}
