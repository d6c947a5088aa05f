//! Recording what became of a claim. It belongs to no request and outlasts a store outage.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;

use super::{
    Inner, Kept, Verdict,
    bounds::Hold,
    breaker::{Needed, Pass},
    claiming::Reclaimed,
    hourglass::Timeout,
    keeper::is_own_later,
    lease::Lease,
    leaving::GoesOn,
    tier::Epoch,
    waiting::News,
};
use crate::{
    env::Tick,
    identity::Identity,
    ids::StoreTime,
    judge::Recorded,
    observe::{Event, StoreCall, What},
    pinned,
    policy::OnStoreError,
    record::{Body, Flags, Outcome, Payload, Record, Rest, StateCode, VERSION, Withheld},
    refusal::Refusal,
    store::{Claim, Did, Releasing, Reply, Settled, Settlement, StoreError},
};

/// Settles, in place where the store answers at once. Whatever becomes of the future, the settlement goes on; its answer
/// is awaited for `commit_wait`.
pub(super) fn settle(hold: Hold, verdict: Verdict) -> impl Future<Output = Kept> + Send + use<> {
    let inner = Arc::clone(&hold.inner);
    let wait = inner.commit_wait(&hold.lease);
    let recording = GoesOn::from_now(inner, "semel settle", pinned(|| Open { hold, verdict }.record()));
    let in_time = InTime { recording, wait, over: None };
    async move { in_time.await.unwrap_or(Kept::Unrecorded) }
}

/// A settlement that is under way.
struct Open {
    hold: Hold,
    verdict: Verdict,
}

impl Open {
    #[expect(clippy::manual_async_fn, reason = "an async function would keep what it settles twice")]
    fn record(mut self) -> impl Future<Output = Kept> + Send {
        async move {
            let Self { hold, verdict } = &mut self;
            let (inner, lease) = (&*hold.inner, &*hold.lease);
            inner.keeper.drop_lease(lease);
            if lease.unguarded.is_some() {
                inner.tell_copies(&hold.lease, verdict);
            }
            let mut claim = match lease.try_take() {
                Some(claim) => claim,
                None => Box::pin(lease.take()).await,
            };
            let began = inner.now();
            let settled = match verdict {
                Verdict::Keep(outcome) => inner.complete(lease, &mut claim, outcome, began).await,
                Verdict::Release { counts, answer } => {
                    Box::pin(inner.give_back(lease, &mut claim, *counts, answer.as_ref(), began)).await
                }
                Verdict::Unknown { last } => Box::pin(inner.unknown(lease, &mut claim, last.as_deref(), began)).await,
            };
            self.told(&claim, began, settled)
        }
    }

    /// Tells everybody who has to do with it what became of the claim.
    fn told(&mut self, claim: &Claim, began: Tick, (kept, news): (Kept, Option<News>)) -> Kept {
        // The place is free before anybody hears of the end: a waiter that comes back at once finds room.
        self.hold.stand_up();
        let (inner, lease) = (&self.hold.inner, &self.hold.lease);
        inner.report(lease, began, &self.verdict, &kept);
        // What ran, and nobody recorded, is not to be freed with a copy of its own claim: it becomes unknown.
        if !matches!(kept, Kept::Unrecorded) || matches!(self.verdict, Verdict::Release { .. }) {
            inner.abandon_strays(lease);
        }
        let is_open = lease.policy.on_store_error() == OnStoreError::Open;
        if is_open && matches!(kept, Kept::Unknown | Kept::Unrecorded) {
            inner.remember_for_an_outage(lease, &self.verdict);
        }
        // After the store and before the waiters: who finds nothing here finds it there.
        inner.tier.over(lease);
        if let Some(news) = news {
            // Who came after the store had forgotten met the attempt under its later fence.
            if claim.fence() != lease.fence {
                inner.flights.tell(lease.identity(), claim.fence(), news.clone());
            }
            inner.flights.tell(lease.identity(), lease.fence, news);
        } else {
            inner.flights.look_again(lease.identity(), lease.fence);
        }
        self.hold.end();
        kept
    }
}

