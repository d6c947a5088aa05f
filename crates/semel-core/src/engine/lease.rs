//! A held claim, as the keeper, the work and the settlement share it.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{Call, Inner, OpenReason, jittered, open::NO_FENCE};
use crate::{
    env::{Clock, Env, Tick},
    fingerprint::Fingerprint,
    identity::{Identity, ScopeTag},
    ids::{Fence, Owner},
    lanes::Lane,
    policy::Policy,
    store::{Ask, Claim},
};

/// A claim under its lease.
///
/// The [`Claim`] itself is in here exactly while nobody renews or settles it: whoever does takes it out. Since it cannot
/// be cloned, renewing and settling never happen at once.
pub(crate) struct Lease {
    /// The question that was granted.
    ask: Ask,
    /// The fence the work was given. A settlement goes by the claim's, which is higher where the store forgot.
    pub(super) fence: Fence,
    pub(super) attempt: u32,
    pub(super) policy: Arc<Policy>,
    pub(super) scope: ScopeTag,
    /// Where the keeper has it.
    pub(super) lane: Lane,
    pub(super) granted_at: Tick,
    /// When `max_hold` is over.
    pub(super) hold_until: Tick,
    clock: Arc<dyn Clock>,
    deadline: AtomicU64,
    renew_at: AtomicU64,
    /// Until when a copy of this owner's claim, whose reply was lost, may still arrive.
    stray_until: AtomicU64,
    /// Another owner holds the record, or the local deadline has passed: the work has been told.
    pub(super) is_lost: AtomicBool,
    lost: OnceLock<CancellationToken>,
    pub(super) is_overheld: AtomicBool,
    /// The work that is to hear of it.
    at_work: Mutex<Option<Waker>>,
    claim: Mutex<Option<Claim>>,
    claim_back: Notify,
    settlement: AtomicU8,
    /// Set where the work runs without a grant, and why.
    pub(super) unguarded: Option<OpenReason>,
}

impl Lease {
    /// What stands in for a lease where the store did not answer: nothing to renew, and no end before `max_hold`.
    pub(super) fn unguarded(env: &Env, call: Call, ask: Ask, why: OpenReason) -> Self {
        let now = env.clock.now();
        // No store has granted it. As the lowest there is it takes no other's place.
        let claim = ask.grant(NO_FENCE, 1);
        let lease = Self::new(env, call, ask, claim, now, Duration::ZERO);
        lease.deadline.store(lease.hold_until.as_nanos(), Ordering::Release);
        lease.stop_renewing();
        Self { unguarded: Some(why), ..lease }
    }

    /// A lease that was granted for a claim sent at `sent`, with `left` on it when the store answered.
    #[inline]
    pub(super) fn new(env: &Env, call: Call, ask: Ask, claim: Claim, sent: Tick, left: Duration) -> Self {
        let Call { policy, scope, .. } = call;
        Self {
            fence: claim.fence(),
            attempt: claim.attempt(),
            scope,
            lane: Lane::here(),
            granted_at: sent,
            hold_until: sent + policy.max_hold(),
            clock: Arc::clone(&env.clock),
            deadline: AtomicU64::new(local_deadline(sent, left).as_nanos()),
            renew_at: AtomicU64::new((sent + first_renewal(&ask, left)).as_nanos()),
            policy,
            stray_until: AtomicU64::new(0),
            is_lost: AtomicBool::new(false),
            lost: OnceLock::new(),
            is_overheld: AtomicBool::new(false),
            at_work: Mutex::new(None),
            claim: Mutex::new(Some(claim)),
            claim_back: Notify::new(),
            ask,
            settlement: AtomicU8::new(NOT_SENT),
            unguarded: None,
        }
    }

    pub(super) fn identity(&self) -> &Identity {
        &self.ask.identity
    }

    pub(super) const fn owner(&self) -> Owner {
        self.ask.owner()
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.ask.fingerprint
    }

    /// What the record carries while it is in flight.
    pub(super) fn rest(&self) -> &Bytes {
        &self.ask.rest
    }

    /// The meta part of that: it ends with the tag of an empty payload.
    pub(super) fn meta(&self) -> &[u8] {
        self.rest().split_last().map_or(&[], |(_, meta)| meta)
    }

    /// Until when the claim is exclusive by local time.
    pub(super) fn deadline(&self) -> Tick {
        Tick::from_nanos(self.deadline.load(Ordering::Acquire))
    }

    /// Whether the claim is exclusive now, by local time and by what the store said.
    pub(super) fn is_good(&self) -> bool {
        !self.is_lost.load(Ordering::Acquire) && self.clock.now() < self.deadline()
    }

    pub(super) fn renew_at(&self) -> Tick {
        Tick::from_nanos(self.renew_at.load(Ordering::Acquire))
    }

    pub(super) fn set_renew_at(&self, at: Tick) {
        self.renew_at.store(at.as_nanos(), Ordering::Release);
    }

    /// A renewal sent at `sent` was answered with `left`.
    pub(super) fn renewed(&self, inner: &Inner, sent: Tick, left: Duration) {
        self.deadline.store(local_deadline(sent, left).as_nanos(), Ordering::Release);
        self.set_renew_at(inner.now() + inner.jittered(self.policy.lease() / 3));
    }

    /// There is nothing left to renew: the record is not this claim's any more. `max_hold` still stands.
    pub(super) fn stop_renewing(&self) {
        self.set_renew_at(NEVER);
    }

