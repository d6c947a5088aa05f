//! The header fields this layer reads and writes, as constants: a name given as text is parsed and hashed anew each time.

use http::{HeaderName, HeaderValue};

/// The client's key, as the IETF draft names it.
pub static IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// `true` on an answer that was recorded earlier.
pub static IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
/// What became of a guarded request: see [`Status`].
pub static IDEMPOTENCY_STATUS: HeaderName = HeaderName::from_static("idempotency-status");
/// Until when the recorded answer is kept.
pub static IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");
/// Who made an error: `guard` or `upstream`.
pub static IDEMPOTENCY_ERROR_SOURCE: HeaderName = HeaderName::from_static("idempotency-error-source");
/// To the service behind: the identity, `entrance:name:kind:hex`.
pub static SEMEL_IDENTITY: HeaderName = HeaderName::from_static("semel-identity");
/// To the service behind: the fence of this grant, with `;advisory` where the store cannot promise that it rises.
pub static SEMEL_FENCE: HeaderName = HeaderName::from_static("semel-fence");
/// To the service behind: the number of this attempt, from 1.
pub static SEMEL_ATTEMPT: HeaderName = HeaderName::from_static("semel-attempt");
/// To the service behind, in place of fence and attempt: why nobody guards this request (`store-down`). It may be a copy.
pub static SEMEL_UNGUARDED: HeaderName = HeaderName::from_static("semel-unguarded");
/// From the service behind: `keep`, `release` or `unknown`. Wins over the outcome table and is stripped. Anything else, and
/// lines that differ, count as `unknown`.
pub static SEMEL_OUTCOME: HeaderName = HeaderName::from_static("semel-outcome");
/// The mark of a gateway's probe, which the gateway answers itself: no service sees it.
pub static SEMEL_PROBE: HeaderName = HeaderName::from_static("semel-probe");
/// The request id that most stacks send.
pub static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
pub(crate) static RETRY_AFTER: HeaderName = http::header::RETRY_AFTER;
pub(crate) static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

pub(crate) static TRUE: HeaderValue = HeaderValue::from_static("true");
pub(crate) static GUARD: HeaderValue = HeaderValue::from_static("guard");
pub(crate) static UPSTREAM: HeaderValue = HeaderValue::from_static("upstream");

/// The values of [`IDEMPOTENCY_STATUS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[non_exhaustive]
pub enum Status {
    /// It ran just now.
    Fresh,
    /// A recorded answer.
    Replayed,
    /// The answer of a copy that was running when this one came.
    Waited,
    /// It did not run: refused by the guard, or the service could not be reached, guarded or not.
    Rejected,
    /// Ran without a guard: no key, and the rule lets that pass; a key that no rule is about; or the store did not answer,
    /// and the rule says `open`.
    Bypassed,
    /// Ran, and the store could not be told.
    Unrecorded,
    /// It was sent, guarded or not, and nobody can tell whether it took effect.
    Unknown,
}

impl Status {
    /// The value as it is sent.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Replayed => "replayed",
            Self::Waited => "waited",
            Self::Rejected => "rejected",
            Self::Bypassed => "bypassed",
            Self::Unrecorded => "unrecorded",
            Self::Unknown => "unknown",
        }
    }

    pub(crate) const fn value(self) -> HeaderValue {
        /// Looked at when this is compiled.
        const fn fixed(status: Status) -> HeaderValue {
            HeaderValue::from_static(status.as_str())
        }
        match self {
            Self::Fresh => const { fixed(Self::Fresh) },
            Self::Replayed => const { fixed(Self::Replayed) },
            Self::Waited => const { fixed(Self::Waited) },
            Self::Rejected => const { fixed(Self::Rejected) },
            Self::Bypassed => const { fixed(Self::Bypassed) },
            Self::Unrecorded => const { fixed(Self::Unrecorded) },
            Self::Unknown => const { fixed(Self::Unknown) },
        }
    }
}
