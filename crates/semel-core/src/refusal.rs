//! Why work was not run for a caller: one type for every entrance.

use std::{fmt, sync::Arc, time::Duration};

use crate::{
    ids::StoreTime,
    judge::Recorded,
    store::{Did, StoreError, StoreErrorKind},
};

/// Why the work was not run for this caller. Problem documents, gRPC statuses and `#[once]` errors are written from it;
/// [`Refusal::name`] is the problem type.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Somebody runs it now.
    InFlight {
        /// When it is worth coming back; within the lease.
        retry_after: Duration,
    },
    /// Too many wait for it already.
    TooManyWaiters,
    /// Too much work of this rule, scope or process is running; nothing was begun.
    TooManyRunning,
    /// It was done, and the rule rejects repeats.
    Duplicate {
        /// What the rule tells, if not the default.
        message: Option<Arc<str>>,
        /// How long repeats are still rejected.
        rest_of_window: Option<Duration>,
    },
    /// The key came with other credentials first. By name a duplicate too: more is not told of the first.
    Stranger,
    /// The key was used for another question.
    KeyReused,
    /// Nobody can tell whether it took place.
    OutcomeUnknown {
        /// Since when.
        since: StoreTime,
        /// The last error, for people with rights; never for callers.
        last: Option<Box<str>>,
    },
    /// It took place, and what came back is not there in full.
    OutcomeUnavailable {
        /// What is left of it.
        kept: Option<Box<Recorded>>,
    },
    /// It failed too often; a person decides.
    Parked {
        /// How often it was tried.
        attempts: u32,
    },
    /// The token was not issued, or is gone.
    NotIssued,
    /// The store does not answer. Work did not run.
    StoreUnavailable {
        /// Whether a claim may stand in the store; it is taken back as soon as the store answers.
        did: Did,
        /// When it is worth coming back, if the store knows.
        retry_after: Option<Duration>,
    },
    /// The store has no room. Work did not run.
    StoreFull,
}

impl Refusal {
    /// The stable name: the last part of `urn:semel:problem:NAME`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::InFlight { .. } => "in-flight",
            Self::TooManyWaiters => "too-many-waiters",
            Self::TooManyRunning => "too-many-running",
            Self::Duplicate { .. } | Self::Stranger => "duplicate",
            Self::KeyReused => "key-reused",
            Self::OutcomeUnknown { .. } => "outcome-unknown",
            Self::OutcomeUnavailable { .. } => "outcome-unavailable",
            Self::Parked { .. } => "parked",
            Self::NotIssued => "token-expired",
            Self::StoreUnavailable { .. } => "store-unavailable",
            Self::StoreFull => "store-full",
        }
    }

    /// Whether the same request may be sent again later without risk and with hope.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::InFlight { .. }
            | Self::TooManyWaiters
            | Self::TooManyRunning
            | Self::StoreUnavailable { .. }
            | Self::StoreFull => true,
            Self::Duplicate { .. }
            | Self::Stranger
            | Self::KeyReused
            | Self::OutcomeUnknown { .. }
            | Self::OutcomeUnavailable { .. }
            | Self::Parked { .. }
            | Self::NotIssued => false,
        }
    }

    /// How long the record of what was done is still kept, where that is known.
    pub(crate) fn left(&self) -> Option<Duration> {
        match self {
            Self::Duplicate { rest_of_window, .. } => *rest_of_window,
            Self::OutcomeUnavailable { kept } => kept.as_ref().map(|recorded| recorded.left),
            _ => None,
        }
    }

    /// When it is worth coming back, where that is known.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::InFlight { retry_after } => Some(*retry_after),
            Self::TooManyWaiters | Self::TooManyRunning => Some(Duration::from_secs(1)),
            Self::StoreUnavailable { retry_after: Some(t), .. } => Some(*t),
            Self::StoreUnavailable { .. } => Some(Duration::from_secs(1)),
            Self::StoreFull => Some(Duration::from_secs(10)),
            Self::Duplicate { rest_of_window, .. } => *rest_of_window,
            _ => None,
        }
    }

    pub(crate) fn of_store(error: &StoreError) -> Self {
        match error.kind {
            StoreErrorKind::Full => Self::StoreFull,
            _ => Self::StoreUnavailable { did: error.did, retry_after: error.retry_after },
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InFlight { retry_after } => {
                write!(f, "the same request is being processed; ask again in {:.1} s", retry_after.as_secs_f64())
            }
            Self::TooManyWaiters => f.write_str("too many requests wait for the same answer; ask again later"),
            Self::TooManyRunning => f.write_str("too much work is running; nothing was begun, ask again later"),
            Self::Duplicate { message: Some(message), .. } => f.write_str(message),
            Self::Duplicate { message: None, .. } => f.write_str("Already submitted."),
            Self::Stranger => {
                f.write_str("this key was used with other credentials; nothing is told about it and nothing was run")
            }
            Self::KeyReused => f.write_str("this key was used for another request; use a new key for a new intent"),
            Self::OutcomeUnknown { .. } => f.write_str(
                "an earlier copy of this request was sent and its outcome is not known; it is not run again",
            ),
            Self::OutcomeUnavailable { .. } => {
                f.write_str("this request was processed; its answer is no longer available, and it is not run again")
            }
            Self::Parked { attempts } => {
                write!(f, "this request failed {attempts} times and waits for a person's decision")
            }
            Self::NotIssued => f.write_str("this token was never issued, is used up, or has expired"),
            Self::StoreUnavailable { .. } => {
                f.write_str("duplicates cannot be ruled out at the moment; nothing was run, ask again later")
            }
            Self::StoreFull => {
                f.write_str("there is no room to record another request; nothing was run, ask again later")
            }
        }
    }
}

impl std::error::Error for Refusal {}
