//! One memory store that several engines share, with a hook in its claims.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use semel_core::{
    Fence,
    identity::Identity,
    record::StateCode,
    store::{
        Ask, Claim, Claimed, Cursor, Extended, Filter, Health, Issued, MemoryStore, NewToken, Page, Purged, Releasing,
        Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin, StoreError,
        StoreFacts, StoreFuture, Target,
    },
};

type Hook = Box<dyn FnMut(&Ask) -> Option<Result<Claimed, StoreError>> + Send>;

/// Clones are one store.
#[derive(Clone)]
pub(crate) struct Shared {
    memory: Arc<MemoryStore>,
    hook: Arc<Mutex<Option<Hook>>>,
    full: Arc<AtomicUsize>,
}

impl Shared {
    pub(crate) fn new(memory: MemoryStore) -> Self {
        Self { memory: Arc::new(memory), hook: Arc::default(), full: Arc::default() }
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

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Renewed>> {
        self.memory.renew(batch)
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
        self.memory.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        self.memory.health()
    }

    fn facts(&self) -> StoreFacts {
        self.memory.facts()
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
        self.memory.purge(max)
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.memory.audit(line)
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        self.memory.audited(max)
    }
}
