//! Random sequences of calls: every answer and every record as the pure transitions have them.
//!
//! The reference is a table of records and [`semel_core::transition`]. Its clock is the sum of the advances; the store's
//! may run ahead of that by what the test takes. All durations are chosen so that no moment at which something ends
//! comes near one at which a call is made: nows are whole thousands of seconds, ends are 300 or 500 past one.

mod call;
mod compare;
mod play;

use proptest::{
    collection::vec,
    test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner},
};
use semel_core::env::{Rng, SystemRng};

use super::Bed;

/// Names the seed to run with, to see a failure again.
const SEED: &str = "SEMEL_TEST_SEED";

/// Of the runs that are the same every time.
const FIXED: u64 = 7;

/// Plays a sequence that leads to every kind of answer against new stores and against the reference; then random ones:
/// [`Bed::SEQUENCES`] that are the same in every run, and a quarter as many that nobody has seen before.
///
/// # Panics
/// With the shortest sequence that still fails, and the seed to see it again, when an answer or a record differs; or
/// when the first sequence did not lead to every kind of answer, so that the test proves less than it says.
pub fn check<B: Bed>() {
    if let Ok(given) = std::env::var(SEED) {
        let seed = given.parse().unwrap_or_else(|_| panic!("{SEED} is a number, not {given:?}"));
        return play_seed::<B>(seed, B::SEQUENCES);
    }
    let walked = super::runtime().block_on(play::play::<B>(&call::one_of_each()));
    let seen = walked.unwrap_or_else(|why| panic!("{why}"));
    let unseen: Vec<_> = play::ANSWERS.iter().filter(|answer| !seen.contains(answer)).collect();
    assert!(unseen.is_empty(), "never seen: {unseen:?}");
    play_seed::<B>(FIXED, B::SEQUENCES);
    let mut bytes = [0; 8];
    SystemRng.fill(&mut bytes);
    play_seed::<B>(u64::from_be_bytes(bytes), B::SEQUENCES.div_ceil(4));
}

/// Plays so many random sequences of one seed: always the same.
///
/// # Panics
/// As [`check`].
pub fn play_seed<B: Bed>(seed: u64, sequences: u32) {
    let runtime = super::runtime();
    let config = Config { cases: sequences, failure_persistence: None, max_shrink_iters: 4_000, ..Config::default() };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let result = runner.run(&vec(call::any_call(), 1..60), |calls| {
        let played = runtime.block_on(play::play::<B>(&calls));
        played.map(drop).map_err(TestCaseError::fail)
    });
    if let Err(failure) = result {
        panic!("{failure}\nto see it again: {SEED}={seed}");
    }
}
