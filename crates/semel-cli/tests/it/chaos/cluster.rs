//! A Redis Cluster. A failover without the old master may lose what was acknowledged last; a planned one and the move of
//! slots lose nothing.

use std::{net::SocketAddr, time::Duration};

use semel_testkit::{
    checker::{Collector, Fences, Promise},
    servers::{
        proxy::Speaks,
        redis::{Cluster, Said, Setup},
    },
    sim::Seeded,
};

use super::{
    backing::{Backing, Wire, forgotten},
    calls::are_told_apart,
    end::{SEEN, SHARED},
    field::{LEASE, Plan, play},
    redis::is,
    sentinel::follows,
    storms::storms,
};

struct Spread {
    cluster: Cluster,
    /// Whether masters die, with what they did not pass on.
    may_lose: bool,
}

/// After so long a node is down where one is to be; longer than one of a busy machine says nothing, else.
const DOWN: Duration = Duration::from_secs(2);
const BUSY: Duration = Duration::from_secs(15);

impl Spread {
    async fn start(may_lose: bool) -> Self {
        let cluster = Cluster::start(&Setup::new().keeps()).await;
        cluster.down_after(BUSY).await;
        Self { cluster, may_lose }
    }

    async fn a_master(&self, random: &Seeded) -> usize {
        let masters = self.cluster.masters(0).await;
        masters[usize::try_from(random.below(masters.len() as u64)).unwrap()]
    }

    /// The other one of a pair.
    const fn pair(node: usize) -> usize {
        (node + 3) % 6
    }

    /// Slots of a master in which there are records, one that is in flight first; none where none is.
    async fn in_use(&self, master: usize) -> Vec<u16> {
        let node = &self.cluster.nodes[master];
        let keys: Vec<_> = node.tell(&["KEYS", "*"]).await.list().iter().map(Said::text).collect();
        for (n, key) in keys.iter().enumerate() {
            // The state stands behind the magic word.
            if node.ask(&["GETRANGE", key, "4", "4"]).await.text() == "\u{1}" {
                let mut slots = Vec::new();
                for key in [key].into_iter().chain(&keys[..n]).take(SLOTS) {
                    let slot = self.cluster.slot_of(key).await;
                    if !slots.contains(&slot) {
                        slots.push(slot);
                    }
                }
                return slots;
            }
        }
        Vec::new()
    }

    /// Moves slots, and with each try one whose record is in flight: its owner renews it, or tells its outcome, while it is on
    /// its way and when it has gone. Until owners were told of both.
    async fn move_slots(&self, random: &Seeded) -> Vec<(u16, usize, usize)> {
        let told = async || (self.cluster.refused("ASK").await, self.cluster.refused("MOVED").await);
        let (before, mut moved) = (told().await, Vec::new());
        for _ in 0..TRIES {
            let from = self.a_master(random).await;
            let masters = self.cluster.masters(0).await;
            let to = *masters.iter().find(|m| **m != from).expect("there are three");
            for (n, slot) in self.in_use(from).await.into_iter().enumerate() {
                if self.cluster.master_of(slot, from).await != Some(from) {
                    continue;
                }
                self.cluster.begin_move(slot, from, to).await;
                self.cluster.move_keys(slot, from, to).await;
                if n == 0 {
                    soon(async || told().await.0 > before.0).await;
                }
                self.cluster.end_move(slot, from, to).await;
                moved.push((slot, from, to));
                if n == 0 {
                    soon(async || told().await.1 > before.1).await;
                }
            }
            let now = told().await;
            if now.0 > before.0 && now.1 > before.1 {
                return moved;
            }
            tokio::time::sleep(LEASE / 20).await;
        }
        panic!(
            "{} slots moved, and of ASK and MOVED nobody was told both: {before:?}, {:?}",
            moved.len(),
            told().await
        );
    }
}

/// So many slots are moved at once.
const SLOTS: usize = 10;

/// So often it may happen that an owner has no more to say when its record is on its way.
const TRIES: usize = 60;

/// Until it is so, if it is before a lease is over: its owner renews it three times within one.
async fn soon(mut is_so: impl AsyncFnMut() -> bool) {
    for _ in 0..LEASE.as_millis() / 10 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Backing for Spread {
    fn url(&self, through: &[SocketAddr]) -> String {
        if through.is_empty() {
            return self.cluster.url();
        }
        let hosts: Vec<_> = through.iter().map(ToString::to_string).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    fn wire(&self) -> Option<Wire> {
        let servers = self.cluster.nodes.iter().map(|node| node.address().parse().unwrap()).collect();
        (!self.may_lose).then_some(Wire { servers, speaks: Speaks::Redis, is })
    }

    fn fates(&self) -> &'static [&'static str] {
        if self.may_lose {
            &["master killed, a replica promoted", "master hung, a replica promoted"]
        } else {
            &["slots moved", "failover planned", "slots moved back and forth"]
        }
    }

    async fn suffer(&mut self, fate: &'static str, collector: &Collector, random: &Seeded) {
        match fate {
            "slots moved" => {
                self.move_slots(random).await;
            }
            "slots moved back and forth" => {
                // The last one first: one that came back by itself would be moved from where it is not.
                for (slot, from, to) in self.move_slots(random).await.into_iter().rev() {
                    self.cluster.move_slot(slot, to, from).await;
                }
            }
            "failover planned" => {
                let from = self.a_master(random).await;
                self.cluster.fail_over_to(Self::pair(from)).await;
                follows(&self.cluster.nodes[from]).await;
            }
            "master killed, a replica promoted" | "master hung, a replica promoted" => {
                let from = self.a_master(random).await;
                let loss = collector.forgets(None);
                self.cluster.down_after(DOWN).await;
                let node = &mut self.cluster.nodes[from];
                if fate.contains("killed") {
                    node.kill();
                } else {
                    node.pause();
                }
                self.cluster.promoted(Self::pair(from)).await;
                let node = &mut self.cluster.nodes[from];
                // One that hung believes for a moment that it is a master still.
                if fate.contains("killed") {
                    node.start_again().await;
                } else {
                    node.resume();
                }
                self.cluster.down_after(BUSY).await;
                follows(&self.cluster.nodes[from]).await;
                forgotten(collector, loss, 1).await;
            }
            other => panic!("{other}"),
        }
    }
}

const PROMISE: Promise = Promise { fences: Fences::Advisory, ..SHARED };

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_faults_meet_the_calls_they_are_about() {
    are_told_apart(Spread::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_storms_over_gateways_have_one_effect_per_key() {
    storms(Spread::start(false).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_no_fault_but_a_dead_master_doubles_anything() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    let report = play(Spread::start(false).await, &plan).await;
    assert_eq!(report.doubles.loss, 0, "{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_only_what_a_dead_master_lost_runs_again() {
    let plan = Plan { gateways: 2, rule: "", promise: PROMISE, expected: SEEN };
    play(Spread::start(true).await, &plan).await;
}
