//! Recording what became of a claim. It belongs to no request and outlasts a store outage.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    Inner, Kept, Verdict,
    bounds::{Activity, Place},
    claiming::Reclaimed,
    keeper::is_own_later,
    lease::Lease,
    waiting::News,
};
use crate::{
    identity::Identity,
    ids::StoreTime,
    judge::Recorded,
    observe::{Event, StoreCall, What},
    record::{Body, Flags, Outcome, Payload, Record, Rest, StateCode, Withheld},
    refusal::Refusal,
    store::{Claim, Releasing, Reply, Settled, Settlement, StoreError},
};

/// A settlement that is under way.
pub(super) struct Open {
    pub(super) inner: Arc<Inner>,
    pub(super) lease: Arc<Lease>,
    pub(super) verdict: Verdict,
    pub(super) place: Option<Place>,
    pub(super) activity: Option<Activity>,
}

impl Open {
    /// Settles in place where the store answers at once; otherwise in a task of its own, whose answer is awaited for
    /// `commit_wait`.
    fn settle(self) -> impl Future<Output = Kept> + Send {
        let inner = Arc::clone(&self.inner);
        let recording = Box::pin(self.record());
        async move { in_time(&inner, recording).await.unwrap_or(Kept::Unrecorded) }
    }

    /// Settles without anybody waiting.
    pub(super) fn detach(self) {
        let tasks = Arc::clone(&self.inner.env.tasks);
        tasks.spawn("semel settle", Box::pin(async move { drop(self.record().await) }));
    }

    async fn record(mut self) -> Kept {
        let (inner, lease) = (&self.inner, &self.lease);
        inner.keeper.drop_lease(lease);
        let mut claim = lease.take().await;
        let (kept, news) = match &self.verdict {
            Verdict::Keep(outcome) => inner.complete(lease, &mut claim, outcome).await,
            Verdict::Release { counts, answer } => inner.give_back(lease, &mut claim, *counts, answer.as_ref()).await,
            Verdict::Unknown { last } => inner.unknown(lease, &mut claim, last.as_deref()).await,
        };
        // The place is free before anybody hears of the end: a waiter that comes back at once finds room.
        drop(self.place.take());
        inner.report(lease, &self.verdict, &kept);
        inner.abandon_strays(lease);
        if let Some(news) = news {
            // Who came after the store had forgotten met the attempt under its later fence.
            if claim.fence() != lease.fence {
                inner.flights.tell(&lease.identity, claim.fence(), news.clone());
            }
            inner.flights.tell(&lease.identity, lease.fence, news);
        }
        drop(self.activity.take());
        kept
    }
}

/// Dropped on the way: the runtime ended under it, and the store hears no more of this claim.
impl Drop for Open {
    fn drop(&mut self) {
        if self.activity.is_some() {
            self.inner.bounds.count_cut();
            let event = Event::new(&self.lease.identity, self.lease.policy.name(), What::SettlementAbandoned);
            self.inner.emit(&event.attempt(self.lease.attempt));
        }
    }
}

/// A settlement of which nobody has asked for the answer yet. Dropped so, it goes on by itself.
pub(super) struct Unasked(Option<Open>);

impl Unasked {
    pub(super) const fn new(open: Open) -> Self {
        Self(Some(open))
    }

    pub(super) async fn settle(mut self) -> Kept {
        match self.0.take() {
            Some(open) => open.settle().await,
            None => Kept::Unrecorded,
        }
    }
}

impl Drop for Unasked {
    fn drop(&mut self) {
        if let Some(open) = self.0.take() {
            open.detach();
        }
    }
}

/// Polls `recording` in place; where that is not its end, in a task of its own, whose answer is awaited for
/// `commit_wait`. `None` where it takes longer.
async fn in_time<T: Send + 'static>(
    inner: &Inner,
    mut recording: Pin<Box<dyn Future<Output = T> + Send>>,
) -> Option<T> {
    if let Poll::Ready(done) = std::future::poll_fn(|cx| Poll::Ready(recording.as_mut().poll(cx))).await {
        return Some(done);
    }
    let (tell, told) = oneshot::channel();
    inner.env.tasks.spawn("semel settle", Box::pin(async move { drop(tell.send(recording.await)) }));
    let until = inner.now() + inner.times.commit_wait;
    tokio::select! {
        biased;
        done = told => done.ok(),
        () = inner.env.clock.sleep_until(until) => None,
    }
}

