//! The conformance suite on a Cluster; and its part about what survives, over the failover of every master.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_testkit::{
    conformance::{
        Bed, Shift, Shifted,
        cases::{claim, last},
        run,
    },
    servers::redis::{Cluster, Setup},
};

use crate::beds::{self, connect, move_back, plant, shared, spread::Place};

struct OnCluster(Place);

impl Bed for OnCluster {
    const RECKONED_WITHIN: Duration = beds::RECKONED_WITHIN;
    const SEQUENCES: u32 = 160;
    const SHOWS_TWICE: bool = true;

    async fn start() -> Self {
        Self(Place::on(shared::cluster().await))
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        self.0.client().await
    }

    async fn advance(&self, by: Duration) {
        self.0.advance(by).await;
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        self.0.plant(id, bytes).await;
    }
}

semel_testkit::conformance!(OnCluster);

/// What is opened again are the replicas.
struct FailingOver {
    cluster: Cluster,
    shift: Shift,
}

impl Bed for FailingOver {
    async fn start() -> Self {
        Self { cluster: Cluster::start(&Setup::new().keeps()).await, shift: Shift::default() }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Shifted::new(connect(&self.cluster.url(), "semel").await, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        for master in self.cluster.masters(0).await {
            move_back(self.cluster.nodes[master].port(), "semel", by).await;
        }
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        let slot = self.cluster.slot_of(&format!("semel:{id}")).await;
        let master = self.cluster.master_of(slot, 0).await.expect("every slot has a master");
        assert!(plant(self.cluster.nodes[master].port(), &format!("semel:{id}"), bytes).await);
    }

    async fn reopen(&self) -> bool {
        for replica in 3..6 {
            self.cluster.fail_over_to(replica).await;
        }
        true
    }

    /// The shared Cluster is written to by others.
    async fn written(&self) -> Option<u64> {
        let mut all = 0;
        for node in &self.cluster.nodes {
            all += node.info("persistence", "rdb_changes_since_last_save").await.parse::<u64>().ok()?;
        }
        Some(all)
    }
}

#[test]
fn a_duplicate_writes_nothing_that_is_counted() {
    run::<FailingOver>(claim::a_duplicate_writes_nothing);
}

#[test]
fn what_was_acknowledged_is_there_after_failover() {
    run::<FailingOver>(last::what_was_acknowledged_is_there_after_reopening);
}

#[test]
fn a_claim_is_still_its_owners_after_failover() {
    run::<FailingOver>(last::a_claim_is_still_its_owners_after_reopening);
}

#[test]
fn what_was_removed_stays_away_after_failover() {
    run::<FailingOver>(last::what_was_removed_stays_away_after_reopening);
}

#[test]
fn what_people_did_is_known_after_failover() {
    run::<FailingOver>(last::what_people_did_is_known_after_reopening);
}

#[test]
fn a_fence_rises_over_failover() {
    run::<FailingOver>(last::a_fence_rises_over_reopening);
}
