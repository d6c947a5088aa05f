//! One atomic decision about one record, and what its answer waits for.

use std::{sync::atomic::Ordering, time::Duration};

#[cfg(feature = "testing")]
use bytes::Bytes;
use semel_core::{
    Owner, StoreTime,
    record::{Flags, Record, without_body},
    store::{Did, Reply, StoreError, StoreErrorKind, StoreFuture},
    transition::Step,
};

use super::Shared;
use crate::{
    disk::{Change, Digest, is_flight},
    log::{Need, Refused, Stopped, Ticket},
    shard::unresolved_end,
    space::Room,
};

/// What is left of an outcome's body when the disk is full.
const SPENT_BODY: usize = 4 << 10;

/// How a call wants to be treated.
#[derive(Clone, Copy)]
pub(super) struct How {
    /// What its answer waits for.
    pub(super) need: Need,
    /// It begins something: refused where there is no room.
    pub(super) begins: bool,
    /// Who asks: a record of theirs that the disk does not have is no answer yet.
    pub(super) me: Option<Owner>,
}

/// An answer, and what it waits for.
pub(super) enum Decided<'a, T> {
    Now(Result<T, StoreError>),
    After(T, Ticket<'a>),
}

impl<'a, T> Decided<'a, T> {
    pub(super) fn reply(self) -> Reply<'a, T>
    where
        T: Send + 'a,
    {
        match self {
            Self::Now(answer) => StoreFuture::ready(answer),
            Self::After(answer, ticket) => StoreFuture::new(async move { wait(ticket).await.map(|()| answer) }),
        }
    }
}

/// Whether what was waited for came to pass.
pub(super) async fn wait(ticket: Ticket<'_>) -> Result<(), StoreError> {
    ticket.await.map_err(|stopped| stopped.error(Did::Unknown))
}

impl Shared {
    /// One atomic decision about one record. Its order in the log is its order under the shard's lock.
    pub(super) fn decide<T>(
        &self,
        digest: &Digest,
        how: How,
        decision: impl FnOnce(Option<&Record>, StoreTime) -> Step<T>,
    ) -> Decided<'_, T> {
        if self.closed.load(Ordering::Relaxed) {
            return Decided::Now(Err(Stopped::Closed.error(Did::Nothing)));
        }
        let mut shard = self.shard(digest).lock();
        let now = self.now();
        let mut loaded = None;
        let (current, pending) = match shard.get(digest) {
            Some(slot) => (slot.record.as_ref(), slot.pending),
            None => match self.load(digest) {
                Ok(found) => {
                    loaded = found;
                    (loaded.as_ref(), 0)
                }
                Err(e) => return Decided::Now(Err(e)),
            },
        };
        let (mut record, answer) = match decision(current, now) {
            Step::Leave(answer) => {
                let mine = current.is_some_and(|r| how.me == Some(r.owner));
                // A claim that is not on the disk yet refuses others at once; whatever else is shown has to be there.
                let shows = current.is_some_and(|r| mine || !is_flight(r));
                if let Some(record) = loaded.filter(|r| r.is_here(now)) {
                    shard.keep(digest, record);
                }
                drop(shard);
                return if pending != 0 && shows { self.after(answer, how, mine) } else { Decided::Now(Ok(answer)) };
            }
            Step::Write(record, answer) => (Some(record), answer),
            Step::Remove(answer) => (None, answer),
        };
        if let Some(renewed) = record.take_if(|r| current.is_some_and(|c| is_renewal(c, r))) {
            shard.renew(digest, renewed);
            return Decided::Now(Ok(answer));
        }
        if how.begins && self.space.room() != Room::Roomy {
            if self.space.is_stale() {
                self.queue.nudge();
            }
            return Decided::Now(Err(StoreError::full().after(Duration::from_secs(1))));
        }
        if self.space.room() == Room::Spent {
            record = record.map(small);
        }
        let ended = current.and_then(unresolved_end);
        let change = Change { digest: *digest, to: record.clone(), raw: None };
        match self.queue.push(change, how.need, !how.begins) {
            Ok((number, ticket)) => {
                shard.change(digest, ended, record, number);
                Decided::After(answer, ticket)
            }
            Err(refused) => Decided::Now(Err(refusal(refused))),
        }
    }

    /// Puts bytes in place of a record, or takes it away, whatever is there.
    #[cfg(feature = "testing")]
    pub(super) fn plant(&self, digest: &Digest, bytes: Option<Bytes>) -> Result<Ticket<'_>, StoreError> {
        let mut shard = self.shard(digest).lock();
        let current = match shard.get(digest) {
            Some(slot) => slot.record.clone(),
            None => self.load(digest)?,
        };
        let record = bytes.as_ref().map(Record::decode);
        let change = Change { digest: *digest, to: record.clone(), raw: bytes };
        let (number, ticket) = self.queue.push(change, Need::Synced, true).map_err(refusal)?;
        shard.change(digest, current.as_ref().and_then(unresolved_end), record, number);
        Ok(ticket)
    }

    /// An answer that shows what the disk does not have yet.
    fn after<T>(&self, answer: T, how: How, mine: bool) -> Decided<'_, T> {
        match self.queue.barrier(how.need.max(self.settled())) {
            Ok(ticket) => Decided::After(answer, ticket),
            // It never got there. To its owner that is no answer; for everybody else it happened all the same.
            Err(stopped) if mine => Decided::Now(Err(stopped.error(Did::Unknown))),
            Err(_) => Decided::Now(Ok(answer)),
        }
    }

    /// A record from the disk.
    pub(super) fn load(&self, digest: &Digest) -> Result<Option<Record>, StoreError> {
        let bytes = self.disk(|disk| disk.record(digest))?;
        Ok(bytes.map(|bytes| Record::decode(&bytes)))
    }
}

fn refusal(refused: Refused) -> StoreError {
    match refused {
        Refused::Stopped(stopped) => stopped.error(Did::Nothing),
        Refused::Busy => {
            let why = "too many changes wait for the disk";
            StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, why).after(Duration::from_millis(100))
        }
    }
}

/// Whether `to` differs from `from` only in its lease: that is not written.
fn is_renewal(from: &Record, to: &Record) -> bool {
    is_flight(from) && is_flight(to) && from.owner == to.owner && from.fence == to.fence
}

/// What is kept of a record on a full disk.
fn small(record: Record) -> Record {
    match without_body(&record.rest) {
        Some(rest) if record.rest.len() > SPENT_BODY => {
            Record { rest, flags: record.flags.without(Flags::BODY_KEPT), ..record }
        }
        _ => record,
    }
}
