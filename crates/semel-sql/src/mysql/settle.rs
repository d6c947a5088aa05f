//! Settlements and releases: one statement where the claim is still the owner's; else a look, and a decision.

use std::time::Duration;

use bytes::Bytes;
use semel_core::{
    StoreTime,
    fingerprint::Fingerprint,
    record::{Flags, StateCode},
    store::{Claim, Releasing, Settled, Settlement, StoreError},
    transition,
};

use super::{
    calls::{Calls, LOCKED, Wrote, nothing},
    sql::{self, Args, fence, micros},
};
use crate::record::rule;

impl Calls {
    pub(super) async fn settle(&self, claim: &Claim, to: &Settlement) -> Result<Settled, StoreError> {
        let until = self.until();
        if let Some(end) = End::of(to) {
            match self.write(until, sql::SETTLE, &end.args(claim)).await? {
                Wrote::Rows { matched: 1.., .. } => return Ok(Settled::Ok { restored: false }),
                Wrote::Rows { .. } | Wrote::Duplicate => {}
                Wrote::Busy => return Err(nothing(LOCKED)),
            }
        }
        let decision = |slot: Option<&_>, now| transition::settle(slot, claim, to, now);
        self.decide(until, claim.identity(), StoreTime::MAX, decision).await?.answer()
    }

    pub(super) async fn release(&self, what: &Releasing<'_>) -> Result<Settled, StoreError> {
        let until = self.until();
        let id = match what {
            Releasing::Held { claim, .. } => claim.identity(),
            Releasing::Fate { identity, .. } => identity,
            _ => return Err(nothing("a release of a kind that this store does not know")),
        };
        if let Some(args) = release_args(what) {
            match self.write(until, sql::RELEASE, &args).await? {
                Wrote::Rows { matched: 1.., .. } => return Ok(Settled::Ok { restored: false }),
                Wrote::Rows { .. } | Wrote::Duplicate => {}
                Wrote::Busy => return Err(nothing(LOCKED)),
            }
        }
        let decision = |slot: Option<&_>, now| transition::release(slot, what, now);
        self.decide(until, id, StoreTime::MAX, decision).await?.answer()
    }
}

/// What a settlement makes of the owner's own record.
struct End<'a> {
    state: StateCode,
    flags: Flags,
    fingerprint: &'a Fingerprint,
    rest: &'a Bytes,
    ttl: Duration,
}

impl<'a> End<'a> {
    fn of(to: &'a Settlement) -> Option<Self> {
        match to {
            Settlement::Done { fingerprint, rest, body_kept, ttl } => {
                let flags = Flags::when(*body_kept, Flags::BODY_KEPT);
                Some(Self { state: StateCode::Done, flags, fingerprint, rest, ttl: *ttl })
            }
            Settlement::Unknown { fingerprint, rest, ttl } => {
                Some(Self { state: StateCode::Unknown, flags: Flags::NONE, fingerprint, rest, ttl: *ttl })
            }
            _ => None,
        }
    }

    fn args(&self, claim: &Claim) -> Args {
        let unknown = self.state == StateCode::Unknown;
        Args::default()
            .and(i16::from(self.flags.byte()))
            .and(self.state as i16)
            .fingerprint(self.fingerprint)
            .and(i32::try_from(claim.attempt()).unwrap_or(i32::MAX))
            // `lease_until` says since when it is unknown.
            .and(i64::from(unknown))
            .and(micros(self.ttl))
            .and(&self.rest[..])
            .and(rule(self.rest))
            .and(&claim.identity().digest()[..])
            .and(&claim.owner().as_bytes()[..])
            .and(fence(Some(claim.fence())))
            // A completion turns unknown into done; unknown is not written over itself.
            .and(if unknown { StateCode::InFlight as i16 } else { StateCode::Unknown as i16 })
    }
}

fn release_args(what: &Releasing<'_>) -> Option<Args> {
    let (id, owner, under, counts, to, keep, rest) = match what {
        Releasing::Held { claim, counts, park, keep, rest } => {
            let to = if *park { StateCode::Parked } else { StateCode::Free };
            (claim.identity(), claim.owner(), fence(Some(claim.fence())), *counts, to, *keep, rest)
        }
        Releasing::Fate { identity, owner, keep, rest } => (*identity, *owner, 0, false, StateCode::Free, *keep, rest),
        _ => return None,
    };
    let args = Args::default().and(to as i16).and(i32::from(!counts)).and(micros(keep)).and(&rest[..]).and(rule(rest));
    Some(args.and(&id.digest()[..]).and(&owner.as_bytes()[..]).and(under).and(under))
}
