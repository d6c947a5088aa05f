//! The memory store: sharded, bounded by records and bytes. It ends with the process.

mod shard;

use std::{collections::VecDeque, fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use parking_lot::Mutex;

use self::shard::{Budget, Growth, Shard};
use super::{
    Ask, Claim, Claimed, Cursor, Durability, Entry, Extended, FenceStrength, Filter, Health, Issued, NewToken, Page,
    Purged, Releasing, Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin,
    StoreError, StoreFacts, StoreFuture, Target,
};
use crate::{
    env::{Env, LocalStoreClock},
    identity::Identity,
    ids::{Fence, StoreTime},
    record::{Record, Rest, StateCode},
    transition::{self, Step},
};

const SHARDS: usize = 64;

/// Lines about what people did that are kept.
const AUDIT_LINES: usize = 1_000;

/// How much a memory store holds. Under pressure in bytes it drops the bodies of the outcomes that end first, never a
/// record before its time; where that is not enough it refuses claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capacity {
    /// How many records at most.
    pub records: usize,
    /// How many bytes at most: about 340 a record, plus what it carries.
    pub bytes: usize,
}

impl Default for Capacity {
    /// A million records in 512 MiB.
    fn default() -> Self {
        Self { records: 1_000_000, bytes: 512 << 20 }
    }
}

/// Records in this process's memory.
///
/// Cost: one short lock of one of 64 shards per call, no await. A finished record takes about 340 bytes plus its key's
/// shown form, head and body.
pub struct MemoryStore {
    shards: Box<[Mutex<Shard>]>,
    budget: Arc<Budget>,
    clock: LocalStoreClock,
    /// What writers purged on their way and nobody has been told of yet.
    unresolved: Mutex<Purged>,
    audit: Mutex<VecDeque<Box<str>>>,
}

impl MemoryStore {
    /// An empty store on `env`'s clock.
    #[must_use]
    pub fn new(env: &Env, capacity: Capacity) -> Self {
        let budget = Arc::new(Budget::new(capacity));
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::new(Arc::clone(&budget)))).collect();
        let clock = LocalStoreClock::new(Arc::clone(&env.clock), StoreTime::default());
        Self { shards, budget, clock, unresolved: Mutex::default(), audit: Mutex::default() }
    }

    /// Puts a record in place behind the store's back, as a restored backup or a newer process would; `None` takes it
    /// away, as a flush would.
    #[cfg(feature = "testing")]
    pub fn plant(&self, id: &Identity, record: Option<Record>) {
        let mut shard = self.shard(id.digest()).lock();
        match record {
            Some(record) => shard.put(id.digest(), record),
            None => shard.remove(id.digest()),
        }
    }

    /// The shard of a digest. Its top bits, so that shards in order hold digests in order.
    fn shard(&self, digest: &[u8; 32]) -> &Mutex<Shard> {
        &self.shards[usize::from(digest[0]) * SHARDS / 256]
    }

    /// One atomic decision about one record. `room` is what it does when there is none for the write.
    fn decide<T>(
        &self,
        id: &Identity,
        room: Room,
        decision: impl FnOnce(Option<&Record>, StoreTime) -> Step<T>,
    ) -> Result<T, StoreError> {
        let mut shard = self.shard(id.digest()).lock();
        let now = self.clock.now();
        let found = shard.get(id.digest());
        let held = found.map(|record| record.rest.len());
        match decision(found, now) {
            Step::Leave(answer) => Ok(answer),
            Step::Remove(answer) => {
                shard.remove(id.digest());
                Ok(answer)
            }
            Step::Write(record, answer) => {
                // Two gone for one that comes keeps memory level without a sweeper.
                let mut purged = Purged::default();
                shard.sweep(now, id.digest(), &mut purged);
                if !purged.unresolved.is_empty() {
                    self.unresolved.lock().unresolved.append(&mut purged.unresolved);
                }
                // The sweep has spared what was found.
                let wanted = Growth::of(held, &record);
                if self.budget.has_room(wanted) || self.make_room(&mut shard, wanted) {
                    shard.put(id.digest(), record);
                    return Ok(answer);
                }
                match room {
                    Room::Refuse => Err(StoreError::full()),
                    // Running work always settles: without its body if need be.
                    Room::Settle => {
                        shard.put_without_body(id.digest(), record);
                        Ok(answer)
                    }
                }
            }
        }
    }

    /// Drops bodies until `wanted` fits: in the shard at hand, then in those that nobody is using.
    fn make_room(&self, mine: &mut Shard, wanted: Growth) -> bool {
        if !self.budget.may_have_room(wanted) {
            return false;
        }
        mine.shed(wanted.bytes);
        if self.budget.has_room(wanted) {
            return true;
        }
        self.shards.iter().filter_map(Mutex::try_lock).any(|mut other| {
            other.shed(wanted.bytes);
            self.budget.has_room(wanted)
        })
    }
}

#[derive(Clone, Copy)]
enum Room {
    Refuse,
    Settle,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryStore({} records)", self.budget.records())
    }
}

