//! A Redis Cluster. A failover without the old master may lose what was acknowledged last; a planned one and the move of
//! slots lose nothing.

use std::net::SocketAddr;

use semel_testkit::{
    checker::{Collector, Fences, Promise},
    servers::redis::{Cluster, Said, Setup},
    sim::Seeded,
};

use super::{
    backing::{Backing, forgotten},
    end::{SEEN, SHARED},
    field::{Plan, play},
    sentinel::follows,
    storms::storms,
};

struct Spread {
    cluster: Cluster,
    /// Whether masters die, with what they did not pass on.
    may_lose: bool,
}

impl Spread {
    async fn start(may_lose: bool) -> Self {
        Self { cluster: Cluster::start(&Setup::new().keeps()).await, may_lose }
    }

    async fn a_master(&self, random: &Seeded) -> usize {
        let masters = self.cluster.masters(0).await;
        masters[usize::try_from(random.below(masters.len() as u64)).unwrap()]
    }

    /// The other one of a pair.
    const fn pair(node: usize) -> usize {
        (node + 3) % 6
    }

    /// Moves slots in which there are records.
    async fn move_slots(&self, from: usize, to: usize) {
        let keys = self.cluster.nodes[from].tell(&["KEYS", "*"]).await;
        for key in keys.list().iter().map(Said::text).take(10) {
            let slot = self.cluster.slot_of(&key).await;
            if self.cluster.master_of(slot, from).await == Some(from) {
                self.cluster.move_slot(slot, from, to).await;
            }
        }
    }
}

impl Backing for Spread {
    fn url(&self, _: Option<SocketAddr>) -> String {
        self.cluster.url()
    }

    fn fates(&self) -> &'static [&'static str] {
        if self.may_lose {
            &["master killed, a replica promoted", "master cut off, a replica promoted"]
        } else {
            &["slots moved", "failover planned", "slots moved back and forth"]
        }
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        let from = self.a_master(random).await;
        match fate {
            "slots moved" | "slots moved back and forth" => {
                let masters = self.cluster.masters(0).await;
                let to = *masters.iter().find(|m| **m != from).expect("there are three");
                self.move_slots(from, to).await;
                if fate != "slots moved" {
                    self.move_slots(to, from).await;
                }
            }
            "failover planned" => {
                self.cluster.fail_over_to(Self::pair(from)).await;
                follows(&self.cluster.nodes[from]).await;
            }
            "master killed, a replica promoted" => {
                let loss = collector.forgets(None);
                self.cluster.nodes[from].kill();
                self.cluster.promoted(Self::pair(from)).await;
                self.cluster.nodes[from].start_again().await;
                follows(&self.cluster.nodes[from]).await;
                forgotten(collector, loss, 1).await;
            }
            // It goes on later, and believes for a moment that it is a master still.
            "master cut off, a replica promoted" => {
                let loss = collector.forgets(None);
                self.cluster.nodes[from].pause();
                self.cluster.promoted(Self::pair(from)).await;
                self.cluster.nodes[from].resume();
                follows(&self.cluster.nodes[from]).await;
                forgotten(collector, loss, 1).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PROMISE: Promise = Promise { fences: Fences::Advisory, ..SHARED };

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_storms_over_gateways_have_one_effect_per_key() {
    storms(Spread::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_moving_slots_and_planned_failovers_double_nothing() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    let report = play(Spread::start(false).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_only_what_a_dead_master_lost_runs_again() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    play(Spread::start(true).await, &plan).await;
}
