//! From a question to a grant, an answer, or an attempt that was met.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use super::{
    Call, Grant, Inner,
    bounds::Activity,
    breaker::{self, Needed},
    lease::{Lease, local_deadline},
    open::{opens, unguarded},
    settling::Tries,
    tier::Asks,
};
use crate::{
    env::Tick,
    identity::Identity,
    ids::{Owner, StoreTime},
    judge::{Judgement, Recorded, Running, judge},
    observe::{Event, StoreCall, What},
    policy::{OnDuplicate, OnInFlight, Policy},
    record::{Record, StateCode},
    refusal::Refusal,
    store::{Ask, AskFor, Claim, Claimed, Did, Releasing, StoreError},
};

/// A claim's answer, and whether a copy of it without an answer may still be on its way.
struct Sent {
    result: Result<Claimed, StoreError>,
    stray: bool,
}

/// How often a claim that was raced is tried again.
const RACES: u32 = 3;

/// How long an abandoned claim is looked after while the store does not answer. Longer than a settlement: nothing was
/// run, so each such record refuses its key without need.
const ABANDON_FOR: Duration = Duration::from_secs(3_600);

/// One who did not get the grant.
pub(super) struct Turned {
    pub(super) identity: Identity,
    pub(super) policy: Arc<Policy>,
    pub(super) why: Why,
}

/// Why there is no grant.
pub(super) enum Why {
    Recorded(Recorded),
    Refused(Refusal),
    /// An attempt under way that the caller may wait for.
    Met(Box<Met>),
}

impl Turned {
    pub(super) fn away(refusal: Refusal, call: Call) -> Self {
        Self { identity: call.identity, policy: call.policy, why: Why::Refused(refusal) }
    }

    /// Whether an attempt is waited for.
    pub(super) const fn waits(&self) -> bool {
        matches!(self.why, Why::Met(_))
    }
}

/// What a waiter needs to know.
pub(super) struct Met {
    pub(super) call: Call,
    pub(super) ask: Ask,
    pub(super) running: Running,
    pub(super) wait: Duration,
}

/// The store's clock, as far as it can be told from here: the latest it may show now.
///
/// A claim carries `not_after` in store time. The bound must be late rather than early: too early refuses a claim that
/// was in time, too late only lets an abandoned one be taken back a little later.
pub(super) struct StoreClock(AtomicI64);

const UNKNOWN: i64 = i64::MIN;

/// What is no news: far less than any time that a claim is of use for.
const SAME_MICROS: u64 = 200;

impl Default for StoreClock {
    fn default() -> Self {
        Self(AtomicI64::new(UNKNOWN))
    }
}

impl StoreClock {
    /// A call sent at `sent` was answered with the store's `now`.
    pub(super) fn saw(&self, sent: Tick, now: StoreTime) {
        let (offset, before) = (now.as_micros().saturating_sub(micros(sent)), self.0.load(Ordering::Relaxed));
        // Written only where it says something new: all threads read it with each claim. Later is always new.
        if before == UNKNOWN || offset > before || before.abs_diff(offset) > SAME_MICROS {
            self.0.store(offset, Ordering::Relaxed);
        }
    }

    pub(super) fn at(&self, tick: Tick) -> Option<StoreTime> {
        match self.0.load(Ordering::Relaxed) {
            UNKNOWN => None,
            offset => Some(StoreTime::from_micros(micros(tick).saturating_add(offset))),
        }
    }
}

fn micros(tick: Tick) -> i64 {
    i64::try_from(tick.as_nanos() / 1_000).unwrap_or(i64::MAX)
}

