//! The kinds of problems: names and statuses are stable.

use http::StatusCode;
use semel_core::refusal::Refusal;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $name:literal $status:ident $retry:literal $sentence:literal,)*) => {
        /// A problem's kind. Its name is the last part of the problem's type and stable.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[non_exhaustive]
        pub enum ProblemKind {
            $($(#[$doc])* $kind,)*
        }

        impl ProblemKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// The stable name: `urn:semel:problem:NAME`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            /// The status of the answer.
            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$kind => StatusCode::$status,)* }
            }

            /// Whether the same request may be sent again later without risk and with hope.
            #[must_use]
            pub const fn is_retryable(self) -> bool {
                match self { $(Self::$kind => $retry,)* }
            }

            /// What the caller is told.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$kind => $sentence,)* }
            }
        }
    };
}

kinds! {
    /// The rule wants a key and there is none.
    KeyMissing = "key-missing" BAD_REQUEST false
        "This request needs an idempotency key: send a new one for each intent, and the same one with each retry.",
    /// There is something that is no key.
    KeyInvalid = "key-invalid" BAD_REQUEST false "The idempotency key is not valid.",
    /// It is malformed, or two readers could understand it differently.
    BadRequest = "bad-request" BAD_REQUEST false
        "The request is malformed, or two readers could understand it differently; nothing was run.",
    /// The request's body could not be read to its end.
    RequestIncomplete = "request-incomplete" BAD_REQUEST true
        "The request's body ended early or is malformed; nothing was run.",
    /// The request names nobody.
    PrincipalMissing = "principal-missing" FORBIDDEN false
        "The request names no caller, so its key belongs to nobody; nothing was run.",
    /// Somebody runs it now.
    InFlight = "in-flight" CONFLICT true "The same request is being processed; ask again later.",
    /// Nobody can tell whether it took place.
    OutcomeUnknown = "outcome-unknown" CONFLICT false
        "An earlier copy of this request was sent and its outcome is not known; it is not run again.",
    /// It took place, and what came back is not there in full.
    OutcomeUnavailable = "outcome-unavailable" CONFLICT false
        "This request was processed; its answer is no longer available, and it is not run again.",
    /// It was done, and repeats are rejected; or the key came with other credentials first.
    Duplicate = "duplicate" CONFLICT false "Already submitted.",
    /// A one-time token that was never issued, is used up, or has expired.
    TokenExpired = "token-expired" GONE false "This token was never issued, is used up, or has expired.",
    /// The body is larger than the rule allows.
    RequestTooLarge = "request-too-large" PAYLOAD_TOO_LARGE false
        "The request's body is larger than allowed; nothing was run.",
    /// The body took longer than it may.
    RequestTimeout = "request-timeout" REQUEST_TIMEOUT true
        "The request's body did not come to its end in time; nothing was run.",
    /// There is no room for another body.
    TooManyBodies = "too-many-bodies" SERVICE_UNAVAILABLE true
        "Too much of other requests' bodies is held at the moment; nothing was run, ask again later.",
    /// The key was used for another question.
    KeyReused = "key-reused" UNPROCESSABLE_ENTITY false
        "This key was used for another request; use a new key for a new intent.",
    /// Too many wait for it already.
    TooManyWaiters = "too-many-waiters" TOO_MANY_REQUESTS true
        "Too many requests wait for the same answer; ask again later.",
    /// Too much work is running.
    TooManyRunning = "too-many-running" SERVICE_UNAVAILABLE true
        "Too much work is running; nothing was begun, ask again later.",
    /// Nothing was sent to the service.
    UpstreamUnreachable = "upstream-unreachable" BAD_GATEWAY true
        "The service could not be reached; nothing was sent to it.",
    /// The service failed without an answer, or in the middle of one.
    UpstreamBroken = "upstream-broken" BAD_GATEWAY false
        "The service failed while it was processing the request; its outcome is not known.",
    /// The service took too long.
    UpstreamTimeout = "upstream-timeout" GATEWAY_TIMEOUT false
        "The service did not answer in time; the request's outcome is not known.",
    /// Duplicates cannot be ruled out.
    StoreUnavailable = "store-unavailable" SERVICE_UNAVAILABLE true
        "Duplicates cannot be ruled out at the moment; nothing was run, ask again later.",
    /// There is no room for another record.
    StoreFull = "store-full" SERVICE_UNAVAILABLE true
        "There is no room to record another request; nothing was run, ask again later.",
    /// It failed too often; a person decides.
    Parked = "parked" SERVICE_UNAVAILABLE false "This request failed too often and waits for a person's decision.",
}

impl ProblemKind {
    /// The kind of a refusal.
    pub(super) const fn of(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::InFlight { .. } => Self::InFlight,
            Refusal::TooManyWaiters => Self::TooManyWaiters,
            Refusal::TooManyRunning => Self::TooManyRunning,
            Refusal::Duplicate { .. } | Refusal::Stranger => Self::Duplicate,
            Refusal::KeyReused => Self::KeyReused,
            Refusal::OutcomeUnavailable { .. } => Self::OutcomeUnavailable,
            Refusal::Parked { .. } => Self::Parked,
            Refusal::NotIssued => Self::TokenExpired,
            Refusal::StoreFull => Self::StoreFull,
            Refusal::StoreUnavailable { .. } => Self::StoreUnavailable,
            // A refusal that this version does not know says the least that is true of all: not run again.
            Refusal::OutcomeUnknown { .. } | _ => Self::OutcomeUnknown,
        }
    }
}
