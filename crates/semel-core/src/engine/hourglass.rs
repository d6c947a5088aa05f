//! One timer for all who wait for the store.
//!
//! A call of a store that does not answer at once may take so long and no longer, and hardly any takes that long. A timer
//! for each is entered, moved and taken out again in vain, and now and then wakes the event loop for that. So whoever
//! waits leaves a waker and a time here, and a task sleeps until the earliest time there was when it last looked: those
//! who have come since come later, as all of them are about equally patient.
//!
//! Each thread has a lane of its own, with a task in its own runtime: a thread that is held up holds up no other's.

use std::{
    future::Future,
    mem::replace,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    env::{BoxFuture, Env, Tick},
    lanes::{Lane as Number, Lanes},
    store::{Did, Pending, StoreError},
};

pub(super) struct Hourglass {
    env: Env,
    /// How long most wait.
    usual: Duration,
    lanes: Lanes<Lane>,
    is_closed: AtomicBool,
}

#[derive(Default)]
struct Lane {
    room: Mutex<Room>,
    wake: Notify,
    is_watched: AtomicBool,
}

#[derive(Default)]
struct Room {
    places: Vec<Place>,
    free: Vec<usize>,
    /// When the task means to look; `None` while it sleeps until it is woken.
    next: Option<Tick>,
    /// Somebody came since it planned that.
    has_stirred: bool,
}

enum Place {
    Free,
    Taken {
        until: Tick,
        waker: Waker,
    },
    /// Its time is over.
    Over,
}

impl Hourglass {
    pub(super) fn new(env: Env, usual: Duration) -> Arc<Self> {
        Arc::new(Self { env, usual, lanes: Default::default(), is_closed: AtomicBool::new(false) })
    }

    /// Ready at `until` or a little later. Begins with its first poll.
    pub(super) fn until(self: &Arc<Self>, until: Tick) -> Timeout {
        Timeout { glass: Arc::clone(self), until, at: At::Door }
    }

    /// What `pending` answers; that nobody knows, where that takes longer than until `until`.
    pub(super) fn bound<'a, T>(
        self: &Arc<Self>,
        pending: Pending<'a, Result<T, StoreError>>,
        until: Tick,
    ) -> Bound<'a, T> {
        Bound { pending, over: self.until(until) }
    }

    /// Ends the tasks.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.lanes.iter().for_each(|lane| lane.wake.notify_one());
    }

    /// Decides when to look next, under the lock that newcomers look under.
    fn plan(&self, lane: &Lane) -> Option<Tick> {
        let now = self.env.clock.now();
        let mut room = lane.room.lock();
        let first = room.places.iter().filter_map(Place::until).min();
        // Where one comes at a time, the task would be woken for each of them: it stays for the next one.
        let linger = room.has_stirred.then(|| now + self.usual);
        room.next = first.or(linger);
        room.has_stirred = false;
        room.next
    }

    /// Wakes those whose time is over.
    fn look(&self, lane: &Lane) {
        let now = self.env.clock.now();
        let mut over = Vec::new();
        for place in &mut lane.room.lock().places {
            if place.until().is_some_and(|until| until <= now)
                && let Place::Taken { waker, .. } = replace(place, Place::Over)
            {
                over.push(waker);
            }
        }
        over.into_iter().for_each(Waker::wake);
    }

    /// Starts the task of a lane; `false` where it cannot be started here.
    fn watch(self: &Arc<Self>, lane: Number) -> bool {
        if self.lanes[lane].is_watched.swap(true, Ordering::AcqRel) {
            return true;
        }
        self.env.tasks.spawn("semel hourglass", Box::pin(watch(Watcher { glass: Arc::clone(self), lane })))
    }
}

async fn watch(watcher: Watcher) {
    let (glass, lane) = (&*watcher.glass, &watcher.glass.lanes[watcher.lane]);
    loop {
        match glass.plan(lane) {
            None => lane.wake.notified().await,
            Some(at) => {
                tokio::select! {
                    biased;
                    () = lane.wake.notified() => {}
                    () = glass.env.clock.sleep_until(at) => {}
                }
            }
        }
        if glass.is_closed.load(Ordering::Acquire) {
            return;
        }
        glass.look(lane);
    }
}

