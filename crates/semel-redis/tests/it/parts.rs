//! One master of a Cluster is away: the leases on the others go on.

#![expect(clippy::disallowed_methods, reason = "the callers are tasks of the test's own")]

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{
    engine::{Answer, Call, Engine, Ran, Run, Verdict},
    env::Env,
    identity::Identity,
    policy::Policy,
    record::{Format, Outcome},
    store::{Store, StoreAdmin},
};
use semel_redis::{Options, RedisStore};
use semel_testkit::{
    conformance::{Bed, Shift, Shifted, cases::renew, run},
    servers::redis::{Cluster, Setup},
};
use tokio::sync::Semaphore;

use crate::{
    beds::{move_back, plant},
    questions::{fingerprint, id},
};

/// A Cluster in which nobody takes the place of a master that is away, and the others go on.
async fn parted() -> Cluster {
    let setup = Setup::new().set("cluster-replica-no-failover", "yes").set("cluster-require-full-coverage", "no");
    Cluster::start(&setup).await
}

async fn client(cluster: &Cluster, response_timeout: Duration) -> RedisStore {
    let mut options = Options::default();
    options.connect_timeout = Duration::from_secs(10);
    options.response_timeout = response_timeout;
    RedisStore::connect(&cluster.url(), &Env::system(), options).await.expect("the store opens")
}

struct Parted {
    cluster: Cluster,
    shift: Shift,
}

impl Parted {
    async fn master_of(&self, id: &Identity) -> usize {
        let slot = self.cluster.slot_of(&format!("semel:{id}")).await;
        self.cluster.master_of(slot, 0).await.expect("every slot has a master")
    }
}

impl Bed for Parted {
    async fn start() -> Self {
        Self { cluster: parted().await, shift: Shift::default() }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Shifted::new(client(&self.cluster, Duration::from_secs(4)).await, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        for master in self.cluster.masters(0).await {
            move_back(self.cluster.nodes[master].port(), "semel", by).await;
        }
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        let master = self.master_of(id).await;
        assert!(plant(self.cluster.nodes[master].port(), &format!("semel:{id}"), bytes).await);
    }

    async fn take_part_away(&self, id: &Identity) -> bool {
        self.cluster.nodes[self.master_of(id).await].pause();
        true
    }
}

#[test]
fn a_master_that_is_away_holds_up_no_other_lease() {
    run::<Parted>(renew::a_part_that_is_away_holds_up_no_other_lease);
}

/// Twenty seconds are longer than a lease of twelve: who was not renewed has heard of it by then.
#[tokio::test]
async fn work_on_other_masters_keeps_its_leases_while_one_master_is_away() {
    let cluster = parted().await;
    let store = Arc::new(client(&cluster, Duration::from_secs(1)).await);
    let engine = Engine::builder(Arc::clone(&store) as _, store.secret().clone()).build();
    let policy = Policy::key().lease(Duration::from_secs(12)).build().expect("it is one");
    let mut running = Vec::new();
    let begun = Arc::new(Semaphore::new(0));
    for n in 0..12 {
        let (engine, call, begun) =
            (engine.clone(), Call::new(id(n), fingerprint(), policy.clone()), Arc::clone(&begun));
        let work = async move |run: Run| {
            begun.add_permits(1);
            let lost = run.lost();
            let ends = tokio::time::timeout(Duration::from_secs(20), lost.cancelled()).await;
            let outcome = Outcome::new(Format::HTTP, &b"200"[..], &b"charged"[..]);
            Ran { value: ends.is_ok(), verdict: Verdict::Keep(outcome) }
        };
        running.push(tokio::spawn(async move { engine.run(call, work).await }));
    }
    let _all = begun.acquire_many(12).await.expect("it stays open");
    let is_away: Vec<_> = (0..12).map(|n| store.part(&id(n)) == store.part(&id(0))).collect();
    assert!(is_away.contains(&false));
    let master = cluster.master_of(cluster.slot_of(&format!("semel:{}", id(0))).await, 0).await;
    cluster.nodes[master.expect("every slot has a master")].pause();
    for (n, run) in running.into_iter().enumerate() {
        let Answer::Executed { value, .. } = run.await.expect("it ends") else { panic!("{n} was not run") };
        assert_eq!(value, is_away[n], "{n}");
    }
}
