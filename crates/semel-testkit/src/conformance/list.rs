//! The list of cases, and the macro that makes tests of them.

/// Makes one `#[test]` of each case for a [`Bed`](crate::conformance::Bed), under the same name for every store.
/// Put it into a module of its own where a test binary has several beds.
#[macro_export]
macro_rules! conformance {
    ($bed:ty) => {
        $crate::__case_is_a_test! { [$bed]
            admin {
                a_list_in_pages_shows_each_record_once
                a_list_names_whose_records_they_are
                a_list_can_be_narrowed
                a_list_by_state_goes_by_what_records_read_as
                what_ended_is_not_listed
                only_what_is_over_is_deleted_and_only_as_expected
                a_purge_takes_what_ended_and_nothing_else
                a_purge_says_that_there_is_no_more_only_when_none_is_left
                the_end_of_an_unknown_is_told_once
                what_people_did_is_kept_newest_first
                a_working_store_says_so
                a_stores_facts_are_constant
            }
            carry {
                what_core_wrote_comes_back_byte_by_byte
                a_refusal_shows_all_that_is_there
            }
            changes {
                what_people_change_is_told_to_every_client
            }
            claim {
                the_first_claim_is_granted
                a_grant_says_what_is_left_of_it
                a_second_claim_finds_the_first
                identities_do_not_meet
                every_client_sees_the_same_records
                a_late_claim_is_refused
                a_claim_in_time_is_not_late
                a_claim_sent_again_finds_its_own_grant
                a_claim_sent_again_after_its_lease_finds_its_own_grant
                a_stray_copy_of_a_settled_claim_takes_nothing
                a_free_record_takes_another_body
                a_record_in_flight_does_not_expire_before_its_unknown
                a_lease_that_is_over_is_no_leave_to_run
                a_record_that_ended_is_as_good_as_none
                what_is_settled_is_never_claimed
                a_duplicate_writes_nothing
            }
            complete {
                a_completion_is_what_every_duplicate_gets
                a_completion_without_its_body_says_so
                a_completion_sent_again_is_ok_and_changes_nothing
                the_time_to_live_counts_from_settlement
                a_completion_after_a_dead_lease_is_recorded
                a_completion_turns_unknown_into_done
                a_completion_over_a_free_record_is_recorded
                a_completion_after_store_loss_is_recorded
                a_completion_past_the_end_is_recorded
                an_older_record_restored_does_not_refuse_the_newer_owner
                a_completion_never_overwrites_an_outcome
                a_completion_over_a_newer_claim_is_refused
                what_its_owner_parked_is_not_completed
            }
            fence {
                a_fence_follows_the_stores_clock
                a_fence_rises_with_every_grant
                a_fence_rises_over_expiry_purge_and_flush
                an_expired_record_is_the_floor_of_the_next_fence
            }
            last {
                what_was_acknowledged_is_there_after_reopening
                a_claim_is_still_its_owners_after_reopening
                what_was_removed_stays_away_after_reopening
                what_people_did_is_known_after_reopening
                a_fence_rises_over_reopening
            }
            race {
                of_many_claims_at_once_one_is_granted
                of_many_copies_of_one_claim_one_is_granted
                of_many_takeovers_at_once_one_is_granted
                of_many_uses_of_a_token_at_once_one_is_granted
                claims_of_different_keys_do_not_wait_for_each_other
                a_claim_and_a_release_never_overlap
                of_two_settlements_at_once_one_stands
                a_settlement_and_an_abandonment_at_once_fit_one_order
                of_two_words_at_once_one_stands
                a_dropped_call_loses_only_its_answer
            }
            release {
                a_released_claim_leaves_a_free_record
                an_attempt_that_does_not_count_is_given_back
                a_release_sent_again_is_ok_and_changes_nothing
                a_parked_record_waits_for_a_person
                a_free_record_ends_in_its_time
                a_release_by_another_owner_is_refused
                a_release_under_another_fence_is_refused
                a_release_of_nothing_is_ok_and_creates_nothing
                a_claim_whose_lease_is_over_can_be_released
                what_is_settled_is_not_released
                an_abandoned_claim_frees_the_record_in_either_order
                an_abandoned_claim_that_took_over_gives_its_count_back
            }
            renew {
                a_renewal_moves_the_end_of_the_lease_and_nothing_else
                a_renewal_never_shortens_a_lease
                a_renewal_stops_at_max_hold
                a_lease_that_is_over_is_renewed_while_nobody_acted_on_it
                a_renewal_sent_again_is_answered_alike
                a_renewal_of_what_is_settled_is_lost
                a_renewal_after_store_loss_says_missing_and_creates_nothing
                the_same_owner_claims_again_after_store_loss
                a_renewal_past_the_end_says_missing_and_creates_nothing
                a_batch_of_renewals_is_answered_in_its_order
                a_part_that_is_away_holds_up_no_other_lease
            }
            resolve {
                a_live_claim_cannot_be_resolved
                an_unknown_outcome_is_settled_by_a_persons_word
                a_parked_record_is_settled_by_a_persons_word
                a_claim_whose_lease_is_over_is_settled_by_a_persons_word
                a_word_about_what_was_not_seen_is_a_conflict
                a_word_about_nothing_is_a_conflict
                what_is_clear_cannot_be_resolved
                the_second_word_is_a_conflict
                a_completion_after_a_persons_word
            }
            takeover {
                the_record_decides_on_takeover_not_the_claimant
                a_takeover_waits_for_the_lease_and_the_grace
                a_takeover_begins_a_lease_and_an_end_of_its_own
                a_takeover_asks_the_same_question
                a_renewed_lease_is_not_taken_over
                a_completion_after_takeover_is_refused
            }
            token {
                an_issued_token_is_free_and_nobodys
                a_token_never_lives_longer_than_it_may
                a_token_is_used_once
                a_token_can_be_claimed_by_who_needs_none
                what_was_not_issued_is_not_granted
                a_token_whose_time_is_over_was_not_issued
                a_released_token_is_issued_again
                an_abandoned_use_leaves_the_token
                what_is_there_is_not_issued_again
                an_extension_goes_to_the_end_of_the_tokens_life_and_never_back
                only_an_unused_token_is_extended
                an_unused_token_can_be_withdrawn
                only_an_unused_token_is_withdrawn
            }
            unknown {
                an_unknown_outcome_stands_in_the_way
                unknown_sent_again_is_ok_and_changes_nothing
                unknown_never_overwrites_done
                unknown_after_a_dead_lease_is_recorded
                unknown_after_store_loss_is_recorded
                unknown_is_recorded_over_an_older_claim
                unknown_leaves_what_others_said
                unknown_over_a_newer_claim_is_refused
                what_its_owner_released_does_not_become_unknown
            }
            unreadable {
                an_unreadable_record_is_in_flight
                an_unreadable_record_is_not_touched
            }
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __case_is_a_test {
    ([$bed:ty] $($module:ident { $($case:ident)* })*) => {
        $($(
            #[test]
            fn $case() {
                $crate::conformance::run::<$bed>($crate::conformance::cases::$module::$case::<$bed>);
            }
        )*)*

        #[test]
        fn random_calls_are_answered_as_the_reference_model_does() {
            $crate::conformance::check_against_the_model::<$bed>();
        }
    };
}
