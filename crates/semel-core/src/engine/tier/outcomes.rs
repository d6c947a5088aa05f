//! Recorded outcomes that this process remembers for a while, bounded by bytes.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use quick_cache::{
    OptionsBuilder, Weighter,
    sync::{Cache, DefaultLifecycle},
};

use crate::{
    env::Tick,
    identity::Identity,
    ids::{StoreTime, first_eight},
    record::{Record, StateCode},
};

/// What one outcome takes beside its bytes.
const BESIDE: u64 = 320;

pub(super) struct Outcomes {
    cache: Cache<[u8; 32], Arc<Remembered>, Bytes, BuildHasherDefault<FirstEight>>,
    ttl: Duration,
    /// Nothing larger is remembered: it would push out everything else.
    largest: u64,
    /// Rises with each change that a person made. What was read before a change must not be remembered after it.
    epoch: AtomicU64,
}

/// A recorded outcome as the store gave it.
pub(in crate::engine) struct Remembered {
    pub(in crate::engine) record: Record,
    /// The store's clock when it was read, and the local one just before it was asked for: together the latest that the
    /// store may show later on.
    seen: StoreTime,
    sent: Tick,
    until: Tick,
}

impl Remembered {
    /// The latest that the store's clock may show at `now`.
    pub(in crate::engine) fn store_time(&self, now: Tick) -> StoreTime {
        self.seen + now.since(self.sent)
    }
}

impl Outcomes {
    pub(super) fn new(ttl: Duration, bytes: u64) -> Option<Self> {
        if ttl.is_zero() || bytes == 0 {
            return None;
        }
        let options = OptionsBuilder::new()
            .shards(8)
            .estimated_items_capacity(usize::try_from(bytes / 1_024).unwrap_or(usize::MAX).clamp(8, 1 << 20))
            .weight_capacity(bytes)
            .build()
            .ok()?;
        let cache = Cache::with_options(options, Bytes, BuildHasherDefault::default(), DefaultLifecycle::default());
        let largest = cache.shard_capacity() / 4;
        Some(Self { cache, ttl, largest, epoch: AtomicU64::new(0) })
    }

    /// To be read before a record is asked for that may be remembered.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Remembers a record that was asked for at `sent`, in `epoch`, when the store's clock showed `seen`; if it is done.
    pub(super) fn keep(&self, epoch: u64, id: &Identity, record: &Record, seen: StoreTime, sent: Tick) {
        if record.state != StateCode::Done || !record.is_readable() || weight(record) > self.largest {
            return;
        }
        // Never past the record's own end, however far the clocks run apart meanwhile.
        let until = sent + self.ttl.min(record.expires_at.since(seen));
        let remembered = Remembered { record: record.clone(), seen, sent, until };
        if epoch != self.epoch() {
            return;
        }
        self.cache.insert(*id.digest(), Arc::new(remembered));
        // A change that came between: it did not find what was not there yet.
        if epoch != self.epoch() {
            self.cache.remove(id.digest());
        }
    }

    pub(super) fn find(&self, id: &Identity, now: Tick) -> Option<Arc<Remembered>> {
        let found = self.cache.get(id.digest())?;
        if now < found.until {
            return Some(found);
        }
        self.cache.remove_if(id.digest(), |there| Arc::ptr_eq(there, &found));
        None
    }

    pub(super) fn forget(&self, digest: &[u8; 32]) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache.remove(digest);
    }

    pub(super) fn forget_all(&self) {
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.cache.clear();
    }

    pub(super) fn bytes(&self) -> u64 {
        self.cache.weight()
    }
}

fn weight(record: &Record) -> u64 {
    record.rest.len() as u64 + BESIDE
}

#[derive(Clone)]
struct Bytes;

impl Weighter<[u8; 32], Arc<Remembered>> for Bytes {
    fn weight(&self, _: &[u8; 32], remembered: &Arc<Remembered>) -> u64 {
        weight(&remembered.record)
    }
}

/// Digests are random already: eight bytes of one are as good as all.
#[derive(Default)]
struct FirstEight(u64);

impl Hasher for FirstEight {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() >= 8 {
            self.0 = u64::from_be_bytes(first_eight(bytes));
        }
    }

    // The length before the bytes says nothing.
    fn write_usize(&mut self, _: usize) {}
}
