//! What happens to gateways and to the network between them and the store.

use std::time::Duration;

use semel_testkit::{
    checker::Collector,
    servers::proxy::{Rule, Then},
    sim::Seeded,
};

use super::{
    backing::{Backing, StoreCall},
    field::{Field, LEASE},
    load::WORKERS,
    network::Network,
};

/// As coverage counts that all gateways told of a store that had lost its records.
const NOTICED: &str = "loss noticed";

/// Counted by a gateway when it finds another mark than before.
const LOST: &str = "semel_store_lost_total";

/// How long a reply that is to be lost is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Something that happens once, from its beginning to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    KillGateway,
    PauseGateway,
    DrainGateway,
    /// The network between one gateway and the store drops everything.
    PartitionBySilence,
    /// It answers with resets.
    PartitionByReset,
    /// Requests arrive, nothing comes back.
    RepliesAreHeld,
    ConnectionsAreCut,
    NetworkIsSlow,
    ReplyLost(StoreCall),
    /// The claim arrives when its deadline is over.
    ClaimIsLate,
    OfStore(&'static str),
}

impl Fate {
    /// As coverage counts it.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::KillGateway => "gateway killed",
            Self::PauseGateway => "gateway paused beyond its lease",
            Self::DrainGateway => "gateway drained",
            Self::PartitionBySilence => "partition by silence",
            Self::PartitionByReset => "partition by reset",
            Self::RepliesAreHeld => "replies held",
            Self::ConnectionsAreCut => "connections cut",
            Self::NetworkIsSlow => "slow network",
            Self::ReplyLost(StoreCall::Claim) => "reply to a claim lost",
            Self::ReplyLost(StoreCall::Renew) => "reply to a renewal lost",
            Self::ReplyLost(StoreCall::Complete) => "reply to a completion lost",
            Self::ClaimIsLate => "claim late",
            Self::OfStore(name) => name,
        }
    }

    /// All that can happen with this store.
    pub(super) fn all(backing: &impl Backing) -> Vec<Self> {
        if backing.only_its_own() {
            return backing.fates().iter().map(|name| Self::OfStore(name)).collect();
        }
        let mut all = vec![Self::KillGateway, Self::PauseGateway, Self::DrainGateway];
        if backing.wire().is_some() {
            all.extend([
                Self::PartitionBySilence,
                Self::PartitionByReset,
                Self::RepliesAreHeld,
                Self::ConnectionsAreCut,
                Self::NetworkIsSlow,
                Self::ReplyLost(StoreCall::Claim),
                Self::ReplyLost(StoreCall::Renew),
                Self::ReplyLost(StoreCall::Complete),
                Self::ClaimIsLate,
            ]);
        }
        all.extend(backing.fates().iter().map(|name| Self::OfStore(name)));
        all
    }

    /// What a run in which these happen has to show, as coverage counts it.
    pub(super) fn names(fates: &[Self], backing: &impl Backing) -> Vec<&'static str> {
        let is_noticed = fates.iter().any(|fate| backing.loses_its_mark(fate.name()));
        fates.iter().map(|fate| fate.name()).chain(is_noticed.then_some(NOTICED)).collect()
    }
}

/// In an order that the seed says.
pub(super) fn shuffle<T>(list: &mut [T], random: &Seeded) {
    for n in (1..list.len()).rev() {
        list.swap(n, usize::try_from(random.below(n as u64 + 1)).unwrap());
    }
}

/// Between these two, by chance.
pub(super) fn between(random: &Seeded, least: Duration, most: Duration) -> Duration {
    let span = u64::try_from((most - least).as_millis()).unwrap();
    least + Duration::from_millis(random.below(span + 1))
}

/// Until one more than `before` was told that the store is full.
pub(super) async fn is_told_full(collector: &Collector, before: usize) {
    until("a new order is refused for want of room", async || collector.told("store-full") > before).await;
}

/// Until so many more orders are done that some of them were begun since.
pub(super) async fn orders_are_done(collector: &Collector) {
    let begun = collector.told("fresh");
    until("orders are done", async || collector.told("fresh") > begun + WORKERS).await;
}

