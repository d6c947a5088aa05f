//! The counters of one rule.

use std::sync::atomic::{AtomicU64, Ordering};

use super::again::Again;
use super::label::{Outcome, Why};

/// A number that only grows. One relaxed addition.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add_one(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What is counted for one rule. Made before the first request; every addition is lock-free.
#[derive(Debug)]
pub struct RuleMetrics {
    name: Box<str>,
    outcomes: Box<[Counter]>,
    unguarded: Box<[Counter]>,
    /// `semel_records_asked_again` and `semel_copy_gap_seconds`: copies.
    pub again: Again,
    /// `semel_lease_lost_total`: another owner held the record while the work ran.
    pub lease_lost: Counter,
    /// `semel_panics_total`: work that panicked.
    pub panics: Counter,
    /// `semel_overheld_total`: work that ran into `max_hold`.
    pub overheld: Counter,
    /// `semel_suspects_total`: runs that were equal in all but the key to an earlier one, rejected ones among them.
    pub suspects: Counter,
    /// `semel_late_settlements_total`: outcomes refused because somebody had said otherwise.
    pub late: Counter,
}

impl RuleMetrics {
    pub(super) fn new(name: &str) -> Self {
        let counters = |n: usize| (0..n).map(|_| Counter::default()).collect();
        Self {
            name: name.into(),
            outcomes: counters(Outcome::ALL.len()),
            unguarded: counters(Why::ALL.len()),
            again: Again::default(),
            lease_lost: Counter::default(),
            panics: Counter::default(),
            overheld: Counter::default(),
            suspects: Counter::default(),
            late: Counter::default(),
        }
    }

    /// The rule's name; empty for what no rule is about.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `semel_requests_total` of one outcome.
    #[must_use]
    pub fn outcome(&self, outcome: Outcome) -> &Counter {
        &self.outcomes[outcome.index()]
    }

    /// `semel_unguarded_total` of one reason.
    #[must_use]
    pub fn unguarded(&self, why: Why) -> &Counter {
        &self.unguarded[why.index()]
    }
}
