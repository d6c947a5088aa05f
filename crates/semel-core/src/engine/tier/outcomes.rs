//! Records that this process remembers, bounded by bytes: outcomes for a while in place of the store, and whatever else an
//! attempt came to, up to the record's end, for a time at which the store does not answer.

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
    record::{Flags, Record, StateCode, without_body},
};

/// What one outcome takes beside its bytes.
const BESIDE: u64 = 320;

pub(super) struct Outcomes {
    cache: Cache<[u8; 32], Arc<Remembered>, Bytes, BuildHasherDefault<FirstEight>>,
    ttl: Duration,
    /// Nothing larger is remembered: it would push out everything else.
    largest: u64,
    /// Rises with each change that a person made. What was read before a change must not be remembered after it.
    changes: AtomicU64,
    /// Rises whenever changes may have been missed. What was read before is good for nothing but a store that is away.
    lines: AtomicU64,
}

/// A moment, as far as what was read at it is concerned.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::engine) struct Epoch {
    changes: u64,
    line: u64,
}

impl Epoch {
    /// What is read now is to be given only where the store does not answer.
    pub(in crate::engine) const fn doubted(self) -> Self {
        Self { line: u64::MAX, ..self }
    }
}

/// What the store said of a record, or must have by now.
pub(in crate::engine) struct Remembered {
    pub(in crate::engine) record: Record,
    /// The store's clock when it was read, and the local one just before it was asked for: together the latest that the
    /// store may show later on.
    seen: StoreTime,
    sent: Tick,
    /// Until when it is given without asking the store, as long as changes are told over the same line as then.
    until: Tick,
    line: u64,
    /// The record's own end. Until then it is given where the store does not answer.
    ends: Tick,
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
        Some(Self { cache, ttl, largest, changes: AtomicU64::new(0), lines: AtomicU64::new(0) })
    }

    /// To be read before a record is asked for that may be remembered.
    pub(super) fn epoch(&self) -> Epoch {
        Epoch { changes: self.changes.load(Ordering::Acquire), line: self.lines.load(Ordering::Acquire) }
    }

    /// Remembers a record that was asked for at `sent`, in `epoch`, when the store's clock showed `seen`: an outcome for
    /// everybody, other ends for those who cannot ask. Any other record ends what was remembered.
    pub(super) fn keep(&self, epoch: Epoch, id: &Identity, record: &Record, seen: StoreTime, sent: Tick) {
        let Some((record, is_whole)) = self.fitting(record) else {
            self.let_go(id, sent);
            return;
        };
        // Never past the record's own end, however far the clocks run apart meanwhile.
        let left = record.expires_at.since(seen);
        let is_outcome = is_whole && record.state == StateCode::Done;
        let until = if is_outcome { sent + self.ttl.min(left) } else { sent };
        let remembered = Remembered { seen, sent, until, line: epoch.line, ends: sent + left, record };
        let is_newer = |there: Arc<Remembered>| there.sent > sent;
        if epoch.changes != self.epoch().changes || self.cache.peek(id.digest()).is_some_and(is_newer) {
            return;
        }
        self.cache.insert(*id.digest(), Arc::new(remembered));
        // A change that came between: it did not find what was not there yet.
        if epoch.changes != self.epoch().changes {
            self.cache.remove(id.digest());
        }
    }

    /// The record as it is remembered, and whether that is all of it; `None` where it says nothing that lasts. One that is
    /// too large goes without its body: enough to refuse by.
    fn fitting(&self, record: &Record) -> Option<(Record, bool)> {
        if !record.is_readable() || !matches!(record.state, StateCode::Done | StateCode::Unknown | StateCode::Parked) {
            return None;
        }
        if weight(record) <= self.largest {
            return Some((record.clone(), true));
        }
        let (rest, flags) = (without_body(&record.rest)?, record.flags.without(Flags::BODY_KEPT));
        let brief = Record { rest, flags, ..record.clone() };
        (weight(&brief) <= self.largest).then_some((brief, false))
    }

    /// What can be given without asking the store.
    pub(super) fn find(&self, id: &Identity, now: Tick) -> Option<Arc<Remembered>> {
        self.standing(id, now).filter(|found| now < found.until && found.line == self.epoch().line)
    }

    /// What is known of a record that the store cannot be asked for: as long as it is away from here, nobody here can have
    /// changed it.
    pub(super) fn find_while_away(&self, id: &Identity, now: Tick) -> Option<Arc<Remembered>> {
        self.standing(id, now)
    }

    fn standing(&self, id: &Identity, now: Tick) -> Option<Arc<Remembered>> {
        let found = self.cache.get(id.digest())?;
        if now < found.ends {
            return Some(found);
        }
        self.cache.remove_if(id.digest(), |there| Arc::ptr_eq(there, &found));
        None
    }

    /// Asked at `sent`, the store showed nothing of what was remembered from before.
    pub(super) fn let_go(&self, id: &Identity, sent: Tick) {
        if self.cache.contains_key(id.digest()) {
            self.cache.remove_if(id.digest(), |there| there.sent <= sent);
        }
    }

    /// A person changed it.
    pub(super) fn forget(&self, digest: &[u8; 32]) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.cache.remove(digest);
    }

    /// People may have changed anything: the store is to be asked again. Where it cannot be, because the line broke as it
    /// went away, what is here is all that is known.
    pub(super) fn doubt_all(&self) {
        self.lines.fetch_add(1, Ordering::AcqRel);
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        fingerprint::Fingerprint,
        ids::{Fence, Owner},
        record::VERSION,
    };

    fn at(seconds: u64) -> Tick {
        Tick::from_nanos(1_000_000_000 * seconds)
    }

    /// An outcome that lasts for a minute.
    fn outcome(fence: u64) -> Record {
        Record {
            version: VERSION,
            state: StateCode::Done,
            flags: Flags::BODY_KEPT,
            fingerprint: Fingerprint::NONE,
            owner: Owner::from_bytes([1; 16]),
            fence: Fence::new(fence),
            attempt: 1,
            lease_until: StoreTime::default(),
            expires_at: StoreTime::default() + Duration::from_secs(60),
            rest: Bytes::new(),
        }
    }

    fn outcomes() -> (Outcomes, Identity) {
        (Outcomes::new(Duration::from_secs(10), 1 << 20).unwrap(), Identity::nobody())
    }

    fn fence(outcomes: &Outcomes, id: &Identity, now: Tick) -> Option<u64> {
        Some(outcomes.find(id, now)?.record.fence?.get())
    }

    /// Two answers of the store can overtake each other on their way.
    #[test]
    fn an_answer_that_was_asked_for_earlier_changes_nothing() {
        let (outcomes, id) = outcomes();
        outcomes.keep(outcomes.epoch(), &id, &outcome(2), StoreTime::default(), at(2));
        outcomes.keep(outcomes.epoch(), &id, &outcome(1), StoreTime::default(), at(1));
        assert_eq!(fence(&outcomes, &id, at(3)), Some(2));
        outcomes.let_go(&id, at(1));
        assert_eq!(fence(&outcomes, &id, at(3)), Some(2));
        outcomes.keep(outcomes.epoch(), &id, &outcome(3), StoreTime::default(), at(3));
        assert_eq!(fence(&outcomes, &id, at(3)), Some(3));
        outcomes.let_go(&id, at(3));
        assert_eq!(fence(&outcomes, &id, at(3)), None);
    }

    #[test]
    fn nothing_is_given_past_the_records_own_end() {
        let (outcomes, id) = outcomes();
        let brief = Record { expires_at: StoreTime::default() + Duration::from_secs(5), ..outcome(1) };
        outcomes.keep(outcomes.epoch(), &id, &brief, StoreTime::default(), at(0));
        assert!(outcomes.find(&id, at(4)).is_some() && outcomes.find_while_away(&id, at(4)).is_some());
        assert!(outcomes.find(&id, at(5)).is_none() && outcomes.find_while_away(&id, at(5)).is_none());
    }

    /// An attempt that is under way says nothing that lasts, and that there is one ends what was remembered before.
    #[test]
    fn a_record_in_flight_ends_what_is_remembered_and_is_not() {
        let (outcomes, id) = outcomes();
        outcomes.keep(outcomes.epoch(), &id, &outcome(1), StoreTime::default(), at(0));
        let running = Record { state: StateCode::InFlight, ..outcome(2) };
        outcomes.keep(outcomes.epoch(), &id, &running, StoreTime::default(), at(1));
        assert!(outcomes.find_while_away(&id, at(2)).is_none());
    }
}
