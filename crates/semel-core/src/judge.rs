//! What a claim's *found* means to the one who asked: one function, the same for every store.

use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::{
    ids::{Fence, StoreTime},
    record::{Flags, Outcome, Payload, Record, Rest, StateCode},
    store::{Ask, Claim},
};

/// Who asks, beside the identity: what `Found` is judged with.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Caller {
    /// A digest of the caller's credentials, where the scope is no verified principal. A duplicate with others is not
    /// run and gets no stored byte.
    pub credentials: Option<[u8; 16]>,
    /// A digest of the request id, so that a network's retry is told from a second click.
    pub request: Option<[u8; 16]>,
}

/// The meaning of what was found. Order of precedence as in the table of transitions.
#[derive(Debug)]
#[must_use]
pub enum Judgement {
    /// It changed while we looked: claim again, a few times.
    Raced,
    /// No such token was issued.
    NotIssued,
    /// A stray copy of a call that was settled long ago.
    Late,
    /// Granted already: the reply to an earlier copy of this call was lost.
    Again {
        /// The grant.
        claim: Claim,
        /// What is left of its lease.
        left: Duration,
    },
    /// The same key with another question.
    Mismatch,
    /// The same question by a caller with other credentials: not run, and no stored byte.
    Stranger,
    /// Somebody runs.
    InFlight(Running),
    /// It happened, and what came back is here.
    Replay(Recorded),
    /// It happened, and what came back is not here in full. Never run again.
    Unavailable {
        /// What is left of it: the head, and why the body is missing.
        kept: Option<Recorded>,
    },
    /// Nobody can tell whether it happened.
    Unknown {
        /// Since when.
        since: StoreTime,
        /// The last error, for people.
        last: Option<Box<str>>,
    },
    /// It failed too often; a person decides.
    Parked {
        /// How often it was tried.
        attempt: u32,
        /// The last error, for people.
        last: Option<Box<str>>,
    },
}

/// An attempt that is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Running {
    /// What is left of its lease, or the time after which it is worth asking again.
    pub left: Duration,
    /// Its fence; `None` where nobody may wait for it: the record cannot be read here, or its question not be compared.
    pub fence: Option<Fence>,
    /// Whether it serves the same request id.
    pub same_request: bool,
}

/// A recorded outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recorded {
    /// What came back.
    pub outcome: Outcome,
    /// When it was settled.
    pub settled_at: StoreTime,
    /// How long it is still kept.
    pub left: Duration,
    /// Whether it served the same request id.
    pub same_request: bool,
}

/// Judges `found` for the one who asked.
pub fn judge(ask: &Ask, found: Option<&Record>, now: StoreTime, caller: &Caller) -> Judgement {
    let absent = |issued: bool| if ask.needs_token && !issued { Judgement::NotIssued } else { Judgement::Raced };
    let Some(r) = found.filter(|r| r.is_here(now)) else { return absent(false) };
    if !r.is_readable() {
        return Judgement::InFlight(Running { left: ask.lease, fence: None, same_request: false });
    }
    if r.owner == ask.owner() {
        return match (r.state, r.fence) {
            (StateCode::InFlight, Some(fence)) => {
                Judgement::Again { claim: ask.grant(fence, r.attempt), left: r.lease_until.since(now) }
            }
            _ => Judgement::Late,
        };
    }
    if r.state == StateCode::Free {
        return absent(r.flags.has(Flags::ISSUED));
    }
    let rest = Rest::read(&r.rest).ok();
    // A parked record has dropped its fingerprint: there is nothing left to compare.
    let comparable = r.state == StateCode::Parked || r.fingerprint.version() == ask.fingerprint.version();
    let (Some(rest), true) = (rest, comparable) else {
        // Parked, in flight and unknown say so themselves, whatever was asked: there is nothing to leak in that. But nobody
        // waits for this attempt (no fence): neither question nor caller could be compared, so its answer is not this one's.
        return match r.reads_as(now) {
            StateCode::InFlight => Judgement::InFlight(Running {
                left: r.lease_until.since(now).max(MIN_RETRY),
                fence: None,
                same_request: false,
            }),
            _ if r.state == StateCode::Parked => parked(r, None),
            // Whoever was told that it was done would rely on what nobody knows.
            StateCode::Unknown => Judgement::Unknown { since: r.lease_until, last: None },
            _ => Judgement::Unavailable { kept: None },
        };
    };
    if r.state != StateCode::Parked && !r.fingerprint.same(&ask.fingerprint) {
        return Judgement::Mismatch;
    }
    if !same(rest.meta.credentials, caller.credentials) {
        return Judgement::Stranger;
    }
    let same_request = caller.request.is_some() && same(rest.meta.request, caller.request);
    match r.state {
        StateCode::InFlight => in_flight(ask, r, &rest, same_request, now),
        StateCode::Done => done(r, rest.payload, same_request, now),
        StateCode::Unknown => Judgement::Unknown { since: r.lease_until, last: words(rest.payload) },
        StateCode::Parked | StateCode::Free => parked(r, words(rest.payload)),
    }
}

/// Nobody is told to come back at once: an answer in a busy loop helps nobody.
const MIN_RETRY: Duration = Duration::from_millis(100);

fn in_flight(ask: &Ask, r: &Record, rest: &Rest<'_>, same_request: bool, now: StoreTime) -> Judgement {
    let running =
        |left: Duration| Judgement::InFlight(Running { left: left.max(MIN_RETRY), fence: r.fence, same_request });
    if r.lease_until > now {
        return running(r.lease_until.since(now));
    }
    if !r.flags.has(Flags::TAKEOVER) {
        return Judgement::Unknown { since: r.lease_until, last: None };
    }
    if r.attempt >= u32::from(rest.meta.max_attempts) {
        return parked(r, None);
    }
    let free_at = r.lease_until + ask.grace;
    if free_at <= now { Judgement::Raced } else { running(free_at.since(now)) }
}

fn done(r: &Record, payload: Payload, same_request: bool, now: StoreTime) -> Judgement {
    let Payload::Outcome { outcome, settled_at } = payload else { return Judgement::Unavailable { kept: None } };
    let kept = Recorded { outcome, settled_at, left: r.expires_at.since(now), same_request };
    if r.flags.has(Flags::BODY_KEPT) { Judgement::Replay(kept) } else { Judgement::Unavailable { kept: Some(kept) } }
}

fn parked(r: &Record, last: Option<Box<str>>) -> Judgement {
    Judgement::Parked { attempt: r.attempt, last }
}

fn words(payload: Payload) -> Option<Box<str>> {
    match payload {
        Payload::Words(words) => Some(words),
        Payload::Nothing | Payload::Outcome { .. } => None,
    }
}

fn same(a: Option<[u8; 16]>, b: Option<[u8; 16]>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => bool::from(a.ct_eq(&b)),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
