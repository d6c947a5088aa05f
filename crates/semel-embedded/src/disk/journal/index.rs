//! Where each record's newest bytes are.

use std::{
    collections::HashMap,
    hash::BuildHasherDefault,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use crate::{
    shard::Trailing,
    share::{SHARES, share_of},
};

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

type Share = HashMap<Short, Place, BuildHasherDefault<Trailing>>;

/// One place per record: 28 bytes, and what hash tables take beside (about 48 bytes in all).
pub(super) struct Index {
    shares: Box<[Mutex<Share>]>,
    len: AtomicU64,
}

impl Default for Index {
    fn default() -> Self {
        Self { shares: (0..SHARES).map(|_| Mutex::default()).collect(), len: AtomicU64::new(0) }
    }
}

impl Index {
    fn share(&self, short: &Short) -> &Mutex<Share> {
        &self.shares[share_of(short)]
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn get(&self, short: &Short) -> Option<Place> {
        self.share(short).lock().get(short).copied()
    }

    /// The place before.
    pub(super) fn set(&self, short: &Short, place: Place) -> Option<Place> {
        let before = self.share(short).lock().insert(*short, place);
        if before.is_none() {
            self.len.fetch_add(1, Ordering::Relaxed);
        }
        before
    }

    /// The place before.
    pub(super) fn remove(&self, short: &Short) -> Option<Place> {
        let before = self.share(short).lock().remove(short);
        if before.is_some() {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        before
    }

    /// Removes a record if its newest bytes are still at `place`.
    pub(super) fn remove_at(&self, short: &Short, place: Place) -> bool {
        let mut share = self.share(short).lock();
        let removed = share.get(short) == Some(&place) && share.remove(short).is_some();
        if removed {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        removed
    }

    /// The `max` first records in order, from `from` to the end of its share, and whether that share has more.
    pub(super) fn from(&self, from: &Short, max: usize) -> (Vec<(Short, Place)>, bool) {
        let share = self.share(from).lock();
        let mut found: Vec<_> = share.iter().filter(|(s, _)| *s >= from).map(|(s, p)| (*s, *p)).collect();
        drop(share);
        let more = found.len() > max;
        if more {
            found.select_nth_unstable(max);
            found.truncate(max);
        }
        found.sort_unstable();
        (found, more)
    }
}
