//! What executes.

use std::{sync::Weak, time::Duration};

use bytes::Bytes;
use redis::Value;
use semel_core::{
    Fence, Owner, StoreTime,
    fingerprint::Fingerprint,
    identity::Identity,
    record::{Flags, Record, StateCode, VERSION},
    store::{
        Ask, Changes, Claim, Claimed, Extended, Health, Issued, NewToken, Releasing, Renewal, Renewed, Reply, Seen,
        Settled, Settlement, Store, StoreError, StoreErrorKind, StoreFacts, StoreFuture,
    },
};

use super::{RedisStore, flag, in_micros, micros, read_mark, read_more_marks};
use crate::{
    reply::{MISSING, NO, Told, UNREADABLE, YES, odd},
    script::{Arg, Call, SCRIPTS},
    verdict::cause,
};

/// A fence as a script's number: below 2⁵³, as every fence is.
pub(super) fn number(fence: Fence) -> Arg<'static> {
    Arg::Number(i64::try_from(fence.get()).unwrap_or(i64::MAX))
}

/// A code that the script does not return.
pub(super) fn unexpected(code: i64) -> StoreError {
    odd(&Value::Int(code))
}

/// What rounds a span up to whole milliseconds.
const ALMOST_A_MILLI: Duration = Duration::from_micros(999);

/// How long what nobody told the outcome of stays after its end, so that the end can be told.
pub(super) const UNTOLD: Duration = Duration::from_secs(7 * 86_400);

/// How many milliseconds a key stays longer than its record counts.
const LINGERS: i64 = 2_000;

/// For how many milliseconds a key stays whose record ends after `span`. Two seconds longer: the server counts from its own look
/// at its clock, which may have been before the script's; and a fence has to be past for a second before it is forgotten.
pub(super) fn stays(span: Duration) -> i64 {
    in_micros(span) / 1_000 + LINGERS
}

/// A record as it is stored, without the times and the rest.
pub(super) fn header(
    state: StateCode,
    flags: Flags,
    fingerprint: &Fingerprint,
    owner: Owner,
    fence: Option<Fence>,
    attempt: u32,
) -> Vec<u8> {
    let (none, rest) = (StoreTime::from_micros(0), Bytes::new());
    let (version, fingerprint, lease_until, expires_at) = (VERSION, *fingerprint, none, none);
    Record { version, state, flags, fingerprint, owner, fence, attempt, lease_until, expires_at, rest }.encode()
}

