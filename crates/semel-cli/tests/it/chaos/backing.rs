//! The store behind the gateways, as far as faults are concerned.

use std::net::SocketAddr;

use semel_testkit::{
    checker::{Collector, Loss},
    servers::proxy::{Request, Speaks},
    sim::Seeded,
};

use super::field::LEASE;

/// A call whose reply is lost on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoreCall {
    Claim,
    Renew,
    Complete,
}

/// Where proxies stand, one before each server, and what tells calls apart there.
pub(super) struct Wire {
    pub(super) servers: Vec<SocketAddr>,
    pub(super) speaks: Speaks,
    /// Whether a request is this call of the store.
    pub(super) is: fn(StoreCall, &Request<'_>) -> bool,
}

/// On a shared store a gateway remembers answers for a moment.
pub(super) const REMEMBERS: &str = "local_ttl = \"1s\"";

/// A store, and what can happen to its servers.
pub(super) trait Backing {
    /// `store.url` of a gateway; `through` are the proxies that stand before the servers of the [wire](Self::wire), in their
    /// order.
    fn url(&self, through: &[SocketAddr]) -> String;

    /// More lines of the section [store], where it is a server's.
    fn of_store(&self) -> &'static str {
        REMEMBERS
    }

    /// Where proxies stand; nowhere if the store lives in the gateway, or nothing is to happen to the network.
    fn wire(&self) -> Option<Wire> {
        None
    }

    /// Whether the records die with the gateway.
    fn dies_with_its_gateway(&self) -> bool {
        false
    }

    /// Whether nothing else is to happen than what its [fates](Self::fates) are.
    fn only_its_own(&self) -> bool {
        false
    }

    /// Names of what can happen to its servers.
    fn fates(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether the records are gone with the mark by which their store tells that it has lost them.
    fn loses_its_mark(&self, fate: &str) -> bool {
        let _ = fate;
        false
    }

    /// Makes one of them happen, from its beginning to its end. What the store forgets by it, or may forget, is told to
    /// the collector before it shows.
    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let _ = (collector, random);
        panic!("nothing happens to this store by the name of {fate}");
    }
}

/// What a loss takes is gone, once for each of `times`. What a gateway remembers of before can still be told for `local_ttl`,
/// beside what ran since: the loss is over when that is.
pub(super) async fn forgotten(collector: &Collector, mut loss: Loss, times: usize) {
    collector.gone(&mut loss, times);
    tokio::time::sleep(LEASE * 3 / 2).await;
    collector.over(loss);
}

/// Makes the tables, as a user does.
pub(super) async fn migrate(url: &str) {
    let ended = crate::semel::run(&["migrate", url]).await;
    assert_eq!(ended.code, 0, "{ended:?}");
}
