//! Typed events: every transition is one. Metrics, logs, traces and dashboards are subscribers.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use crate::{
    engine::{Kept, OpenReason},
    env::Tick,
    identity::Identity,
    ids::Fence,
    refusal::Refusal,
    store::StoreError,
};

/// Is told of every event, inline: must not block. No observer costs nothing.
pub trait Observer: Send + Sync + 'static {
    /// One event, borrowed.
    fn on(&self, event: &Event<'_>);
}

impl<F: Fn(&Event<'_>) + Send + Sync + 'static> Observer for F {
    fn on(&self, event: &Event<'_>) {
        self(event);
    }
}

/// What happened, to whom.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Event<'a> {
    /// Whose record.
    pub identity: &'a Identity,
    /// The rule's name; empty where no rule is at hand.
    pub rule: &'a str,
    /// Which attempt of the record; zero where that is not known.
    pub attempt: u32,
    /// What happened.
    pub what: What<'a>,
    /// How long it took, where that means something: a claim from its sending, work from its start. Of an answer or refusal
    /// by a recorded outcome: how long ago that was settled, by the rule's time to live.
    pub took: Option<Duration>,
    /// Of an unknown outcome: the words that are recorded with it, which tell what was seen last. For people with rights.
    pub last: Option<&'a str>,
}

impl<'a> Event<'a> {
    /// An event without attempt and time.
    #[must_use]
    pub const fn new(identity: &'a Identity, rule: &'a str, what: What<'a>) -> Self {
        Self { identity, rule, attempt: 0, what, took: None, last: None }
    }

    /// The same with an attempt.
    #[must_use]
    pub const fn attempt(mut self, attempt: u32) -> Self {
        self.attempt = attempt;
        self
    }

    /// The same with a time.
    #[must_use]
    pub const fn took(mut self, took: Duration) -> Self {
        self.took = Some(took);
        self
    }

    /// The same with what was seen last.
    #[must_use]
    pub const fn last(mut self, last: Option<&'a str>) -> Self {
        self.last = last;
        self
    }
}

/// The transitions.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum What<'a> {
    /// A claim was granted; `took` is the claim's.
    Granted,
    /// A recorded outcome was returned.
    Replayed {
        /// Whether the caller waited for it.
        waited: bool,
    },
    /// A caller was refused.
    Refused(&'a Refusal),
    /// A request was refused by the entrance before it had an identity: this is the problem's name.
    TurnedAway(&'static str),
    /// A caller began to wait for an attempt under way.
    Waiting,
    /// Work ended and its claim was settled; `took` is the work's.
    Settled {
        /// What the work said.
        verdict: VerdictKind,
        /// What became of that.
        kept: &'a Kept,
    },
    /// The settlement of a claim was given up, after `settle_for` or because the runtime ended under it: the record reads
    /// as unknown.
    SettlementAbandoned,
    /// A completion came too late: somebody else holds the record, or a person had said otherwise.
    LateSettlementRefused,
    /// Another owner holds the record while this one's work runs.
    LeaseLost,
    /// The local deadline of a lease passed without a renewal; the work was told.
    LeaseOverdue,
    /// Work ran into `max_hold` and was stopped.
    Overheld,
    /// Work panicked, with these words.
    Panicked(&'a str),
    /// An unknown outcome reached its end unresolved.
    UnknownExpired,
    /// A call of the store failed.
    StoreFailed {
        /// Which.
        call: StoreCall,
        /// How.
        error: &'a StoreError,
    },
    /// The store had lost a claim that was held; it was claimed again under this fence.
    StoreForgot(Fence),
    /// A renewal found no record: the store lost it. What follows tells whether the claim could be made again.
    RecordMissing,
    /// Work runs without a grant, as the rule says `open`.
    Unguarded(OpenReason),
    /// A request that was about to run is equal in all but the key to one of the same caller that ran lately, or runs.
    Suspect {
        /// Whether it was refused for that.
        rejected: bool,
    },
    /// Too many calls were not answered: from now on one a second finds out whether the store is back, and others fail at
    /// once. What belongs to running work is sent all the same.
    BreakerOpened,
    /// The store answers again.
    BreakerClosed,
    /// The store has lost its records: the mark that it keeps is gone, or was made anew.
    StoreLostRecords,
}

/// A verdict without its data, for labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    /// Recorded.
    Keep,
    /// Freed.
    Release,
    /// Unknown.
    Unknown,
}

impl VerdictKind {
    /// The label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Release => "release",
            Self::Unknown => "unknown",
        }
    }
}

/// The store's calls, for labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreCall {
    /// `claim`.
    Claim,
    /// `renew`.
    Renew,
    /// `settle`.
    Settle,
    /// `release`.
    Release,
    /// `get`.
    Get,
    /// `purge`.
    Purge,
    /// `health`.
    Health,
}

impl StoreCall {
    /// The label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Settle => "settle",
            Self::Release => "release",
            Self::Get => "get",
            Self::Purge => "purge",
            Self::Health => "health",
        }
    }
}

/// Lets one in a while through: for log lines that a crowd would write. Lock-free.
///
/// ```
/// use semel_core::{env::Tick, observe::Seldom};
/// use std::time::Duration;
/// let seldom = Seldom::every(Duration::from_secs(60));
/// assert_eq!(seldom.next(Tick::from_nanos(5)), Some(0));
/// assert_eq!(seldom.next(Tick::from_nanos(6)), None);
/// assert_eq!(seldom.next(Tick::from_nanos(61_000_000_000)), Some(1));
/// ```
#[derive(Debug)]
pub struct Seldom {
    pause: Duration,
    /// Nanoseconds since boot; zero before the first.
    due: AtomicU64,
    withheld: AtomicU64,
}

impl Seldom {
    /// At most one in each `pause`.
    #[must_use]
    pub const fn every(pause: Duration) -> Self {
        Self { pause, due: AtomicU64::new(0), withheld: AtomicU64::new(0) }
    }

    /// Whether this one goes through, and how many did not since the last that did.
    pub fn next(&self, now: Tick) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        let next = (now + self.pause).as_nanos();
        // Of two at once one wins, and the other is counted.
        if now.as_nanos() >= due && self.due.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return Some(self.withheld.swap(0, Ordering::Relaxed));
        }
        self.withheld.fetch_add(1, Ordering::Relaxed);
        None
    }
}