    /// A copy of the claim may arrive until then, as nobody knows what became of it.
    pub(super) fn may_stray_until(&self, t: Tick) {
        self.stray_until.fetch_max(t.as_nanos(), Ordering::AcqRel);
    }

    /// `None` where all copies are accounted for.
    pub(super) fn stray_until(&self) -> Option<Tick> {
        let until = self.stray_until.load(Ordering::Acquire);
        (until != 0).then(|| Tick::from_nanos(until))
    }

    /// Whether this attempt is one more than the policy allows.
    pub(super) fn is_beyond_its_attempts(&self) -> bool {
        let most = self.policy.max_attempts();
        self.attempt > u32::from(most) && most != u16::MAX
    }

    /// When the keeper has to look at it next.
    pub(super) fn next_look(&self) -> Tick {
        let mut next = self.renew_at();
        if !self.is_lost.load(Ordering::Acquire) {
            next = next.min(self.deadline());
        }
        if !self.is_overheld.load(Ordering::Acquire) {
            next = next.min(self.hold_until);
        }
        next
    }

    /// Tells the work that the claim is no longer exclusive; `true` for the first time.
    pub(super) fn tell_lost(&self) -> bool {
        let first = !self.is_lost.swap(true, Ordering::AcqRel);
        if let Some(token) = self.lost.get() {
            token.cancel();
        }
        first
    }

    /// Wakes the work after `is_overheld` was set.
    pub(super) fn tell_overheld(&self) {
        let at_work = self.at_work.lock().take();
        if let Some(work) = at_work {
            work.wake();
        }
    }

    /// Ready once `max_hold` is over. For the work alone, which is one: only who asked last is woken. Asked for each time
    /// that work waits, and cheaper than a `Notify`.
    pub(super) fn poll_overheld(&self, cx: &Context<'_>) -> Poll<()> {
        let mut at_work = self.at_work.lock();
        // The flag is set before the waker is taken: either it is seen here, or the waker there.
        if self.is_overheld.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        match &mut *at_work {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// The token that [`tell_lost`](Self::tell_lost) cancels, made on first use: most work never asks.
    pub(super) fn lost_token(&self) -> CancellationToken {
        let token = self.lost.get_or_init(CancellationToken::new).clone();
        // The flag is set before the token is looked for: one of the two sides sees the other.
        if self.is_lost.load(Ordering::Acquire) {
            token.cancel();
        }
        token
    }

    /// Its settlement is sent, or sent again; `true` for the first repeat. From now on the record may have moved on, and
    /// others may know that before the one who sent it hears of it.
    pub(super) fn settlement_sent(&self) -> bool {
        match self.settlement.load(Ordering::Relaxed) {
            NOT_SENT => self.settlement.store(SENT, Ordering::Release),
            SENT => {
                self.settlement.store(REPEATED, Ordering::Release);
                return true;
            }
            _ => {}
        }
        false
    }

    /// Whether the record may have moved on from this attempt.
    pub(super) fn is_settling(&self) -> bool {
        self.settlement.load(Ordering::Acquire) != NOT_SENT
    }

    /// Whether what is known here of the attempt is what the store has: its lease stands, and no settlement of it went
    /// unanswered.
    pub(super) fn is_known(&self) -> bool {
        self.is_good() && self.settlement.load(Ordering::Acquire) != REPEATED
    }

    /// Takes the claim out to renew it, if nobody else has.
    pub(super) fn borrow(self: &Arc<Self>) -> Option<Borrowed> {
        let claim = self.claim.lock().take()?;
        Some(Borrowed { lease: Arc::clone(self), claim: Some(claim) })
    }

    /// Takes the claim out to settle it, unless a renewal is on its way.
    pub(super) fn try_take(&self) -> Option<Claim> {
        self.claim.lock().take()
    }

    /// Takes the claim out to settle it, after a renewal on its way has come back.
    pub(super) async fn take(&self) -> Claim {
        loop {
            let mut back = std::pin::pin!(self.claim_back.notified());
            back.as_mut().enable();
            if let Some(claim) = self.try_take() {
                return claim;
            }
            back.await;
        }
    }
}

/// A claim that is being renewed. Dropped, it goes back, or the one that took its place: a renewal that dies with its
/// runtime leaves no settlement waiting for it.
pub(super) struct Borrowed {
    lease: Arc<Lease>,
    claim: Option<Claim>,
}

impl Borrowed {
    pub(super) const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(super) fn claim(&self) -> &Claim {
        self.claim.as_ref().expect("it is there until it goes back")
    }

    pub(super) fn replace(&mut self, claim: Claim) {
        self.claim = Some(claim);
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        *self.lease.claim.lock() = self.claim.take();
        self.lease.claim_back.notify_waiters();
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lease({:?}, fence {}, attempt {})", self.identity(), self.fence, self.attempt)
    }
}

/// The local end of a lease: from just before the sending, less five per cent for clocks that run apart.
pub(super) fn local_deadline(sent: Tick, left: Duration) -> Tick {
    let nanos = u64::try_from(left.as_nanos()).unwrap_or(u64::MAX);
    Tick::from_nanos(sent.as_nanos().saturating_add(nanos - nanos / 20))
}

/// How far the settlement is, which one task alone sends.
const NOT_SENT: u8 = 0;
const SENT: u8 = 1;
const REPEATED: u8 = 2;

const NEVER: Tick = Tick::from_nanos(u64::MAX);

/// Owners are random, so one byte of theirs spreads the first renewals.
fn first_renewal(ask: &Ask, left: Duration) -> Duration {
    jittered(left / 3, ask.owner().as_bytes()[15])
}
