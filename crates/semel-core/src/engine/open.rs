//! Runs without a grant: what a rule with `on_store_error = "open"` does while its store does not answer.
//!
//! One process still runs its own copies once: the attempt is entered in the local tier like any other, and copies get
//! its answer; and what the tier remembers of earlier ones, as long as their records last and its room allows, refuses
//! copies here, where the store cannot. Its outcome is recorded at its end if the store answers by then, over an absent or free record and over
//! its own stray claim, never over anybody else's: its fence is the lowest there is.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use super::{
    Call, Grant, Inner, Verdict,
    claiming::Turned,
    lease::Lease,
    settling::{outcome_rest, words_rest},
    tier::Unguarded,
    waiting::News,
};
use crate::{
    env::Tick,
    identity::Identity,
    ids::{Fence, StoreTime},
    judge::Recorded,
    observe::{Event, What},
    policy::{OnStoreError, Policy},
    record::{Body, Flags, Outcome, Record, StateCode, VERSION},
    refusal::Refusal,
    store::{Ask, StoreError, StoreErrorKind},
};

/// Why work ran without a grant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum OpenReason {
    /// The store did not answer.
    StoreDown,
}

impl OpenReason {
    /// The label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::StoreDown => "store-down",
        }
    }
}

/// Whether a rule runs without a grant after this error. A full store has answered, and refuses.
pub(super) fn opens(policy: &Policy, error: &StoreError) -> bool {
    policy.on_store_error() == OnStoreError::Open
        && matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::ReadOnly)
}

/// Begins an attempt without a grant, or joins the one that this process has under way. `stray`: a claim of this owner
/// may stand in the store all the same.
///
/// Boxed, and no part of the future of claims that are answered.
#[cold]
pub(super) fn unguarded(
    inner: Arc<Inner>,
    call: Call,
    ask: Ask,
    stray: bool,
) -> Pin<Box<dyn Future<Output = Result<Grant, Turned>> + Send>> {
    Box::pin(begin(inner, call, ask, stray))
}

async fn begin(inner: Arc<Inner>, call: Call, ask: Ask, stray: bool) -> Result<Grant, Turned> {
    let why = OpenReason::StoreDown;
    let lease = Arc::new(Lease::unguarded(&inner.env, call.clone(), ask.clone(), why));
    let now = inner.now();
    let (there, is_known) = match inner.tier.begins_unguarded(&lease, now) {
        Unguarded::Begins => (None, false),
        // Also where its lease is over: who cannot ask the store must not begin another.
        Unguarded::Running(held) => {
            (Some(inner.judged(&call, Some(&inner.record_of(&held)), inner.store_time(now))), false)
        }
        Unguarded::Ended(record) => (Some(inner.judged(&call, Some(&record), inner.store_time(now))), false),
        Unguarded::Known(known) => (Some(inner.judged(&call, Some(&known.record), known.store_time(now))), true),
    };
    if let Some(there) = there {
        inner.take_back(stray, &call.policy, &ask);
        if is_known {
            inner.tier.count_remembered();
        } else {
            inner.tier.count_joined();
        }
        return Err(there.unwrap_or_else(|| {
            let retry_after = call.policy.lease() / 10;
            Turned::away(Refusal::InFlight { retry_after }, call)
        }));
    }
    if stray {
        // Not taken back while the work runs: should it stand, it keeps others out.
        lease.may_stray_until(inner.now() + inner.patience());
    }
    let mut grant = Grant::new(inner, lease);
    if !grant.sit_down() {
        Box::pin(grant.give_back()).await;
        return Err(Turned::away(Refusal::TooManyRunning, call));
    }
    grant.keep();
    grant.emit(&Event::new(&call.identity, call.policy.name(), What::Unguarded(why)));
    Ok(grant)
}

impl Inner {
    /// Gives the copies of an attempt without a grant its end, before anything is recorded: that can take as long as the
    /// store is away. Those that come until then get it too.
    #[cold]
    pub(super) fn tell_copies(&self, lease: &Arc<Lease>, verdict: &Verdict) {
        let now = self.store_time(self.now());
        let recorded =
            |outcome: &Outcome, left| Recorded { outcome: outcome.clone(), settled_at: now, left, same_request: false };
        let news = match verdict {
            Verdict::Keep(outcome) => News::done(recorded(outcome, lease.policy.ttl())),
            Verdict::Release { answer: Some(outcome), .. } => News::Recorded(recorded(outcome, Duration::ZERO)),
            Verdict::Release { answer: None, .. } => {
                News::Refused(Refusal::InFlight { retry_after: Duration::from_millis(100) })
            }
            Verdict::Unknown { last } => News::Refused(Refusal::OutcomeUnknown { since: now, last: last.clone() }),
        };
        match would_be(lease, verdict, now) {
            Some(record) => self.tier.ended(lease, record),
            None => self.tier.over(lease),
        }
        self.flights.tell(lease.identity(), lease.fence, news);
    }

    /// Remembers what an attempt came to, for copies that come while the store does not answer.
    #[cold]
    pub(super) fn remember_for_an_outage(&self, lease: &Lease, verdict: &Verdict) {
        let now = self.now();
        if let Some(record) = would_be(lease, verdict, self.store_time(now)) {
            self.remember_while_away(lease.identity(), &record, now);
        }
    }

    /// Remembers a record for nothing else than a store that does not answer.
    pub(super) fn remember_while_away(&self, id: &Identity, record: &Record, now: Tick) {
        self.tier.keep(self.tier.epoch().doubted(), id, record, self.store_time(now), now);
    }
}

/// The record that an attempt would leave; `None` where that refuses nobody.
fn would_be(lease: &Lease, verdict: &Verdict, now: StoreTime) -> Option<Record> {
    let record = |state, flags, ttl, rest| Record {
        version: VERSION,
        state,
        flags,
        fingerprint: lease.fingerprint(),
        owner: lease.owner(),
        fence: Some(lease.fence),
        attempt: lease.attempt,
        lease_until: now,
        expires_at: now + ttl,
        rest,
    };
    match verdict {
        Verdict::Keep(outcome) => {
            let flags = Flags::when(matches!(outcome.body, Body::Whole(_)), Flags::BODY_KEPT);
            Some(record(StateCode::Done, flags, lease.policy.ttl(), outcome_rest(lease, outcome, now)))
        }
        Verdict::Unknown { last } => {
            let rest = words_rest(lease, last.as_deref());
            Some(record(StateCode::Unknown, Flags::NONE, lease.policy.unknown_ttl(), rest))
        }
        Verdict::Release { .. } => None,
    }
}

/// The fence of an attempt that was granted none: lower than any grant's, so that its outcome is written over no other.
pub(super) const NO_FENCE: Fence = match Fence::new(1) {
    Some(fence) => fence,
    None => unreachable!(),
};
