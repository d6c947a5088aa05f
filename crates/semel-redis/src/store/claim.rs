//! Claims.
//!
//! Most find nothing, or what nobody may take. For those a `SET` that looks by itself does, at half of a script's price, and a look at
//! the server's clock where it did not say a moment ago what that shows. What such a claim writes begins at the time that the
//! server's clock shows, as is reckoned from what it last said; that is its fence, too. All else is for the script.
//!
//! Why that is right:
//! * Nobody is given a claim before the server's clock was read after it was written, and found within [`OFF`] of the reckoning; or
//!   where that was asked within a tenth of a second before it was sent, and by the ticks since then the answer came within [`OFF`].
//!   Who sets the clock in between has set it a moment later, for this claim: what holds of claims then holds of this one. So it
//!   is with a machine whose ticks stand still, as those of a virtual one that is paused may: it is as if it had been paused right
//!   after it was given the claim. What was written so is [`RECKONED`]. To all but the call that wrote it and saw that, its owner's repeats included, a
//!   script gives it: it takes the flag off, or stamps the record anew where it was off, or takes it away where it came too late; and each
//!   only where the record still has the flag, and the fence that was seen. So whatever is sent twice, or comes late, touches
//!   nothing that anybody was given.
//! * The lease ends in the record where the reckoning and the lease's length say so, and the claimant is told what the server's
//!   clock, at most, leaves of it: his does not end later.
//! * A key goes only when the server's clock is past its fence by more than [`OFF`] (a record stays two seconds longer than it
//!   counts, and one that is deleted sooner leaves a husk). So what was reckoned where a key is gone is above what was there.
//! * A `SET` that comes late is not refused, as a script would be. So whoever takes back a claim whose fate he does not know
//!   leaves something behind that stays for a quarter of an hour: what comes meanwhile finds it and changes nothing.
//!   Where nobody takes it back, as its claimant is gone, it reads as if he had died at work: unknown, once its lease is over. When it
//!   was written nobody can tell for certain: a key that moves between the servers of a Cluster keeps what it had left, not its end.

use std::time::Duration;

use semel_core::{
    Fence, StoreTime,
    record::{Flags, Record, StateCode},
    store::{Ask, Claimed, Did, StoreError, StoreErrorKind},
};

use super::{
    RedisStore,
    calls::{UNTOLD, header, stays, unexpected},
    in_micros,
};
use crate::{
    link::Before,
    reply::{LATE, NO, UNREADABLE, YES},
    script::{ATTEMPT, Arg, FENCE, Fresh, SCRIPTS},
    stored::{RECKONED, Stored},
    verdict::cause,
};

/// The attempt of a claim that found nothing.
const FIRST: u32 = 1;

/// How far a reckoning may be off.
const OFF: Duration = Duration::from_secs(1);

/// What a script is asked to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    /// Claim as usual.
    Usual,
    /// Claim what was issued as a token.
    Token,
    /// Give the owner what it wrote without a script under this fence.
    Found(Fence),
    /// The same, or take it away where it is late: it was written just now, and nobody was given it.
    Written(Fence),
}

impl How {
    const fn code(self) -> u8 {
        match self {
            Self::Usual => 0,
            Self::Token => 1,
            Self::Found(_) => 2,
            Self::Written(_) => 3,
        }
    }

    /// The fence that was seen; 0 where none was.
    fn seen(self) -> u64 {
        match self {
            Self::Usual | Self::Token => 0,
            Self::Found(fence) | Self::Written(fence) => fence.get(),
        }
    }

    /// An error of the call. Where a claim of this owner stands, it does so whatever became of the call.
    fn failed(self, error: StoreError) -> StoreError {
        match self {
            Self::Usual | Self::Token => error,
            Self::Found(_) | Self::Written(_) => StoreError::new(Did::Unknown, error.kind, cause(&error)),
        }
    }
}

/// What a claim without a script led to.
enum Plain {
    Answer(Claimed),
    Script(How),
}

/// What the script led to.
enum Scripted {
    Answer(Claimed),
    /// It found what its owner wrote without a script, and was not told of that.
    Own(Fence),
}

