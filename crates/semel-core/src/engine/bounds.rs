//! How much runs, and what a drain waits for.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Inner, lease::Lease};
use crate::{
    identity::ScopeTag,
    lanes::{Open, Places},
};

/// Counts of this process.
#[derive(Default)]
pub(super) struct Bounds {
    running: Places,
    scopes: Mutex<HashMap<ScopeTag, usize>>,
    /// Everything a drain waits for: running work, open settlements, claims to take back.
    active: Arc<Active>,
    /// Claims whose runtime ended before they were settled.
    cut: AtomicUsize,
}

#[derive(Default)]
struct Active {
    open: Open,
    /// How many wait for the end of all.
    awaited: AtomicUsize,
    idle: Notify,
}

impl Active {
    fn begin(&self) {
        self.open.begin();
    }

    fn end(&self) {
        self.open.end();
        // Counted first: either the end is seen by whoever begins to wait, or that one is seen here.
        if self.awaited.load(Ordering::SeqCst) != 0 && self.open.count() == 0 {
            self.idle.notify_waiters();
        }
    }
}

/// Somebody who waits, until dropped: a drain may give up.
struct Awaits<'a>(&'a Active);

impl Active {
    fn awaits(&self) -> Awaits<'_> {
        self.awaited.fetch_add(1, Ordering::SeqCst);
        Awaits(self)
    }
}

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        // Whoever ends after this wakes nobody, and nobody waits; another who waits is counted by itself.
        self.0.awaited.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Bounds {
    pub(super) fn running(&self) -> usize {
        self.running.taken()
    }

    pub(super) fn active(&self) -> usize {
        self.active.open.count()
    }

    pub(super) fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// Resolves when nothing is active.
    pub(super) async fn idle(&self) {
        let _awaits = self.active.awaits();
        loop {
            let mut idle = std::pin::pin!(self.active.idle.notified());
            idle.as_mut().enable();
            if self.active() == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Something a drain waits for, until the value is dropped.
    pub(super) fn activity(&self) -> Activity {
        self.active.begin();
        Activity(Arc::clone(&self.active))
    }
}

/// Keeps a drain waiting.
pub(super) struct Activity(Arc<Active>);

impl Drop for Activity {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A claim, and what it takes of its process: it keeps a drain waiting, and has a place among the running. Both are
/// given back when it is dropped, if not before.
pub(super) struct Hold {
    pub(super) inner: Arc<Inner>,
    pub(super) lease: Arc<Lease>,
    is_seated: bool,
    is_active: bool,
}

impl Hold {
    /// A claim without a place yet.
    pub(super) fn new(inner: Arc<Inner>, lease: Arc<Lease>) -> Self {
        inner.bounds.active.begin();
        Self { inner, lease, is_seated: false, is_active: true }
    }

    /// Takes a place for work of the claim's policy and scope; `false` where one of the three bounds is reached.
    pub(super) fn sit_down(&mut self) -> bool {
        let (bounds, limits, policy) = (&self.inner.bounds, &self.inner.limits, &self.lease.policy);
        if !bounds.running.take(limits.running) {
            return false;
        }
        if !policy.running.take(policy.max_running()) {
            bounds.running.give_back();
            return false;
        }
        let scope = self.lease.scope;
        if scope != ScopeTag::SHARED {
            let mut scopes = bounds.scopes.lock();
            let count = scopes.entry(scope).or_insert(0);
            if *count >= limits.running_per_scope {
                drop(scopes);
                bounds.running.give_back();
                policy.running.give_back();
                return false;
            }
            *count += 1;
        }
        self.is_seated = true;
        true
    }

    /// Gives the place back.
    pub(super) fn stand_up(&mut self) {
        if !std::mem::take(&mut self.is_seated) {
            return;
        }
        self.inner.bounds.running.give_back();
        self.lease.policy.running.give_back();
        if self.lease.scope != ScopeTag::SHARED {
            leave(&mut self.inner.bounds.scopes.lock(), self.lease.scope);
        }
    }

    /// Whether a drain waits for it.
    pub(super) const fn is_active(&self) -> bool {
        self.is_active
    }

    /// Keeps no drain waiting any more.
    pub(super) fn end(&mut self) {
        if std::mem::take(&mut self.is_active) {
            self.inner.bounds.active.end();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.stand_up();
        self.end();
    }
}

/// Counts one less for a scope, and forgets it at zero.
pub(super) fn leave(scopes: &mut HashMap<ScopeTag, usize>, scope: ScopeTag) {
    if let Some(count) = scopes.get_mut(&scope) {
        *count -= 1;
        if *count == 0 {
            scopes.remove(&scope);
        }
    }
}

/// Adds one unless that would pass `limit`.
pub(super) fn take_one(count: &AtomicUsize, limit: usize) -> bool {
    if count.fetch_add(1, Ordering::AcqRel) < limit {
        return true;
    }
    count.fetch_sub(1, Ordering::AcqRel);
    false
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn nobody_counts_as_waiting_after_a_drain_that_gave_up() {
        let bounds = Bounds::default();
        let work = bounds.activity();
        let mut cx = Context::from_waker(Waker::noop());
        let mut poll = |idle: std::pin::Pin<&mut dyn Future<Output = ()>>| idle.poll(&mut cx);
        let mut other = Box::pin(bounds.idle());
        {
            let mut gives_up = Box::pin(bounds.idle());
            assert_eq!((poll(gives_up.as_mut()), poll(other.as_mut())), (Poll::Pending, Poll::Pending));
            assert_eq!(bounds.active.awaited.load(Ordering::SeqCst), 2);
        }
        assert_eq!(bounds.active.awaited.load(Ordering::SeqCst), 1, "one gave up, the other waits on");
        drop(work);
        assert_eq!(poll(other.as_mut()), Poll::Ready(()));
        assert_eq!(bounds.active.awaited.load(Ordering::SeqCst), 0);
    }
}