/// Claims for a call, and goes on with `then` where the claim is granted; otherwise `then` is dropped, before anything is
/// waited for. Owned, so that it can go on in a task of the engine when its caller has left.
#[expect(clippy::manual_async_fn, reason = "an async function would keep the call twice")]
pub(super) fn enter<W, F>(
    inner: Arc<Inner>,
    call: Call,
    then: W,
) -> impl Future<Output = Result<F::Output, Turned>> + Send
where
    W: FnOnce(Grant) -> F + Send,
    F: Future<Output: Send> + Send,
{
    async move {
        // Until the grant counts by itself, or there is none.
        let mut activity = None;
        // One load where the store is this process's own and nothing runs without a grant.
        let mut asks = None;
        if inner.tier.is_used() {
            asks = inner.join(&call).await?;
        }
        // A room of its own, which is used again for what comes after.
        let entered = {
            let mut ask = inner.ask(&call, inner.owner());
            match inner.claimed(&call, &mut ask, &mut asks, &mut activity).await {
                Ok(won) => won.grant(inner, call, ask),
                // Arm by arm: what a judgement holds would be moved once more.
                Err(NotWon::Found(Judgement::InFlight(running))) => Entered::Turned(met(call, ask, running)),
                Err(NotWon::Found(Judgement::Replay(recorded))) => Entered::Turned(recorded_for(call, recorded)),
                Err(NotWon::Found(other)) => Entered::Turned(Turned::away(refusal(&call, other), call)),
                Err(NotWon::Refused(refusal)) => Entered::Turned(Turned::away(refusal, call)),
                Err(NotWon::Open { stray }) => match unguarded(inner, call, ask, stray).await {
                    Ok(grant) => Entered::Granted(grant),
                    Err(turned) => Entered::Turned(turned),
                },
            }
        };
        // Those who wait for this claim's answer have it by now, or find what came of it.
        drop(asks);
        match entered {
            Entered::Granted(grant) => {
                drop(activity);
                Ok(then(grant).await)
            }
            Entered::Turned(turned) => Err(turned),
            Entered::Unfit(grant, refusal) => {
                drop(then);
                // What is seldom gone through is boxed, so that it does not swell the future of every claim.
                Err(Box::pin(turned_away(grant, refusal)).await)
            }
        }
    }
}

/// Where a claim led.
enum Entered {
    Granted(Grant),
    Turned(Turned),
    /// Granted, but too late, too often, or without a place.
    Unfit(Grant, Refusal),
}

/// A claim that was granted.
struct Won {
    claim: Claim,
    sent: Tick,
    left: Duration,
    /// A copy of the claim may still be on its way.
    stray: bool,
}

/// A claim that was not.
enum NotWon {
    Found(Judgement),
    Refused(Refusal),
    /// The store did not answer, and the rule runs without it.
    Open {
        stray: bool,
    },
}

impl Inner {
    /// Claims, again where that was raced. `ask` is the question that was answered.
    async fn claimed(
        self: &Arc<Self>,
        call: &Call,
        ask: &mut Ask,
        asks: &mut Option<Box<Asks>>,
        activity: &mut Option<Activity>,
    ) -> Result<Won, NotWon> {
        for _ in 0..=RACES {
            let (sent, epoch) = (self.now(), self.tier.epoch());
            let Sent { result, stray } = self.claim(ask, sent, Needed::Not, activity).await;
            let (found, now) = match result {
                Ok(Claimed::Granted { claim, left, unresolved, .. }) => {
                    if unresolved {
                        self.emit(&Event::new(&call.identity, call.policy.name(), What::UnknownExpired));
                    }
                    self.tier.let_go(&call.identity, sent);
                    return Ok(Won { claim, sent, left, stray });
                }
                Ok(Claimed::Found { record, now }) => (record, now),
                Ok(Claimed::Late { .. }) => {
                    self.take_back(stray, &call.policy, ask);
                    return Err(NotWon::Refused(not_run(stray, None)));
                }
                Err(error) if opens(&call.policy, &error) => return Err(NotWon::Open { stray }),
                Err(error) => {
                    self.take_back(stray, &call.policy, ask);
                    return Err(refused(
                        asks,
                        match Refusal::of_store(&error) {
                            Refusal::StoreUnavailable { retry_after, .. } => not_run(stray, retry_after),
                            other => other,
                        },
                    ));
                }
            };
            match &found {
                Some(record) => self.tier.keep(epoch, &call.identity, record, now, sent),
                None => self.tier.let_go(&call.identity, sent),
            }
            let judgement = judge(ask, found.as_ref(), now, &call.caller);
            if let Judgement::Again { claim, left } = judgement {
                return Ok(Won { claim, sent, left, stray });
            }
            if stray {
                // Another's record now; but the copy whose reply was lost may still arrive, and find it free.
                self.take_back(stray, &call.policy, ask);
                *ask = self.ask(call, self.owner());
            }
            if !matches!(judgement, Judgement::Raced) {
                if let Some(asks) = asks {
                    asks.found(found, now);
                }
                return Err(NotWon::Found(judgement));
            }
        }
        Err(refused(asks, Refusal::InFlight { retry_after: Duration::from_millis(100) }))
    }
}

/// A refusal that is the same for all who wait for this claim's answer.
fn refused(asks: &mut Option<Box<Asks>>, refusal: Refusal) -> NotWon {
    if let Some(asks) = asks {
        asks.refused(refusal.clone());
    }
    NotWon::Refused(refusal)
}

