//! One shard of what is in memory: records in flight, records on their way to the disk, and those finished lately.

use std::{
    collections::{BTreeSet, VecDeque},
    hash::Hasher,
};

use hashbrown::HashTable;
use semel_core::{StoreTime, record::Record};

use crate::disk::{Digest, is_flight};

/// What a slot takes beside its `rest`, with its place in table and ring.
const SLOT_COST: usize = 250;

/// What memory knows of one digest.
pub(crate) struct Slot {
    digest: Digest,
    /// `None`: removed, and the disk does not know it yet.
    pub(crate) record: Option<Record>,
    /// The number of the last change that is not on the disk; zero when the disk has the record.
    pub(crate) pending: u64,
    /// Never leaves memory by itself: in flight, or in flight in a format that this process cannot read.
    stays: bool,
    /// Asked for since it came into the ring.
    hot: bool,
    /// Its valid entry in the ring; zero for none.
    ringed: u32,
}

pub(crate) struct Shard {
    /// In boxes: a table holds up to twice as many places as entries.
    slots: HashTable<Box<Slot>>,
    /// Records that may leave memory, the longest there first.
    ring: VecDeque<Ringed>,
    next_ring: u32,
    /// What those take, and may take.
    kept: usize,
    limit: usize,
    /// Records that nobody has told the outcome of, in memory or not, by their end.
    unresolved: BTreeSet<(StoreTime, Digest)>,
}

impl Shard {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            slots: HashTable::new(),
            ring: VecDeque::new(),
            next_ring: 0,
            kept: 0,
            limit,
            unresolved: BTreeSet::new(),
        }
    }

    pub(crate) fn get(&mut self, digest: &Digest) -> Option<&Slot> {
        let slot = self.slot(digest)?;
        slot.hot = true;
        Some(slot)
    }

    #[cfg(test)]
    pub(crate) fn ring_len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Digest, &Slot)> {
        self.slots.iter().map(|slot| (&slot.digest, &**slot))
    }

    /// A record as change number `pending` makes it; `None` removes it. `ended`: the end of the one before, if that was
    /// unresolved.
    pub(crate) fn change(&mut self, digest: &Digest, ended: Option<StoreTime>, record: Option<Record>, pending: u64) {
        if let Some(end) = ended {
            self.unresolved.remove(&(end, *digest));
        }
        if let Some(end) = record.as_ref().and_then(unresolved_end) {
            self.unresolved.insert((end, *digest));
        }
        self.put(digest, record, pending, false);
    }

    /// A renewed record: in flight before and after, with the same end. The disk does not hear of it.
    pub(crate) fn renew(&mut self, digest: &Digest, record: Record) {
        if let Some(slot) = self.slot(digest) {
            slot.record = Some(record);
        }
    }

    /// A record that the disk has, kept for later.
    pub(crate) fn keep(&mut self, digest: &Digest, record: Record) {
        self.put(digest, Some(record), 0, false);
        self.enter_ring(digest);
    }

    /// An unresolved record that the disk has, or one that this process cannot read.
    pub(crate) fn load(&mut self, digest: &Digest, record: Record) {
        if let Some(end) = unresolved_end(&record) {
            self.unresolved.insert((end, *digest));
        }
        if is_flight(&record) || !record.is_readable() {
            self.put(digest, Some(record), 0, true);
        }
    }

    fn slot(&mut self, digest: &Digest) -> Option<&mut Slot> {
        self.slots.find_mut(hash(digest), |s| s.digest == *digest).map(|slot| &mut **slot)
    }

    fn put(&mut self, digest: &Digest, record: Option<Record>, pending: u64, stays: bool) {
        let stays = stays || record.as_ref().is_some_and(is_flight);
        let new = Slot { digest: *digest, record, pending, stays, hot: false, ringed: 0 };
        match self.slots.find_mut(hash(digest), |s| s.digest == *digest) {
            Some(slot) => {
                if slot.ringed != 0 {
                    self.kept -= cost(slot);
                }
                **slot = new;
            }
            None => drop(self.slots.insert_unique(hash(digest), Box::new(new), |s| hash(&s.digest))),
        }
    }

    /// The disk has change number `pending`.
    pub(crate) fn persisted(&mut self, digest: &Digest, pending: u64) {
        let Some(slot) = self.slot(digest).filter(|s| s.pending == pending) else { return };
        slot.pending = 0;
        if slot.record.is_none() {
            self.forget(digest);
        } else if !slot.stays {
            self.enter_ring(digest);
        }
    }

    /// The unresolved records that are over at `now`, at most `max`.
    pub(crate) fn ended(&self, now: StoreTime, max: usize) -> Vec<Digest> {
        self.unresolved.iter().take_while(|(end, _)| *end <= now).take(max).map(|(_, digest)| *digest).collect()
    }

    fn forget(&mut self, digest: &Digest) {
        if let Ok(place) = self.slots.find_entry(hash(digest), |s| s.digest == *digest) {
            let (slot, _) = place.remove();
            if slot.ringed != 0 {
                self.kept -= cost(&slot);
            }
        }
    }

    fn enter_ring(&mut self, digest: &Digest) {
        let number = self.next_ring.wrapping_add(1).max(1);
        let Some(slot) = self.slot(digest) else { return };
        slot.ringed = number;
        slot.hot = false;
        let cost = cost(slot);
        self.kept += cost;
        self.next_ring = number;
        if self.ring.len() == self.ring.capacity() {
            self.ring.reserve_exact(self.ring.len() / 8 + 16);
        }
        self.ring.push_back(Ringed { hash: hash(digest).to_le_bytes(), number });
        self.evict();
        // Entries that are no longer valid cost little, but not nothing.
        if self.ring.len() > 64 + 2 * self.slots.len() {
            let slots = &self.slots;
            self.ring.retain(|ringed| ringed.find(slots).is_some());
        }
    }

    fn evict(&mut self) {
        while self.kept > self.limit {
            let Some(ringed) = self.ring.pop_front() else { break };
            let hash = u64::from_le_bytes(ringed.hash);
            let Ok(mut place) = self.slots.find_entry(hash, |s| s.ringed == ringed.number) else { continue };
            if std::mem::take(&mut place.get_mut().hot) {
                self.ring.push_back(ringed);
            } else {
                let (slot, _) = place.remove();
                self.kept -= cost(&slot);
            }
        }
    }
}

/// A slot's place in the ring, valid while its number is the slot's. Without the digest it takes 12 bytes.
struct Ringed {
    hash: [u8; 8],
    number: u32,
}

impl Ringed {
    fn find<'a>(&self, slots: &'a HashTable<Box<Slot>>) -> Option<&'a Slot> {
        slots.find(u64::from_le_bytes(self.hash), |s| s.ringed == self.number).map(|slot| &**slot)
    }
}

/// When a record's time ends without anybody having told its outcome; `None` for one that was told.
pub(crate) fn unresolved_end(record: &Record) -> Option<StoreTime> {
    record.is_unresolved().then_some(record.expires_at)
}

fn cost(slot: &Slot) -> usize {
    SLOT_COST + slot.record.as_ref().map_or(0, |r| r.rest.len())
}

fn hash(digest: &Digest) -> u64 {
    let mut hasher = Trailing::default();
    hasher.write(digest);
    hasher.finish()
}

/// A digest is as good as random: its last bytes are its hash. The first bytes chose the share.
#[derive(Default)]
pub(crate) struct Trailing(u64);

impl Hasher for Trailing {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(last) = bytes.last_chunk() {
            self.0 = u64::from_le_bytes(*last);
        }
    }

    fn write_usize(&mut self, _len: usize) {}
}
