//! What goes into the engine and what comes out.

use std::sync::Arc;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::{Grant, OpenReason, lease::Lease};
use crate::{
    fingerprint::Fingerprint,
    identity::{Identity, ScopeTag},
    ids::Fence,
    judge::{Caller, Recorded},
    observe::VerdictKind,
    policy::Policy,
    record::{Meta, Outcome},
    refusal::Refusal,
};

/// One request of the engine.
#[derive(Clone, Debug)]
pub struct Call {
    pub(super) identity: Identity,
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: Arc<Policy>,
    pub(super) caller: Caller,
    pub(super) scope: ScopeTag,
    pub(super) needs_token: bool,
    shown: String,
}

impl Call {
    /// A call for an identity under a policy, by nobody in particular.
    #[must_use]
    pub fn new(identity: Identity, fingerprint: Fingerprint, policy: Arc<Policy>) -> Self {
        Self {
            identity,
            fingerprint,
            policy,
            caller: Caller::default(),
            scope: ScopeTag::SHARED,
            needs_token: false,
            shown: String::new(),
        }
    }

    /// Who asks: digests of credentials and request id.
    #[must_use]
    pub const fn by(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// The scope whose share of waiters and running work this is.
    #[must_use]
    pub const fn in_scope(mut self, scope: ScopeTag) -> Self {
        self.scope = scope;
        self
    }

    /// The key as people may see it.
    #[must_use]
    pub fn shown(mut self, key: impl Into<String>) -> Self {
        self.shown = key.into();
        self
    }

    /// Runs only where a one-time token was issued under this identity.
    #[must_use]
    pub const fn needs_token(mut self) -> Self {
        self.needs_token = true;
        self
    }

    /// What the record of this call carries while it is in flight.
    pub(super) fn rest(&self) -> Bytes {
        Meta {
            kind: self.identity.kind(),
            parameters: self.fingerprint.version().parameters,
            max_attempts: self.policy.max_attempts(),
            namespace: self.identity.namespace().as_str(),
            rule: self.policy.name(),
            key: &self.shown,
            credentials: self.caller.credentials,
            request: self.caller.request,
        }
        .rest()
    }
}

/// The answer to [`Engine::begin`](super::Engine::begin).
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Begin {
    /// The right to run.
    Granted(Grant),
    /// The store does not answer and the rule says `open`: run without a grant, and say so. A variant to match, not a flag
    /// to overlook.
    Unguarded {
        /// Settles like any other: the outcome is recorded if the store answers by then.
        grant: Grant,
        /// Why.
        why: OpenReason,
    },
    /// It was done; this came back.
    Replay {
        /// The recorded outcome.
        recorded: Recorded,
        /// Whether the caller waited for it.
        waited: bool,
    },
    /// Not run.
    Refused(Refusal),
}

/// What the work sees.
#[derive(Clone, Debug)]
pub struct Run {
    pub(super) lease: Arc<Lease>,
}

impl Run {
    /// Why the work runs without a grant, where it does. Then no other number says anything: nobody counts.
    #[must_use]
    pub fn unguarded(&self) -> Option<OpenReason> {
        self.lease.unguarded
    }

    /// The number of the grant; the lowest there is where there was none.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence
    }

    /// Which attempt it is, counted from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.lease.attempt
    }

    /// Whose record.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.lease.identity()
    }

    /// Cancelled when the local deadline of the lease has passed or another owner holds the record. What the work does
    /// then is its own affair; its completion is accepted as long as nobody took over.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.lease.lost_token()
    }

    /// Whether the lease still stands by local time. To be looked at right before the first byte leaves; where it is
    /// false, nothing may be sent.
    #[must_use]
    pub fn still_good(&self) -> bool {
        self.lease.is_good()
    }
}

/// What work gives back: its value for the first caller, and what becomes of the claim.
#[derive(Debug)]
pub struct Ran<T> {
    /// For the first caller.
    pub value: T,
    /// For the record.
    pub verdict: Verdict,
}

/// What becomes of a claim.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// It took effect, or was refused for good: this is what every duplicate gets.
    Keep(Outcome),
    /// Known not to have happened: the next request runs.
    Release {
        /// Whether the attempt counts; work that was not sent gives its count back.
        counts: bool,
        /// What copies that wait in this process are told.
        answer: Option<Outcome>,
    },
    /// Nobody can tell.
    Unknown {
        /// What went wrong, for people. No secrets: it is stored.
        last: Option<Box<str>>,
    },
}

impl Verdict {
    /// The verdict without its data.
    #[must_use]
    pub const fn kind(&self) -> VerdictKind {
        match self {
            Self::Keep(_) => VerdictKind::Keep,
            Self::Release { .. } => VerdictKind::Release,
            Self::Unknown { .. } => VerdictKind::Unknown,
        }
    }
}

/// What became of a claim's settlement.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
#[non_exhaustive]
pub enum Kept {
    /// The outcome is recorded.
    Stored,
    /// The store had lost the claim; the outcome is recorded all the same.
    Restored,
    /// The record is free.
    Released,
    /// The record says unknown.
    Unknown,
    /// The store does not answer; recording goes on behind the answer.
    Unrecorded,
    /// Somebody else holds the record, or a person had said otherwise. The answer at hand must not be given out.
    Lost {
        /// What is recorded instead.
        recorded: Option<Box<Recorded>>,
    },
}

/// The answer to [`Engine::run`](super::Engine::run).
#[derive(Debug)]
#[must_use]
#[non_exhaustive]
pub enum Answer<T> {
    /// Run, for this caller.
    Executed {
        /// What the work gave.
        value: T,
        /// What became of its claim.
        kept: Kept,
    },
    /// Run without a grant, as the store did not answer and the rule says `open`: another copy may have run elsewhere.
    Unguarded {
        /// What the work gave.
        value: T,
        /// Why there was no grant.
        why: OpenReason,
        /// What became of its outcome.
        kept: Kept,
    },
    /// Run before; this came back.
    Replayed {
        /// The recorded outcome.
        recorded: Recorded,
        /// Whether the caller waited for it.
        waited: bool,
    },
    /// Not run for this caller.
    Refused(Refusal),
    /// The work panicked, or was stopped at `max_hold`: its outcome is unknown, unless it was inline work of which nothing
    /// takes effect without its end.
    Broken(Broken),
}

/// Why there is no value although the work was begun.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Broken {
    /// It panicked.
    Panicked,
    /// It ran into `max_hold` and was stopped.
    Overheld,
}

/// What an inline run becomes that is dropped, panics, or is stopped at `max_hold`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnCancel {
    /// Unknown: it may have taken effect.
    Unknown,
    /// Released: nothing takes effect without its end (a transaction that rolls back).
    Release,
}