/// Until it came to what a fate is about; the load brings it about.
pub(super) async fn until(what: &str, mut has_come: impl AsyncFnMut() -> bool) {
    for _ in 0..PATIENCE.as_millis() / 10 {
        if has_come().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came to it: {what}");
}

impl<B: Backing> Field<B> {
    /// Lets it happen to one of the gateways, or to the store.
    pub(super) async fn happen(&mut self, fate: Fate, random: &Seeded) {
        self.callers.collector.begins(fate.name());
        let came_to_it = self.happens(fate, random).await;
        self.callers.collector.ends(fate.name());
        if came_to_it {
            self.callers.collector.fault(fate.name());
        }
    }

    async fn happens(&mut self, fate: Fate, random: &Seeded) -> bool {
        let n = usize::try_from(random.below(self.nodes.len() as u64)).unwrap();
        let short = between(random, LEASE / 10, LEASE / 2);
        let long = between(random, LEASE / 4, LEASE * 3 / 2);
        match fate {
            Fate::KillGateway => {
                self.kill(n);
                tokio::time::sleep(short).await;
                self.start_anew(n).await;
            }
            Fate::PauseGateway => {
                let gateway = self.nodes[n].gateway.as_ref().expect("all run between two fates");
                gateway.pause();
                tokio::time::sleep(between(random, LEASE * 5 / 4, LEASE * 2)).await;
                gateway.resume();
            }
            Fate::DrainGateway => {
                self.drain(n).await;
                self.start_anew(n).await;
            }
            Fate::OfStore(name) => {
                let before = if self.backing.loses_its_mark(name) { self.losses().await } else { Vec::new() };
                self.backing.suffer(name, &self.callers.collector, random).await;
                if !before.is_empty() {
                    until("each gateway tells that its store lost its records", async || {
                        self.losses().await.iter().zip(&before).all(|(now, before)| now > before)
                    })
                    .await;
                    self.callers.collector.fault(NOTICED);
                }
            }
            _ => return self.network(fate, n, short, long).await,
        }
        true
    }

    /// How often each gateway found its store without its records.
    async fn losses(&self) -> Vec<f64> {
        let mut counted = Vec::new();
        for node in &self.nodes {
            counted.push(node.gateway.as_ref().expect("all run between two fates").metric(LOST).await);
        }
        counted
    }

    /// Now that nobody has what it knew.
    async fn start_anew(&mut self, n: usize) {
        if self.backing.dies_with_its_gateway() {
            self.callers.collector.forgot(None);
        }
        self.start(n).await;
    }

    /// `false` if it did not come to it.
    async fn network(&self, fate: Fate, n: usize, short: Duration, long: Duration) -> bool {
        let is = self.backing.wire().expect("there is a network").is;
        let rule = || match fate {
            Fate::ReplyLost(call) => {
                let then = if short.as_millis().is_multiple_of(2) { Then::Close } else { Then::Silence };
                Some(Rule::when(move |request| is(call, request)).lose_reply(then))
            }
            Fate::ClaimIsLate => {
                Some(Rule::when(move |request| is(StoreCall::Claim, request)).delay_request(LEASE * 5 / 4))
            }
            _ => None,
        };
        let networks = || self.nodes.iter().map(|node| node.network.as_ref().expect("there is a network"));
        if rule().is_some() {
            // Before every gateway, since one alone may have nothing to renew for a while.
            let rule = || rule().expect("it was one just now");
            let fired: Vec<_> = networks().flat_map(|network| network.rule(rule)).collect();
            let has_fired = || fired.iter().any(|fired| fired.count() > 0);
            for _ in 0..PATIENCE.as_millis() / 10 {
                if has_fired() {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            tokio::time::sleep(short).await;
            networks().for_each(Network::heal);
            return has_fired();
        }
        let network = self.nodes[n].network.as_ref().expect("there is a network");
        match fate {
            Fate::PartitionBySilence => network.stall(),
            Fate::PartitionByReset => network.refuse(),
            Fate::RepliesAreHeld => network.hold_replies(),
            Fate::ConnectionsAreCut => network.cut(),
            Fate::NetworkIsSlow => network.slow(),
            other => panic!("{other:?} is nothing of the network"),
        }
        tokio::time::sleep(long).await;
        network.heal();
        true
    }
}
