//! The suite has to catch each bug that is seeded into a statement, by the case that is named for it.
//!
//! The store is as it is. A proxy before the server says another statement than the store does.

use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use semel_core::{env::Env, identity::Identity, store::StoreAdmin};
use semel_sql::MySqlStore;
use semel_testkit::{
    conformance::{self, Bug, Shift, Shifted},
    servers::proxy::{Fired, Proxy, Speaks},
};

use super::place::{Place, options};

struct Seeded<B: Bug> {
    place: Place,
    /// Straight to the server, for what is done behind the back of the clients.
    store: MySqlStore,
    proxy: Proxy,
    fired: Fired,
    shift: Shift,
    bug: PhantomData<B>,
}

impl<B: Bug> conformance::Bed for Seeded<B> {
    async fn start() -> Self {
        let place = Place::shared().await;
        let store = place.store().await;
        let proxy = Proxy::speaking(Speaks::MySql, ([127, 0, 0, 1], place.server.port()).into()).await;
        let [within, from, to] = B::words();
        let fired = proxy.reword(&within, &from, &to);
        Self { place, store, proxy, fired, shift: Shift::default(), bug: PhantomData }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        let url = format!("mysql://root@{}/{}", self.proxy.address(), self.place.database);
        let store = MySqlStore::connect(&url, &Env::system(), options()).await.unwrap();
        Arc::new(Shifted::new(store, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        self.shift.advance(by);
        self.store.shift(by).await.unwrap();
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        self.store.plant(id, bytes).await.unwrap();
    }
}

impl<B: Bug> Drop for Seeded<B> {
    fn drop(&mut self) {
        B::acted().store(self.fired.count() > 0, Ordering::SeqCst);
    }
}

semel_testkit::seeded_bugs! { Seeded,
    a_claim_without_a_deadline_is_caught:
        ["INSERT INTO semel_record (id, v",
         "WHERE TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)) <= ?",
         "WHERE 0 <= ?"],
        by claim::a_late_claim_is_refused;
    a_fence_without_the_clock_is_caught:
        ["INSERT INTO semel_record (id, v",
         "LAST_INSERT_ID(TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6)))",
         "LAST_INSERT_ID(1)"],
        by fence::a_fence_follows_the_stores_clock;
    a_claim_that_replaces_is_caught:
        ["INSERT INTO semel_record (id, v", "INSERT INTO", "REPLACE INTO"],
        by claim::a_second_claim_finds_the_first;
    a_claim_that_updates_what_is_there_is_caught:
        ["INSERT INTO semel_record (id, v",
         "UTC_TIMESTAMP(6)) <= ?",
         "UTC_TIMESTAMP(6)) <= ? ON DUPLICATE KEY UPDATE owner = VALUES(owner), fence = LAST_INSERT_ID(VALUES(fence))"],
        by claim::a_second_claim_finds_the_first;
    a_release_by_anybody_is_caught:
        ["SET state = ?, flags = flags & 1", " AND owner = ? AND", " AND (owner = ? OR 1 = 1) AND"],
        by release::a_release_by_another_owner_is_refused;
    a_release_under_any_fence_is_caught:
        ["SET state = ?, flags = flags & 1", "OR fence = ?)", "OR fence = ? OR 1 = 1)"],
        by release::a_release_under_another_fence_is_refused;
    a_release_that_forgets_the_token_is_caught:
        ["SET state = ?, flags = flags & 1", "flags = flags & 1", "flags = 0"],
        by token::a_released_token_is_issued_again;
    an_attempt_that_always_counts_is_caught:
        ["SET state = ?, flags = flags & 1", "GREATEST(attempt - ?, 0)", "GREATEST(attempt - 0 * ?, 0)"],
        by release::an_attempt_that_does_not_count_is_given_back;
    a_renewal_beyond_max_hold_is_caught:
        ["SET lease_until = GREATEST", "expires_at - ?)", "expires_at - ? + 1000000000000000)"],
        by renew::a_renewal_stops_at_max_hold;
    a_renewal_that_shortens_is_caught:
        ["SET lease_until = GREATEST", "GREATEST(lease_until, ", "GREATEST(0, "],
        by renew::a_renewal_never_shortens_a_lease;
    a_settlement_over_an_outcome_is_caught:
        ["SET flags = (flags & 1) | ?", "AND state IN (1, ?)", "AND state IN (1, 2, ?)"],
        by unknown::unknown_never_overwrites_done;
    a_completion_sent_again_that_writes_again_is_caught:
        ["SET flags = (flags & 1) | ?", "AND state IN (1, ?)", "AND state IN (1, 2, ?)"],
        by complete::a_completion_sent_again_is_ok_and_changes_nothing;
    a_purge_of_the_living_is_caught:
        ["semel_record",
         "expires_at <= TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))",
         "expires_at > 0 * TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"],
        by admin::a_purge_takes_what_ended_and_nothing_else;
}