/// Parks a record whose attempts are used up; goes on by itself where that takes longer than `commit_wait`.
pub(super) async fn park(inner: &Arc<Inner>, lease: &Arc<Lease>, activity: Option<Activity>) {
    let (owned, lease) = (Arc::clone(inner), Arc::clone(lease));
    let parking = async move {
        let _activity = activity;
        let claim = lease.take().await;
        let words = Payload::Words(format!("given up after {} attempts", lease.attempt - 1).into());
        let what = Releasing::Held {
            claim: &claim,
            counts: false,
            park: true,
            keep: lease.policy.unknown_ttl(),
            rest: Rest::write(meta_part(&lease.meta), &words),
        };
        let release = || owned.store.release(&what);
        let _parked = owned.until(owned.tries(), StoreCall::Release, &lease.identity, release).await;
    };
    let _in_time = in_time(inner, Box::pin(parking)).await;
}

impl Inner {
    async fn complete(&self, lease: &Lease, claim: &mut Claim, outcome: &Outcome) -> (Kept, Option<News>) {
        let settled_at = self.settled_at();
        let mut rest = outcome_rest(lease, outcome, settled_at);
        let mut whole = matches!(outcome.body, Body::Whole(_));
        if rest.len() as u64 > self.facts.max_rest {
            (rest, whole) = (outcome_rest(lease, &bodyless(outcome), settled_at), false);
        }
        let settled = loop {
            let (fingerprint, ttl) = (lease.fingerprint, lease.policy.ttl());
            let to = Settlement::Done { fingerprint, rest: rest.clone(), body_kept: whole, ttl };
            let tries = Tries { time: self.times.settle_for, end_when_full: whole };
            let settle = || self.store.settle(claim, &to);
            let settled = self.until(tries, StoreCall::Settle, &lease.identity, settle).await;
            if matches!(&settled, Err(e) if whole && e.is_full()) {
                (rest, whole) = (outcome_rest(lease, &bodyless(outcome), settled_at), false);
            } else if !self.adopts(lease, claim, &settled).await {
                break settled;
            }
        };
        match settled {
            Ok(Settled::Ok { restored }) => {
                let news = if self.flights.is_any() { recorded(&rest, lease.policy.ttl()) } else { None };
                let news = news.map(|r| match r.outcome.body {
                    Body::Whole(_) => News::Recorded(r),
                    Body::Withheld(_) => News::Refused(Refusal::OutcomeUnavailable { kept: Some(Box::new(r)) }),
                });
                (if restored { Kept::Restored } else { Kept::Stored }, news)
            }
            Ok(Settled::Lost(record)) => (self.lost(lease, &record), None),
            Err(_) => (Kept::Unrecorded, None),
        }
    }

    async fn unknown(&self, lease: &Lease, claim: &mut Claim, last: Option<&str>) -> (Kept, Option<News>) {
        let payload = last.map_or(Payload::Nothing, |words| Payload::Words(words.into()));
        let to = Settlement::Unknown {
            fingerprint: lease.fingerprint,
            rest: Rest::write(meta_part(&lease.meta), &payload),
            ttl: lease.policy.unknown_ttl(),
        };
        let settled = loop {
            let settle = || self.store.settle(claim, &to);
            let settled = self.until(self.tries(), StoreCall::Settle, &lease.identity, settle).await;
            if !self.adopts(lease, claim, &settled).await {
                break settled;
            }
        };
        match settled {
            Ok(Settled::Ok { .. }) => {
                let since = self.settled_at();
                (Kept::Unknown, Some(News::Refused(Refusal::OutcomeUnknown { since, last: last.map(Into::into) })))
            }
            Ok(Settled::Lost(record)) => (self.lost(lease, &record), None),
            Err(_) => (Kept::Unrecorded, None),
        }
    }

    async fn give_back(
        &self,
        lease: &Lease,
        claim: &mut Claim,
        counts: bool,
        answer: Option<&Outcome>,
    ) -> (Kept, Option<News>) {
        let released = loop {
            let (keep, rest) = (lease.policy.ttl(), lease.meta.clone());
            let what = Releasing::Held { claim, counts, park: false, keep, rest };
            let release = || self.store.release(&what);
            let released = self.until(self.tries(), StoreCall::Release, &lease.identity, release).await;
            if !self.adopts(lease, claim, &released).await {
                break released;
            }
        };
        match released {
            Ok(Settled::Ok { .. }) => {
                let news = match answer {
                    Some(outcome) => News::Recorded(Recorded {
                        outcome: outcome.clone(),
                        settled_at: self.settled_at(),
                        left: Duration::ZERO,
                        same_request: false,
                    }),
                    None => News::Refused(Refusal::InFlight { retry_after: Duration::from_millis(100) }),
                };
                (Kept::Released, Some(news))
            }
            Ok(Settled::Lost(record)) => (self.lost(lease, &record), None),
            Err(_) => (Kept::Unrecorded, None),
        }
    }
    /// Whether a settlement was refused because the record is the same owner's under a later fence: the store had lost
    /// the claim, and the reply to claiming again was lost. Then `claim` is that one, and the settlement goes by it.
    async fn adopts(&self, lease: &Lease, claim: &mut Claim, settled: &Result<Settled, StoreError>) -> bool {
        match settled {
            Ok(Settled::Lost(record)) if is_own_later(record, claim) => match Box::pin(self.claim_again(lease)).await {
                Reclaimed::Held { claim: again, .. } => {
                    let rose = again.fence() > claim.fence();
                    *claim = again;
                    rose
                }
                Reclaimed::Taken | Reclaimed::NoAnswer => false,
            },
            _ => false,
        }
    }