/// What a judgement means under the call's policy; for those that need no further claim.
pub(super) fn turned(call: Call, ask: Ask, judgement: Judgement) -> Turned {
    match judgement {
        Judgement::InFlight(running) => met(call, ask, running),
        Judgement::Replay(recorded) => recorded_for(call, recorded),
        other => Turned::away(refusal(&call, other), call),
    }
}

impl Won {
    /// A grant that came in time and for which there is a place; otherwise it comes back, to be given back unused. What
    /// comes next is the work, or whoever asked: nothing is awaited between this look at the deadline and them.
    #[inline]
    fn grant(self, inner: Arc<Inner>, call: Call, ask: Ask) -> Entered {
        let Self { claim, sent, left, stray } = self;
        let lease = Arc::new(Lease::new(&inner.env, call, ask, claim, sent, left));
        let now = inner.now();
        if stray {
            lease.may_stray_until(now + inner.patience());
        }
        let mut grant = Grant::new(inner, lease);
        let lease = grant.lease();
        let event = Event::new(lease.identity(), lease.policy.name(), What::Granted);
        grant.emit(&event.attempt(lease.attempt).took(now.since(sent)));
        if now >= lease.deadline() {
            return Entered::Unfit(grant, late());
        }
        if lease.is_beyond_its_attempts() {
            let attempts = lease.attempt - 1;
            return Entered::Unfit(grant, Refusal::Parked { attempts });
        }
        if !grant.sit_down() {
            return Entered::Unfit(grant, Refusal::TooManyRunning);
        }
        if !grant.begin_here() {
            // A copy runs here without a grant.
            return Entered::Unfit(grant, Refusal::InFlight { retry_after: Duration::from_millis(100) });
        }
        grant.keep();
        Entered::Granted(grant)
    }
}

/// Settles a grant that is not to be used.
async fn turned_away(grant: Grant, refusal: Refusal) -> Turned {
    let lease = Arc::clone(grant.lease());
    match refusal {
        Refusal::Parked { .. } => grant.park().await,
        _ => grant.give_back().await,
    }
    Turned { identity: *lease.identity(), policy: Arc::clone(&lease.policy), why: Why::Refused(refusal) }
}

/// What an attempt under way means under the call's policy.
fn met(call: Call, ask: Ask, running: Running) -> Turned {
    let policy = Arc::clone(&call.policy);
    // A network's retry is not a second click: it waits for its own first copy, whatever the rule does with clicks.
    let is_click = policy.on_duplicate() == OnDuplicate::Reject && !running.same_request;
    let identity = call.identity;
    let why = match policy.on_in_flight() {
        _ if is_click => Why::Refused(Refusal::Duplicate { message: policy.message().cloned(), rest_of_window: None }),
        OnInFlight::Wait(wait) if running.fence.is_some() => Why::Met(Box::new(Met { call, ask, running, wait })),
        OnInFlight::Wait(_) | OnInFlight::Reject => Why::Refused(Refusal::InFlight { retry_after: running.left }),
    };
    Turned { identity, policy, why }
}

/// What a recorded outcome means under the call's policy.
fn recorded_for(call: Call, recorded: Recorded) -> Turned {
    if call.policy.on_duplicate() == OnDuplicate::Reject && !recorded.same_request {
        let message = call.policy.message().cloned();
        return Turned::away(Refusal::Duplicate { message, rest_of_window: Some(recorded.left) }, call);
    }
    Turned { identity: call.identity, policy: call.policy, why: Why::Recorded(recorded) }
}

/// The refusal that a judgement means; for the judgements that are one.
pub(super) fn refusal(call: &Call, judgement: Judgement) -> Refusal {
    match judgement {
        Judgement::NotIssued => Refusal::NotIssued,
        Judgement::Mismatch => Refusal::KeyReused,
        Judgement::Stranger => Refusal::Stranger,
        Judgement::Unavailable { kept } => {
            if kept.is_none() {
                tracing::warn!(
                    identity = %call.identity,
                    "what is recorded cannot be read here: it was damaged, or a later version wrote it. It is not run again \
                     and not replayed; `semel keys show` and `delete` are for it"
                );
            }
            let same_request = kept.as_ref().is_some_and(|k| k.same_request);
            if call.policy.on_duplicate() == OnDuplicate::Reject && !same_request {
                let rest_of_window = kept.map(|k| k.left);
                return Refusal::Duplicate { message: call.policy.message().cloned(), rest_of_window };
            }
            Refusal::OutcomeUnavailable { kept: kept.map(Box::new) }
        }
        Judgement::Unknown { since, last } => Refusal::OutcomeUnknown { since, last },
        Judgement::Parked { attempt, .. } => Refusal::Parked { attempts: attempt },
        Judgement::InFlight(running) => Refusal::InFlight { retry_after: running.left },
        Judgement::Late => late(),
        // Met only by one who waited: the attempt was released, and only a later request begins another.
        Judgement::Raced | Judgement::Again { .. } | Judgement::Replay(_) => {
            Refusal::InFlight { retry_after: Duration::from_millis(100) }
        }
    }
}

