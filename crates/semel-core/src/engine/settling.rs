//! Recording what became of a claim. It belongs to no request and outlasts a store outage.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use tokio::sync::oneshot;

use super::{
    Inner, Kept, Verdict,
    bounds::{Activity, Place},
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
    store::{Claim, Did, Releasing, Reply, Settled, Settlement, StoreError, StoreErrorKind},
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
    pub(super) async fn settle(self) -> Kept {
        let inner = Arc::clone(&self.inner);
        let mut recording: Pin<Box<dyn Future<Output = Kept> + Send>> = Box::pin(self.record());
        if let Poll::Ready(kept) = std::future::poll_fn(|cx| Poll::Ready(recording.as_mut().poll(cx))).await {
            return kept;
        }
        let (tell, told) = oneshot::channel();
        let task = async move { drop(tell.send(recording.await)) };
        inner.env.tasks.spawn("semel settle", Box::pin(task));
        let until = inner.now() + inner.times.commit_wait;
        tokio::select! {
            biased;
            kept = told => kept.unwrap_or(Kept::Unrecorded),
            () = inner.env.clock.sleep_until(until) => Kept::Unrecorded,
        }
    }

    /// Settles without anybody waiting.
    pub(super) fn detach(self) {
        let tasks = Arc::clone(&self.inner.env.tasks);
        tasks.spawn("semel settle", Box::pin(async move { drop(self.record().await) }));
    }

    async fn record(mut self) -> Kept {
        let (inner, lease) = (&self.inner, &self.lease);
        inner.keeper.drop_lease(lease);
        let claim = lease.take().await;
        let (kept, news) = match &self.verdict {
            Verdict::Keep(outcome) => inner.complete(lease, &claim, outcome).await,
            Verdict::Release { counts, answer } => inner.give_back(lease, &claim, *counts, answer.as_ref()).await,
            Verdict::Unknown { last } => inner.unknown(lease, &claim, last.as_deref()).await,
        };
        // The place is free before anybody hears of the end: a waiter that comes back at once finds room.
        drop(self.place.take());
        inner.report(lease, &self.verdict, &kept);
        if let Some(news) = news {
            inner.flights.tell(&lease.identity, lease.fence, news);
        }
        drop(self.activity.take());
        kept
    }
}

/// Parks a record whose attempts are used up.
pub(super) async fn park(inner: &Arc<Inner>, lease: &Lease) {
    let claim = lease.take().await;
    let words = Payload::Words(format!("given up after {} attempts", lease.attempt - 1).into());
    let what = Releasing::Held {
        claim: &claim,
        counts: false,
        park: true,
        keep: lease.policy.unknown_ttl(),
        rest: Rest::write(meta_part(&lease.meta), &words),
    };
    let _parked = inner.until_answered(StoreCall::Release, &lease.identity, || inner.store.release(&what)).await;
}

impl Inner {
    async fn complete(&self, lease: &Lease, claim: &Claim, outcome: &Outcome) -> (Kept, Option<News>) {
        let settled_at = self.settled_at();
        let mut rest = outcome_rest(lease, outcome, settled_at);
        if rest.len() as u64 > self.facts.max_rest {
            rest = outcome_rest(lease, &bodyless(outcome), settled_at);
        }
        let mut to = done(lease, rest.clone(), body_kept(&rest));
        let mut settled = self.until_settled(lease, claim, &to).await;
        if matches!(&settled, Err(e) if e.kind == StoreErrorKind::Full) {
            rest = outcome_rest(lease, &bodyless(outcome), settled_at);
            to = done(lease, rest.clone(), false);
            settled = self.until_settled(lease, claim, &to).await;
        }
        match settled {
            Ok(Settled::Ok { restored }) => {
                let news = recorded(&rest, lease.policy.ttl()).map(|r| match r.outcome.body {
                    Body::Whole(_) => News::Recorded(r),
                    Body::Withheld(_) => News::Refused(Refusal::OutcomeUnavailable { kept: Some(Box::new(r)) }),
                });
                (if restored { Kept::Restored } else { Kept::Stored }, news)
            }
            Ok(Settled::Lost(record)) => (self.lost(lease, &record), None),
            Err(_) => (Kept::Unrecorded, None),
        }
    }

    async fn unknown(&self, lease: &Lease, claim: &Claim, last: Option<&str>) -> (Kept, Option<News>) {
        let payload = last.map_or(Payload::Nothing, |words| Payload::Words(words.into()));
        let to = Settlement::Unknown {
            fingerprint: lease.fingerprint,
            rest: Rest::write(meta_part(&lease.meta), &payload),
            ttl: lease.policy.unknown_ttl(),
        };
        match self.until_settled(lease, claim, &to).await {
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
        claim: &Claim,
        counts: bool,
        answer: Option<&Outcome>,
    ) -> (Kept, Option<News>) {
        let what = Releasing::Held { claim, counts, park: false, keep: lease.policy.ttl(), rest: lease.meta.clone() };
        match self.until_answered(StoreCall::Release, &lease.identity, || self.store.release(&what)).await {
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

    async fn until_settled(&self, lease: &Lease, claim: &Claim, to: &Settlement) -> Result<Settled, StoreError> {
        self.until_answered(StoreCall::Settle, &lease.identity, || self.store.settle(claim, to)).await
    }

    /// Repeats a call that gives the same answer each time until it is answered, at most for `settle_for`. A full store
    /// is an answer where nothing was changed.
    pub(super) async fn until_answered<'a, T>(
        &self,
        call: StoreCall,
        id: &Identity,
        ask: impl Fn() -> Reply<'a, T>,
    ) -> Result<T, StoreError> {
        let until = self.now() + self.times.settle_for;
        let mut pause = Duration::from_millis(50);
        loop {
            match self.within(call, id, ask()).await {
                Ok(answer) => return Ok(answer),
                Err(error) if error.kind == StoreErrorKind::Full && error.did == Did::Nothing => return Err(error),
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
            self.emit(&Event::new(&lease.identity, lease.policy.name(), What::SettlementAbandoned));
        }
        let event = Event::new(&lease.identity, lease.policy.name(), What::Settled { verdict: verdict.kind(), kept });
        self.emit(&event.attempt(lease.attempt).took(self.now().since(lease.granted_at)));
    }
}

/// The meta part of a rest with an empty payload.
fn meta_part(rest: &Bytes) -> &[u8] {
    Rest::read(rest).map_or(&rest[..], |r| &rest[..r.meta_len])
}

fn outcome_rest(lease: &Lease, outcome: &Outcome, settled_at: StoreTime) -> Bytes {
    Rest::write_outcome(meta_part(&lease.meta), outcome, settled_at)
}

fn done(lease: &Lease, rest: Bytes, body_kept: bool) -> Settlement {
    Settlement::Done { fingerprint: lease.fingerprint, rest, body_kept, ttl: lease.policy.ttl() }
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

fn body_kept(rest: &Bytes) -> bool {
    recorded(rest, Duration::ZERO).is_some_and(|r| matches!(r.outcome.body, Body::Whole(_)))
}

fn same_caller(record: &Record, lease: &Lease) -> bool {
    let credentials = |rest: &Bytes| Rest::read(rest).ok().map(|r| r.meta.credentials);
    credentials(&record.rest) == credentials(&lease.meta)
}