/// Dropped on the way: the runtime ended under it, and the store hears no more of this claim.
impl Drop for Open {
    fn drop(&mut self) {
        if self.hold.is_active() {
            let (inner, lease) = (&self.hold.inner, &self.hold.lease);
            inner.tier.over(lease);
            inner.bounds.count_cut();
            let event = Event::new(lease.identity(), lease.policy.name(), What::SettlementAbandoned);
            inner.emit(&event.attempt(lease.attempt));
        }
    }
}

/// The end of `recording`, or `None` where that takes longer than `wait`; then it goes on by itself.
struct InTime<T: Send + 'static> {
    recording: GoesOn<Arc<Inner>, T>,
    wait: Duration,
    /// Set where the end is not at hand.
    over: Option<Timeout>,
}

impl<T: Send + 'static> Future for InTime<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let this = self.get_mut();
        if let Poll::Ready(done) = Pin::new(&mut this.recording).poll(cx) {
            return Poll::Ready(Some(done));
        }
        let (inner, wait) = (this.recording.inner(), this.wait);
        let over = this.over.get_or_insert_with(|| inner.hourglass.until(inner.now() + wait));
        Pin::new(over).poll(cx).map(|()| None)
    }
}

/// Parks a record whose attempts are used up; goes on by itself where that takes longer than `commit_wait`.
pub(super) async fn park(hold: Hold) {
    let inner = Arc::clone(&hold.inner);
    let parking = async move {
        let (inner, lease) = (&hold.inner, &hold.lease);
        let claim = match lease.try_take() {
            Some(claim) => claim,
            None => lease.take().await,
        };
        let words = Payload::Words(format!("given up after {} attempts", lease.attempt - 1).into());
        let what = Releasing::Held {
            claim: &claim,
            counts: false,
            park: true,
            keep: lease.policy.unknown_ttl(),
            rest: Rest::write(lease.meta(), &words),
        };
        let release = || inner.store.release(&what);
        let _parked = inner.until(inner.tries(inner.now()), StoreCall::Release, lease.identity(), release).await;
    };
    let wait = inner.times.commit_wait;
    let recording = GoesOn::from_now(inner, "semel settle", Box::pin(parking));
    let _in_time = InTime { recording, wait, over: None }.await;
}

impl Inner {
    async fn complete(&self, lease: &Lease, claim: &mut Claim, outcome: &Outcome, began: Tick) -> (Kept, Option<News>) {
        let (settled_at, epoch) = (self.store_time(began), self.tier.epoch());
        let mut rest = outcome_rest(lease, outcome, settled_at);
        let mut whole = matches!(outcome.body, Body::Whole(_));
        if rest.len() as u64 > self.facts.max_rest {
            (rest, whole) = (outcome_rest(lease, &bodyless(outcome), settled_at), false);
        }
        let settled = loop {
            let (fingerprint, ttl) = (lease.fingerprint(), lease.policy.ttl());
            let to = Settlement::Done { fingerprint, rest: rest.clone(), body_kept: whole, ttl };
            let tries = Tries { until: began + self.times.settle_for, end_when_full: whole };
            let settle = || {
                self.sends_settlement(lease);
                self.store.settle(claim, &to)
            };
            let settled = self.until(tries, StoreCall::Settle, lease.identity(), settle).await;
            if matches!(&settled, Err(e) if whole && e.is_full()) {
                (rest, whole) = (outcome_rest(lease, &bodyless(outcome), settled_at), false);
            } else if let Some(settled) = self.unless_adopted(lease, claim, settled).await {
                break settled;
            }
        };
        match settled {
            Ok(Settled::Ok { restored }) => {
                if self.tier.remembers() {
                    self.remember(lease, claim, (&rest, whole), (settled_at, began, epoch));
                }
                // There was nothing that the store could have lost.
                let restored = restored && lease.unguarded.is_none();
                let news = if self.flights.is_any() { recorded(&rest, lease.policy.ttl()) } else { None };
                (if restored { Kept::Restored } else { Kept::Stored }, news.map(News::done))
            }
            Ok(Settled::Lost(record)) => (self.lost(lease, &record), None),
            Err(_) => (Kept::Unrecorded, None),
        }
    }