/// Nothing was run; `stray` says whether a claim may stand in the store all the same.
const fn not_run(stray: bool, retry_after: Option<Duration>) -> Refusal {
    Refusal::StoreUnavailable { did: if stray { Did::Unknown } else { Did::Nothing }, retry_after }
}

/// Too late to be used.
const fn late() -> Refusal {
    not_run(false, None)
}

impl Inner {
    pub(super) fn ask(&self, call: &Call, owner: Owner) -> Ask {
        let policy = &call.policy;
        let what = AskFor {
            identity: call.identity,
            fingerprint: call.fingerprint,
            lease: policy.lease(),
            hold: policy.max_hold(),
            keep: policy.unknown_ttl(),
            grace: policy.takeover().unwrap_or_default(),
            needs_token: call.needs_token,
            takeover: policy.takeover().is_some(),
            not_after: StoreTime::MAX,
            rest: call.rest(),
        };
        Ask::new(owner, what)
    }

    /// Sends a claim; where its reply is lost, or it came late by a clock that had moved, once more as the same owner.
    ///
    /// A drain waits for what may turn out to be granted: a store that takes its time is an `activity`.
    async fn claim(&self, ask: &mut Ask, first_sent: Tick, needed: Needed, activity: &mut Option<Activity>) -> Sent {
        let mut stray = false;
        let mut sent = first_sent;
        for is_last in [false, true] {
            let now = match self.store_clock.at(sent) {
                Some(now) => now,
                None => match Box::pin(self.ask_the_time(&ask.identity, activity)).await {
                    Ok(now) => now,
                    Err(error) => return Sent { result: Err(error), stray },
                },
            };
            ask.set_not_after(now + self.of_use(first_sent, sent, ask.lease));
            let Some(pass) = self.pass(needed) else {
                return Sent { result: Err(breaker::held_up()), stray };
            };
            let result = match self.store.claim(ask).split() {
                Ok(result) => result,
                Err(pending) => {
                    activity.get_or_insert_with(|| self.bounds.activity());
                    self.awaited(self.times.store_timeout, pending).await
                }
            };
            self.heard(StoreCall::Claim, &ask.identity, &result);
            self.ended(pass, &result);
            let again = match &result {
                Ok(answer @ (Claimed::Granted { now, .. } | Claimed::Found { now, .. })) => {
                    if matches!(answer, Claimed::Granted { .. }) {
                        self.store_health.saw_room();
                    }
                    self.store_clock.saw(sent, *now);
                    false
                }
                Ok(Claimed::Late { now }) => {
                    self.store_clock.saw(sent, *now);
                    true
                }
                Err(error) => {
                    if error.is_full() {
                        self.store_health.saw_full(self.now());
                    }
                    stray |= error.did == Did::Unknown;
                    error.did == Did::Unknown
                }
            };
            if is_last || !again {
                return Sent { result, stray };
            }
            sent = self.now();
        }
        unreachable!("the last round returns")
    }

    /// How long a claim sent now is of use to its sender: two time-outs from its sending, and never past the deadline of
    /// the lease it asks for.
    fn of_use(&self, first_sent: Tick, sent: Tick, lease: Duration) -> Duration {
        local_deadline(first_sent, lease).since(sent).min(self.patience())
    }

    async fn ask_the_time(&self, id: &Identity, activity: &mut Option<Activity>) -> Result<StoreTime, StoreError> {
        let pass = self.admit()?;
        activity.get_or_insert_with(|| self.bounds.activity());
        let sent = self.now();
        let health = self.within(StoreCall::Health, id, self.store.health()).await;
        self.ended(pass, &health);
        // Whatever became of the question, nothing was claimed.
        let health = health.map_err(StoreError::of_nothing)?;
        self.store_clock.saw(sent, health.now);
        self.saw_health(&health);
        Ok(self.store_clock.at(self.now()).unwrap_or(health.now))
    }

    /// How long a claim is of use to its sender: the store's time-out and that of one repeat.
    pub(super) fn patience(&self) -> Duration {
        2 * self.times.store_timeout
    }