impl RedisStore {
    async fn renew_them(&self, batch: &[Renewal<'_>]) -> Result<Vec<Result<Renewed, StoreError>>, StoreError> {
        self.marks.allow()?;
        let owners: Vec<_> = batch.iter().map(|renewal| renewal.claim.owner()).collect();
        let keys: Vec<_> = batch.iter().map(|renewal| self.names.key(renewal.claim.identity())).collect();
        let call = |((renewal, owner), key)| {
            let (renewal, owner, key): (&Renewal<'_>, &semel_core::Owner, &String) = (renewal, owner, key);
            let args = vec![
                Arg::Bytes(owner.as_bytes()),
                number(renewal.claim.fence()),
                micros(renewal.lease),
                micros(renewal.keep),
            ];
            Call { script: &SCRIPTS.renew, key: key.as_str(), args }
        };
        let calls: Vec<_> = batch.iter().zip(&owners).zip(&keys).map(call).collect();
        let answers = self.topology.run_all(&calls).await;
        Ok(answers.into_iter().map(|answer| renewed(Told::read(answer?)?)).collect())
    }

    async fn settle_it(&self, claim: &Claim, to: &Settlement) -> Result<Settled, StoreError> {
        match to {
            Settlement::Done { fingerprint, rest, body_kept, ttl } => {
                let kept = Flags::when(*body_kept, Flags::BODY_KEPT);
                let (owner, fence) = (claim.owner(), Some(claim.fence()));
                let header = header(StateCode::Done, kept, fingerprint, owner, fence, claim.attempt());
                // To the millisecond, up: the server's own count of it is all that the script is given.
                let px = stays(ttl.saturating_add(ALMOST_A_MILLI));
                let span = (px - LINGERS).saturating_mul(1_000);
                let args = vec![Arg::Ending(&header, rest, span), Arg::Number(px), Arg::Made(&header), Arg::Now];
                settled(self.run_kept(&SCRIPTS.complete, claim.identity(), args).await?)
            }
            Settlement::Unknown { fingerprint, rest, ttl } => {
                let owner = claim.owner();
                let args = vec![
                    Arg::Bytes(owner.as_bytes()),
                    number(claim.fence()),
                    Arg::Number(i64::from(fingerprint.version().algorithm)),
                    Arg::Bytes(fingerprint.digest()),
                    Arg::Number(i64::from(claim.attempt())),
                    micros(*ttl),
                    Arg::Bytes(rest),
                ];
                settled(self.run_kept(&SCRIPTS.unknown, claim.identity(), args).await?)
            }
            other => Err(unsupported(other)),
        }
    }

    async fn release_it(&self, what: &Releasing<'_>) -> Result<Settled, StoreError> {
        let (identity, owner, fence, counts, to, keep, rest) = match what {
            Releasing::Held { claim, counts, park, keep, rest } => {
                let to = if *park { StateCode::Parked } else { StateCode::Free };
                (claim.identity(), claim.owner(), number(claim.fence()), *counts, to, *keep, rest)
            }
            Releasing::Fate { identity, owner, keep, rest } => {
                (*identity, *owner, Arg::Bytes(b""), false, StateCode::Free, *keep, rest)
            }
            other => return Err(unsupported(other)),
        };
        let args = vec![
            Arg::Bytes(owner.as_bytes()),
            fence,
            flag(counts),
            Arg::Number(to as i64),
            micros(keep),
            Arg::Bytes(rest),
        ];
        let released = settled(self.run(&SCRIPTS.release, identity, args).await?)?;
        if let Settled::Lost(_) = released {
            self.may_show(identity).await?;
        }
        Ok(released)
    }

    async fn issue_it(&self, token: &NewToken) -> Result<Issued, StoreError> {
        let args = vec![micros(token.ttl), micros(token.max_life), Arg::Bytes(&token.rest)];
        let mut told = self.run(&SCRIPTS.issue, &token.identity, args).await?;
        match told.code {
            YES => {
                let expires_at = StoreTime::from_micros(told.number()?);
                if told.number()? == 1 {
                    self.untold.lock().push(token.identity);
                }
                Ok(Issued::Issued { expires_at })
            }
            NO | UNREADABLE => Ok(Issued::Exists),
            code => Err(unexpected(code)),
        }
    }

    async fn extend_it(&self, id: &Identity, ttl: Duration) -> Result<Extended, StoreError> {
        let mut told = self.run(&SCRIPTS.extend, id, vec![micros(ttl)]).await?;
        match told.code {
            YES => Ok(Extended::Until(StoreTime::from_micros(told.number()?))),
            NO | UNREADABLE => {
                self.may_show(id).await?;
                Ok(Extended::Found(told.record()?))
            }
            code => Err(unexpected(code)),
        }
    }

    async fn see(&self, id: &Identity) -> Result<Seen, StoreError> {
        let mut told = self.run_kept(&SCRIPTS.get, id, vec![]).await.map_err(StoreError::of_nothing)?;
        let now = told.now()?;
        Ok(Seen { record: told.record()?.filter(|record| record.is_here(now)), now })
    }

    async fn wait_for(&self, id: &Identity, seen: Fence) {
        self.listen();
        let place = self.wakes.join(id);
        let mut told = std::pin::pin!(place.notify.notified());
        // Before the flag is set: who sees the flag may settle at once.
        told.as_mut().enable();
        let watched = self.run(&SCRIPTS.watch, id, vec![number(seen)]).await;
        match watched.map(|told| told.code) {
            // It has changed already.
            Ok(NO) => {}
            // Without the flag nobody tells; the engine looks by itself.
            Err(_) => std::future::pending().await,
            Ok(_) => told.await,
        }
    }

    async fn check_health(&self) -> Result<Health, StoreError> {
        let told = read_mark(&self.topology, &self.marks, &self.names).await.map_err(StoreError::of_nothing)?;
        read_more_marks(&self.topology, &self.marks, &self.more_marks).await;
        let mut trouble = Vec::new();
        // A master may hold none of the marks.
        if !self.more_marks.is_empty() {
            for master in self.topology.masters().await.map_err(StoreError::of_nothing)? {
                if let Err(error) = master.ask(&redis::cmd("PING")).await {
                    trouble.push(format!("{:?}: {}", master.target(), StoreError::from(error)));
                }
            }
        }
        if trouble.is_empty() {
            trouble = self.would_refuse().await;
        }
        let writable = trouble.is_empty();
        let (trouble, birth) = (trouble.join("; "), self.marks.birth());
        Ok(Health { now: told.now()?, writable, records: None, bytes: None, trouble, birth })
    }

    /// Why claims would be refused now, each reason once. Asked where the marks are: with the rights, and at the limit,
    /// that claims have.
    async fn would_refuse(&self) -> Vec<String> {
        let mark = self.names.mark();
        let keys = std::iter::once(&mark).chain(&self.more_marks);
        let calls: Vec<_> = keys.map(|key| Call { script: &SCRIPTS.room, key, args: vec![] }).collect();
        let mut reasons = Vec::new();
        for error in self.topology.run_all(&calls).await.into_iter().filter_map(Result::err) {
            let said = cause(&error);
            let reason = match error.kind {
                StoreErrorKind::Full => {
                    format!("new keys are refused at the server's memory limit (maxmemory): {said}")
                }
                _ => format!("new keys are refused: {said}"),
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }
}

fn renewed(mut told: Told) -> Result<Renewed, StoreError> {
    match told.code {
        YES => Ok(Renewed::Left(Duration::from_micros(u64::try_from(told.number()?).unwrap_or(0)))),
        MISSING => Ok(Renewed::Missing),
        NO | UNREADABLE => Ok(Renewed::Lost(told.the_record()?)),
        code => Err(unexpected(code)),
    }
}

fn settled(mut told: Told) -> Result<Settled, StoreError> {
    match told.code {
        YES if told.is_brief() => Ok(Settled::Ok { restored: false }),
        YES => Ok(Settled::Ok { restored: told.number()? == 1 }),
        NO | UNREADABLE => Ok(Settled::Lost(told.the_record()?)),
        code => Err(unexpected(code)),
    }
}

/// A question of a later version of the contract: nothing was sent.
pub(super) fn unsupported(what: &impl std::fmt::Debug) -> StoreError {
    use semel_core::store::{Did, StoreErrorKind};
    StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, format!("this store does not know {what:?}"))
}

impl Store for RedisStore {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        StoreFuture::new(self.claim_it(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        StoreFuture::new(self.renew_them(batch))
    }

    fn part(&self, id: &Identity) -> u64 {
        self.topology.part(&self.names.key(id))
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        StoreFuture::new(self.settle_it(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        StoreFuture::new(self.release_it(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        StoreFuture::new(self.issue_it(token))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        StoreFuture::new(self.extend_it(id, ttl))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        StoreFuture::new(async move {
            let is_gone = self.run(&SCRIPTS.withdraw, id, vec![]).await?.code == YES;
            if is_gone {
                self.wakes.changed(id.digest());
            }
            Ok(is_gone)
        })
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        StoreFuture::new(self.see(id))
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        match seen {
            Some(seen) => StoreFuture::new(self.wait_for(id, seen)),
            None => StoreFuture::never(),
        }
    }

    fn health(&self) -> Reply<'_, Health> {
        StoreFuture::new(self.check_health())
    }

    fn facts(&self) -> StoreFacts {
        self.what_it_is()
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.wakes.tell(to);
        self.listen();
    }
}
