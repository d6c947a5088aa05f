//! Where each record's newest bytes are.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::shard::Trailing;

/// The first half of a digest. A digest is keyed and as good as random: that two of 2^40 records agree in 128 bits has a
/// probability below 2^-48.
pub(super) type Short = [u8; 16];

/// An entry in a segment: where it begins, how long it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) segment: u32,
    pub(super) offset: u32,
    pub(super) len: u32,
}

const SHARDS: usize = 64;

type Shard = HashMap<Short, Place, BuildHasherDefault<Trailing>>;

/// One place per record: 28 bytes, and what a hash table takes beside (33 to 66 bytes in all).
pub(super) struct Index {
    /// By the top bits, so that shards in order hold digests in order.
    shards: Box<[Mutex<Shard>]>,
    len: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect(), len: AtomicU64::new(0) }
    }
}

impl Index {
    fn shard(&self, short: &Short) -> &Mutex<Shard> {
        &self.shards[shard_of(short)]
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, short: &Short) -> Option<Place> {
        self.shard(short).lock().get(short).copied()
    }

    /// The place before.
    pub(super) fn set(&self, short: &Short, place: Place) -> Option<Place> {
        let before = self.shard(short).lock().insert(*short, place);
        if before.is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// The place before.
    pub(super) fn remove(&self, short: &Short) -> Option<Place> {
        let before = self.shard(short).lock().remove(short);
        if before.is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        before
    }

    /// Removes a record if its newest bytes are still at `place`.
    pub(super) fn remove_at(&self, short: &Short, place: Place) -> bool {
        let mut shard = self.shard(short).lock();
        let removed = shard.get(short) == Some(&place) && shard.remove(short).is_some();
        if removed {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// The `max` first records in order, from `from` to the end of its shard, and whether that shard has more.
    pub(super) fn from(&self, from: &Short, max: usize) -> (Vec<(Short, Place)>, bool) {
        let shard = self.shard(from).lock();
        let mut found: Vec<_> = shard.iter().filter(|(s, _)| *s >= from).map(|(s, p)| (*s, *p)).collect();
        drop(shard);
        let more = found.len() > max;
        if more {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable();
        (found, more)
    }
}

fn shard_of(short: &Short) -> usize {
    usize::from(short[0]) * SHARDS / 256
}
