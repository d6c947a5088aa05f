//! The suite has to catch each seeded bug, by the case that is named for it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use semel_testkit::conformance::{cases, check_against_the_model, play_against_the_model, run};

use crate::table::*;

mod a_right_one {
    semel_testkit::conformance!(crate::table::TableBed<crate::table::Nothing>);
}

macro_rules! caught {
    ($($mutant:ident: $bug:ident by $module:ident::$case:ident;)*) => {
        $(
            #[test]
            fn $mutant() {
                let case = AssertUnwindSafe(|| run::<TableBed<$bug>>(cases::$module::$case::<TableBed<$bug>>));
                assert!(catch_unwind(case).is_err(), "{} did not catch it", stringify!($case));
            }
        )*

        /// Of those that a sequence of calls by one client shows.
        #[test]
        fn random_calls_catch_most_of_them() {
            let caught = [$((stringify!($bug), catch_unwind(check_against_the_model::<TableBed<$bug>>).is_err())),*];
            let missed: Vec<_> = caught.iter().filter(|(_, caught)| !caught).map(|(bug, _)| *bug).collect();
            // They need two at once, a large answer, bytes of another version, an end of the process, or many records; and a
            // store may remove what ended by the way, so that a sequence does not show what a purge left.
            let expected = [
                "UnreadableIsAbsent",
                "CheckThenAct",
                "RestIsCutAt64KiB",
                "AcknowledgedBeforeWritten",
                "PurgeStopsInTheMiddle",
            ];
            assert_eq!(missed, expected);
        }
    };
}

caught! {
    a_release_without_an_owner_check_is_caught: ReleaseWithoutOwnerCheck by release::a_release_by_another_owner_is_refused;
    a_renewal_that_recreates_is_caught: RenewThatRecreates by renew::a_renewal_after_store_loss_says_missing_and_creates_nothing;
    a_fence_that_restarts_is_caught: FenceThatRestarts by fence::a_fence_rises_over_expiry_purge_and_flush;
    a_fence_of_the_clock_alone_is_caught: FenceOfTheClockAlone by fence::a_fence_rises_with_every_grant;
    a_lease_as_time_to_live_is_caught: LeaseAsTimeToLive by claim::a_record_in_flight_does_not_expire_before_its_unknown;
    an_expired_record_that_is_read_is_caught: ExpiredIsRead by claim::a_record_that_ended_is_as_good_as_none;
    a_claim_without_a_deadline_is_caught: NotAfterIgnored by claim::a_late_claim_is_refused;
    a_claimant_that_decides_on_takeover_is_caught: ClaimantDecidesOnTakeover by takeover::the_record_decides_on_takeover_not_the_claimant;
    a_takeover_without_grace_is_caught: GraceIgnored by takeover::a_takeover_waits_for_the_lease_and_the_grace;
    a_takeover_with_another_question_is_caught: TakeoverOfAnotherQuestion by takeover::a_takeover_asks_the_same_question;
    a_completion_that_needs_a_live_lease_is_caught: CompletionNeedsALiveLease by complete::a_completion_after_a_dead_lease_is_recorded;
    a_completion_that_needs_a_record_is_caught: CompletionNeedsARecord by complete::a_completion_after_store_loss_is_recorded;
    a_completion_over_anybody_is_caught: CompletionOverwritesAnybody by takeover::a_completion_after_takeover_is_refused;
    a_completion_that_writes_twice_is_caught: CompletionSentAgainWritesAgain by complete::a_completion_sent_again_is_ok_and_changes_nothing;
    an_unknown_over_an_outcome_is_caught: UnknownOverwritesDone by unknown::unknown_never_overwrites_done;
    a_free_record_that_keeps_its_question_is_caught: FreeKeepsItsQuestion by claim::a_free_record_takes_another_body;
    a_duplicate_that_leaves_a_mark_is_caught: DuplicateLeavesAMark by claim::a_duplicate_writes_nothing;
    a_second_grant_to_one_owner_is_caught: OwnerIsGrantedTwice by claim::a_claim_sent_again_finds_its_own_grant;
    a_renewal_beyond_max_hold_is_caught: RenewalBeyondMaxHold by renew::a_renewal_stops_at_max_hold;
    a_renewal_that_moves_the_end_is_caught: RenewalMovesTheEnd by renew::a_renewal_moves_the_end_of_the_lease_and_nothing_else;
    an_unreadable_record_that_is_absent_is_caught: UnreadableIsAbsent by unreadable::an_unreadable_record_is_in_flight;
    a_check_before_an_act_is_caught: CheckThenAct by race::of_many_claims_at_once_one_is_granted;
    a_resolution_of_a_live_claim_is_caught: LiveClaimIsResolved by resolve::a_live_claim_cannot_be_resolved;
    a_resolution_that_keeps_the_fence_is_caught: ResolutionKeepsTheFence by resolve::an_unknown_outcome_is_settled_by_a_persons_word;
    a_release_that_forgets_the_token_is_caught: ReleaseForgetsTheToken by token::a_released_token_is_issued_again;
    a_token_that_is_used_twice_is_caught: TokenIsUsedTwice by token::a_token_is_used_once;
    a_deletion_of_anything_is_caught: AnythingIsDeleted by admin::only_what_is_over_is_deleted_and_only_as_expected;
    an_answer_that_is_cut_is_caught: RestIsCutAt64KiB by carry::what_core_wrote_comes_back_byte_by_byte;
    an_acknowledgement_before_the_write_is_caught: AcknowledgedBeforeWritten by last::what_was_acknowledged_is_there_after_reopening;
    a_purge_of_the_living_is_caught: PurgeTakesTheLiving by admin::a_purge_takes_what_ended_and_nothing_else;
    a_purge_that_does_nothing_is_caught: PurgeDoesNothing by admin::a_purge_takes_what_ended_and_nothing_else;
    a_purge_that_stops_in_the_middle_is_caught: PurgeStopsInTheMiddle by admin::a_purge_says_that_there_is_no_more_only_when_none_is_left;
    an_abandonment_that_needs_the_fence_is_caught: AbandonmentNeedsTheFence by release::an_abandoned_claim_frees_the_record_in_either_order;
    attempts_that_always_count_are_caught: AttemptsAlwaysCount by release::an_attempt_that_does_not_count_is_given_back;
}

/// A failure names a seed, and that seed fails in the same way again.
#[test]
fn the_seed_that_a_failure_names_repeats_it() {
    let fails = |seed| {
        let play = AssertUnwindSafe(|| play_against_the_model::<TableBed<RenewalBeyondMaxHold>>(seed, 256));
        *catch_unwind(play).expect_err("it fails").downcast::<String>().expect("in words")
    };
    let first = fails(4_711);
    let (_, seed) = first.split_once("SEMEL_TEST_SEED=").expect("it names the seed");
    // Times differ from run to run: what is compared are the calls that lead to the failure.
    let calls = |words: &str| words.split_once("minimal failing input").expect("it names the calls").1.to_owned();
    assert_eq!(calls(&fails(seed.parse().expect("a number"))), calls(&first));
}

/// A case that nobody runs proves nothing.
#[test]
fn every_case_is_in_the_list() {
    let list = include_str!("../../src/conformance/list.rs");
    let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance/cases")).unwrap();
    let mut cases = 0;
    for file in files {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines().filter_map(|l| l.strip_prefix("pub async fn ")) {
            let name = line.split('<').next().unwrap();
            assert_eq!(list.lines().filter(|l| l.trim() == name).count(), 1, "{name} is not in the list, once");
            cases += 1;
        }
    }
    assert!(cases > 100);
}
