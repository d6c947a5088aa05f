//! Copies in flight: a waiter gets the answer of the attempt it met, whatever that is.
//!
//! One flight per identity and fence, one watcher per flight. Whoever settles in this process tells the flight; the
//! watcher is there for attempts of other processes and for leases that end.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{
    Inner,
    bounds::{leave, take_one},
    claiming::{Met, refusal},
};
use crate::{
    env::Tick,
    identity::{Identity, ScopeTag},
    ids::{Fence, StoreTime},
    judge::{Judgement, Recorded, judge},
    observe::{Event, StoreCall, What},
    record::{Body, Record, StateCode},
    refusal::Refusal,
    store::{Seen, StoreError},
};

/// What a flight's waiters are told.
#[derive(Clone)]
pub(super) enum News {
    Recorded(Recorded),
    Refused(Refusal),
    /// The record as the watcher saw it, after it moved.
    Seen(Option<Box<Record>>, StoreTime),
}

impl News {
    /// What was done, as far as it is there.
    pub(super) fn done(recorded: Recorded) -> Self {
        match recorded.outcome.body {
            Body::Whole(_) => Self::Recorded(recorded),
            Body::Withheld(_) => Self::Refused(Refusal::OutcomeUnavailable { kept: Some(Box::new(recorded)) }),
        }
    }
}

#[derive(Default)]
pub(super) struct Flights {
    map: Mutex<HashMap<(Identity, Fence), Arc<Flight>>>,
    /// Length of the map, so that who settles need not lock it in vain.
    open: AtomicUsize,
    waiting: AtomicUsize,
    scopes: Mutex<HashMap<ScopeTag, usize>>,
}

#[derive(Default)]
struct Flight {
    waiters: AtomicUsize,
    news: Mutex<Option<News>>,
    told: Notify,
    /// The last waiter left, or the news is out: nothing is left to watch.
    over: Notify,
    /// The attempt ran here and is over, and the store has to be asked how.
    look_again: Notify,
}

impl Flights {
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether anybody waits for anything. One who comes after this look starts by reading the store, which shows the end
    /// of an attempt that was settled before it.
    pub(super) fn is_any(&self) -> bool {
        self.open.load(Ordering::Acquire) != 0
    }

    /// Tells the waiters of an attempt how it ended. Those that come later find it in the store.
    pub(super) fn tell(&self, id: &Identity, fence: Fence, news: News) {
        if !self.is_any() {
            return;
        }
        let Some(flight) = self.close(id, fence) else { return };
        *flight.news.lock() = Some(news);
        flight.told.notify_waiters();
        flight.over.notify_one();
    }

    /// An attempt that ran here is over without a word: its watcher has to ask the store.
    pub(super) fn look_again(&self, id: &Identity, fence: Fence) {
        if self.is_any()
            && let Some(flight) = self.map.lock().get(&(*id, fence))
        {
            flight.look_again.notify_one();
        }
    }

    fn close(&self, id: &Identity, fence: Fence) -> Option<Arc<Flight>> {
        let mut map = self.map.lock();
        let flight = map.remove(&(*id, fence));
        self.open.store(map.len(), Ordering::Release);
        flight
    }
}

/// A waiter's seat; frees its place when dropped.
struct Seat {
    inner: Arc<Inner>,
    scope: ScopeTag,
    at: Option<((Identity, Fence), Arc<Flight>)>,
}

impl Seat {
    fn take(inner: &Arc<Inner>, scope: ScopeTag) -> Option<Self> {
        let flights = &inner.flights;
        if !take_one(&flights.waiting, inner.limits.waiters) {
            return None;
        }
        if scope != ScopeTag::SHARED {
            let mut scopes = flights.scopes.lock();
            let count = scopes.entry(scope).or_insert(0);
            if *count >= inner.limits.waiters_per_scope {
                flights.waiting.fetch_sub(1, Ordering::AcqRel);
                return None;
            }
            *count += 1;
        }
        Some(Self { inner: Arc::clone(inner), scope, at: None })
    }

    /// Joins the flight of an attempt; `None` where too many wait for it. The first one starts the watcher.
    fn join(&mut self, id: Identity, fence: Fence) -> Option<Arc<Flight>> {
        let flights = &self.inner.flights;
        let mut map = flights.map.lock();
        let flight = Arc::clone(map.entry((id, fence)).or_default());
        let is_first = flight.waiters.load(Ordering::Acquire) == 0;
        if !take_one(&flight.waiters, self.inner.limits.waiters_per_key) {
            return None;
        }
        flights.open.store(map.len(), Ordering::Release);
        drop(map);
        self.at = Some(((id, fence), Arc::clone(&flight)));
        if is_first {
            let watching = watch(Arc::clone(&self.inner), id, fence, Arc::clone(&flight));
            self.inner.env.tasks.spawn("semel watch", Box::pin(watching));
        }
        Some(flight)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let flights = &self.inner.flights;
        flights.waiting.fetch_sub(1, Ordering::AcqRel);
        if self.scope != ScopeTag::SHARED {
            leave(&mut flights.scopes.lock(), self.scope);
        }
        let Some((key, flight)) = self.at.take() else { return };
        // Under the map's lock, so that nobody joins a flight whose watcher is being sent home.
        let mut map = flights.map.lock();
        if flight.waiters.fetch_sub(1, Ordering::AcqRel) == 1 {
            if map.get(&key).is_some_and(|open| Arc::ptr_eq(open, &flight)) {
                map.remove(&key);
                flights.open.store(map.len(), Ordering::Release);
            }
            flight.over.notify_one();
        }
    }
}

