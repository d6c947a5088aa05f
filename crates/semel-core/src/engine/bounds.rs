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

use super::Inner;
use crate::{identity::ScopeTag, policy::Policy};

/// Counts of this process.
#[derive(Default)]
pub(super) struct Bounds {
    running: AtomicUsize,
    scopes: Mutex<HashMap<ScopeTag, usize>>,
    /// Everything a drain waits for: running work, open settlements, claims to take back.
    active: Arc<Active>,
    /// Claims whose runtime ended before they were settled.
    cut: AtomicUsize,
}

#[derive(Default)]
struct Active {
    count: AtomicUsize,
    idle: Notify,
}

impl Bounds {
    pub(super) fn running(&self) -> usize {
        self.running.load(Ordering::Relaxed)
    }

    pub(super) fn active(&self) -> usize {
        self.active.count.load(Ordering::Acquire)
    }

    pub(super) fn count_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn cut(&self) -> usize {
        self.cut.load(Ordering::Relaxed)
    }

    /// Resolves when nothing is active.
    pub(super) async fn idle(&self) {
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
        self.active.count.fetch_add(1, Ordering::AcqRel);
        Activity(Arc::clone(&self.active))
    }
}

/// Keeps a drain waiting.
pub(super) struct Activity(Arc<Active>);

impl Drop for Activity {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.idle.notify_waiters();
        }
    }
}

/// A place among the running; freed when dropped.
pub(super) struct Place {
    inner: Arc<Inner>,
    policy: Arc<Policy>,
    scope: ScopeTag,
}

impl Place {
    /// A place for work of a policy and a scope, or `None` where one of the three bounds is reached.
    pub(super) fn take(inner: &Arc<Inner>, policy: &Arc<Policy>, scope: ScopeTag) -> Option<Self> {
        let bounds = &inner.bounds;
        if !take_one(&bounds.running, inner.limits.running) {
            return None;
        }
        if !take_one(&policy.running, policy.max_running()) {
            bounds.running.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        if scope != ScopeTag::SHARED {
            let mut scopes = bounds.scopes.lock();
            let count = scopes.entry(scope).or_insert(0);
            if *count >= inner.limits.running_per_scope {
                drop(scopes);
                bounds.running.fetch_sub(1, Ordering::AcqRel);
                policy.running.fetch_sub(1, Ordering::AcqRel);
                return None;
            }
            *count += 1;
        }
        Some(Self { inner: Arc::clone(inner), policy: Arc::clone(policy), scope })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.bounds.running.fetch_sub(1, Ordering::AcqRel);
        self.policy.running.fetch_sub(1, Ordering::AcqRel);
        if self.scope != ScopeTag::SHARED {
            leave(&mut self.inner.bounds.scopes.lock(), self.scope);
        }
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
