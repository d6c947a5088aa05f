//! The transition table: what each call does to a record, as pure functions.
//!
//! They are the meaning of the store contract. The memory and the embedded store call them under a lock; the
//! conformance suite holds every other store to them. `now` is the store's clock, read once per call; *here* means
//! present and not expired; *own* means here with the same owner and fence.

use std::time::Duration;

use bytes::Bytes;

use crate::{
    fingerprint::Fingerprint,
    ids::{Fence, Owner, StoreTime},
    record::{Flags, Record, StateCode, VERSION},
    store::{
        Ask, Claim, Claimed, Extended, Issued, NewToken, Releasing, Renewal, Renewed, Resolution, Resolved, Settled,
        Settlement,
    },
};

/// What a call does to the slot of its record, and its answer.
#[derive(Debug)]
#[must_use]
pub enum Step<T> {
    /// The record becomes this.
    Write(Record, T),
    /// The record goes.
    Remove(T),
    /// Nothing changes.
    Leave(T),
}

impl<T> Step<T> {
    /// The answer alone.
    pub fn answer(self) -> T {
        match self {
            Self::Write(_, t) | Self::Remove(t) | Self::Leave(t) => t,
        }
    }
}

fn here(slot: Option<&Record>, now: StoreTime) -> Option<&Record> {
    slot.filter(|r| r.is_here(now))
}

/// Absent, free, or in flight with its lease and grace over and takeover allowed by the record → in flight.
///
/// An expired record counts as absent, but its fence stays the floor of the next one.
pub fn claim(slot: Option<&Record>, ask: &Ask, now: StoreTime) -> Step<Claimed> {
    if now > ask.not_after {
        return Step::Leave(Claimed::Late { now });
    }
    let record = here(slot, now);
    let takes = match record {
        None => !ask.needs_token,
        Some(r) if !r.is_readable() || r.owner == ask.owner() => false,
        Some(r) => match r.state {
            StateCode::Free => !ask.needs_token || r.flags.has(Flags::ISSUED),
            StateCode::InFlight => {
                r.flags.has(Flags::TAKEOVER) && r.lease_until + ask.grace <= now && r.fingerprint.same(&ask.fingerprint)
            }
            StateCode::Done | StateCode::Unknown | StateCode::Parked => false,
        },
    };
    if !takes {
        return Step::Leave(Claimed::Found { record: slot.cloned(), now });
    }
    let fence = Fence::next(slot.and_then(|r| r.fence), now);
    let attempt = record.map_or(1, |r| r.attempt.saturating_add(1));
    let issued = record.map_or(Flags::NONE, |r| r.flags.only(Flags::ISSUED));
    let written = Record {
        version: VERSION,
        state: StateCode::InFlight,
        flags: issued.with(Flags::when(ask.takeover, Flags::TAKEOVER)),
        fingerprint: ask.fingerprint,
        owner: ask.owner(),
        fence: Some(fence),
        attempt,
        lease_until: now + ask.lease,
        expires_at: now + ask.lease + ask.hold + ask.keep,
        rest: ask.rest.clone(),
    };
    let unresolved = record.is_none() && slot.is_some_and(Record::is_unresolved);
    Step::Write(written, Claimed::Granted { claim: ask.grant(fence, attempt), left: ask.lease, now, unresolved })
}

/// Own and in flight → the lease's end moves, never past `max_hold`, never back. The lease may be over: nobody acted
/// on it. Never creates.
pub fn renew(slot: Option<&Record>, renewal: &Renewal<'_>, now: StoreTime) -> Step<Renewed> {
    let Some(r) = here(slot, now) else { return Step::Leave(Renewed::Missing) };
    let own = r.is_readable() && r.belongs_to(renewal.claim.owner(), renewal.claim.fence());
    if !own || r.state != StateCode::InFlight {
        return Step::Leave(Renewed::Lost(r.clone()));
    }
    let until = r.lease_until.max((now + renewal.lease).min(r.expires_at - renewal.keep));
    let left = Renewed::Left(until.since(now));
    if until == r.lease_until {
        Step::Leave(left)
    } else {
        Step::Write(Record { lease_until: until, ..r.clone() }, left)
    }
}