impl Store for MemoryStore {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        StoreFuture::ready(self.decide(&ask.identity, Room::Refuse, |slot, now| transition::claim(slot, ask, now)))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let one = |r: &Renewal<'_>| {
            self.decide(r.claim.identity(), Room::Settle, |slot, now| transition::renew(slot, r, now))
        };
        StoreFuture::ready(Ok(batch.iter().map(one).collect()))
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        let settle = |slot: Option<&Record>, now| transition::settle(slot, claim, to, now);
        StoreFuture::ready(self.decide(claim.identity(), Room::Settle, settle))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        let id = match what {
            Releasing::Held { claim, .. } => claim.identity(),
            Releasing::Fate { identity, .. } => identity,
        };
        StoreFuture::ready(self.decide(id, Room::Settle, |slot, now| transition::release(slot, what, now)))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        StoreFuture::ready(self.decide(&token.identity, Room::Refuse, |slot, now| transition::issue(slot, token, now)))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        StoreFuture::ready(self.decide(id, Room::Settle, |slot, now| transition::extend(slot, ttl, now)))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        StoreFuture::ready(self.decide(id, Room::Settle, transition::withdraw))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        let shard = self.shard(id.digest()).lock();
        let now = self.clock.now();
        let record = shard.get(id.digest()).filter(|r| r.is_here(now)).cloned();
        StoreFuture::ready(Ok(Seen { record, now }))
    }

    fn wait<'a>(&'a self, _id: &'a Identity, _seen: Option<Fence>) -> StoreFuture<'a, ()> {
        // One process: the engine that settles wakes its waiters itself.
        StoreFuture::never()
    }

    fn health(&self) -> Reply<'_, Health> {
        StoreFuture::ready(Ok(Health {
            now: self.clock.now(),
            writable: true,
            records: Some(self.budget.records() as u64),
            bytes: Some(self.budget.bytes() as u64),
            trouble: String::new(),
            birth: None,
        }))
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts {
            name: "memory",
            durability: Durability::None,
            fence: FenceStrength::Strong,
            max_rest: self.budget.largest_rest(),
            shared: false,
            tells_changes: false,
        }
    }
}

impl StoreAdmin for MemoryStore {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        let now = self.clock.now();
        let mut entries = Vec::new();
        let after: Option<[u8; 32]> = after.and_then(|c| c.0.as_ref().try_into().ok());
        for shard in &self.shards {
            let shard = shard.lock();
            let mut found: Vec<_> = shard
                .iter()
                .filter(|(digest, r)| after.is_none_or(|a| **digest > a) && r.is_here(now) && filter.passes(r, now))
                .map(|(digest, r)| (*digest, r.clone()))
                .collect();
            drop(shard);
            found.sort_unstable_by_key(|(digest, _)| *digest);
            entries.extend(found.into_iter().take(max - entries.len()));
            if entries.len() == max {
                break;
            }
        }
        let last = if entries.len() == max { entries.last().map(|(d, _)| *d) } else { None };
        let next = last.map(|d| Cursor(Bytes::copy_from_slice(&d)));
        let entry = |(digest, record): ([u8; 32], Record)| {
            let identity = Rest::read(&record.rest).ok().map(|rest| rest.identity(digest))?;
            Some(Entry { identity, record })
        };
        StoreFuture::ready(Ok(Page { entries: entries.into_iter().filter_map(entry).collect(), next, now }))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        let key = (target.fence, target.resolver);
        StoreFuture::ready(
            self.decide(target.identity, Room::Settle, |slot, now| transition::resolve(slot, key, to, now)),
        )
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        StoreFuture::ready(self.decide(id, Room::Settle, |slot, now| transition::delete(slot, expected, now)))
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        let now = self.clock.now();
        let mut purged = std::mem::take(&mut *self.unresolved.lock());
        for shard in &self.shards {
            shard.lock().purge(now, max.saturating_sub(purged.removed), &mut purged);
            if purged.removed >= max {
                break;
            }
        }
        purged.more = purged.removed >= max;
        StoreFuture::ready(Ok(purged))
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        let mut lines = self.audit.lock();
        if lines.len() == AUDIT_LINES {
            lines.pop_back();
        }
        lines.push_front(line.into());
        StoreFuture::ready(Ok(()))
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        StoreFuture::ready(Ok(self.audit.lock().iter().take(max).map(|line| line.to_string()).collect()))
    }
}

impl Filter {
    /// Whether a record passes.
    #[must_use]
    pub fn passes(&self, record: &Record, now: StoreTime) -> bool {
        if self.state.is_some_and(|s| record.reads_as(now) != s) {
            return false;
        }
        if self.namespace.is_none() && self.rule.is_none() {
            return true;
        }
        Rest::read(&record.rest).is_ok_and(|rest| {
            self.namespace.as_ref().is_none_or(|n| n == rest.meta.namespace)
                && self.rule.as_ref().is_none_or(|n| n == rest.meta.rule)
        })
    }
}

#[cfg(test)]
mod tests;
