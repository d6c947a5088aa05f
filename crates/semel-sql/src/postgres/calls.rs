//! What executes.

use std::{sync::Weak, time::Duration};

use bytes::Bytes;
use semel_core::{
    Fence, Owner, StoreTime,
    identity::Identity,
    record::{Flags, Record},
    store::{
        Ask, Changes, Claim, Claimed, Did, Extended, Health, Issued, NewToken, Releasing, Renewal, Renewed, Reply,
        Seen, Settled, Settlement, Store, StoreError, StoreFacts, StoreFuture,
    },
    transition::{self, Step},
};

use sqlx::{Row, postgres::PgRow};

use super::{
    PostgresStore,
    client::Failure,
    error,
    rows::{Answer, Got, columns, time},
    sql::{self, Statement},
    statement::Arg,
};
use crate::record::rule;

/// How often a decision is asked for anew that others got in the way of: what it saw was over when it wrote.
const RACES: usize = 8;

/// A duration in µs, short enough that sums of a few stay in range: 36,000 years.
pub(super) fn micros(d: Duration) -> i64 {
    i64::try_from(d.as_micros()).unwrap_or(i64::MAX).min(1 << 60)
}

pub(super) fn number(fence: Fence) -> i64 {
    i64::try_from(fence.get()).unwrap_or(i64::MAX)
}

pub(super) fn kind(id: &Identity) -> &'static str {
    match id.kind() {
        semel_core::identity::Kind::Token => "t",
        semel_core::identity::Kind::Window => "d",
        semel_core::identity::Kind::Message => "m",
        _ => "k",
    }
}

fn granted(ask: &Ask, got: &Got, found: Option<&Record>, now: StoreTime) -> Result<Claimed, StoreError> {
    let fence = u64::try_from(got.fence).ok().and_then(Fence::new);
    let fence = fence.ok_or_else(|| error::unavailable(Did::Unknown, "the server granted no fence"))?;
    // Over a row that had ended. Where that one was purged meanwhile, whoever did so told of it.
    let unresolved = got.updated && got.attempt == 1 && found.is_some_and(|r| !r.is_here(now) && r.is_unresolved());
    let attempt = u32::try_from(got.attempt).unwrap_or(u32::MAX);
    Ok(Claimed::Granted { claim: ask.grant(fence, attempt), left: ask.lease, now, unresolved })
}

