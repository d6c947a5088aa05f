//! One shard: a table of records by digest, an index by the time they end, and its share of the budget.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use hashbrown::HashTable;

use super::Capacity;
use crate::{
    ids::{StoreTime, first_eight},
    record::{Flags, Record, Rest, without_body},
    store::Purged,
};

/// What a record takes beside its `rest`: the slot (160), its place in table and index, the allocator's own.
const RECORD_COST: usize = 340;

/// The width of a bucket of the index of ends: 2²² µs, about 4 s. Memory comes free that much later.
const BUCKET_BITS: u32 = 22;

/// What a write adds.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

impl Growth {
    /// What writing `record` adds, where a `rest` of `held` bytes was in its place.
    pub(super) fn of(held: Option<usize>, record: &Record) -> Self {
        match held {
            Some(held) => Self { records: 0, bytes: record.rest.len().saturating_sub(held) },
            None => Self { records: 1, bytes: RECORD_COST + record.rest.len() },
        }
    }
}

/// What all shards together hold, and may.
pub(super) struct Budget {
    capacity: Capacity,
    records: AtomicUsize,
    bytes: AtomicUsize,
    /// Bytes of bodies that could be dropped.
    bodies: AtomicUsize,
}

impl Budget {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self { capacity, records: AtomicUsize::new(0), bytes: AtomicUsize::new(0), bodies: AtomicUsize::new(0) }
    }

    pub(super) fn records(&self) -> usize {
        self.records.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Once for a write, and nothing for what stays: all threads count here.
    fn changes(&self, change: Change) {
        let Change { records, bytes, bodies } = change;
        for (count, change) in [(&self.records, records), (&self.bytes, bytes), (&self.bodies, bodies)] {
            if change != 0 {
                count.fetch_add(change, Ordering::Relaxed);
            }
        }
    }

    /// One outcome never takes more than a quarter of the store.
    pub(super) fn largest_rest(&self) -> u64 {
        (self.capacity.bytes / 4) as u64
    }

    pub(super) fn has_room(&self, wanted: Growth) -> bool {
        self.records() + wanted.records <= self.capacity.records && self.bytes() + wanted.bytes <= self.capacity.bytes
    }

    /// Whether dropping bodies could make room at all.
    pub(super) fn may_have_room(&self, wanted: Growth) -> bool {
        let less = Growth { bytes: wanted.bytes.saturating_sub(self.bodies.load(Ordering::Relaxed)), ..wanted };
        self.has_room(less)
    }
}

/// What a write adds; where that is less than nothing, wrapped round, as the counts do.
#[derive(Clone, Copy)]
struct Change {
    records: usize,
    bytes: usize,
    bodies: usize,
}

struct Slot {
    digest: [u8; 32],
    record: Record,
}

pub(super) struct Shard {
    slots: HashTable<Box<Slot>>,
    /// Bucket of the end → the leading eight bytes of digests. A record that moved leaves a stale entry behind, which
    /// costs eight bytes until its bucket comes up.
    ends: BTreeMap<i64, Vec<u64>>,
    /// No bucket before this one holds a body that could be dropped.
    shed_from: i64,
    budget: Arc<Budget>,
}

