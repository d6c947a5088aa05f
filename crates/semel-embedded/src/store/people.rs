//! `StoreAdmin`: what people use.

use std::collections::BTreeMap;

use bytes::Bytes;
use parking_lot::Mutex;
use semel_core::{
    StoreTime,
    identity::Identity,
    record::{Record, Rest, StateCode},
    store::{
        Cursor, Did, Entry, Filter, Page, Purged, Reply, Resolution, Resolved, StoreAdmin, StoreError, StoreErrorKind,
        StoreFuture, Target,
    },
    transition::{self, Step},
};

use super::{
    EmbeddedStore, Shared,
    decide::{Decided, How, wait},
};
use crate::{
    audit,
    disk::{Digest, Disk, DiskError},
    log::{Need, Ticket},
    share::{SHARES, first_of, share_of},
};

/// How many stored records one page looks at, at most: a filter that nothing passes does not hold a caller up.
const LOOKED_AT: usize = 4_096;

impl How {
    /// A call that begins nothing and waits for the write alone.
    pub(super) const WRITTEN: Self = Self { need: Need::Written, begins: false, me: None };
}

impl StoreAdmin for EmbeddedStore {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        let after = after.and_then(|c| c.0.as_ref().try_into().ok());
        StoreFuture::ready(self.shared.page(filter, after, max.max(1)))
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        let how = How { need: Need::Synced, begins: false, me: Some(target.resolver) };
        let key = (target.fence, target.resolver);
        let digest = target.identity.digest();
        self.shared.decide(digest, how, |slot, now| transition::resolve(slot, key, to, now)).reply()
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        self.shared.decide(id.digest(), How::WRITTEN, |slot, now| transition::delete(slot, expected, now)).reply()
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        let (removed, last) = match self.shared.purge(max) {
            Ok(done) => done,
            Err(e) => return StoreFuture::ready(Err(e)),
        };
        let unresolved = std::mem::take(&mut *self.shared.unresolved.lock());
        let purged = Purged { removed, unresolved, more: removed >= max };
        match last {
            // The log is in order: when the last removal is written, all are.
            Some(ticket) => StoreFuture::new(async move { wait(ticket).await.map(|()| purged) }),
            None => StoreFuture::ready(Ok(purged)),
        }
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        let kept = audit::append(self.dir(), line);
        // Half a line may stand there; the next one is told apart from it.
        StoreFuture::ready(kept.map_err(|e| StoreError::new(Did::Unknown, StoreErrorKind::Unavailable, e)))
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        let lines = audit::newest(self.dir(), max);
        StoreFuture::ready(lines.map_err(|e| StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, e)))
    }
}

impl Shared {
    /// How many records the disk has; `None` once it is closed.
    pub(super) fn records(&self) -> Option<u64> {
        self.disk(|disk| Ok(disk.len())).ok()
    }

