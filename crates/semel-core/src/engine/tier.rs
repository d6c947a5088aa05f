//! What this process knows by itself of records that lie in a store far away: claims on their way, attempts that run
//! here, and outcomes it has seen. Most copies of a request never leave it.
//!
//! Nothing here decides. Whoever comes is answered by the judge of all records, from a record that is the store's own or
//! what the store must have by now.

mod outcomes;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hashbrown::HashTable;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

pub(super) use self::outcomes::Epoch;
use self::outcomes::{Outcomes, Remembered};
use super::lease::Lease;
use crate::{
    env::Tick,
    identity::Identity,
    ids::{Fence, StoreTime, first_eight},
    policy::OnStoreError,
    record::Record,
    refusal::Refusal,
    store::Changes,
};

/// How much of a shared store's outcomes this process remembers. It has no part in stores of this process, which answer
/// duplicates from memory anyway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TierConfig {
    /// How long at most it is given in place of the store, counted from the asking (10 s); never past the record's own end.
    /// How old an answer can be after a person's word where the store publishes none. While the store does not answer,
    /// rules that run without it ([`OnStoreError::Open`]) are given what is remembered up to the record's end: a copy that
    /// finds nothing runs. Zero: nothing is remembered.
    pub ttl: Duration,
    /// How many bytes at most (16 MiB). Zero: nothing is remembered.
    pub bytes: u64,
}

impl Default for TierConfig {
    fn default() -> Self {
        Self { ttl: Duration::from_secs(10), bytes: 16 << 20 }
    }
}

const SHARDS: usize = 16;

pub(super) struct Tier {
    /// Whether claims are entered here before they are sent: the store is far away.
    joins: bool,
    shards: [Mutex<HashTable<Entry>>; SHARDS],
    /// How many entries there are, so that nobody locks anything in vain.
    entries: AtomicUsize,
    /// How many have come: puts callers and claims in an order.
    came: AtomicU64,
    outcomes: Option<Outcomes>,
    joined: AtomicU64,
    remembered: AtomicU64,
}

struct Entry {
    id: Identity,
    here: Here,
}

enum Here {
    /// A claim of this process is on its way.
    Asking(Arc<Asking>),
    /// An attempt runs in this process, or is being settled.
    Running(Arc<Lease>),
    /// An attempt without a grant has ended in this process, and the store does not know yet.
    Ended(Arc<Lease>, Box<Record>),
}

impl Here {
    fn is_of(&self, lease: &Lease) -> bool {
        match self {
            Self::Asking(_) => false,
            Self::Running(held) | Self::Ended(held, _) => std::ptr::eq(Arc::as_ptr(held), lease),
        }
    }
}

/// What a look shows.
pub(super) enum Look {
    /// Nothing; the one who looked asks the store, and others are told what it says.
    Nothing(Box<Asks>),
    /// Nothing, and nobody waits for what the store says.
    Unknown,
    Asking(Arc<Asking>),
    Running(Arc<Lease>),
    Ended(Box<Record>),
    Done(Arc<Remembered>),
}

/// What becomes of one who means to run without a grant.
pub(super) enum Unguarded {
    Begins,
    /// An attempt of this process.
    Running(Arc<Lease>),
    /// An attempt without a grant that the store has still to be told of.
    Ended(Box<Record>),
    /// What the store said last, or must have by now.
    Known(Arc<Remembered>),
}

/// What the store says to the one who asked, for those who came meanwhile.
#[derive(Clone)]
pub(super) enum Said {
    /// It showed this. The same to everyone: what it means is for each to judge.
    Found(Option<Box<Record>>, StoreTime),
    /// Refused, as the store did not answer, has no room, or its record kept changing.
    Refused(Refusal),
    /// Look again: it was granted, or the one who asked is gone.
    LookAgain,
}

/// A claim on its way.
pub(super) struct Asking {
    /// Its place in the order of all that came, given before it is sent.
    order: u64,
    said: Mutex<Option<Said>>,
    told: Notify,
}

impl Asking {
    /// Whether it was sent after someone came: then its answer is as new as one of their own would be. An older one may
    /// have been read before they came, and be on its way still.
    pub(super) const fn is_after(&self, came: u64) -> bool {
        self.order > came
    }

    pub(super) async fn answer(&self) -> Said {
        loop {
            let mut told = std::pin::pin!(self.told.notified());
            told.as_mut().enable();
            if let Some(said) = self.said.lock().clone() {
                return said;
            }
            told.await;
        }
    }
}

