//! One memory store that several engines share, near or far, with a hook in its claims.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Fence,
    identity::{Birth, Identity, Mark},
    record::StateCode,
    store::{
        Ask, Changes, Claim, Claimed, Cursor, Did, Extended, Filter, Health, Issued, MemoryStore, NewToken, Page,
        Purged, Releasing, Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin,
        StoreError, StoreFacts, StoreFuture, Target,
    },
};

type Hook = Box<dyn FnMut(&Ask) -> Option<Result<Claimed, StoreError>> + Send>;

/// Clones are one store.
#[derive(Clone)]
pub(crate) struct Shared {
    memory: Arc<MemoryStore>,
    hook: Arc<Mutex<Option<Hook>>>,
    full: Arc<AtomicUsize>,
    /// Whether it says of itself that other processes work on it too.
    is_far: bool,
    birth: Arc<Mutex<Option<Birth>>>,
    listeners: Arc<Mutex<Vec<Weak<dyn Changes>>>>,
    away: Arc<Mutex<Vec<(Identity, Away)>>>,
    slow_purge: Arc<Mutex<Option<(Duration, usize)>>>,
    /// So many hints are still to come that say nothing.
    vain_hints: Arc<AtomicUsize>,
}

/// How a part of the store is away.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Away {
    /// Its renewals have an error each.
    Failing,
    /// It says nothing, and a call with one of its renewals ends never.
    Silent,
}

impl Shared {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self {
            memory: Arc::new(memory),
            hook: Arc::default(),
            full: Arc::default(),
            is_far: false,
            birth: Arc::default(),
            listeners: Arc::default(),
            away: Arc::default(),
            slow_purge: Arc::default(),
            vain_hints: Arc::default(),
        }
    }

    pub(crate) fn far(memory: MemoryStore) -> Self {
        Self { is_far: true, ..Self::new(memory) }
    }

    /// Whom it tells of changes, once for each.
    pub(crate) fn listeners(&self) -> Vec<Arc<dyn Changes>> {
        self.listeners.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// From now on its records began at another time, or nobody knows when.
    pub(crate) fn is_born(&self, anew: bool) {
        *self.birth.lock() = anew.then(|| Mark::new(None, &semel_core::env::SystemRng).birth());
    }

    pub(crate) fn memory(&self) -> &MemoryStore {
        &self.memory
    }

    /// From now on `hook` sees each claim first; `Some` is the answer.
    pub(crate) fn hook(&self, hook: impl FnMut(&Ask) -> Option<Result<Claimed, StoreError>> + Send + 'static) {
        *self.hook.lock() = Some(Box::new(hook));
    }

    /// There is no room for the next `n` settlements.
    pub(crate) fn full_for(&self, n: usize) {
        self.full.store(n, Ordering::SeqCst);
    }

    /// From now on this record lies in a part that does not renew it.
    pub(crate) fn take_away(&self, id: Identity, how: Away) {
        self.away.lock().push((id, how));
    }

    /// From now on a purge takes that long and removes at most so many, as one that has to look for them.
    pub(crate) fn purge_slowly(&self, takes: Duration, finds: usize) {
        *self.slow_purge.lock() = Some((takes, finds));
    }

    /// The next `n` who wait for news are told to look at once.
    pub(crate) fn hint_in_vain(&self, n: usize) {
        self.vain_hints.store(n, Ordering::SeqCst);
    }

    fn away(&self, id: &Identity) -> Option<Away> {
        self.away.lock().iter().find(|(away, _)| away == id).map(|(_, how)| *how)
    }

    pub(crate) fn unhook(&self) {
        *self.hook.lock() = None;
    }
}

impl Store for Shared {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        match self.hook.lock().as_mut().and_then(|hook| hook(ask)) {
            Some(answer) => StoreFuture::ready(answer),
            None => self.memory.claim(ask),
        }
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        let away: Vec<_> = batch.iter().map(|renewal| self.away(renewal.claim.identity())).collect();
        if away.contains(&Some(Away::Silent)) {
            return StoreFuture::never();
        }
        let answers = self.memory.renew(batch).try_ready().expect("memory answers at once");
        let of = |(answer, away): (_, Option<Away>)| match away {
            Some(_) => Err(StoreError::unavailable(Did::Unknown)),
            None => answer,
        };
        StoreFuture::ready(answers.map(|answers| answers.into_iter().zip(away).map(of).collect()))
    }

    fn part(&self, id: &Identity) -> u64 {
        u64::from(self.away(id).is_some())
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        let less = |n: usize| n.checked_sub(1);
        if self.full.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return StoreFuture::ready(Err(StoreError::full()));
        }
        self.memory.settle(claim, to)
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        self.memory.release(what)
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        self.memory.issue(token)
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.memory.extend(id, ttl)
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.memory.withdraw(id)
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        self.memory.get(id)
    }

    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        let less = |n: usize| n.checked_sub(1);
        if self.vain_hints.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            return StoreFuture::ready(());
        }
        self.memory.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        let birth = *self.birth.lock();
        let health = self.memory.health().try_ready().expect("memory answers at once");
        StoreFuture::ready(health.map(|h| Health { birth, ..h }))
    }

    fn facts(&self) -> StoreFacts {
        StoreFacts { shared: self.is_far, ..self.memory.facts() }
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.listeners.lock().push(to);
    }
}

impl StoreAdmin for Shared {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        self.memory.list(filter, after, max)
    }

    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        self.memory.resolve(target, to)
    }

    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        self.memory.delete(id, expected)
    }

    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        let Some((takes, finds)) = *self.slow_purge.lock() else { return self.memory.purge(max) };
        StoreFuture::new(async move {
            tokio::time::sleep(takes).await;
            self.memory.purge(max.min(finds)).await
        })
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.memory.audit(line)
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        self.memory.audited(max)
    }
}
