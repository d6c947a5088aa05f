//! What bodies may take, over all requests: memory and time.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;

/// Bodies up to this length are not counted: the number of connections bounds them, and counting would cost each small
/// request more than it holds.
pub(super) const FREE: usize = 16 << 10;

/// What the bodies of guarded requests may take over all requests: memory while they are held, and time. Clones are one
/// budget: give the same to every layer of a process.
///
/// Each rule's [`Caps`](crate::Caps) bound one body; this bounds all of them together. Bodies up to 16 KiB are not counted.
///
/// ```
/// # use semel_core::engine::Engine;
/// # use semel_http::{Bodies, GuardLayer, Rule, principal};
/// # let engine = Engine::memory();
/// # let rule = Rule::key().principal(principal::shared()).build().unwrap();
/// let bodies = Bodies::default().requests(64 << 20);
/// let layer = GuardLayer::new(engine, rule).bodies(bodies.clone());
/// assert_eq!(bodies.held().requests, 0);
/// ```
#[derive(Clone, Debug)]
pub struct Bodies {
    pub(super) requests: Arc<Budget>,
    pub(super) answers: Arc<Budget>,
    pub(super) arrival: Duration,
    pub(super) stall: Duration,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            requests: Budget::of(256 << 20),
            answers: Budget::of(256 << 20),
            arrival: Duration::from_secs(60),
            stall: Duration::from_secs(30),
        }
    }
}

impl Bodies {
    /// Bytes of requests' bodies that are held at a time (256 MiB), from their first byte until the service has taken them.
    /// A request for which there is no room gets 503 `too-many-bodies`, and nothing is run. At least the largest
    /// [`Caps::request`](crate::Caps::request), or the largest bodies are never taken.
    #[must_use]
    pub fn requests(mut self, bytes: usize) -> Self {
        self.requests = Budget::of(bytes);
        self
    }

    /// Bytes of answers' bodies that are held at a time (256 MiB), from their first byte until their client has taken them:
    /// of those that are being recorded, and of the copies of recorded ones, each as a whole.
    ///
    /// An answer for which there is no room is passed on as it comes and recorded without its body, like one over its cap.
    /// A copy for which there is none gets 503 `too-many-bodies`, and the record stays as it is; a quarter of the room is
    /// kept from copies. One that is larger than what copies may have is given out while it is the only body held.
    #[must_use]
    pub fn answers(mut self, bytes: usize) -> Self {
        self.answers = Budget::of(bytes);
        self
    }

    /// How long the body of a request may take to arrive (60 s), from its first bytes to its end. Then 408
    /// `request-timeout`, and nothing is run. A client that sends nothing at all holds nothing: it is the server's matter.
    #[must_use]
    pub const fn arrive_within(mut self, time: Duration) -> Self {
        self.arrival = time;
        self
    }

    /// How long a reader may take nothing of an answer that is passed on while it comes (30 s). Then it is cut off and the
    /// recording goes on alone; so it is where it has to be waited for after half of the rule's `max_hold`.
    #[must_use]
    pub const fn taken_within(mut self, time: Duration) -> Self {
        self.stall = time;
        self
    }

    /// How much is held just now, and how often there was no room.
    #[must_use]
    pub fn held(&self) -> HeldBodies {
        HeldBodies {
            requests: self.requests.held.load(Relaxed),
            answers: self.answers.held.load(Relaxed),
            requests_refused: self.requests.refused.load(Relaxed),
            answers_not_kept: self.answers.refused.load(Relaxed),
        }
    }
}

/// What [`Bodies::held`] tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct HeldBodies {
    /// Bytes of requests' bodies.
    pub requests: usize,
    /// Bytes of answers' bodies.
    pub answers: usize,
    /// Requests that were refused for want of room for their body, or for the recorded answer they asked for, since the
    /// start.
    pub requests_refused: u64,
    /// Answers that were recorded without their body for want of room, since the start.
    pub answers_not_kept: u64,
}

/// Bytes that many bodies share.
pub(super) struct Budget {
    limit: usize,
    held: AtomicUsize,
    refused: AtomicU64,
}