    /// How many bytes the disk takes; `None` once it is closed.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.disk(|disk| Ok(disk.size())).ok()
    }

    fn page(&self, filter: &Filter, after: Option<Digest>, max: usize) -> Result<Page, StoreError> {
        let now = self.now();
        let mut entries = Vec::new();
        let mut looked = 0;
        let mut from = match after {
            Some(last) => match successor(last) {
                Some(next) => next,
                None => return Ok(Page { entries, next: None, now }),
            },
            None => [0; 32],
        };
        // Shard by shard: the shard's lock keeps memory and disk from telling two stories about one record.
        for shard in share_of(&from)..SHARES {
            loop {
                let (found, until) = self.stretch(shard, &from, LOOKED_AT.min(max.saturating_mul(4).max(16)))?;
                looked += found.len();
                for (digest, record) in found {
                    if record.is_here(now) && filter.passes(&record, now) {
                        // A record of a newer version has no name that this one could show.
                        if let Ok(identity) = Rest::read(&record.rest).map(|rest| rest.identity(digest)) {
                            entries.push(Entry { identity, record });
                        }
                    }
                    if entries.len() >= max {
                        return Ok(page(entries, digest, now));
                    }
                }
                let Some(until) = until else { break };
                if looked >= LOOKED_AT {
                    return Ok(page(entries, until, now));
                }
                match successor(until) {
                    Some(next) => from = next,
                    None => break,
                }
            }
            let Some(next) = first_of(shard + 1) else { break };
            from = next;
        }
        Ok(Page { entries, next: None, now })
    }

    /// Records of one shard in order, from `from` on: what memory says, and what the disk says of the others. And the
    /// digest behind which there may be more.
    fn stretch(
        &self,
        shard: usize,
        from: &Digest,
        max: usize,
    ) -> Result<(BTreeMap<Digest, Record>, Option<Digest>), StoreError> {
        let memory = self.shards[shard].lock();
        let (stored, more) = self.disk(|disk| disk.records_from(from, max))?;
        // Beyond the last one that the disk gave, it may have others in between: those of memory wait for the next stretch.
        let until = stored.last().filter(|_| more).map(|(digest, _)| *digest);
        let mut found: BTreeMap<_, _> = stored.into_iter().map(|(d, b)| (d, Record::decode(&b))).collect();
        for (digest, slot) in memory.iter() {
            if digest < from || until.is_some_and(|u| *digest > u) {
                continue;
            }
            match &slot.record {
                Some(record) => drop(found.insert(*digest, record.clone())),
                None => drop(found.remove(digest)),
            }
        }
        Ok((found, until))
    }

    fn purge(&self, max: usize) -> Result<(usize, Option<Ticket<'_>>), StoreError> {
        let mut gone = 0;
        let mut last = None;
        let mut remove = |digest: &Digest, now: StoreTime| -> Result<usize, StoreError> {
            let ended = |slot: Option<&Record>, _| match slot {
                Some(r) if r.is_readable() && !r.is_here(now) => {
                    let rest = r.is_unresolved().then(|| Rest::read(&r.rest).ok()).flatten();
                    Step::Remove((1, rest.map(|rest| rest.identity(*digest))))
                }
                _ => Step::Leave((0, None)),
            };
            let (n, unresolved) = match self.decide(digest, How::WRITTEN, ended) {
                Decided::Now(answer) => answer?,
                Decided::After(answer, ticket) => {
                    last = Some(ticket);
                    answer
                }
            };
            // Should a later removal fail, the next purge tells of this one.
            self.unresolved.lock().extend(unresolved);
            Ok(n)
        };
        let now = self.now();
        for shard in &self.shards {
            let ended = Mutex::lock(shard).ended(now, max - gone);
            for digest in ended {
                gone += remove(&digest, now)?;
            }
        }
        let mut reclaimed = self.reclaimed.lock();
        let untold = (*reclaimed).min(max - gone);
        *reclaimed -= untold;
        gone += untold;
        if gone < max {
            gone += self.disk(|disk| disk.purge(now, max - gone))?;
        }
        drop(reclaimed);
        if self.disk(|disk| Ok(disk.wants_write()))? {
            self.queue.nudge();
        }
        Ok((gone, last))
    }

    /// Removes what had ended by `until`, as a purge does that nobody asked for: the next purge counts it as its own.
    pub(crate) fn reclaim(&self, disk: &dyn Disk, until: StoreTime, max: usize) -> Result<usize, DiskError> {
        // Held meanwhile: a purge that finds a record gone finds it counted.
        let mut reclaimed = self.reclaimed.lock();
        let gone = disk.purge(until, max)?;
        *reclaimed += gone;
        Ok(gone)
    }
}

fn page(entries: Vec<Entry>, last: Digest, now: StoreTime) -> Page {
    Page { entries, next: Some(Cursor(Bytes::copy_from_slice(&last))), now }
}

fn successor(mut digest: Digest) -> Option<Digest> {
    for byte in digest.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return Some(digest);
        }
    }
    None
}