/// The one who asks the store. Whatever becomes of it, those who wait hear of that.
pub(super) struct Asks {
    tier: Arc<Tier>,
    id: Identity,
    asking: Arc<Asking>,
    said: Said,
}

impl Asks {
    #[cold]
    pub(super) fn found(&mut self, found: Option<Record>, now: StoreTime) {
        self.said = Said::Found(found.map(Box::new), now);
    }

    #[cold]
    pub(super) fn refused(&mut self, refusal: Refusal) {
        self.said = Said::Refused(refusal);
    }
}

impl Drop for Asks {
    fn drop(&mut self) {
        // Out of the table first: who comes after this finds no claim whose answer is older than its own coming.
        self.tier.remove(&self.id, |here| matches!(here, Here::Asking(asking) if Arc::ptr_eq(asking, &self.asking)));
        *self.asking.said.lock() = Some(std::mem::replace(&mut self.said, Said::LookAgain));
        self.asking.told.notify_waiters();
    }
}

impl Tier {
    pub(super) fn new(is_shared: bool, config: TierConfig) -> Self {
        let outcomes = if is_shared { Outcomes::new(config.ttl, config.bytes) } else { None };
        Self {
            joins: is_shared,
            shards: Default::default(),
            entries: AtomicUsize::new(0),
            came: AtomicU64::new(0),
            outcomes,
            joined: AtomicU64::new(0),
            remembered: AtomicU64::new(0),
        }
    }

    /// Whether there is anything to look at. Costs nothing where the store is this process's own.
    pub(super) fn is_used(&self) -> bool {
        self.joins || self.entries.load(Ordering::Acquire) != 0
    }

    pub(super) const fn joins(&self) -> bool {
        self.joins
    }

    /// The place of one who comes now, in the order of all.
    pub(super) fn comes(&self) -> u64 {
        self.came.fetch_add(1, Ordering::AcqRel)
    }

    /// What is known of a record. Where that is nothing, whoever looked is the one to ask.
    pub(super) fn look(self: &Arc<Self>, id: &Identity, now: Tick) -> Look {
        if let Some(found) = self.remembered(id, now) {
            return Look::Done(found);
        }
        let mut shard = self.shard(id);
        match find(&mut shard, id).map(|entry| &entry.here) {
            Some(Here::Asking(asking)) => Look::Asking(Arc::clone(asking)),
            Some(Here::Running(lease)) => Look::Running(Arc::clone(lease)),
            Some(Here::Ended(_, record)) => Look::Ended(record.clone()),
            None if self.joins => {
                let asking = Arc::new(Asking { order: self.comes(), said: Mutex::default(), told: Notify::new() });
                self.insert(&mut shard, *id, Here::Asking(Arc::clone(&asking)));
                Look::Nothing(Box::new(Asks { tier: Arc::clone(self), id: *id, asking, said: Said::LookAgain }))
            }
            None => Look::Unknown,
        }
    }

    /// The record that copies are answered by without a question to the store.
    pub(super) fn remembered(&self, id: &Identity, now: Tick) -> Option<Arc<Remembered>> {
        self.outcomes.as_ref()?.find(id, now)
    }

    /// An attempt with a grant begins here; `false` where one without a grant is under way in this process.
    ///
    /// On a store of this process it is entered only where a copy might run without a grant.
    pub(super) fn begins(&self, lease: &Arc<Lease>) -> bool {
        if !self.joins && lease.policy.on_store_error() == OnStoreError::Closed && !self.is_used() {
            return true;
        }
        let mut shard = self.shard(lease.identity());
        match find(&mut shard, lease.identity()).map(|entry| &mut entry.here) {
            Some(Here::Running(other)) if other.unguarded.is_some() => return false,
            Some(here) => *here = Here::Running(Arc::clone(lease)),
            None => self.insert(&mut shard, *lease.identity(), Here::Running(Arc::clone(lease))),
        }
        true
    }

    /// An attempt without a grant begins here, where nothing is known here that forbids it.
    pub(super) fn begins_unguarded(&self, lease: &Arc<Lease>, now: Tick) -> Unguarded {
        let mut shard = self.shard(lease.identity());
        let here = find(&mut shard, lease.identity()).map(|entry| &mut entry.here);
        match &here {
            Some(Here::Running(held)) => return Unguarded::Running(Arc::clone(held)),
            Some(Here::Ended(_, record)) => return Unguarded::Ended(record.clone()),
            Some(Here::Asking(_)) | None => {}
        }
        // After the look at what runs, and with its lock held: what ran is remembered before it goes from there.
        if let Some(known) = self.outcomes.as_ref().and_then(|o| o.find_while_away(lease.identity(), now)) {
            return Unguarded::Known(known);
        }
        match here {
            Some(here) => *here = Here::Running(Arc::clone(lease)),
            None => self.insert(&mut shard, *lease.identity(), Here::Running(Arc::clone(lease))),
        }
        Unguarded::Begins
    }