/// The numbers of a claim, as one argument: the server turns text into numbers more slowly than it takes them apart.
fn asks(ask: &Ask, how: How) -> [u8; 45] {
    let mut asks = [0; 45];
    let numbers = [ask.not_after.as_micros(), in_micros(ask.lease), more(ask)];
    for (place, number) in asks.chunks_exact_mut(8).zip(numbers) {
        place.copy_from_slice(&number.to_be_bytes());
    }
    asks[24] = how.code();
    asks[25..29].copy_from_slice(&ask.fingerprint.version().parameters.to_be_bytes());
    asks[29..37].copy_from_slice(&in_micros(ask.grace).to_be_bytes());
    asks[37..].copy_from_slice(&how.seen().to_be_bytes());
    asks
}

/// The header of a claim's record, as far as its claimant knows it.
fn claimed(ask: &Ask, more: Flags) -> Vec<u8> {
    let flags = Flags::when(ask.takeover, Flags::TAKEOVER).with(more);
    header(StateCode::InFlight, flags, &ask.fingerprint, ask.owner(), None, FIRST)
}

/// How long a claim's record stays after its lease, in microseconds.
fn more(ask: &Ask) -> i64 {
    in_micros(ask.hold.saturating_add(ask.keep))
}

/// For how many milliseconds its key stays.
fn px(ask: &Ask) -> i64 {
    (in_micros(ask.lease) + more(ask)) / 1_000 + stays(UNTOLD)
}

/// The fence of what this owner wrote without a script, where that is what was found.
fn own_reckoned(ask: &Ask, found: &Stored) -> Option<Fence> {
    let is_own = |r: &&Record| r.is_readable() && r.state == StateCode::InFlight && r.owner == ask.owner();
    found.record().filter(is_own).filter(|_| found.is_reckoned())?.fence
}

/// Whether a claim need not ask further about what it found: nobody may take it, and it is the same at least and at most.
fn is_decided(found: &Record, least: StoreTime, now: StoreTime) -> bool {
    let stays = match found.state {
        StateCode::InFlight => {
            found.lease_until > now || (found.lease_until <= least && !found.flags.has(Flags::TAKEOVER))
        }
        StateCode::Done | StateCode::Unknown | StateCode::Parked => true,
        StateCode::Free => false,
    };
    stays && found.is_readable() && found.is_here(now)
}