/// Records an outcome, or that nobody can tell it.
///
/// A completion is written over an absent, a free and an older-fenced record too. Fences of one record only rise, so a
/// record that shows less than the claim's is a store that lost it; and over a free one nobody runs. It can prevent a
/// run, never cause one.
pub fn settle(slot: Option<&Record>, claim: &Claim, to: &Settlement, now: StoreTime) -> Step<Settled> {
    match to {
        Settlement::Done { fingerprint, rest, body_kept, ttl } => {
            let flags = Flags::when(*body_kept, Flags::BODY_KEPT);
            complete(slot, claim, (*fingerprint, rest, flags, *ttl), now)
        }
        Settlement::Unknown { fingerprint, rest, ttl } => unknown(slot, claim, (*fingerprint, rest, *ttl), now),
    }
}

fn complete(
    slot: Option<&Record>,
    claim: &Claim,
    (fingerprint, rest, flags, ttl): (Fingerprint, &Bytes, Flags, Duration),
    now: StoreTime,
) -> Step<Settled> {
    let record = here(slot, now);
    let own = record.is_some_and(|r| r.belongs_to(claim.owner(), claim.fence()));
    let accepted = match record {
        None => true,
        Some(r) if !r.is_readable() => false,
        Some(r) if own && r.state == StateCode::Done => return Step::Leave(Settled::Ok { restored: false }),
        Some(r) => match r.state {
            StateCode::InFlight | StateCode::Unknown if own => true,
            StateCode::Free => true,
            StateCode::InFlight | StateCode::Unknown | StateCode::Parked => r.fence < Some(claim.fence()),
            StateCode::Done => false,
        },
    };
    if !accepted {
        return lost(record);
    }
    let written = settled(record, claim, (fingerprint, rest), StateCode::Done, now + ttl);
    Step::Write(Record { flags: written.flags.with(flags), ..written }, Settled::Ok { restored: !own })
}

fn unknown(
    slot: Option<&Record>,
    claim: &Claim,
    (fingerprint, rest, ttl): (Fingerprint, &Bytes, Duration),
    now: StoreTime,
) -> Step<Settled> {
    let record = here(slot, now);
    let own = record.is_some_and(|r| r.belongs_to(claim.owner(), claim.fence()));
    let accepted = match record {
        None => true,
        Some(r) if !r.is_readable() => false,
        Some(r) => match r.state {
            // An outcome is never taken back.
            StateCode::Unknown | StateCode::Done if own => return Step::Leave(Settled::Ok { restored: false }),
            StateCode::InFlight if own => true,
            StateCode::Free | StateCode::InFlight => r.fence < Some(claim.fence()),
            StateCode::Done | StateCode::Unknown | StateCode::Parked => false,
        },
    };
    if !accepted {
        return lost(record);
    }
    let written = settled(record, claim, (fingerprint, rest), StateCode::Unknown, now + ttl);
    Step::Write(Record { lease_until: now, ..written }, Settled::Ok { restored: !own })
}

/// The record of a settled claim. An issued token stays one.
fn settled(
    record: Option<&Record>,
    claim: &Claim,
    (fingerprint, rest): (Fingerprint, &Bytes),
    state: StateCode,
    expires_at: StoreTime,
) -> Record {
    Record {
        version: VERSION,
        state,
        flags: record.map_or(Flags::NONE, |r| r.flags.only(Flags::ISSUED)),
        fingerprint,
        owner: claim.owner(),
        fence: Some(claim.fence()),
        attempt: claim.attempt(),
        lease_until: StoreTime::default(),
        expires_at,
        rest: rest.clone(),
    }
}

fn lost(record: Option<&Record>) -> Step<Settled> {
    let record = record.expect("a settlement is refused only because of a record that is there");
    Step::Leave(Settled::Lost(record.clone()))
}

/// Own and in flight → free, or parked. The fingerprint goes, so that a corrected body is no mismatch.
pub fn release(slot: Option<&Record>, what: &Releasing<'_>, now: StoreTime) -> Step<Settled> {
    let (owner, fence, counts, to, keep, rest) = match what {
        Releasing::Held { claim, counts, park, keep, rest } => {
            let to = if *park { StateCode::Parked } else { StateCode::Free };
            (claim.owner(), Some(claim.fence()), *counts, to, *keep, rest)
        }
        Releasing::Fate { owner, keep, rest, .. } => (*owner, None, false, StateCode::Free, *keep, rest),
    };
    let Some(r) = here(slot, now) else { return Step::Leave(Settled::Ok { restored: false }) };
    let own = r.is_readable() && r.owner == owner && (fence.is_none() || r.fence == fence);
    if own && r.state == to {
        return Step::Leave(Settled::Ok { restored: false });
    }
    if !own || r.state != StateCode::InFlight {
        return Step::Leave(Settled::Lost(r.clone()));
    }
    let written = Record {
        state: to,
        flags: r.flags.only(Flags::ISSUED),
        fingerprint: Fingerprint::NONE,
        attempt: if counts { r.attempt } else { r.attempt.saturating_sub(1) },
        lease_until: StoreTime::default(),
        expires_at: now + keep,
        rest: rest.clone(),
        ..r.clone()
    };
    Step::Write(written, Settled::Ok { restored: false })
}

