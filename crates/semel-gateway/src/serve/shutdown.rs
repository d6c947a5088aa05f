//! The order to stop, in two steps: finish what runs, then end what is left.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A handle on the end of a server. Clones are the same handle.
#[derive(Clone, Default)]
pub struct Shutdown {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    // Beside the tokens, because every poll of a connection reads them and a token takes a lock.
    draining: AtomicBool,
    killed: AtomicBool,
    drain: CancellationToken,
    kill: CancellationToken,
}

impl Shutdown {
    /// A handle nobody has triggered yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Begins the drain: no new connections, idle ones end at once, running requests finish. Later calls do nothing.
    pub fn trigger(&self) {
        self.inner.draining.store(true, Ordering::Release);
        self.inner.drain.cancel();
    }

    /// Ends what is still running. Implies [`trigger`](Self::trigger).
    pub fn kill(&self) {
        self.trigger();
        self.inner.killed.store(true, Ordering::Release);
        self.inner.kill.cancel();
    }

    /// Whether the drain has begun.
    pub fn is_triggered(&self) -> bool {
        self.inner.draining.load(Ordering::Acquire)
    }

    /// Whether what is still running has been ended.
    pub fn is_killed(&self) -> bool {
        self.inner.killed.load(Ordering::Acquire)
    }

    /// Resolves when the drain begins. Cancel safe; fits axum's `with_graceful_shutdown`.
    pub fn wait(&self) -> WaitForCancellationFutureOwned {
        self.inner.drain.clone().cancelled_owned()
    }

    /// Resolves when the drain's time is over. Cancel safe.
    pub fn wait_killed(&self) -> WaitForCancellationFutureOwned {
        self.inner.kill.clone().cancelled_owned()
    }
}
