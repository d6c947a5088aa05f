//! What is promised, and what is only counted.

use std::time::Duration;

/// What is promised about fences.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fences {
    /// They rise from effect to effect.
    Rise,
    /// A store that may forget hands them out: what does not rise is counted.
    Advisory,
}

/// What a run has promised. Where the store forgot, more lives are allowed without being named here.
#[derive(Clone, Debug)]
pub struct Promise {
    /// The rule says takeover: more effects than lives are counted.
    pub takeover: bool,
    /// The rule says to run unguarded when the store is away: what comes of that is counted. Answers still tell of effects
    /// that took place, of the question that was asked.
    pub open: bool,
    /// Not every process can compare every question: whoever is told that it was done may have asked another.
    pub unread: bool,
    /// Nothing runs but what a one-time token was issued for.
    pub tokens: bool,
    /// See there.
    pub fences: Fences,
    /// A record may still be in flight when all is over: a dead owner's, under takeover, for its lease and grace.
    pub in_flight_at_the_end: bool,
    /// Labels of what a caller may be told, instead of the outcome, of an identity whose outcome somebody was told
    /// before: that nothing was run for a reason of the moment.
    pub after_success: &'static [&'static str],
    /// Labels that are the same only in trouble: while a fault is on, beside a copy that was told one of `after_success`, or
    /// after [`patience`](Self::patience).
    pub in_trouble: &'static [&'static str],
    /// How long a copy has to be kept waiting until what it is told is the store's slowness.
    pub patience: Duration,
    /// How long what was under way when a fault ended can still be felt: as long as a call of the store takes at most.
    pub lingers: Duration,
}

impl Promise {
    /// One effect in each life, rising fences, nothing left in flight.
    #[must_use]
    pub const fn strict(after_success: &'static [&'static str]) -> Self {
        Self {
            takeover: false,
            open: false,
            unread: false,
            tokens: false,
            fences: Fences::Rise,
            in_flight_at_the_end: false,
            after_success,
            in_trouble: &[],
            patience: Duration::MAX,
            lingers: Duration::ZERO,
        }
    }
}
