//! The suite has to catch each bug that is seeded into a script, by the case that is named for it.
//!
//! The store is as it is. A proxy before the server names another script than the one the store asks for.

use std::{
    marker::PhantomData,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use semel_core::{identity::Identity, store::StoreAdmin};
use semel_testkit::{
    conformance::{Bed, Bug, Shift, Shifted},
    servers::{
        proxy::{Fired, Proxy, Speaks},
        redis::{Redis, Setup, ask},
    },
};

use crate::beds::{connect, move_back, plant};

/// The words of a bug here: which command, the script as it is sent, and with the bug.
struct Seeded<B: Bug> {
    server: Redis,
    proxy: Proxy,
    fired: Fired,
    shift: Shift,
    bug: PhantomData<B>,
}

impl<B: Bug> Bed for Seeded<B> {
    async fn start() -> Self {
        // A server that does not tell its version gets scripts as one before 7.0 does: for claims, too.
        let server = Redis::start(&Setup::new().set("rename-command", "HELLO HALLO")).await;
        let words = B::words();
        let [command, right, wrong] = words.each_ref().map(|words| as_sent(words));
        let loaded = ask(server.port(), &[b"SCRIPT", b"LOAD", wrong.as_bytes()]).await.expect("the server answers");
        let proxy = Proxy::speaking(Speaks::Redis, server.address().parse().expect("it is an address")).await;
        let fired = proxy.reword(command, redis::Script::new(right).get_hash(), &loaded.text());
        Self { server, proxy, fired, shift: Shift::default(), bug: PhantomData }
    }

    async fn client(&self) -> Arc<dyn StoreAdmin> {
        let store = connect(&format!("redis://{}", self.proxy.address()), "semel").await;
        Arc::new(Shifted::new(store, self.shift.clone()))
    }

    async fn advance(&self, by: Duration) {
        move_back(self.server.port(), "semel", by).await;
        self.shift.advance(by);
    }

    async fn plant(&self, id: &Identity, bytes: Option<Bytes>) {
        let bytes = bytes.map(|bytes| self.shift.stored(bytes));
        assert!(plant(self.server.port(), &format!("semel:{id}"), bytes).await);
    }
}

impl<B: Bug> Drop for Seeded<B> {
    fn drop(&mut self) {
        B::acted().store(self.fired.count() > 0, Ordering::SeqCst);
    }
}

/// Without the first line, which servers before 7.0 do not know.
fn as_sent(script: &str) -> &str {
    script.strip_prefix(SETTLES).unwrap_or(script)
}

/// A script as a server from 7.0 on gets it, with a bug. Two have a part before the head, for the usual case; that of a completion
/// is for what a claim without a script made, and its bugs are caught in [`held`](crate::held).
fn script(flags: &str, name: &str, body: &str, from: &str, to: &str) -> [String; 3] {
    let first = match name {
        "claim" => include_str!("../../src/script/claim_fresh.lua"),
        "complete" => include_str!("../../src/script/complete_held.lua"),
        _ => "",
    };
    let right = format!("{flags}{first}{}{body}", include_str!("../../src/script/head.lua"));
    let wrong = right.replacen(from, to, 1);
    assert_ne!(right, wrong, "the script does not say {from}");
    ["EVALSHA".to_owned(), right, wrong]
}

const PLAIN: &str = "";
const SETTLES: &str = "#!lua flags=allow-oom\n";

macro_rules! bugs {
    ($($name:ident: $flags:ident $script:literal $from:literal => $to:literal, by $module:ident::$case:ident;)*) => {
        semel_testkit::seeded_bugs! { Seeded, $(
            $name: script($flags, $script, include_str!(concat!("../../src/script/", $script, ".lua")), $from, $to),
                by $module::$case;
        )* }
    };
}

bugs! {
    a_release_by_anybody_is_caught:
        SETTLES "release" "ow == ARGV[1] and ("
        => "(", by release::a_release_by_another_owner_is_refused;
    a_release_under_any_fence_is_caught:
        SETTLES "release" " and (any or fe == tonumber(ARGV[2]))"
        => "", by release::a_release_under_another_fence_is_refused;
    a_release_that_forgets_the_token_is_caught:
        SETTLES "release" "put(to, bit.band(fl, 1),"
        => "put(to, 0,", by token::a_released_token_is_issued_again;
    an_attempt_that_always_counts_is_caught:
        SETTLES "release" "math.max(at - 1, 0)"
        => "at", by release::an_attempt_that_does_not_count_is_given_back;
    a_renewal_that_recreates_is_caught:
        SETTLES "renew" "if not here then return {2, now} end"
        => "if not here then return {1, now, 1} end", by renew::a_renewal_after_store_loss_says_missing_and_creates_nothing;
    a_renewal_of_anything_is_caught:
        SETTLES "renew" " or st ~= 1 then"
        => " then", by renew::a_renewal_of_what_is_settled_is_lost;
    a_renewal_beyond_max_hold_is_caught:
        SETTLES "renew" "math.min(now + tonumber(ARGV[3]), ex - tonumber(ARGV[4]))"
        => "now + tonumber(ARGV[3])", by renew::a_renewal_stops_at_max_hold;
    a_renewal_that_shortens_is_caught:
        SETTLES "renew" "math.max(le, math"
        => "math.max(0, math", by renew::a_renewal_never_shortens_a_lease;
    a_claim_without_a_deadline_is_caught:
        PLAIN "claim" "  if now > not_after then"
        => "if false then", by claim::a_late_claim_is_refused;
    a_fence_of_the_clock_alone_is_caught:
        PLAIN "claim" "math.max((fe or 0) + 1, now)"
        => "now", by fence::an_expired_record_is_the_floor_of_the_next_fence;
    a_fresh_fence_that_is_not_the_time_is_caught:
        PLAIN "claim" "struct.pack('>I8I8I8', now,"
        => "struct.pack('>I8I8I8', 1,", by fence::a_fence_rises_over_expiry_purge_and_flush;
    a_claimant_that_decides_on_takeover_is_caught:
        PLAIN "claim" "bit.band(fl, 2) == 2"
        => "flags == 2", by takeover::the_record_decides_on_takeover_not_the_claimant;
    a_takeover_without_grace_is_caught:
        PLAIN "claim" "le + grace <= now"
        => "le <= now", by takeover::a_takeover_waits_for_the_lease_and_the_grace;
    a_takeover_with_another_question_is_caught:
        PLAIN "claim" " and fp == print and parameters == asked"
        => "", by takeover::a_takeover_asks_the_same_question;
    a_stray_copy_that_is_granted_is_caught:
        PLAIN "claim" "elseif ow ~= owner then"
        => "else", by claim::a_stray_copy_of_a_settled_claim_takes_nothing;
    a_token_that_nobody_issued_is_caught:
        PLAIN "claim" "take = not needs_token\n  if there"
        => "take = true\n  if there", by token::what_was_not_issued_is_not_granted;
    a_fresh_claim_over_what_is_there_is_caught:
        PLAIN "claim" "'NX', 'PX'"
        => "'PX'", by claim::a_second_claim_finds_the_first;
    a_token_made_by_its_claim_is_caught:
        PLAIN "claim" "if how == 0 then"
        => "if true then", by token::what_was_not_issued_is_not_granted;
    a_completion_sent_again_that_is_refused_is_caught:
        SETTLES "complete" "if own and st == 2 then return {1, now, 0} end"
        => "", by complete::a_completion_sent_again_is_ok_and_changes_nothing;
    a_completion_over_anybody_is_caught:
        SETTLES "complete" "(st ~= 2 and fe < fence)"
        => "st ~= 2", by complete::a_completion_over_a_newer_claim_is_refused;
    a_completion_over_an_outcome_is_caught:
        SETTLES "complete" "(st ~= 2 and fe < fence)"
        => "fe < fence", by complete::a_completion_never_overwrites_an_outcome;
    a_takeover_that_is_never_looked_at_is_caught:
        PLAIN "claim" "st == 1 and bit.band(fl, 2) == 0"
        => "st == 1", by takeover::a_takeover_waits_for_the_lease_and_the_grace;
    a_free_record_that_is_never_taken_is_caught:
        PLAIN "claim" "(st > 1 and st <= 4)"
        => "st == 0 or (st > 1 and st <= 4)", by claim::a_free_record_takes_another_body;
    an_outcome_that_is_over_and_found_is_caught:
        PLAIN "claim" "if stays and struct.unpack('>I8', found, 41) > now then"
        => "if stays then", by fence::an_expired_record_is_the_floor_of_the_next_fence;
    a_completion_of_anybodys_claim_is_caught:
        SETTLES "complete" "(own and (st == 1 or st == 3))"
        => "st == 1 or st == 3", by takeover::a_completion_after_takeover_is_refused;
    a_completion_that_forgets_the_token_is_caught:
        SETTLES "complete" "here and bit.band(fl, 1) or 0"
        => "0", by token::a_token_is_used_once;
    a_completion_that_needs_a_record_is_caught:
        SETTLES "complete" "if not here or st == 0"
        => "if not here then return {1, now, 1} end if st == 0", by complete::a_completion_after_store_loss_is_recorded;
    an_unknown_over_an_outcome_is_caught:
        SETTLES "unknown" "(st == 2 or st == 3) then return {1, now, 0} end\nif not here or (own and st == 1)"
        => "st == 3 then return {1, now, 0} end\nif not here or own", by unknown::unknown_never_overwrites_done;
    a_deletion_of_anything_is_caught:
        PLAIN "delete" " or st ~= tonumber(ARGV[1])"
        => "", by admin::only_what_is_over_is_deleted_and_only_as_expected;
    a_token_issued_over_what_is_there_is_caught:
        PLAIN "issue" "if here then return {0, now} end"
        => "", by token::what_is_there_is_not_issued_again;
    a_word_about_a_live_claim_is_caught:
        SETTLES "resolve" "(st == 1 and le <= now)"
        => "st == 1", by resolve::a_live_claim_cannot_be_resolved;
    a_word_about_what_was_not_seen_is_caught:
        SETTLES "resolve" " or fe ~= tonumber(ARGV[2])"
        => "", by resolve::a_word_about_what_was_not_seen_is_a_conflict;
    a_word_that_keeps_the_fence_is_caught:
        SETTLES "resolve" "math.max(fe + 1, now)"
        => "fe", by resolve::an_unknown_outcome_is_settled_by_a_persons_word;
    an_extension_beyond_its_life_is_caught:
        SETTLES "extend" "math.min(now + tonumber(ARGV[1]), le)"
        => "now + tonumber(ARGV[1])", by token::an_extension_goes_to_the_end_of_the_tokens_life_and_never_back;
    a_used_token_that_is_withdrawn_is_caught:
        PLAIN "withdraw" "st ~= 0 or "
        => "", by token::only_an_unused_token_is_withdrawn;
    a_lease_as_time_to_live_is_caught:
        PLAIN "claim" "'PX', ARGV[4])"
        => "'PX', math.ceil(asked_lease / 1000))", by claim::a_record_in_flight_does_not_expire_before_its_unknown;
}