    async fn unknown(&self, lease: &Lease, claim: &mut Claim, last: Option<&str>, began: Tick) -> (Kept, Option<News>) {
        let to = Settlement::Unknown {
            fingerprint: lease.fingerprint(),
            rest: words_rest(lease, last),
            ttl: lease.policy.unknown_ttl(),
        };
        let settled = loop {
            let settle = || {
                self.sends_settlement(lease);
                self.store.settle(claim, &to)
            };
            let settled = self.until(self.tries(began), StoreCall::Settle, lease.identity(), settle).await;
            if let Some(settled) = self.unless_adopted(lease, claim, settled).await {
                break settled;
            }
        };
        match settled {
            Ok(Settled::Ok { .. }) => {
                let since = self.store_time(self.now());
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
        began: Tick,
    ) -> (Kept, Option<News>) {
        let released = loop {
            let (keep, rest) = (lease.policy.ttl(), lease.rest().clone());
            let what = Releasing::Held { claim, counts, park: false, keep, rest };
            let release = || {
                self.sends_settlement(lease);
                self.store.release(&what)
            };
            let released = self.until(self.tries(began), StoreCall::Release, lease.identity(), release).await;
            if let Some(released) = self.unless_adopted(lease, claim, released).await {
                break released;
            }
        };
        match released {
            Ok(Settled::Ok { .. }) => {
                let news = match answer {
                    Some(outcome) => News::Recorded(Recorded {
                        outcome: outcome.clone(),
                        settled_at: self.store_time(began),
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

    /// The answer to a settlement, unless it was refused because the record is the same owner's under a later fence: the store had
    /// lost the claim, and the reply to claiming again was lost. Then `claim` is that one, and the settlement goes by it; where it
    /// cannot be had, nobody knows what the record says of this work.
    async fn unless_adopted(
        &self,
        lease: &Lease,
        claim: &mut Claim,
        settled: Result<Settled, StoreError>,
    ) -> Option<Result<Settled, StoreError>> {
        match &settled {
            Ok(Settled::Lost(record)) if is_own_later(record, claim) => {}
            _ => return Some(settled),
        }
        let until = self.now() + self.times.settle_for;
        loop {
            match Box::pin(self.claim_again(lease)).await {
                Reclaimed::Held { claim: again, .. } if again.fence() > claim.fence() => {
                    *claim = again;
                    return None;
                }
                Reclaimed::Taken => return Some(settled),
                // Given up, the claim would keep everybody out with nobody behind it.
                Reclaimed::NoAnswer if self.now() < until => {
                    self.env.clock.sleep_until(self.now() + self.jittered(Duration::from_millis(500))).await;
                }
                Reclaimed::Held { .. } | Reclaimed::NoAnswer => {
                    return Some(Err(StoreError::unavailable(Did::Unknown)));
                }
            }
        }
    }

    fn tries(&self, began: Tick) -> Tries {
        Tries { until: began + self.times.settle_for, end_when_full: false }
    }

    /// Repeats a call that gives the same answer each time until it is answered.
    pub(super) async fn until<'a, T>(
        &self,
        tries: Tries,
        call: StoreCall,
        id: &Identity,
        ask: impl Fn() -> Reply<'a, T>,
    ) -> Result<T, StoreError> {
        let pass = self.pass(Needed::ByWork).unwrap_or(Pass::Usual);
        let first = match ask().split() {
            Ok(answer) => answer,
            Err(pending) => self.awaited(self.times.store_timeout, pending).await,
        };
        self.heard(call, id, &first);
        self.ended(pass, &first);
        match first {
            Err(error) if !tries.ends(&error) => Box::pin(self.again_until(tries, call, id, ask, error)).await,
            answer => answer,
        }
    }

    /// After a first time without an answer.
    async fn again_until<'a, T>(
        &self,
        tries: Tries,
        call: StoreCall,
        id: &Identity,
        ask: impl Fn() -> Reply<'a, T>,
        mut error: StoreError,
    ) -> Result<T, StoreError> {
        let mut pause = Duration::from_millis(50);
        while self.now() < tries.until {
            self.env.clock.sleep_until(self.now() + self.jittered(pause)).await;
            let pass = self.pass(Needed::ByWork).unwrap_or(Pass::Usual);
            let answer = self.within(call, id, ask()).await;
            self.ended(pass, &answer);
            match answer {
                Err(again) if !tries.ends(&again) => error = again,
                answer => return answer,
            }
            pause = (pause * 2).min(Duration::from_secs(2));
        }
        Err(error)
    }

    /// The record is somebody else's by now.
    fn lost(&self, lease: &Lease, record: &Record) -> Kept {
        let event = Event::new(lease.identity(), lease.policy.name(), What::LateSettlementRefused);
        self.emit(&event.attempt(lease.attempt));
        let same_question = record.state == StateCode::Done && record.fingerprint.same(&lease.fingerprint());
        let whole = same_question && record.flags.has(Flags::BODY_KEPT) && same_caller(record, lease);
        let now = self.now();
        self.remember_while_away(lease.identity(), record, now);
        let left = record.expires_at.since(self.store_time(now));
        Kept::Lost { recorded: if whole { recorded(&record.rest, left).map(Box::new) } else { None } }
    }

    /// The store's clock as far as it can be told from here.
    pub(super) fn store_time(&self, now: Tick) -> StoreTime {
        self.store_clock.at(now).unwrap_or_default()
    }

    /// How long an answer waits for its recording. One without a grant waits for no store that did not answer before.
    fn commit_wait(&self, lease: &Lease) -> Duration {
        match lease.unguarded {
            None => self.times.commit_wait,
            Some(_) if self.breaker.is_open() => Duration::ZERO,
            Some(_) => self.times.commit_wait.min(self.times.store_timeout),
        }
    }

    /// Remembers what a completion has written.
    #[cold]
    fn remember(
        &self,
        lease: &Lease,
        claim: &Claim,
        (rest, whole): (&Bytes, bool),
        (settled_at, began, epoch): (StoreTime, Tick, Epoch),
    ) {
        let record = Record {
            version: VERSION,
            state: StateCode::Done,
            flags: Flags::when(whole, Flags::BODY_KEPT),
            fingerprint: lease.fingerprint(),
            owner: claim.owner(),
            fence: Some(claim.fence()),
            attempt: claim.attempt(),
            lease_until: StoreTime::default(),
            expires_at: settled_at + lease.policy.ttl(),
            rest: rest.clone(),
        };
        self.tier.keep(epoch, lease.identity(), &record, settled_at, began);
    }

    /// A settlement goes out. Where the one before it was not answered, nobody here knows what the record says: whoever
    /// waits for it looks at the store.
    fn sends_settlement(&self, lease: &Lease) {
        if lease.settlement_sent() {
            self.flights.look_again(lease.identity(), lease.fence);
        }
    }

    fn report(&self, lease: &Lease, began: Tick, verdict: &Verdict, kept: &Kept) {
        // Without a grant there is no record that could read as unknown.
        if *kept == Kept::Unrecorded && lease.unguarded.is_none() {
            let event = Event::new(lease.identity(), lease.policy.name(), What::SettlementAbandoned);
            self.emit(&event.attempt(lease.attempt));
        }
        let last = match verdict {
            Verdict::Unknown { last } => last.as_deref(),
            Verdict::Keep(_) | Verdict::Release { .. } => None,
        };
        let event = Event::new(lease.identity(), lease.policy.name(), What::Settled { verdict: verdict.kind(), kept });
        self.emit(&event.attempt(lease.attempt).took(began.since(lease.granted_at)).last(last));
    }
}

/// How long a call is repeated, and whether a full store ends that.
#[derive(Clone, Copy)]
pub(super) struct Tries {
    pub(super) until: Tick,
    /// Set where something else can be tried then.
    pub(super) end_when_full: bool,
}

impl Tries {
    /// Whether there is no point in trying again.
    fn ends(&self, error: &StoreError) -> bool {
        self.end_when_full && error.is_full()
    }
}

pub(super) fn outcome_rest(lease: &Lease, outcome: &Outcome, settled_at: StoreTime) -> Bytes {
    Rest::write_outcome(lease.meta(), outcome, settled_at)
}

/// What is recorded with an outcome that nobody can tell.
pub(super) fn words_rest(lease: &Lease, last: Option<&str>) -> Bytes {
    Rest::write(lease.meta(), &last.map_or(Payload::Nothing, |words| Payload::Words(words.into())))
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
    credentials(&record.rest) == credentials(lease.rest())
}
