//! Eleven ways to write it that look right, found in the wild: each has a bug seeded somewhere, or a test that keeps it away.
//!
//! Those about parts that do not exist yet are named, so that nobody takes them for done.

use std::path::Path;

/// A snippet's story and what catches it: files of `crates/`, and tests in them.
struct Snippet {
    story: &'static str,
    caught_by: &'static [(&'static str, &'static str)],
}

const MUTANTS: &str = "semel-testkit/tests/it/mutants.rs";
const LUA: &str = "semel-redis/tests/it/mutants.rs";
const POSTGRES: &str = "semel-sql/tests/it/postgres/mutants.rs";
const MYSQL: &str = "semel-sql/tests/it/mysql/mutants.rs";

const SNIPPETS: [Snippet; 8] = [
    Snippet {
        story: "1. The failure path deletes the key without comparing the owner: it frees what another one runs by now.",
        caught_by: &[
            (MUTANTS, "a_release_without_an_owner_check_is_caught"),
            (LUA, "a_release_by_anybody_is_caught"),
            (POSTGRES, "a_release_by_anybody_is_caught"),
            (MYSQL, "a_release_by_anybody_is_caught"),
        ],
    },
    Snippet {
        story: "2. A fixed expiry that is shorter than the run: the key is gone before the work is done.",
        caught_by: &[
            (MUTANTS, "a_lease_as_time_to_live_is_caught"),
            (LUA, "a_lease_as_time_to_live_is_caught"),
            ("semel-cli/tests/it/system/outcomes.rs", "a_service_slower_than_the_lease_is_carried_by_renewals"),
        ],
    },
    Snippet {
        story: "3. Whose key it is, is read from what the client wrote into the query: anybody can be anybody.",
        caught_by: &[
            ("semel-cli/tests/it/system/sameness.rs", "two_principals_with_one_key_are_two_intents"),
            ("semel-cli/tests/it/system/sameness.rs", "with_no_configuration_other_credentials_get_no_stored_byte"),
        ],
    },
    Snippet {
        story: "4. A token is stored under one key and consumed under another: whatever comes is as good as a token.",
        caught_by: &[
            (LUA, "a_token_that_nobody_issued_is_caught"),
            (POSTGRES, "a_token_that_nobody_issued_is_caught"),
            ("semel-testkit/src/conformance/cases/token.rs", "what_was_not_issued_is_not_granted"),
        ],
    },
    Snippet {
        story: "5. Look whether the token is there, delete it after success: two at once pass.",
        caught_by: &[(MUTANTS, "a_check_before_an_act_is_caught"), (MUTANTS, "a_token_that_is_used_twice_is_caught")],
    },
    Snippet {
        story: "6. A compare-and-set that compares nothing, since the version was never bound: every write wins.",
        caught_by: &[
            (LUA, "a_word_about_what_was_not_seen_is_caught"),
            (POSTGRES, "a_word_about_what_was_not_seen_is_caught"),
            (POSTGRES, "a_release_under_any_fence_is_caught"),
            (MYSQL, "a_release_under_any_fence_is_caught"),
        ],
    },
    Snippet {
        story: "7. Catch the duplicate, then select in the same transaction: aborted on PostgreSQL, not there in the \
                snapshot of MySQL.",
        caught_by: &[
            ("semel-sql/tests/it/mysql/locks.rs", "a_claim_that_waited_for_an_outcome_finds_it"),
            ("semel-testkit/src/conformance/cases/race.rs", "of_many_claims_at_once_one_is_granted"),
        ],
    },
    Snippet {
        story: "8. An exception leaves it in progress until its time to live ends, and the late write overwrites what \
                another owner has recorded; the key has no user, and nobody compares the question.",
        caught_by: &[
            (MUTANTS, "a_completion_over_anybody_is_caught"),
            (LUA, "a_completion_over_anybody_is_caught"),
            (POSTGRES, "a_completion_over_anybody_is_caught"),
            (MUTANTS, "an_abandonment_that_needs_the_fence_is_caught"),
            ("semel-testkit/tests/it/engine/regressions.rs", "a_panic_of_inline_work_before_its_first_poll_is_unknown"),
            (
                "semel-cli/tests/it/system/sameness.rs",
                "the_same_key_with_another_question_is_refused_and_nothing_leaks",
            ),
        ],
    },
];

/// Of parts that come later: counters over several shards, and a cache that is rebuilt.
const LATER: [&str; 3] = [
    "9. Stock is read from one shard of ten, and a counter below zero says sold out while nine shards are full.",
    "10. A rebuild under a mutex deletes the lock without an owner, recurses without a bound, and caches no absence.",
    "11. Logical expiry in which every reader submits a rebuild of its own.",
];

#[test]
fn each_snippet_about_a_part_that_exists_has_tests_that_catch_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for Snippet { story, caught_by } in SNIPPETS {
        assert!(!caught_by.is_empty(), "{story}");
        for (file, test) in caught_by {
            let text = std::fs::read_to_string(crates.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
            let is_one = |line: &str| {
                let line = line.trim_start().trim_start_matches("pub ").trim_start_matches("async ");
                let name = line.strip_prefix("fn ").unwrap_or(line);
                name.strip_prefix(test).is_some_and(|rest| rest.starts_with([':', '(', '<']))
            };
            assert_eq!(text.lines().filter(|line| is_one(line)).count(), 1, "{file}: {test}, for {story}");
        }
    }
}

#[test]
fn all_eleven_snippets_are_accounted_for() {
    let stories = SNIPPETS.iter().map(|snippet| snippet.story).chain(LATER);
    let numbers: Vec<_> = stories.filter_map(|story| story.split_once('.')?.0.parse::<u32>().ok()).collect();
    assert_eq!(numbers, (1..=11).collect::<Vec<_>>());
}