impl RedisStore {
    pub(super) async fn claim_it(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let how = match ask.needs_token {
            true => How::Token,
            // With replicas to wait for, a second command would be a second write to wait for.
            false if self.confirmed.is_some() => How::Usual,
            false => match self.claim_plainly(ask).await? {
                Plain::Answer(claimed) => return Ok(claimed),
                Plain::Script(how) => how,
            },
        };
        match self.claim_by_script(ask, how).await? {
            Scripted::Answer(claimed) => Ok(claimed),
            Scripted::Own(fence) => match self.claim_by_script(ask, How::Found(fence)).await? {
                Scripted::Answer(claimed) => Ok(claimed),
                // A copy of this claim came between: that one is answered by nobody.
                Scripted::Own(_) => {
                    Err(StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, "it was claimed twice at once"))
                }
            },
        }
    }

    async fn claim_plainly(&self, ask: &Ask) -> Result<Plain, StoreError> {
        let (key, header) = (self.names.key(&ask.identity), claimed(ask, RECKONED));
        let (lease, not_after) = (ask.lease, ask.not_after);
        let fresh = Fresh {
            key: &key,
            header: &header,
            rest: &ask.rest,
            lease: in_micros(lease),
            more: more(ask),
            px: px(ask),
            not_after,
        };
        self.may_call()?;
        let Some(Before { found, reckoned, least, now }) = self.topology.set_fresh(&fresh).await? else {
            return Ok(Plain::Script(How::Usual));
        };
        let is_late = now > not_after;
        if let Some(bytes) = found {
            let found = Stored::read(bytes);
            return Ok(match own_reckoned(ask, &found) {
                _ if least > not_after => Plain::Answer(Claimed::Late { now }),
                Some(fence) => Plain::Script(How::Found(fence)),
                // It may be late, or not.
                None if is_late => Plain::Script(How::Usual),
                None => match found.into_record().filter(|record| is_decided(record, least, now)) {
                    record @ Some(_) => Plain::Answer(Claimed::Found { record, now }),
                    None => Plain::Script(How::Usual),
                },
            });
        }
        let fence = u64::try_from(reckoned.as_micros()).ok().and_then(Fence::new);
        let fence = fence.ok_or_else(|| unexpected(reckoned.as_micros()))?;
        let left = lease.min((reckoned + lease).since(now));
        if is_late || reckoned > now + OFF || reckoned + OFF < now || left.is_zero() {
            return Ok(Plain::Script(How::Written(fence)));
        }
        Ok(Plain::Answer(Claimed::Granted { claim: ask.grant(fence, FIRST), left, now, unresolved: false }))
    }

    /// Asks the server's script, which decides by all that is there.
    async fn claim_by_script(&self, ask: &Ask, how: How) -> Result<Scripted, StoreError> {
        let (header, asks) = (claimed(ask, Flags::NONE), asks(ask, how));
        let args = vec![
            Arg::Bytes(&header[..FENCE]),
            Arg::Joined(&header[ATTEMPT..], &ask.rest),
            Arg::Bytes(&asks),
            Arg::Number(px(ask)),
        ];
        let told = self.run_kept(&SCRIPTS.claim, &ask.identity, args).await;
        let mut told = told.map_err(|error| how.failed(error))?;
        let now = told.now()?;
        let claimed = match told.code {
            YES => {
                let is_first = told.is_brief();
                let fence = told.fence()?;
                let (attempt, unresolved) =
                    if is_first { (i64::from(FIRST), false) } else { (told.number()?, told.number()? == 1) };
                let attempt = u32::try_from(attempt).map_err(|_| unexpected(attempt))?;
                Claimed::Granted { claim: ask.grant(fence, attempt), left: ask.lease, now, unresolved }
            }
            LATE => Claimed::Late { now },
            // The script gives way to a record that it cannot read before it looks at the time.
            UNREADABLE if now > ask.not_after => Claimed::Late { now },
            NO | UNREADABLE => {
                let found = told.stored()?;
                if let Some(fence) = found.as_ref().and_then(|found| own_reckoned(ask, found)) {
                    return Ok(Scripted::Own(fence));
                }
                Claimed::Found { record: found.and_then(Stored::into_record), now }
            }
            code => return Err(unexpected(code)),
        };
        Ok(Scripted::Answer(claimed))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use semel_core::{Owner, fingerprint::Fingerprint, record::VERSION};

    use super::*;

    fn in_flight(flags: Flags, lease_until: i64) -> Record {
        Record {
            version: VERSION,
            state: StateCode::InFlight,
            flags,
            fingerprint: Fingerprint::NONE,
            owner: Owner::from_bytes([7; 16]),
            fence: Fence::new(5),
            attempt: 1,
            lease_until: StoreTime::from_micros(lease_until),
            expires_at: StoreTime::from_micros(1_000),
            rest: Bytes::new(),
        }
    }

    /// Its owner was called dead by the latest that it could be, and had some of its lease left.
    #[test]
    fn a_lease_that_may_be_over_is_for_the_script() {
        let (least, most) = (StoreTime::from_micros(100), StoreTime::from_micros(200));
        for (flags, lease_until, expected) in [
            (Flags::NONE, 201, true),
            (Flags::NONE, 200, false),
            (Flags::NONE, 101, false),
            (Flags::NONE, 100, true),
            (Flags::TAKEOVER, 201, true),
            (Flags::TAKEOVER, 150, false),
            (Flags::TAKEOVER, 100, false),
        ] {
            let found = in_flight(flags, lease_until);
            assert_eq!(is_decided(&found, least, most), expected, "{flags:?}, {lease_until}");
        }
        let over = Record { expires_at: most, ..in_flight(Flags::NONE, 50) };
        assert!(!is_decided(&over, least, most), "it may count no more");
    }
}