impl PostgresStore {
    /// The answer of a statement about one record.
    pub(super) async fn ask(&self, statement: &Statement, args: &[Arg<'_>]) -> Result<Answer, Failure> {
        let rows = self.client.run(statement, args).await?;
        // The client gives at least one row. One that cannot be read leaves open what was done.
        Answer::read(&rows[0]).map_err(|e| Failure::Other(error::verdict(&e).error(e)))
    }

    /// A decision about one record: what was written, or what the transition table says about the row that was found.
    /// Where that says that the row could be written, another one was faster.
    pub(super) async fn decide<T>(
        &self,
        (id, statement): (&Identity, &Statement),
        args: &[Arg<'_>],
        done: impl Fn(&Got, &Answer) -> T,
        table: impl Fn(Option<&Record>, StoreTime) -> Step<T>,
    ) -> Result<T, StoreError> {
        for _ in 0..RACES {
            let answer = self.ask(statement, args).await?;
            if let Some(got) = &answer.got {
                self.changed(id, &answer);
                return Ok(done(got, &answer));
            }
            if let Step::Leave(told) = table(answer.record().as_ref(), answer.now) {
                return Ok(told);
            }
        }
        Err(error::unavailable(Did::Nothing, "others got in the way each time"))
    }

    fn fits(&self, rest: &Bytes) -> Result<(), StoreError> {
        if rest.len() as u64 <= self.max_rest { Ok(()) } else { Err(StoreError::full()) }
    }

    async fn claimed(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        if let Some(listener) = &self.listener {
            listener.keep_listening();
        }
        self.fits(&ask.rest)?;
        let (owner, rule) = (ask.owner(), rule(&ask.rest));
        let args = [
            Arg::Bytes(ask.identity.digest()),
            Arg::Int(Flags::when(ask.takeover, Flags::TAKEOVER).byte().into()),
            Arg::Int(ask.fingerprint.version().algorithm.into()),
            Arg::Bytes(ask.fingerprint.digest()),
            Arg::Bytes(owner.as_bytes()),
            Arg::Int(micros(ask.lease)),
            Arg::Int(micros(ask.hold.saturating_add(ask.keep))),
            Arg::Bytes(&ask.rest),
            Arg::Bool(ask.needs_token),
            Arg::Int(micros(ask.grace)),
            Arg::Int(ask.not_after.as_micros()),
            Arg::Text(ask.identity.namespace().as_str()),
            Arg::Text(kind(&ask.identity)),
            Arg::Text(&rule),
        ];
        let mut tries = 2;
        loop {
            tries -= 1;
            let answer = match self.ask(&sql::CLAIM, &args).await {
                Ok(answer) => answer,
                Err(Failure::Locked(_)) => return self.locked(ask).await,
                Err(Failure::Other(error)) => return Err(error),
            };
            let (now, found) = (answer.now, answer.record());
            if let Some(got) = answer.got {
                return granted(ask, &got, found.as_ref(), now);
            }
            // It waited for another one, who took what it had found. Now there is something to see: its own claim perhaps,
            // of which the reply was lost.
            let raced = matches!(transition::claim(found.as_ref(), ask, now), Step::Write(..));
            if !raced || tries == 0 {
                let late = now > ask.not_after;
                return Ok(if late { Claimed::Late { now } } else { Claimed::Found { record: found, now } });
            }
        }
    }

    /// Somebody is changing the record and takes long: to the one who asks it is in flight, whatever it was before.
    async fn locked(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        let Seen { record, now } = self.seen(&ask.identity).await?;
        let own = record.filter(|r| r.owner == ask.owner());
        let record = own.unwrap_or_else(|| Record::decode(&Bytes::new()));
        Ok(Claimed::Found { record: Some(record), now })
    }

    async fn seen(&self, id: &Identity) -> Result<Seen, StoreError> {
        let answer = self.ask(&sql::GET, &[Arg::Bytes(id.digest())]).await.map_err(StoreError::from);
        let answer = answer.map_err(StoreError::of_nothing)?;
        let record = answer.record().filter(|r| r.is_here(answer.now));
        Ok(Seen { record, now: answer.now })
    }

    async fn settled(&self, claim: &Claim, to: &Settlement) -> Result<Settled, StoreError> {
        let (statement, fingerprint, rest, flags, ttl) = match to {
            Settlement::Done { fingerprint, rest, body_kept, ttl } => {
                (&sql::COMPLETE, fingerprint, rest, Flags::when(*body_kept, Flags::BODY_KEPT), ttl)
            }
            Settlement::Unknown { fingerprint, rest, ttl } => (&sql::UNKNOWN, fingerprint, rest, Flags::NONE, ttl),
            _ => return Err(error::unavailable(Did::Nothing, "a settlement that this store does not know")),
        };
        self.fits(rest)?;
        let (id, owner, rule) = (claim.identity(), claim.owner(), rule(rest));
        let args = [
            Arg::Bytes(id.digest()),
            Arg::Bytes(owner.as_bytes()),
            Arg::Int(number(claim.fence())),
            Arg::Int(flags.byte().into()),
            Arg::Int(fingerprint.version().algorithm.into()),
            Arg::Bytes(fingerprint.digest()),
            Arg::Int(claim.attempt().into()),
            Arg::Int(micros(*ttl)),
            Arg::Bytes(rest),
            Arg::Text(id.namespace().as_str()),
            Arg::Text(kind(id)),
            Arg::Text(&rule),
        ];
        let own = |r: &Record, now| r.is_here(now) && r.belongs_to(claim.owner(), claim.fence());
        let done = |got: &Got, answer: &Answer| Settled::Ok {
            restored: !(got.updated && answer.record().is_some_and(|r| own(&r, answer.now))),
        };
        self.decide((id, statement), &args, done, |slot, now| transition::settle(slot, claim, to, now)).await
    }

    async fn released(&self, what: &Releasing<'_>) -> Result<Settled, StoreError> {
        let (id, owner, fence, counts, state, keep, rest) = match what {
            Releasing::Held { claim, counts, park, keep, rest } => {
                let state = if *park { 4 } else { 0 };
                (claim.identity(), claim.owner(), number(claim.fence()), *counts, state, *keep, rest)
            }
            Releasing::Fate { identity, owner, keep, rest } => (*identity, *owner, 0, false, 0, *keep, rest),
            _ => return Err(error::unavailable(Did::Nothing, "a release that this store does not know")),
        };
        let args = [
            Arg::Bytes(id.digest()),
            Arg::Bytes(owner.as_bytes()),
            Arg::Int(fence),
            Arg::Int(state),
            Arg::Int(i64::from(!counts)),
            Arg::Int(micros(keep)),
            Arg::Bytes(rest),
        ];
        let done = |_: &Got, _: &Answer| Settled::Ok { restored: false };
        self.decide((id, &sql::RELEASE), &args, done, |slot, now| transition::release(slot, what, now)).await
    }

    async fn renewed(&self, batch: &[Renewal<'_>]) -> Result<Vec<Result<Renewed, StoreError>>, StoreError> {
        let mut answers: Vec<Option<Renewed>> = batch.iter().map(|_| None).collect();
        let mut ends: Vec<Option<StoreTime>> = vec![None; batch.len()];
        // In the order of the rows' keys: two batches that share rows lock them in the same order.
        let mut open: Vec<usize> = (0..batch.len()).collect();
        open.sort_by_key(|&n| batch[n].claim.identity().digest());
        for _ in 0..RACES {
            if open.is_empty() {
                break;
            }
            let owners: Vec<Owner> = open.iter().map(|&n| batch[n].claim.owner()).collect();
            let of = |value: &dyn Fn(&Renewal<'_>) -> i64| Arg::Ints(open.iter().map(|&n| value(&batch[n])).collect());
            let args = [
                Arg::Ids(open.iter().map(|&n| &batch[n].claim.identity().digest()[..]).collect()),
                Arg::Ids(owners.iter().map(|o| &o.as_bytes()[..]).collect()),
                of(&|r| number(r.claim.fence())),
                of(&|r| micros(r.lease)),
                of(&|r| micros(r.keep)),
            ];
            let rows = self.client.run(&sql::RENEW, &args).await?;
            let mut read = |n: usize, row: &PgRow| -> sqlx::Result<Option<Renewed>> {
                let now = time(row, 0)?;
                if let Some(until) = row.try_get::<Option<i64>, _>(1)?.map(StoreTime::from_micros) {
                    ends[n] = Some(until);
                    return Ok(Some(Renewed::Left(until.since(now))));
                }
                let mut record = columns(row, 2)?.map(|c| c.record());
                // An older claim on a row that an earlier one of this batch renewed: it is shown as it is by then.
                if let Some(r) = &mut record {
                    let same = (0..n).rev().filter(|&m| batch[m].claim.identity() == batch[n].claim.identity());
                    r.lease_until = same.filter_map(|m| ends[m]).next().unwrap_or(r.lease_until);
                }
                match transition::renew(record.as_ref(), &batch[n], now) {
                    Step::Leave(lost @ (Renewed::Missing | Renewed::Lost(_))) => Ok(Some(lost)),
                    // It was its own when the statement began, and no longer when it came to write.
                    _ => Ok(None),
                }
            };
            for (&n, row) in open.iter().zip(&rows) {
                answers[n] = read(n, row).map_err(|e| error::verdict(&e).error(e))?;
            }
            open.retain(|&n| answers[n].is_none());
        }
        let raced = || error::unavailable(Did::Unknown, "others got in the way each time");
        Ok(answers.into_iter().map(|answer| answer.ok_or_else(raced)).collect())
    }

    async fn issued(&self, token: &NewToken) -> Result<Issued, StoreError> {
        self.fits(&token.rest)?;
        let (id, rule) = (&token.identity, rule(&token.rest));
        let args = [
            Arg::Bytes(id.digest()),
            Arg::Int(micros(token.ttl.min(token.max_life))),
            Arg::Int(micros(token.max_life)),
            Arg::Bytes(&token.rest),
            Arg::Text(id.namespace().as_str()),
            Arg::Text(kind(id)),
            Arg::Text(&rule),
            Arg::Bytes(&[0; 16]),
        ];
        let done = |got: &Got, _: &Answer| Issued::Issued { expires_at: StoreTime::from_micros(got.expires_at) };
        self.decide((id, &sql::ISSUE), &args, done, |slot, now| transition::issue(slot, token, now)).await
    }

    async fn healthy(&self) -> Result<Health, StoreError> {
        let pool = &self.client.pool;
        let deadline = pool.deadline();
        let mut lease = pool.take(deadline).await?;
        let looked = match pool.within(deadline, pool.server().look(&mut lease)).await {
            Some(Ok(looked)) => {
                lease.back();
                looked?
            }
            Some(Err(error)) => {
                lease.broke();
                return Err(error::verdict(&error).error(error).of_nothing());
            }
            None => return Err(error::unavailable(Did::Nothing, "the server did not answer in time")),
        };
        Ok(Health {
            now: looked.now,
            writable: looked.trouble.is_empty(),
            records: None,
            bytes: Some(looked.bytes),
            trouble: looked.trouble.to_owned(),
            birth: Some(looked.birth),
        })
    }
}

impl Store for PostgresStore {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        StoreFuture::new(self.claimed(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        if batch.is_empty() {
            return StoreFuture::ready(Ok(Vec::new()));
        }
        StoreFuture::new(self.renewed(batch))
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        StoreFuture::new(self.settled(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        StoreFuture::new(self.released(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        StoreFuture::new(self.issued(token))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        let until = |got: &Got, _: &Answer| Extended::Until(StoreTime::from_micros(got.expires_at));
        StoreFuture::new(async move {
            let args = [Arg::Bytes(id.digest()), Arg::Int(micros(ttl))];
            self.decide((id, &sql::EXTEND), &args, until, |slot, now| transition::extend(slot, ttl, now)).await
        })
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        StoreFuture::new(async move {
            let args = [Arg::Bytes(id.digest())];
            self.decide((id, &sql::WITHDRAW), &args, |_, _| true, transition::withdraw).await
        })
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        StoreFuture::new(self.seen(id))
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.woken(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        StoreFuture::new(self.healthy())
    }

    fn facts(&self) -> StoreFacts {
        self.facts_of()
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        if let Some(listener) = &self.listener {
            listener.tell_changes(to);
        }
    }
}
