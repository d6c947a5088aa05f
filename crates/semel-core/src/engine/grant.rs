//! The right to run, with its lease kept alive.

use std::{fmt, future::Future, sync::Arc};

use super::{Inner, Kept, OpenReason, Run, Verdict, bounds::Hold, keeper::Keeper, lease::Lease, settling};
use crate::{ids::Fence, observe::Event};

/// The right to run, with its lease kept alive. Settling consumes it; dropped, its outcome is unknown.
#[must_use = "dropping a grant settles it as unknown"]
pub struct Grant {
    /// Gone once it is being settled.
    hold: Option<Hold>,
    dropped: Dropped,
}

const HELD: &str = "what a grant holds goes only where the grant itself goes";

/// What a grant that is dropped becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Nobody used it: released, and the attempt does not count.
    GivenBack,
    /// The work may have begun.
    Unknown,
    /// The work had begun, and nothing of it takes effect without its end.
    Released,
}

impl Grant {
    pub(super) fn new(inner: Arc<Inner>, lease: Arc<Lease>) -> Self {
        Self { hold: Some(Hold::new(inner, lease)), dropped: Dropped::GivenBack }
    }

    /// Takes a place among the running; `false` where there is none.
    pub(super) fn sit_down(&mut self) -> bool {
        self.hold.as_mut().is_some_and(Hold::sit_down)
    }

    /// Lets copies find it here; `false` where one runs without a grant already.
    pub(super) fn begin_here(&self) -> bool {
        let Hold { inner, lease, .. } = self.held();
        inner.tier.begins(lease)
    }

    /// Keeps its lease alive from now on.
    pub(super) fn keep(&self) {
        let Hold { inner, lease, .. } = self.held();
        Keeper::keep(inner, lease);
    }

    pub(super) const fn when_dropped(&mut self, what: Dropped) {
        self.dropped = what;
    }

    fn held(&self) -> &Hold {
        self.hold.as_ref().expect(HELD)
    }

    fn let_go(&mut self) -> Hold {
        self.hold.take().expect(HELD)
    }

    pub(super) fn lease(&self) -> &Arc<Lease> {
        &self.held().lease
    }

    pub(super) fn emit(&self, event: &Event<'_>) {
        self.held().inner.emit(event);
    }

    /// What the work may see.
    #[must_use]
    pub fn run(&self) -> Run {
        Run { lease: Arc::clone(self.lease()) }
    }

    /// The number of the grant; the lowest there is where there was none.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease().fence
    }

    /// Why there is no grant behind it, where there is none.
    #[must_use]
    pub fn unguarded(&self) -> Option<OpenReason> {
        self.lease().unguarded
    }

    /// Whether the lease still stands by local time; to be looked at right before the first byte leaves.
    #[must_use]
    pub fn still_good(&self) -> bool {
        self.lease().is_good()
    }

    /// Settles. Recording belongs to no caller: dropping the future, polled or not, loses the answer, not the settlement,
    /// which is tried for `settle_for`. Answers [`Kept::Unrecorded`] when the store takes longer than `commit_wait`.
    pub fn settle(mut self, verdict: Verdict) -> impl Future<Output = Kept> + Send + use<> {
        settling::settle(self.let_go(), verdict)
    }

    /// Releases it unused; the attempt does not count.
    pub(super) async fn give_back(self) {
        let _released = self.settle(Verdict::Release { counts: false, answer: None }).await;
    }

    /// Parks the record: it was tried too often.
    pub(super) async fn park(mut self) {
        settling::park(self.let_go()).await;
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(hold) = self.hold.take() else { return };
        let verdict = match self.dropped {
            Dropped::GivenBack => Verdict::Release { counts: false, answer: None },
            Dropped::Released => Verdict::Release { counts: true, answer: None },
            Dropped::Unknown if std::thread::panicking() => Verdict::Unknown { last: Some("panicked".into()) },
            Dropped::Unknown => Verdict::Unknown { last: Some("dropped before its end".into()) },
        };
        drop(settling::settle(hold, verdict));
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({:?})", self.lease())
    }
}
