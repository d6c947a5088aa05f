//! The right to run, with its lease kept alive.

use std::{fmt, future::Future, sync::Arc};

use super::{
    Inner, Kept, Run, Verdict,
    bounds::{Activity, Place},
    lease::Lease,
    settling,
};
use crate::{ids::Fence, observe::Event};

/// The right to run, with its lease kept alive. Settling consumes it; dropped, its outcome is unknown.
#[must_use = "dropping a grant settles it as unknown"]
pub struct Grant {
    inner: Arc<Inner>,
    lease: Arc<Lease>,
    place: Option<Place>,
    activity: Option<Activity>,
    dropped: Dropped,
}

/// What a grant that is dropped becomes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Nobody used it: released, and the attempt does not count.
    GivenBack,
    /// The work may have begun.
    Unknown,
    /// The work had begun, and nothing of it takes effect without its end.
    Released,
    /// Settled already.
    Settled,
}

impl Grant {
    pub(super) fn new(inner: Arc<Inner>, lease: Arc<Lease>) -> Self {
        let activity = Some(inner.bounds.activity());
        Self { inner, lease, place: None, activity, dropped: Dropped::GivenBack }
    }

    pub(super) fn seat(&mut self, place: Place) {
        self.place = Some(place);
    }

    pub(super) const fn when_dropped(&mut self, what: Dropped) {
        self.dropped = what;
    }

    pub(super) const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(super) fn emit(&self, event: &Event<'_>) {
        self.inner.emit(event);
    }

    /// What the work may see.
    #[must_use]
    pub fn run(&self) -> Run {
        Run { lease: Arc::clone(&self.lease) }
    }

    /// The number of the grant.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.lease.fence
    }

    /// Whether the lease still stands by local time; to be looked at right before the first byte leaves.
    #[must_use]
    pub fn still_good(&self) -> bool {
        self.lease.is_good()
    }

    /// Settles. Recording belongs to no caller: dropping the future, polled or not, loses the answer, not the settlement,
    /// which is tried for `settle_for`. Answers [`Kept::Unrecorded`] when the store takes longer than `commit_wait`.
    pub fn settle(mut self, verdict: Verdict) -> impl Future<Output = Kept> + Send + use<> {
        settling::Unasked::new(self.end(verdict)).settle()
    }

    /// Releases it unused; the attempt does not count.
    pub(super) async fn give_back(self) {
        let _released = self.settle(Verdict::Release { counts: false, answer: None }).await;
    }

    /// Parks the record: it was tried too often.
    pub(super) async fn park(mut self) {
        self.dropped = Dropped::Settled;
        settling::park(&self.inner, &self.lease, self.activity.take()).await;
    }

    fn end(&mut self, verdict: Verdict) -> settling::Open {
        self.dropped = Dropped::Settled;
        settling::Open {
            inner: Arc::clone(&self.inner),
            lease: Arc::clone(&self.lease),
            verdict,
            place: self.place.take(),
            activity: self.activity.take(),
        }
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let verdict = match self.dropped {
            Dropped::Settled => return,
            Dropped::GivenBack => Verdict::Release { counts: false, answer: None },
            Dropped::Released => Verdict::Release { counts: true, answer: None },
            Dropped::Unknown if std::thread::panicking() => Verdict::Unknown { last: Some("panicked".into()) },
            Dropped::Unknown => Verdict::Unknown { last: Some("dropped before its end".into()) },
        };
        self.end(verdict).detach();
    }
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Grant({:?})", self.lease)
    }
}