/// Absent → free and issued. `lease_until` is the time it may be extended to.
pub fn issue(slot: Option<&Record>, token: &NewToken, now: StoreTime) -> Step<Issued> {
    if here(slot, now).is_some() {
        return Step::Leave(Issued::Exists);
    }
    let expires_at = now + token.ttl.min(token.max_life);
    let written = Record {
        version: VERSION,
        state: StateCode::Free,
        flags: Flags::ISSUED,
        fingerprint: Fingerprint::NONE,
        owner: Owner::from_bytes([0; 16]),
        fence: slot.and_then(|r| r.fence),
        attempt: 0,
        lease_until: now + token.max_life,
        expires_at,
        rest: token.rest.clone(),
    };
    Step::Write(written, Issued::Issued { expires_at })
}

/// Free and issued → a later expiry, at most its `max_life`, never an earlier one.
pub fn extend(slot: Option<&Record>, ttl: Duration, now: StoreTime) -> Step<Extended> {
    let record = here(slot, now);
    match record {
        Some(r) if is_unused_token(r) => {
            let until = r.expires_at.max((now + ttl).min(r.lease_until));
            let answer = Extended::Until(until);
            if until == r.expires_at {
                Step::Leave(answer)
            } else {
                Step::Write(Record { expires_at: until, ..r.clone() }, answer)
            }
        }
        other => Step::Leave(Extended::Found(other.cloned())),
    }
}

/// Free and issued → absent.
pub fn withdraw(slot: Option<&Record>, now: StoreTime) -> Step<bool> {
    if here(slot, now).is_some_and(is_unused_token) { Step::Remove(true) } else { Step::Leave(false) }
}

fn is_unused_token(r: &Record) -> bool {
    r.is_readable() && r.state == StateCode::Free && r.flags.has(Flags::ISSUED)
}

/// Unknown, parked, or in flight with its lease over, under the fence the person saw → done or free, under a higher
/// fence: whoever renews or releases later with the old one is refused. So is a late completion, over done and over
/// whoever runs by then; over a record that was freed it stands, since nobody runs and the outcome is known after all.
pub fn resolve(
    slot: Option<&Record>,
    (fence, resolver): (Fence, Owner),
    to: &Resolution,
    now: StoreTime,
) -> Step<Resolved> {
    let record = here(slot, now);
    let unclear = |r: &Record| match r.state {
        StateCode::Unknown | StateCode::Parked => true,
        StateCode::InFlight => r.lease_until <= now,
        StateCode::Free | StateCode::Done => false,
    };
    let Some(r) = record.filter(|r| r.is_readable() && r.fence == Some(fence) && unclear(r)) else {
        return Step::Leave(Resolved::Conflict(record.cloned()));
    };
    let raised = Fence::next(r.fence, now);
    let written = match to {
        Resolution::Completed { rest, body_kept, ttl } => Record {
            state: StateCode::Done,
            flags: r.flags.only(Flags::ISSUED).with(Flags::when(*body_kept, Flags::BODY_KEPT)),
            owner: resolver,
            fence: Some(raised),
            lease_until: StoreTime::default(),
            expires_at: now + *ttl,
            rest: rest.clone(),
            ..r.clone()
        },
        Resolution::Failed { keep, rest } => Record {
            state: StateCode::Free,
            flags: r.flags.only(Flags::ISSUED),
            fingerprint: Fingerprint::NONE,
            owner: resolver,
            fence: Some(raised),
            lease_until: StoreTime::default(),
            expires_at: now + *keep,
            rest: rest.clone(),
            ..r.clone()
        },
    };
    Step::Write(written, Resolved::Ok(raised))
}

/// Done, free or parked, as expected → absent.
pub fn delete(slot: Option<&Record>, expected: StateCode, now: StoreTime) -> Step<bool> {
    let deletable = matches!(expected, StateCode::Done | StateCode::Free | StateCode::Parked);
    match here(slot, now) {
        Some(r) if deletable && r.is_readable() && r.state == expected => Step::Remove(true),
        _ => Step::Leave(false),
    }
}