/// Says that the task is gone, so that others start another: it dies with the runtime it began in.
struct Watcher {
    glass: Arc<Hourglass>,
    lane: Number,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let lane = &self.glass.lanes[self.lane];
        // In this order: whoever is not found here has come after the lock, and sees that nobody watches.
        lane.is_watched.store(false, Ordering::Release);
        let wakers: Vec<_> = lane.room.lock().places.iter().filter_map(Place::waker).collect();
        wakers.into_iter().for_each(Waker::wake);
    }
}

impl Place {
    fn until(&self) -> Option<Tick> {
        match self {
            Self::Taken { until, .. } => Some(*until),
            Self::Free | Self::Over => None,
        }
    }

    fn waker(&self) -> Option<Waker> {
        match self {
            Self::Taken { waker, .. } => Some(waker.clone()),
            Self::Free | Self::Over => None,
        }
    }
}

impl Room {
    /// Takes a place, and says whether the task has to hear of that.
    fn take(&mut self, until: Tick, waker: Waker) -> (usize, bool) {
        let taken = Place::Taken { until, waker };
        let place = match self.free.pop() {
            Some(place) => {
                self.places[place] = taken;
                place
            }
            None => {
                self.places.push(taken);
                self.places.len() - 1
            }
        };
        self.has_stirred = true;
        (place, self.next.is_none_or(|next| until < next))
    }
}

/// One who waits; the place is free again when this is dropped.
pub(super) struct Timeout {
    glass: Arc<Hourglass>,
    until: Tick,
    at: At,
}

enum At {
    Door,
    Place {
        lane: Number,
        place: usize,
    },
    /// There is nowhere to run the task.
    Alone(BoxFuture),
}

impl Future for Timeout {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let (lane, is_early) = match &mut this.at {
            At::Door => {
                let lane = Number::here();
                let (place, is_early) = this.glass.lanes[lane].room.lock().take(this.until, cx.waker().clone());
                this.at = At::Place { lane, place };
                (lane, is_early)
            }
            At::Place { lane, place } => {
                let mut room = this.glass.lanes[*lane].room.lock();
                match &mut room.places[*place] {
                    Place::Taken { waker, .. } if waker.will_wake(cx.waker()) => {}
                    Place::Taken { waker, .. } => {
                        let before = replace(waker, cx.waker().clone());
                        // Not under the lock: it may be the last that holds a task, with one of these in it.
                        drop(room);
                        drop(before);
                    }
                    Place::Free | Place::Over => return Poll::Ready(()),
                }
                (*lane, false)
            }
            At::Alone(timer) => return timer.as_mut().poll(cx),
        };
        // Looked at after the place was taken: a task that ends wakes all whom it finds.
        if !this.glass.lanes[lane].is_watched.load(Ordering::Acquire) {
            if !this.glass.watch(lane) {
                this.leave();
                let mut timer = this.glass.env.clock.sleep_until(this.until);
                let polled = timer.as_mut().poll(cx);
                this.at = At::Alone(timer);
                return polled;
            }
        } else if is_early {
            this.glass.lanes[lane].wake.notify_one();
        }
        Poll::Pending
    }
}

impl Timeout {
    fn leave(&mut self) {
        if let At::Place { lane, place } = replace(&mut self.at, At::Door) {
            let mut room = self.glass.lanes[lane].room.lock();
            let left = replace(&mut room.places[place], Place::Free);
            room.free.push(place);
            drop(room);
            drop(left);
        }
    }
}

impl Drop for Timeout {
    fn drop(&mut self) {
        self.leave();
    }
}

/// See [`Hourglass::bound`].
pub(super) struct Bound<'a, T> {
    pending: Pending<'a, Result<T, StoreError>>,
    over: Timeout,
}

impl<T> Future for Bound<'_, T> {
    type Output = Result<T, StoreError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if let Poll::Ready(answer) = Pin::new(&mut this.pending).poll(cx) {
            return Poll::Ready(answer);
        }
        Pin::new(&mut this.over).poll(cx).map(|()| Err(StoreError::unavailable(Did::Unknown)))
    }
}