impl Budget {
    fn of(limit: usize) -> Arc<Self> {
        Arc::new(Self { limit, held: AtomicUsize::new(0), refused: AtomicU64::new(0) })
    }

    /// Whether a body of a known length is not even worth beginning. What is announced takes no room: it costs its sender
    /// nothing.
    pub(super) fn is_too_full_for(&self, length: u64) -> bool {
        let full = length > FREE as u64 && length > self.limit.saturating_sub(self.held.load(Relaxed)) as u64;
        if full {
            self.refuse();
        }
        full
    }

    fn take(&self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|held| *held <= self.limit);
        self.held.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// As [`take`](Self::take), for what can be asked for again: it leaves a quarter to what cannot. Whatever takes more
    /// than that has the budget to itself.
    fn lend(&self, bytes: usize) -> bool {
        let most = self.limit - self.limit / 4;
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| held == 0 || *sum <= most);
        self.held.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    /// Counts a body that found no room.
    #[cold]
    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Relaxed);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.held.load(Relaxed), self.limit)
    }
}

/// What one body has of a budget; given back when dropped.
pub(super) struct Held {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Held {
    /// Makes `held` cover `bytes`, unless the budget does not give so much.
    pub(super) fn cover(held: &mut Option<Box<Self>>, budget: &Arc<Budget>, bytes: usize) -> bool {
        let has = held.as_ref().map_or(0, |held| held.bytes);
        if bytes <= has.max(FREE) {
            return true;
        }
        if !budget.take(bytes - has) {
            return false;
        }
        held.get_or_insert_with(|| Box::new(Self { budget: Arc::clone(budget), bytes: 0 })).bytes = bytes;
        true
    }

    /// The body of a recorded answer for one more client, counted as long as any part of it is there; `None` where there
    /// is no room. Bytes that several clients share are counted for each: some stores make a copy for each.
    pub(super) fn lent(data: Bytes, budget: &Arc<Budget>) -> Option<Bytes> {
        if data.len() <= FREE {
            return Some(data);
        }
        let bytes = data.len().min(budget.limit);
        budget.lend(bytes).then(|| Box::new(Self { budget: Arc::clone(budget), bytes }).with(data))
    }

    /// `data`, counted as long as any part of it is there.
    pub(super) fn with(self: Box<Self>, data: Bytes) -> Bytes {
        Bytes::from_owner(Counted { data, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Relaxed);
    }
}

struct Counted {
    data: Bytes,
    _held: Box<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_given_back_with_the_last_part_of_it() {
        let bodies = Bodies::default().requests(100_000);
        let (mut first, mut second) = (None, None);
        assert!(Held::cover(&mut first, &bodies.requests, FREE));
        assert_eq!((first.is_none(), bodies.held().requests), (true, 0), "small ones are free");
        assert!(Held::cover(&mut first, &bodies.requests, 60_000) && Held::cover(&mut first, &bodies.requests, 50_000));
        assert_eq!(bodies.held().requests, 60_000);
        assert!(!Held::cover(&mut second, &bodies.requests, 40_001));
        assert!(Held::cover(&mut second, &bodies.requests, 40_000));
        assert_eq!(bodies.held().requests, 100_000);
        drop(second);
        let mut whole = first.unwrap().with(Bytes::from(vec![1; 60_000]));
        let part = whole.split_to(10);
        drop(whole);
        assert_eq!(bodies.held().requests, 60_000);
        drop(part);
        assert_eq!(bodies.held().requests, 0);
    }

    #[test]
    fn what_is_announced_is_refused_where_there_is_no_room_and_takes_none() {
        let bodies = Bodies::default().requests(100_000);
        assert!(!bodies.requests.is_too_full_for(100_000) && bodies.requests.is_too_full_for(100_001));
        let mut held = None;
        assert!(Held::cover(&mut held, &bodies.requests, 90_000));
        assert!(!bodies.requests.is_too_full_for(10_000) && bodies.requests.is_too_full_for(20_000));
        assert!(!bodies.requests.is_too_full_for(FREE as u64), "small ones are free");
        assert_eq!((bodies.held().requests, bodies.held().requests_refused), (90_000, 2));
    }
}
