//! Typed events: every transition is one. Metrics, logs, traces and dashboards are subscribers.

use std::time::Duration;

use crate::{engine::Kept, identity::Identity, ids::Fence, refusal::Refusal, store::StoreError};

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
    /// How long it took, where that means something: a claim from its sending, work from its start.
    pub took: Option<Duration>,
}

impl<'a> Event<'a> {
    /// An event without attempt and time.
    #[must_use]
    pub const fn new(identity: &'a Identity, rule: &'a str, what: What<'a>) -> Self {
        Self { identity, rule, attempt: 0, what, took: None }
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
    /// The settlement of a claim was given up after `settle_for`: the record reads as unknown.
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
