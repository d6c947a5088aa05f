//! What the parts on one runtime share.

use std::{future::Future, sync::Arc};

use tokio_util::task::TaskTracker;

use super::Shutdown;

/// One runtime of the server: a core of its own, or the shared one.
///
/// The factory of services gets one per runtime, and makes there what must not be shared between cores, such as the
/// connections to the upstream.
#[derive(Clone)]
pub struct Core {
    inner: Arc<Inner>,
}

struct Inner {
    index: usize,
    shutdown: Shutdown,
    counted: TaskTracker,
}

impl Core {
    /// The `index`th runtime under `shutdown`. The server makes its own; this one is for services used elsewhere.
    pub fn new(index: usize, shutdown: Shutdown) -> Self {
        Self { inner: Arc::new(Inner { index, shutdown, counted: TaskTracker::new() }) }
    }

    /// Which runtime this is, from 0.
    pub fn index(&self) -> usize {
        self.inner.index
    }

    /// The order to stop.
    pub fn shutdown(&self) -> &Shutdown {
        &self.inner.shutdown
    }

    /// Runs `work` on the current runtime. A drain waits for it, and ends it where it stands when its time is over.
    pub fn spawn_counted(&self, work: impl Future<Output = ()> + Send + 'static) {
        let killed = self.inner.shutdown.wait_killed();
        self.inner.counted.spawn(async move {
            tokio::select! {
                () = work => {}
                () = killed => {}
            }
        });
    }

    /// The same for work that ends by itself when killed.
    pub(super) fn spawn_connection(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.inner.counted.spawn(work);
    }

    /// Runs `work` on the current runtime until it ends or the drain's time is over; a drain does not wait for it.
    #[expect(clippy::disallowed_methods, reason = "belongs to this runtime and its sockets; no simulated clock here")]
    pub fn spawn_until_killed(&self, work: impl Future<Output = ()> + Send + 'static) {
        let killed = self.inner.shutdown.wait_killed();
        tokio::spawn(async move {
            tokio::select! {
                () = work => {}
                () = killed => {}
            }
        });
    }

    pub(super) fn counted(&self) -> &TaskTracker {
        &self.inner.counted
    }
}