    /// Takes back a claim of which nobody knows whether it arrived, or may yet: it is released by its owner's id until
    /// that is answered at a time when the claim itself would be refused as late.
    pub(super) fn take_back(self: &Arc<Self>, stray: bool, policy: &Policy, ask: &Ask) {
        if stray {
            let fate = Releasing::Fate {
                identity: &ask.identity,
                owner: ask.owner(),
                keep: policy.ttl(),
                rest: ask.rest.clone(),
            };
            self.abandon(fate, ask.not_after);
        }
    }

    /// The same for a claim whose copy may still come although its owner has settled it: the record can have moved on
    /// since, and be free for it. Once in any case, also where a copy would be late by now: not every store looks at that when
    /// it comes.
    pub(super) fn abandon_strays(self: &Arc<Self>, lease: &Lease) {
        let Some(until) = lease.stray_until() else { return };
        let left = until.since(self.now());
        let not_after = self.store_clock.at(self.now()).map_or(StoreTime::default(), |now| now + left);
        let (identity, owner, keep) = (lease.identity(), lease.owner(), lease.policy.ttl());
        self.abandon(Releasing::Fate { identity, owner, keep, rest: lease.rest().clone() }, not_after);
    }

    fn abandon(self: &Arc<Self>, fate: Releasing<'_>, not_after: StoreTime) {
        let Releasing::Fate { identity, owner, keep, rest } = fate else { return };
        let (identity, inner, activity) = (*identity, Arc::clone(self), self.bounds.activity());
        let task = async move {
            let _activity = activity;
            let what = Releasing::Fate { identity: &identity, owner, keep, rest };
            let tries = || Tries { until: inner.now() + ABANDON_FOR, end_when_full: false };
            let mut pause = inner.patience();
            while !pause.is_zero() {
                inner.env.clock.sleep_until(inner.now() + pause).await;
                let release = || inner.store.release(&what);
                if inner.until(tries(), StoreCall::Release, &identity, release).await.is_err() {
                    return;
                }
                // An answer that was given before the last moment of the claim says nothing about what comes after it.
                let health = inner.until(tries(), StoreCall::Health, &identity, || inner.store.health()).await;
                let Ok(health) = health else { return };
                pause = if health.now > not_after {
                    Duration::ZERO
                } else {
                    not_after.since(health.now) + Duration::from_millis(1)
                };
            }
        };
        self.env.tasks.spawn("semel take back", Box::pin(task));
    }

    /// Claims again, as the same owner, what the store lost.
    pub(super) async fn claim_again(&self, lease: &Lease) -> Reclaimed {
        let policy = &lease.policy;
        let mut ask = Ask::new(
            lease.owner(),
            AskFor {
                identity: *lease.identity(),
                fingerprint: lease.fingerprint(),
                lease: policy.lease(),
                hold: lease.hold_until.since(self.now()),
                keep: policy.unknown_ttl(),
                grace: policy.takeover().unwrap_or_default(),
                needs_token: false,
                takeover: policy.takeover().is_some(),
                not_after: StoreTime::MAX,
                rest: lease.rest().clone(),
            },
        );
        let sent = self.now();
        // It belongs to running work: the breaker does not hold it up.
        let Sent { result, stray } = self.claim(&mut ask, sent, Needed::ByWork, &mut None).await;
        if stray {
            lease.may_stray_until(self.now() + self.patience());
        }
        match result {
            Ok(Claimed::Granted { claim, left, .. }) => Reclaimed::Held { claim, sent, left },
            Ok(Claimed::Found { record: Some(r), now }) if is_own(&r, lease, now) => match r.fence {
                Some(fence) => {
                    Reclaimed::Held { claim: ask.grant(fence, r.attempt), sent, left: r.lease_until.since(now) }
                }
                None => Reclaimed::Taken,
            },
            Ok(Claimed::Found { .. }) => Reclaimed::Taken,
            Ok(Claimed::Late { .. }) | Err(_) => Reclaimed::NoAnswer,
        }
    }
}

/// What became of claiming again.
pub(super) enum Reclaimed {
    /// The record is this owner's, under this claim.
    Held { claim: Claim, sent: Tick, left: Duration },
    /// It is another's by now, or settled.
    Taken,
    /// Nobody can tell.
    NoAnswer,
}

fn is_own(record: &Record, lease: &Lease, now: StoreTime) -> bool {
    record.is_here(now) && record.owner == lease.owner() && record.state == StateCode::InFlight
}
