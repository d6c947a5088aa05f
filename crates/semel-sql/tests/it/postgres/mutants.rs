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
use semel_sql::{Options, PostgresStore};
use semel_testkit::{
    conformance::{self, Bug},
    servers::proxy::{Fired, Proxy, Speaks},
};

use super::bed::Bed;

struct Seeded<B: Bug> {
    bed: Bed<false>,
    proxy: Proxy,
    fired: Fired,
    bug: PhantomData<B>,
}

impl<B: Bug> conformance::Bed for Seeded<B> {
    async fn start() -> Self {
        let bed = Bed::start().await;
        let proxy = Proxy::speaking(Speaks::Postgres, ([127, 0, 0, 1], bed.place.server.port()).into()).await;
        let [within, from, to] = B::words();
        let fired = proxy.reword(&within, &from, &to);
        Self { bed, proxy, fired, bug: PhantomData }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        let ports = [self.bed.place.server.port(), self.proxy.port()].map(|port| format!(":{port}/"));
        let url = self.bed.url().replace(&ports[0], &ports[1]);
        let options = Options { connections: 8, ..Options::default() };
        Arc::new(PostgresStore::connect(&url, &Env::system(), options).await.unwrap())
    }

    async fn advance(&self, by: Duration) {
        self.bed.advance(by).await;
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        self.bed.plant(id, bytes).await;
    }
}

impl<B: Bug> Drop for Seeded<B> {
    fn drop(&mut self) {
        B::acted().store(self.fired.count() > 0, Ordering::SeqCst);
    }
}

semel_testkit::seeded_bugs! { Seeded,
    a_release_by_anybody_is_caught:
        ["WHERE $1 = 4::bigint", " AND r.owner = $4 AND", " AND $4 IS NOT NULL AND"],
        by release::a_release_by_another_owner_is_refused;
    a_release_under_any_fence_is_caught:
        ["WHERE $1 = 4::bigint", "($5 = 0 OR r.fence = $5)", "$5 IS NOT NULL"],
        by release::a_release_under_another_fence_is_refused;
    a_release_that_forgets_the_token_is_caught:
        ["WHERE $1 = 4::bigint", "flags = r.flags & 1", "flags = 0"],
        by token::a_released_token_is_issued_again;
    an_attempt_that_always_counts_is_caught:
        ["WHERE $1 = 4::bigint", "greatest(r.attempt - $7, 0)", "greatest(r.attempt - 0 * $7, 0)"],
        by release::an_attempt_that_does_not_count_is_given_back;
    a_renewal_beyond_max_hold_is_caught:
        ["WHERE $1 = 12::bigint", "least(t.now + a.lease, r.expires_at - a.keep)", "t.now + a.lease"],
        by renew::a_renewal_stops_at_max_hold;
    a_renewal_that_shortens_is_caught:
        ["WHERE $1 = 12::bigint", "greatest(r.lease_until, ", "greatest(0, "],
        by renew::a_renewal_never_shortens_a_lease;
    a_renewal_of_anything_is_caught:
        ["WHERE $1 = 12::bigint", "AND r.state = 1 AND", "AND"],
        by renew::a_renewal_of_what_is_settled_is_lost;
    a_claim_without_a_deadline_is_caught:
        ["WHERE $1 = 1::bigint", "t.now <= $13", "$13 IS NOT NULL"],
        by claim::a_late_claim_is_refused;
    a_fence_of_the_clock_alone_is_caught:
        ["WHERE $1 = 1::bigint", "greatest(r.fence + 1, excluded.fence)", "excluded.fence"],
        by fence::an_expired_record_is_the_floor_of_the_next_fence;
    a_claimant_that_decides_on_takeover_is_caught:
        ["WHERE $1 = 1::bigint", ".flags & 2 = 2", ".flags | $4 & 2 = 2"],
        by takeover::the_record_decides_on_takeover_not_the_claimant;
    a_takeover_without_grace_is_caught:
        ["WHERE $1 = 1::bigint", ".lease_until + $12 <=", ".lease_until + 0 * $12 <="],
        by takeover::a_takeover_waits_for_the_lease_and_the_grace;
    a_takeover_with_another_question_is_caught:
        ["WHERE $1 = 1::bigint", ".fp = $6", ".state = 1"],
        by takeover::a_takeover_asks_the_same_question;
    a_token_that_nobody_issued_is_caught:
        ["WHERE $1 = 1::bigint", "WHEN f.id IS NULL THEN NOT $11", "WHEN f.id IS NULL THEN true"],
        by token::what_was_not_issued_is_not_granted;
    a_completion_over_anybody_is_caught:
        ["WHERE $1 = 2::bigint", ".fence < $5", ".fence <> $5"],
        by complete::a_completion_over_a_newer_claim_is_refused;
    a_completion_over_an_outcome_is_caught:
        ["WHERE $1 = 2::bigint", ".state IN (1, 3, 4)", ".state IN (1, 2, 3, 4)"],
        by complete::a_completion_never_overwrites_an_outcome;
    a_completion_sent_again_that_writes_again_is_caught:
        ["WHERE $1 = 2::bigint", ".state IN (1, 3))", ".state IN (1, 2, 3))"],
        by complete::a_completion_sent_again_is_ok_and_changes_nothing;
    an_unknown_over_an_outcome_is_caught:
        ["WHERE $1 = 3::bigint", ".state = 1) OR (", ".state IN (1, 2)) OR ("],
        by unknown::unknown_never_overwrites_done;
    a_deletion_of_anything_is_caught:
        ["WHERE $1 = 9::bigint", " AND r.state = $4 AND r.state IN (0, 2, 4)", " AND $4 >= 0"],
        by admin::only_what_is_over_is_deleted_and_only_as_expected;
    a_purge_of_the_living_is_caught:
        ["WHERE $1 = 13::bigint", ".expires_at <= (SELECT now FROM t)", ".expires_at > 0"],
        by admin::a_purge_takes_what_ended_and_nothing_else;
    a_token_issued_over_what_is_there_is_caught:
        ["WHERE $1 = 6::bigint", ".expires_at <= (SELECT now FROM t)", ".expires_at > 0"],
        by token::what_is_there_is_not_issued_again;
    a_word_about_a_live_claim_is_caught:
        ["WHERE $1 = 5::bigint", " AND r.lease_until <= t.now)", ")"],
        by resolve::a_live_claim_cannot_be_resolved;
    a_word_about_what_was_not_seen_is_caught:
        ["WHERE $1 = 5::bigint", " AND r.fence = $4 AND", " AND $4 IS NOT NULL AND"],
        by resolve::a_word_about_what_was_not_seen_is_a_conflict;
    a_word_that_keeps_the_fence_is_caught:
        ["WHERE $1 = 5::bigint", "fence = greatest(r.fence + 1, t.now)", "fence = r.fence"],
        by resolve::an_unknown_outcome_is_settled_by_a_persons_word;
    an_extension_beyond_its_life_is_caught:
        ["WHERE $1 = 7::bigint", "least(t.now + $4, r.lease_until)", "(t.now + $4)"],
        by token::an_extension_goes_to_the_end_of_the_tokens_life_and_never_back;
    a_used_token_that_is_withdrawn_is_caught:
        ["WHERE $1 = 8::bigint", " AND r.state = 0 AND", " AND"],
        by token::only_an_unused_token_is_withdrawn;
}