    const fn tries(&self) -> Tries {
        Tries { time: self.times.settle_for, end_when_full: false }
    }

    /// Repeats a call that gives the same answer each time until it is answered.
    pub(super) async fn until<'a, T>(
        &self,
        tries: Tries,
        call: StoreCall,
        id: &Identity,
        ask: impl Fn() -> Reply<'a, T>,
    ) -> Result<T, StoreError> {
        let until = self.now() + tries.time;
        let mut pause = Duration::from_millis(50);
        loop {
            match self.within(call, id, ask()).await {
                Ok(answer) => return Ok(answer),
                Err(error) if tries.end_when_full && error.is_full() => return Err(error),
                Err(error) if self.now() >= until => return Err(error),
                Err(_) => self.env.clock.sleep_until(self.now() + self.jittered(pause)).await,
            }
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    /// The record is somebody else's by now.
    fn lost(&self, lease: &Lease, record: &Record) -> Kept {
        let event = Event::new(&lease.identity, lease.policy.name(), What::LateSettlementRefused);
        self.emit(&event.attempt(lease.attempt));
        let same_question = record.state == StateCode::Done && record.fingerprint.same(&lease.fingerprint);
        let whole = same_question && record.flags.has(Flags::BODY_KEPT) && same_caller(record, lease);
        let left = record.expires_at.since(self.settled_at());
        Kept::Lost { recorded: if whole { recorded(&record.rest, left).map(Box::new) } else { None } }
    }

    fn settled_at(&self) -> StoreTime {
        self.store_clock.at(self.now()).unwrap_or_default()
    }

    fn report(&self, lease: &Lease, verdict: &Verdict, kept: &Kept) {
        if *kept == Kept::Unrecorded {
            let event = Event::new(&lease.identity, lease.policy.name(), What::SettlementAbandoned);
            self.emit(&event.attempt(lease.attempt));
        }
        let last = match verdict {
            Verdict::Unknown { last } => last.as_deref(),
            Verdict::Keep(_) | Verdict::Release { .. } => None,
        };
        let event = Event::new(&lease.identity, lease.policy.name(), What::Settled { verdict: verdict.kind(), kept });
        self.emit(&event.attempt(lease.attempt).took(self.now().since(lease.granted_at)).last(last));
    }
}

/// How long a call is repeated, and whether a full store ends that.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    pub(super) time: Duration,
    /// Set where something else can be tried then.
    pub(super) end_when_full: bool,
}

/// The meta part of a claim's rest, which ends with the tag of an empty payload.
fn meta_part(rest: &Bytes) -> &[u8] {
    rest.split_last().map_or(&rest[..], |(_, meta)| meta)
}

fn outcome_rest(lease: &Lease, outcome: &Outcome, settled_at: StoreTime) -> Bytes {
    Rest::write_outcome(meta_part(&lease.meta), outcome, settled_at)
}

fn bodyless(outcome: &Outcome) -> Outcome {
    match &outcome.body {
        Body::Whole(body) => {
            Outcome { body: Body::Withheld(Withheld::TooLarge { len: body.len() as u64 }), ..outcome.clone() }
        }
        Body::Withheld(_) => outcome.clone(),
    }
}

fn recorded(rest: &Bytes, left: Duration) -> Option<Recorded> {
    match Rest::read(rest).ok()?.payload {
        Payload::Outcome { outcome, settled_at } => Some(Recorded { outcome, settled_at, left, same_request: false }),
        Payload::Nothing | Payload::Words(_) => None,
    }
}

fn same_caller(record: &Record, lease: &Lease) -> bool {
    let credentials = |rest: &Bytes| Rest::read(rest).ok().map(|r| r.meta.credentials);
    credentials(&record.rest) == credentials(&lease.meta)
}
