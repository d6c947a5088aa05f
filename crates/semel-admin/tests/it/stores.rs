//! A store in trouble.

use std::sync::Arc;
use std::time::Duration;

use semel_core::Fence;
use semel_core::identity::Identity;
use semel_core::record::StateCode;
use semel_core::store::{
    Ask, Claim, Claimed, Cursor, Did, Extended, Filter, Health, Issued, MemoryStore, NewToken, Page, Purged, Releasing,
    Renewal, Renewed, Reply, Resolution, Resolved, Seen, Settled, Settlement, Store, StoreAdmin, StoreError,
    StoreFacts, StoreFuture, Target,
};

use crate::memory;

/// What is wrong with it.
pub(crate) enum How {
    ReadOnly(&'static str),
    Fails,
    Hangs,
}

/// A memory store that says it is unwell.
pub(crate) struct Broken {
    how: How,
    inner: Arc<MemoryStore>,
}

impl Broken {
    pub(crate) fn new(how: How) -> Arc<Self> {
        Arc::new(Self { how, inner: memory() })
    }
}

impl Store for Broken {
    fn claim<'a>(&'a self, ask: &'a Ask) -> Reply<'a, Claimed> {
        self.inner.claim(ask)
    }
    fn renew<'a>(&'a self, batch: &'a [Renewal<'a>]) -> Reply<'a, Vec<Result<Renewed, StoreError>>> {
        self.inner.renew(batch)
    }
    fn settle<'a>(&'a self, claim: &'a Claim, to: &'a Settlement) -> Reply<'a, Settled> {
        self.inner.settle(claim, to)
    }
    fn release<'a>(&'a self, what: &'a Releasing<'a>) -> Reply<'a, Settled> {
        self.inner.release(what)
    }
    fn issue<'a>(&'a self, token: &'a NewToken) -> Reply<'a, Issued> {
        self.inner.issue(token)
    }
    fn extend<'a>(&'a self, id: &'a Identity, ttl: Duration) -> Reply<'a, Extended> {
        self.inner.extend(id, ttl)
    }
    fn withdraw<'a>(&'a self, id: &'a Identity) -> Reply<'a, bool> {
        self.inner.withdraw(id)
    }
    fn get<'a>(&'a self, id: &'a Identity) -> Reply<'a, Seen> {
        self.inner.get(id)
    }
    fn wait<'a>(&'a self, id: &'a Identity, seen: Option<Fence>) -> StoreFuture<'a, ()> {
        self.inner.wait(id, seen)
    }
    fn health(&self) -> Reply<'_, Health> {
        match self.how {
            How::Fails => StoreFuture::ready(Err(StoreError::unavailable(Did::Nothing))),
            How::Hangs => StoreFuture::never(),
            How::ReadOnly(trouble) => StoreFuture::new(async move {
                let health = self.inner.health().await?;
                Ok(Health { writable: false, trouble: trouble.to_owned(), ..health })
            }),
        }
    }
    fn facts(&self) -> StoreFacts {
        self.inner.facts()
    }
}

impl StoreAdmin for Broken {
    fn list<'a>(&'a self, filter: &'a Filter, after: Option<&'a Cursor>, max: usize) -> Reply<'a, Page> {
        self.inner.list(filter, after, max)
    }
    fn resolve<'a>(&'a self, target: Target<'a>, to: &'a Resolution) -> Reply<'a, Resolved> {
        self.inner.resolve(target, to)
    }
    fn delete<'a>(&'a self, id: &'a Identity, expected: StateCode) -> Reply<'a, bool> {
        self.inner.delete(id, expected)
    }
    fn purge(&self, max: usize) -> Reply<'_, Purged> {
        self.inner.purge(max)
    }

    fn audit<'a>(&'a self, line: &'a str) -> Reply<'a, ()> {
        self.inner.audit(line)
    }

    fn audited(&self, max: usize) -> Reply<'_, Vec<String>> {
        self.inner.audited(max)
    }
}
