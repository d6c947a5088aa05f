//! The conformance suite under Sentinel; and its part about what survives, over a failover.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_testkit::{
    conformance::{
        Bed, Shift, Shifted,
        cases::{claim, last},
        run,
    },
    servers::redis::{Sentinels, Setup},
};

use crate::beds::{self, connect, move_back, plant, shared, spread::Place};

struct UnderSentinel(Place);

impl Bed for UnderSentinel {
    const RECKONED_WITHIN: Duration = beds::RECKONED_WITHIN;
    const SEQUENCES: u32 = 160;
    const SHOWS_TWICE: bool = true;

    async fn start() -> Self {
        Self(Place::on(shared::sentinels().await))
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

semel_testkit::conformance!(UnderSentinel);

/// What is opened again is another server.
struct FailingOver {
    set: Sentinels,
    shift: Shift,
}

impl FailingOver {
    async fn primary(&self) -> u16 {
        self.set.servers[self.set.primary().await].port()
    }
}

impl Bed for FailingOver {
    async fn start() -> Self {
        Self { set: Sentinels::start(&Setup::new().keeps()).await, shift: Shift::default() }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        Arc::new(Shifted::new(connect(&self.set.url(), "semel").await, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        move_back(self.primary().await, "semel", by).await;
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        assert!(plant(self.primary().await, &format!("semel:{id}"), bytes).await);
    }

    async fn reopen(&self) -> bool {
        // What a failover loses is what the replicas had not received: here they have all of it.
        self.set.caught_up().await;
        self.set.fail_over().await;
        true
    }

    /// The shared set is written to by others.
    async fn written(&self) -> Option<u64> {
        let primary = &self.set.servers[self.set.primary().await];
        primary.info("persistence", "rdb_changes_since_last_save").await.parse().ok()
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