    /// An attempt without a grant has ended so, and the store is still to be told.
    pub(super) fn ended(&self, lease: &Arc<Lease>, record: Record) {
        let mut shard = self.shard(lease.identity());
        if let Some(entry) = find(&mut shard, lease.identity()).filter(|entry| entry.here.is_of(lease)) {
            entry.here = Here::Ended(Arc::clone(lease), Box::new(record));
        }
    }

    /// The store knows how an attempt ended, or will not.
    pub(super) fn over(&self, lease: &Lease) {
        if self.is_used() {
            self.remove(lease.identity(), |here| here.is_of(lease));
        }
    }

    /// Until when an attempt that runs here can be relied on to tell its own end; `None` where it does not run here.
    pub(super) fn told_here(&self, id: &Identity, fence: Fence) -> Option<Tick> {
        if !self.is_used() {
            return None;
        }
        let mut shard = self.shard(id);
        match find(&mut shard, id).map(|entry| &entry.here) {
            Some(Here::Running(lease)) if lease.fence == fence && lease.is_known() => Some(lease.deadline()),
            _ => None,
        }
    }

    /// To be read before a record is asked for that may be remembered.
    pub(super) fn epoch(&self) -> Epoch {
        self.outcomes.as_ref().map(Outcomes::epoch).unwrap_or_default()
    }

    /// Remembers a record that was asked for at `sent`, in `epoch`, when the store's clock showed `seen`; if it is one
    /// that lasts.
    pub(super) fn keep(&self, epoch: Epoch, id: &Identity, record: &Record, seen: StoreTime, sent: Tick) {
        if let Some(outcomes) = &self.outcomes {
            outcomes.keep(epoch, id, record, seen, sent);
        }
    }

    /// Asked at `sent`, the store showed nothing of what is remembered from before.
    pub(super) fn let_go(&self, id: &Identity, sent: Tick) {
        if let Some(outcomes) = &self.outcomes {
            outcomes.let_go(id, sent);
        }
    }

    pub(super) const fn remembers(&self) -> bool {
        self.outcomes.is_some()
    }

    pub(super) fn count_joined(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_remembered(&self) {
        self.remembered.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> Local {
        Local {
            joined: self.joined.load(Ordering::Relaxed),
            remembered: self.remembered.load(Ordering::Relaxed),
            bytes: self.outcomes.as_ref().map_or(0, Outcomes::bytes),
        }
    }

    fn shard(&self, id: &Identity) -> MutexGuard<'_, HashTable<Entry>> {
        self.shards[usize::from(id.digest()[31]) % SHARDS].lock()
    }

    fn insert(&self, shard: &mut HashTable<Entry>, id: Identity, here: Here) {
        shard.insert_unique(hash(&id), Entry { id, here }, |entry| hash(&entry.id));
        self.entries.fetch_add(1, Ordering::AcqRel);
    }

    fn remove(&self, id: &Identity, is_it: impl Fn(&Here) -> bool) {
        let mut shard = self.shard(id);
        if let Ok(entry) = shard.find_entry(hash(id), |entry| entry.id == *id && is_it(&entry.here)) {
            let (gone, _) = entry.remove();
            self.entries.fetch_sub(1, Ordering::AcqRel);
            drop(shard);
            drop(gone);
        }
    }
}

/// What people change is forgotten at once; what they may have changed is no longer given in place of the store.
impl Changes for Tier {
    fn changed(&self, digest: &[u8; 32]) {
        if let Some(outcomes) = &self.outcomes {
            outcomes.forget(digest);
        }
    }

    fn missed(&self) {
        if let Some(outcomes) = &self.outcomes {
            outcomes.doubt_all();
        }
    }
}

/// What a process answered by itself, without its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Local {
    /// Copies that joined what was under way in this process.
    pub joined: u64,
    /// Copies that were answered from a remembered outcome.
    pub remembered: u64,
    /// What the remembered outcomes take, in bytes.
    pub bytes: u64,
}

fn find<'a>(shard: &'a mut HashTable<Entry>, id: &Identity) -> Option<&'a mut Entry> {
    shard.find_mut(hash(id), |entry| entry.id == *id)
}

fn hash(id: &Identity) -> u64 {
    u64::from_be_bytes(first_eight(id.digest()))
}
