//! The network between one gateway and the servers of the store.

use std::net::SocketAddr;

use semel_testkit::servers::proxy::{Fired, Proxy, Rule, Way};

use super::{backing::Wire, field::LEASE};

/// A proxy before each server, for one gateway alone. The servers reach each other without; where they tell a gateway of each
/// other, it reads where its proxies are.
pub(super) struct Network(Vec<Proxy>);

impl Network {
    pub(super) async fn before(wire: &Wire) -> Self {
        let mut proxies = Vec::new();
        for server in &wire.servers {
            proxies.push(Proxy::speaking(wire.speaks, *server).await);
        }
        if proxies.len() > 1 {
            for proxy in &proxies {
                for (server, to) in wire.servers.iter().zip(&proxies) {
                    proxy.rename(*server, to.address());
                }
            }
        }
        Self(proxies)
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(Proxy::address).collect()
    }

    /// Before each server, since which one a request goes to is not known.
    pub(super) fn rule(&self, rule: impl Fn() -> Rule) -> Vec<Fired> {
        self.0.iter().map(|proxy| proxy.rule(rule())).collect()
    }

    pub(super) fn stall(&self) {
        self.0.iter().for_each(Proxy::stall);
    }

    pub(super) fn refuse(&self) {
        self.0.iter().for_each(Proxy::refuse);
    }

    pub(super) fn hold_replies(&self) {
        self.0.iter().for_each(|proxy| proxy.silence(Way::Back));
    }

    pub(super) fn cut(&self) {
        self.0.iter().for_each(Proxy::cut);
    }

    pub(super) fn slow(&self) {
        for proxy in &self.0 {
            proxy.delay(Way::There, LEASE / 20);
            proxy.delay(Way::Back, LEASE / 20);
        }
    }

    pub(super) fn heal(&self) {
        self.0.iter().for_each(Proxy::heal);
    }
}
