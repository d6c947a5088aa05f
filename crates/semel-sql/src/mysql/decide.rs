//! Read, decide, write what was decided if the row is still the one that was read.
//!
//! The decision is the pure function of [`transition`](semel_core::transition), with the clock that came with the row. Owner
//! and fence name a grant, state and the two times what became of it: a row that shows all five as before was not changed by
//! any call in between, so that the write takes place at one moment with the reading.

use semel_core::{StoreTime, env::Tick, identity::Identity, record::Record, store::StoreError, transition::Step};

use super::{
    calls::{Calls, Wrote, nothing},
    row::Row,
    sql::{self, Args, time},
};

/// How often a row may change under a decision. The engine tries a claim three times on top of that.
const TRIES: u32 = 3;

/// How a decision ended.
pub(super) enum Decided<T> {
    /// It stands.
    Answer(T),
    /// The row changed every time, or somebody holds it; this was there last.
    Raced { record: Option<Record>, now: StoreTime },
}

impl<T> Decided<T> {
    /// The answer of a call that has none for a row that changes all the time.
    pub(super) fn answer(self) -> Result<T, StoreError> {
        match self {
            Self::Answer(answer) => Ok(answer),
            Self::Raced { .. } => Err(nothing("the row changed again and again, or was locked")),
        }
    }
}

impl Calls {
    /// The record of `id`, expired or not, and the clock.
    pub(super) async fn look(&self, until: Tick, id: &Identity) -> Result<(Option<Record>, StoreTime), StoreError> {
        let row = self.read_one(until, sql::READ, &Args::default().and(&id.digest()[..])).await?;
        let row = Row(&row);
        Ok((row.record()?, row.now()?))
    }

    /// Decides about one record; nothing is written after `not_after`.
    pub(super) async fn decide<T>(
        &self,
        until: Tick,
        id: &Identity,
        not_after: StoreTime,
        decision: impl Fn(Option<&Record>, StoreTime) -> Step<T>,
    ) -> Result<Decided<T>, StoreError> {
        let mut tries = 0;
        loop {
            let (record, now) = self.look(until, id).await?;
            let (wrote, answer) = match decision(record.as_ref(), now) {
                Step::Leave(answer) => return Ok(Decided::Answer(answer)),
                Step::Write(to, answer) => (self.put(until, id, record.as_ref(), &to, not_after).await?, answer),
                Step::Remove(answer) => (self.remove(until, id, record.as_ref()).await?, answer),
            };
            tries += 1;
            match wrote {
                Wrote::Rows { matched: 1.., .. } => return Ok(Decided::Answer(answer)),
                Wrote::Rows { .. } | Wrote::Duplicate if tries < TRIES => {}
                Wrote::Rows { .. } | Wrote::Duplicate | Wrote::Busy => return Ok(Decided::Raced { record, now }),
            }
        }
    }

    async fn put(
        &self,
        until: Tick,
        id: &Identity,
        seen: Option<&Record>,
        to: &Record,
        not_after: StoreTime,
    ) -> Result<Wrote, StoreError> {
        let args = Args::default().record(to);
        match seen {
            Some(seen) => {
                let args = args.if_seen(id.digest(), seen).and(time(not_after));
                self.write(until, sql::SWAP, &args).await
            }
            None => {
                let args = args.identity(id).and(time(not_after));
                self.write(until, sql::INSERT, &args).await
            }
        }
    }

    async fn remove(&self, until: Tick, id: &Identity, seen: Option<&Record>) -> Result<Wrote, StoreError> {
        match seen {
            Some(seen) => self.write(until, sql::REMOVE, &Args::default().if_seen(id.digest(), seen)).await,
            None => Ok(Wrote::Rows { matched: 1, id: 0 }),
        }
    }
}