/// Waits for the attempt that was met. Dropping the future frees its place.
pub(super) async fn wait(inner: &Arc<Inner>, met: Met) -> Result<Recorded, Refusal> {
    let call = &met.call;
    let in_flight = Refusal::InFlight { retry_after: met.running.left };
    let Some(fence) = met.running.fence else { return Err(in_flight) };
    let Some(mut seat) = Seat::take(inner, call.scope) else { return Err(Refusal::TooManyWaiters) };
    let Some(flight) = seat.join(call.identity, fence) else { return Err(Refusal::TooManyWaiters) };
    inner.emit(&Event::new(&call.identity, call.policy.name(), What::Waiting));
    let until = inner.now() + met.wait;
    let mut over = inner.env.clock.sleep_until(until);
    let news = loop {
        let mut told = std::pin::pin!(flight.told.notified());
        told.as_mut().enable();
        if let Some(news) = flight.news.lock().clone() {
            break news;
        }
        tokio::select! {
            biased;
            () = told => {}
            () = &mut over => {
                if inner.now() >= until {
                    return Err(in_flight);
                }
                over = inner.env.clock.sleep_until(until);
            }
        }
    };
    match news {
        News::Recorded(recorded) => Ok(recorded),
        News::Refused(refusal) => Err(refusal),
        News::Seen(record, now) => match judge(&met.ask, record.as_deref(), now, &call.caller) {
            Judgement::Replay(recorded) => Ok(recorded),
            other => Err(refusal(call, other)),
        },
    }
}

const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const BETWEEN_HINTS: Duration = Duration::from_millis(5);
/// How long an attempt that runs here is trusted to tell its end.
const LONGEST_TRUST: Duration = Duration::from_secs(10);

/// Looks at the record until it has moved on from the attempt, or nobody waits any more.
async fn watch(inner: Arc<Inner>, id: Identity, fence: Fence, flight: Arc<Flight>) {
    let mut pause = FIRST_LOOK;
    loop {
        // Whoever settles in this process tells the flight: it was joined before this look, and is told after the attempt
        // is gone from here. The store is asked only when nobody here can be relied on.
        if let Some(until) = inner.tier.told_here(&id, fence) {
            let until = until.min(inner.now() + LONGEST_TRUST);
            tokio::select! {
                biased;
                () = flight.over.notified() => return,
                () = flight.look_again.notified() => {}
                () = inner.env.clock.sleep_until(until) => {}
            }
            continue;
        }
        // One that joined after the attempt had told its end finds it where copies do.
        let now = inner.now();
        if let Some(known) = inner.tier.remembered(&id, now).filter(|known| known.record.fence == Some(fence)) {
            let seen = News::Seen(Some(Box::new(known.record.clone())), known.store_time(now));
            inner.flights.tell(&id, fence, seen);
            return;
        }
        let mut wake = inner.now() + inner.jittered(pause);
        if let Ok(seen) = look(&inner, &id).await {
            let same = |r: &Record| r.fence == Some(fence) && r.reads_as(seen.now) == StateCode::InFlight;
            match &seen.record {
                Some(r) if same(r) => wake = wake.min(end_of_lease(&inner, r, seen.now)),
                _ => {
                    inner.flights.tell(&id, fence, News::Seen(seen.record.map(Box::new), seen.now));
                    return;
                }
            }
        }
        let looked = inner.now();
        tokio::select! {
            biased;
            () = flight.over.notified() => return,
            () = flight.look_again.notified() => {}
            () = inner.store.wait(&id, Some(fence)) => {
                // A hint may come early, and again at once.
                inner.env.clock.sleep_until(looked + BETWEEN_HINTS).await;
            }
            () = inner.env.clock.sleep_until(wake) => {}
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn look(inner: &Inner, id: &Identity) -> Result<Seen, StoreError> {
    let pass = inner.admit()?;
    let (sent, epoch) = (inner.now(), inner.tier.epoch());
    let seen = inner.within(StoreCall::Get, id, inner.store.get(id)).await;
    inner.ended(pass, &seen);
    match &seen {
        Ok(Seen { record: Some(record), now }) => inner.tier.keep(epoch, id, record, *now, sent),
        Ok(Seen { record: None, .. }) => inner.tier.let_go(id, sent),
        Err(_) => {}
    }
    seen
}

/// Just after the lease's end; for a lease that is over (a takeover may come) there is nothing to be early for.
fn end_of_lease(inner: &Inner, record: &Record, now: StoreTime) -> Tick {
    let left = record.lease_until.since(now);
    inner.now() + if left.is_zero() { LONGEST_PAUSE } else { left + Duration::from_millis(5) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::{Begin, Call, Engine},
        fingerprint::Fingerprint,
        policy::Policy,
    };

    /// Each key that somebody once waited for would take room for good.
    #[tokio::test(start_paused = true)]
    async fn a_flight_ends_with_its_last_waiter() {
        let engine = Engine::memory();
        let call = || Call::new(Identity::nobody(), Fingerprint::NONE, Policy::key().build().unwrap());
        let Begin::Granted(grant) = engine.begin(call()).await else { panic!("not granted") };
        for _ in 0..3 {
            let left = tokio::time::timeout(Duration::from_millis(50), engine.begin(call())).await;
            assert!(left.is_err(), "it waits");
            assert_eq!((engine.0.flights.map.lock().len(), engine.0.flights.is_any()), (0, false));
        }
        drop(grant);
    }
}
