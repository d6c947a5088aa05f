//! The values of labels: constants, all of them, so that no client can make a new series.

use semel_core::engine::OpenReason;
use semel_core::refusal::Refusal;

macro_rules! labels {
    ($(#[$meta:meta])* $name:ident { $( $(#[$vmeta:meta])* $variant:ident = $label:literal, )* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum $name { $( $(#[$vmeta])* $variant, )* }

        impl $name {
            /// Every value, in the order of the enum.
            pub const ALL: &'static [Self] = &[ $( Self::$variant, )* ];

            /// The value in the exposition.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $( Self::$variant => $label, )* }
            }

            /// Its place in [`Self::ALL`].
            pub(crate) const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

labels! {
    /// `kind` of `semel_upstream_failures_total`: what went wrong on the way to a service.
    Failure {
        /// Nothing of the request was sent.
        Unreachable = "unreachable",
        /// The connection ended after something was sent and before an answer began.
        Broken = "broken",
        /// Something was sent, and no answer began in time.
        Timeout = "timeout",
    }
}

labels! {
    /// `outcome` of `semel_requests_total`: what became of a guarded request.
    Outcome {
        /// It ran, and its answer was recorded.
        Fresh = "fresh",
        /// It ran or could not be sent, and the key is free again.
        Released = "released",
        /// It ran, and nobody can tell its outcome.
        Unknown = "unknown",
        /// It ran, and its answer was given out before it could be recorded.
        Unrecorded = "unrecorded",
        /// It ran, and somebody else held the record at its end.
        Lost = "lost",
        /// It got a recorded answer.
        Replayed = "replayed",
        /// It waited, and got the answer of the one that ran.
        Waited = "waited",
        /// Refused: another one runs.
        InFlight = "in-flight",
        /// Refused: too many wait.
        TooManyWaiters = "too-many-waiters",
        /// Refused: too many run.
        TooManyRunning = "too-many-running",
        /// Refused: it was done.
        Duplicate = "duplicate",
        /// Refused: the key was used for another question.
        KeyReused = "key-reused",
        /// Refused: nobody can tell what became of the first.
        OutcomeUnknown = "outcome-unknown",
        /// Refused: it was done, and the answer is not there in full.
        OutcomeUnavailable = "outcome-unavailable",
        /// Refused: it failed too often.
        Parked = "parked",
        /// Refused: no such token.
        TokenExpired = "token-expired",
        /// Refused: the store is away.
        StoreUnavailable = "store-unavailable",
        /// Refused: the store is full.
        StoreFull = "store-full",
        /// Refused: the rule wants a key.
        KeyMissing = "key-missing",
        /// Refused: what it carries is no key.
        KeyInvalid = "key-invalid",
        /// Refused: it names no caller.
        PrincipalMissing = "principal-missing",
        /// Refused: its body is over the cap.
        RequestTooLarge = "request-too-large",
        /// Refused: its body broke off or is malformed.
        RequestIncomplete = "request-incomplete",
        /// Refused: its body took too long.
        RequestTimeout = "request-timeout",
        /// Refused: no room for its body.
        TooManyBodies = "too-many-bodies",
        /// Refused: its path can be read as one that the rule guards.
        BadRequest = "bad-request",
        /// Refused for a reason this list does not know.
        Other = "other",
    }
}

impl Outcome {
    /// The outcome of a request that was turned away with this problem.
    #[must_use]
    pub fn turned_away(problem: &str) -> Self {
        Self::ALL.iter().copied().find(|outcome| outcome.label() == problem).unwrap_or(Self::Other)
    }

    /// The outcome of a refused request.
    #[must_use]
    pub fn refused(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::InFlight { .. } => Self::InFlight,
            Refusal::TooManyWaiters => Self::TooManyWaiters,
            Refusal::TooManyRunning => Self::TooManyRunning,
            Refusal::Duplicate { .. } | Refusal::Stranger => Self::Duplicate,
            Refusal::KeyReused => Self::KeyReused,
            Refusal::OutcomeUnknown { .. } => Self::OutcomeUnknown,
            Refusal::OutcomeUnavailable { .. } => Self::OutcomeUnavailable,
            Refusal::Parked { .. } => Self::Parked,
            Refusal::NotIssued => Self::TokenExpired,
            Refusal::StoreUnavailable { .. } => Self::StoreUnavailable,
            Refusal::StoreFull => Self::StoreFull,
            _ => Self::Other,
        }
    }
}

labels! {
    /// `why` of `semel_unguarded_total`: why a request with an effect ran without a guard.
    Why {
        /// No rule is about it.
        NoRule = "no-rule",
        /// Its rule is off.
        Off = "off",
        /// It carries no key, and its rule lets such requests pass.
        NoKey = "no-key",
        /// The store did not answer, and its rule says `on_store_error = "open"`.
        StoreDown = "store-down",
    }
}

impl Why {
    /// Why a guarded request ran without a grant.
    #[must_use]
    pub const fn opened(why: OpenReason) -> Self {
        // There is one reason so far, and each later one is about the store too.
        let _ = why;
        Self::StoreDown
    }
}

labels! {
    /// `op` of `semel_store_seconds` and `semel_store_errors_total`.
    Op {
        /// `claim`.
        Claim = "claim",
        /// `renew`, one batch.
        Renew = "renew",
        /// `settle`.
        Settle = "settle",
        /// `release`.
        Release = "release",
        /// `issue`.
        Issue = "issue",
        /// `extend`.
        Extend = "extend",
        /// `withdraw`.
        Withdraw = "withdraw",
        /// `get`.
        Get = "get",
        /// `purge`.
        Purge = "purge",
        /// `health`.
        Health = "health",
    }
}