impl Shard {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { slots: HashTable::new(), ends: BTreeMap::new(), shed_from: i64::MIN, budget }
    }

    pub(super) fn get(&self, digest: &[u8; 32]) -> Option<&Record> {
        self.slots.find(hash(prefix(digest)), |s| s.digest == *digest).map(|s| &s.record)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8; 32], &Record)> {
        self.slots.iter().map(|s| (&s.digest, &s.record))
    }

    pub(super) fn put(&mut self, digest: &[u8; 32], record: Record) {
        let bucket = bucket(record.expires_at);
        let body = body_len(&record);
        if body > 0 {
            self.shed_from = self.shed_from.min(bucket);
        }
        let mut change = Change { records: 0, bytes: record.rest.len(), bodies: body };
        let moved = match self.slots.find_mut(hash(prefix(digest)), |s| s.digest == *digest) {
            Some(slot) => {
                let old = std::mem::replace(&mut slot.record, record);
                change.bytes = change.bytes.wrapping_sub(old.rest.len());
                change.bodies = change.bodies.wrapping_sub(body_len(&old));
                self::bucket(old.expires_at) != bucket
            }
            None => {
                change.records += 1;
                change.bytes += RECORD_COST;
                let slot = Box::new(Slot { digest: *digest, record });
                self.slots.insert_unique(hash(prefix(digest)), slot, |s| hash(prefix(&s.digest)));
                true
            }
        };
        self.budget.changes(change);
        if moved {
            self.ends.entry(bucket).or_default().push(prefix(digest));
        }
    }

    /// Writes a record for whose outcome's body there is no room.
    pub(super) fn put_without_body(&mut self, digest: &[u8; 32], record: Record) {
        let record = match without_body(&record.rest) {
            Some(rest) => Record { rest, flags: record.flags.without(Flags::BODY_KEPT), ..record },
            None => record,
        };
        self.put(digest, record);
    }

    pub(super) fn remove(&mut self, digest: &[u8; 32]) {
        if let Ok(slot) = self.slots.find_entry(hash(prefix(digest)), |s| s.digest == *digest) {
            let (slot, _) = slot.remove();
            self.forget(&slot.record);
        }
    }

    fn forget(&self, record: &Record) {
        self.budget.records.fetch_sub(1, Ordering::Relaxed);
        self.budget.bytes.fetch_sub(RECORD_COST + record.rest.len(), Ordering::Relaxed);
        self.budget.bodies.fetch_sub(body_len(record), Ordering::Relaxed);
    }

    /// Removes at most `max` records whose time is over; fewer only when none is left.
    pub(super) fn purge(&mut self, now: StoreTime, max: usize, purged: &mut Purged) {
        self.take(now, (max, usize::MAX), None, purged);
    }

    /// What a write does by the way: removes at most two records, and looks at no more than eight entries of the index.
    /// The record about to be written stays: it was judged as it is, and its end is the writer's to tell.
    pub(super) fn sweep(&mut self, now: StoreTime, written: &[u8; 32], purged: &mut Purged) {
        self.take(now, (2, 8), Some(prefix(written)), purged);
    }

    fn take(&mut self, now: StoreTime, (max, looks): (usize, usize), spare: Option<u64>, purged: &mut Purged) {
        let mut gone = 0;
        let mut looked = 0;
        let mut spared = None;
        while gone < max && looked < looks {
            let Some(mut first) = self.ends.first_entry() else { break };
            if *first.key() >= bucket(now) {
                break;
            }
            let Some(key) = first.get_mut().pop() else {
                first.remove();
                continue;
            };
            looked += 1;
            if spare == Some(key) {
                spared = Some((*first.key(), key));
                continue;
            }
            if let Ok(slot) = self.slots.find_entry(hash(key), |s| prefix(&s.digest) == key && !s.record.is_here(now)) {
                let (slot, _) = slot.remove();
                self.forget(&slot.record);
                gone += 1;
                if slot.record.is_unresolved()
                    && let Ok(rest) = Rest::read(&slot.record.rest)
                {
                    purged.unresolved.push(rest.identity(slot.digest));
                }
            }
        }
        if let Some((bucket, key)) = spared {
            self.ends.entry(bucket).or_default().push(key);
        }
        purged.removed += gone;
    }

    /// Drops bodies, those that end first first, until at least `wanted` bytes came free or none is left.
    pub(super) fn shed(&mut self, wanted: usize) {
        let mut freed = 0;
        let buckets = self.ends.range(self.shed_from..);
        let mut reached = self.shed_from;
        'all: for (bucket, keys) in buckets {
            reached = *bucket;
            for key in keys {
                let found = self.slots.find_mut(hash(*key), |s| prefix(&s.digest) == *key && body_len(&s.record) > 0);
                let Some(slot) = found else { continue };
                let Some(rest) = without_body(&slot.record.rest) else { continue };
                // An empty body takes less than the note that there was one.
                let Some(less) = slot.record.rest.len().checked_sub(rest.len()).filter(|less| *less > 0) else {
                    continue;
                };
                let bodies = 0_usize.wrapping_sub(body_len(&slot.record));
                self.budget.changes(Change { records: 0, bytes: 0_usize.wrapping_sub(less), bodies });
                slot.record.rest = rest;
                slot.record.flags = slot.record.flags.without(Flags::BODY_KEPT);
                freed += less;
                if freed >= wanted {
                    break 'all;
                }
            }
        }
        self.shed_from = reached;
    }
}

/// What dropping the body would free, roughly: all of an outcome with a body.
fn body_len(record: &Record) -> usize {
    if record.flags.has(Flags::BODY_KEPT) { record.rest.len() } else { 0 }
}

fn bucket(t: StoreTime) -> i64 {
    t.as_micros() >> BUCKET_BITS
}

fn prefix(digest: &[u8; 32]) -> u64 {
    u64::from_be_bytes(first_eight(digest))
}

/// The table tells entries apart by the leading bits of their hash, before it looks at one. Those of a digest say which
/// shard it is in, and are alike in all of it.
fn hash(prefix: u64) -> u64 {
    prefix.rotate_left(32)
}

/// What the table keeps of a hash beside each entry.
#[cfg(test)]
pub(super) fn tag(digest: &[u8; 32]) -> u64 {
    hash(prefix(digest)) >> 57
}
