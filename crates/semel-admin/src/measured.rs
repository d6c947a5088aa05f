//! A store whose calls are timed.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use semel_core::Fence;
use semel_core::env::{Clock, Tick};
use semel_core::identity::Identity;
use semel_core::store::{
    Ask, Changes, Claim, Claimed, Extended, Health, Issued, NewToken, Releasing, Renewal, Renewed, Reply, Seen,
    Settled, Settlement, Store, StoreError, StoreFacts, StoreFuture,
};

use crate::Metrics;
use crate::metrics::Op;

/// A store that feeds `semel_store_seconds`; otherwise the store inside. A call whose answer is ready costs two looks at the clock; one
/// that takes a while one allocation more. A call that is dropped before its answer is not counted.
pub struct Measured {
    inner: Arc<dyn Store>,
    metrics: Metrics,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Measured").field("store", &self.inner.facts()).finish_non_exhaustive()
    }
}

impl Measured {
    /// Times every call of `store` by `clock`.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, metrics: Metrics, clock: Arc<dyn Clock>) -> Self {
        Self { inner: store, metrics, clock }
    }

    fn time<'a, T: Send + 'a>(&'a self, op: Op, call: impl FnOnce(&'a dyn Store) -> Reply<'a, T>) -> Reply<'a, T> {
        let start = self.clock.now();
        match call(&*self.inner).try_ready() {
            Ok(answer) => {
                self.observe(op, start);
                StoreFuture::ready(answer)
            }
            Err(pending) => StoreFuture::new(async move {
                let answer = pending.await;
                self.observe(op, start);
                answer
            }),
        }
    }

    fn observe(&self, op: Op, start: Tick) {
        self.metrics.store_seconds(op).observe(self.clock.now().since(start));
    }
}

impl Store for Measured {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        self.time(Op::Claim, move |store| store.claim(ask))
    }

    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        self.time(Op::Renew, move |store| store.renew(batch))
    }

    fn part(&self, id: &Identity) -> u64 {
        self.inner.part(id)
    }

    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        self.time(Op::Settle, move |store| store.settle(claim, to))
    }

    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        self.time(Op::Release, move |store| store.release(what))
    }

    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        self.time(Op::Issue, move |store| store.issue(token))
    }

    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.time(Op::Extend, move |store| store.extend(id, ttl))
    }

    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.time(Op::Withdraw, move |store| store.withdraw(id))
    }

    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        self.time(Op::Get, move |store| store.get(id))
    }

    // A wait lasts as long as somebody else's work: it says nothing about the store.
    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.inner.wait(id, seen)
    }

    fn health(&self) -> Reply<'_, Health> {
        self.time(Op::Health, |store| store.health())
    }

    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }

    fn tell_changes(&self, to: Weak<dyn Changes>) {
        self.inner.tell_changes(to);
    }
}
