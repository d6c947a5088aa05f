//! A store whose clock seems to run ahead.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use semel_core::{
    Fence, StoreTime,
    identity::Identity,
    record::{Record, StateCode},
    store::{
        Ask, Changes, Claim, Claimed, Cursor, Extended, Filter, Health, Issued, NewToken, Page, Purged, Releasing,
        Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin, StoreError,
        StoreFacts, StoreFuture, Target,
    },
};

/// How far time was moved, in one place for all who see the same records.
#[derive(Clone, Debug, Default)]
pub struct Shift(Arc<AtomicU64>);

impl Shift {
    /// Moves time ahead. Whoever calls it has moved all that is stored back by as much.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    fn by(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Acquire))
    }

    fn seen(&self, time: StoreTime) -> StoreTime {
        if time == StoreTime::MAX { time } else { time + self.by() }
    }

    fn stored_time(&self, time: StoreTime) -> StoreTime {
        if time == StoreTime::MAX || time == StoreTime::default() { time } else { time - self.by() }
    }

    fn record(&self, record: Record) -> Record {
        let lease_until = record.lease_until;
        // No time at all stays none.
        let lease_until = if lease_until == StoreTime::default() { lease_until } else { self.seen(lease_until) };
        Record { lease_until, expires_at: self.seen(record.expires_at), ..record }
    }

    /// The bytes under which a store keeps what a client of a [`Shifted`] one sees.
    #[must_use]
    pub fn stored(&self, bytes: Bytes) -> Bytes {
        let record = Record::decode(&bytes);
        if !record.is_readable() {
            return bytes;
        }
        let lease_until = self.stored_time(record.lease_until);
        let expires_at = self.stored_time(record.expires_at);
        Bytes::from(Record { lease_until, expires_at, ..record }.encode())
    }
}

/// A client of a server whose clock nobody can move: where a [bed](super::Bed) moves back all that is stored, this
/// moves ahead all that is seen. So the store itself runs as it is.
pub struct Shifted<S> {
    store: S,
    shift: Shift,
}

impl<S> std::fmt::Debug for Shifted<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shifted({:?})", self.shift.by())
    }
}

impl<S: StoreAdmin> Shifted<S> {
    /// A client that sees everything later by `shift`.
    pub const fn new(store: S, shift: Shift) -> Self {
        Self { store, shift }
    }

    fn option(&self, record: Option<Record>) -> Option<Record> {
        record.map(|record| self.shift.record(record))
    }

    fn settled(&self, settled: Settled) -> Settled {
        match settled {
            Settled::Lost(record) => Settled::Lost(self.shift.record(record)),
            settled @ Settled::Ok { .. } => settled,
        }
    }
}

impl<S: StoreAdmin> Store for Shifted<S> {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        let mut moved = ask.clone();
        moved.set_not_after(self.shift.stored_time(ask.not_after));
        StoreFuture::new(async move {
            Ok(match self.store.claim(&moved).await? {
                Claimed::Granted { claim, left, now, unresolved } => {
                    Claimed::Granted { claim, left, now: self.shift.seen(now), unresolved }
                }
                Claimed::Found { record, now } => {
                    Claimed::Found { record: self.option(record), now: self.shift.seen(now) }
                }
                Claimed::Late { now } => Claimed::Late { now: self.shift.seen(now) },
            })
        })
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let seen = |renewed: Result<Renewed, StoreError>| match renewed {
            Ok(Renewed::Lost(record)) => Ok(Renewed::Lost(self.shift.record(record))),
            other => other,
        };
        StoreFuture::new(async move { Ok(self.store.renew(batch).await?.into_iter().map(seen).collect()) })
    }

    fn part(&self, id: &Identity) -> u64 {
        self.store.part(id)
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        StoreFuture::new(async move { Ok(self.settled(self.store.settle(claim, to).await?)) })
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        StoreFuture::new(async move { Ok(self.settled(self.store.release(what).await?)) })
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        StoreFuture::new(async move {
            Ok(match self.store.issue(token).await? {
                Issued::Issued { expires_at } => Issued::Issued { expires_at: self.shift.seen(expires_at) },
                Issued::Exists => Issued::Exists,
            })
        })
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        StoreFuture::new(async move {
            Ok(match self.store.extend(id, ttl).await? {
                Extended::Until(time) => Extended::Until(self.shift.seen(time)),
                Extended::Found(record) => Extended::Found(self.option(record)),
            })
        })
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.store.withdraw(id)
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        StoreFuture::new(async move {
            let seen = self.store.get(id).await?;
            Ok(Seen { record: self.option(seen.record), now: self.shift.seen(seen.now) })
        })
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.store.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        StoreFuture::new(async move {
            let health = self.store.health().await?;
            Ok(Health { now: self.shift.seen(health.now), ..health })
        })
    }

    fn facts(&self) -> StoreFacts {
        self.store.facts()
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.store.tell_changes(to);
    }
}

impl<S: StoreAdmin> StoreAdmin for Shifted<S> {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        StoreFuture::new(async move {
            let mut page = self.store.list(filter, after, max).await?;
            page.now = self.shift.seen(page.now);
            for entry in &mut page.entries {
                entry.record = self.shift.record(entry.record.clone());
            }
            Ok(page)
        })
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        StoreFuture::new(async move {
            Ok(match self.store.resolve(target, to).await? {
                Resolved::Conflict(record) => Resolved::Conflict(self.option(record)),
                resolved @ Resolved::Ok(_) => resolved,
            })
        })
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        self.store.delete(id, expected)
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        self.store.purge(max)
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.store.audit(line)
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        self.store.audited(max)
    }
}
