//! The breaker: a store that does not answer is not asked by every request, so that none waits for it in vain.
//!
//! It opens when half of at least 20 calls within 10 s were not answered, and lets one call a second through as a probe
//! from then on. A good probe closes it. What counts is whether the store answered: *found*, *late*, *full* and conflicts
//! are answers.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use super::Inner;
use crate::{
    env::Tick,
    identity::Identity,
    observe::{Event, What},
    store::{Did, StoreError, StoreErrorKind},
};

/// How many seconds the window has.
const WINDOW: usize = 10;
/// So few calls say nothing.
const LEAST: u32 = 20;
/// How long after a probe the next one goes.
pub(super) const BETWEEN_PROBES: Duration = Duration::from_secs(1);

pub(super) struct Breaker {
    /// Off where the store is this process's own: it answers duplicates from memory whatever its disk does.
    is_used: bool,
    is_open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    seconds: [Second; WINDOW],
    next_probe: Tick,
}

#[derive(Clone, Copy, Default)]
struct Second {
    /// Which second since boot this room is used for.
    at: u64,
    calls: u32,
    errors: u32,
}

/// The right to make one call; says what its end means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    /// A call among others.
    Usual,
    /// The one that finds out whether the store is back.
    Probe,
}

/// What a call's end did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turned {
    Opened,
    Closed,
}

impl Breaker {
    pub(super) fn new(is_used: bool) -> Self {
        Self { is_used, is_open: AtomicBool::new(false), state: Mutex::default() }
    }

    pub(super) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// A call that may be left out. `None` while it is open.
    fn admit(&self, now: Tick) -> Option<Pass> {
        match self.pass(now) {
            Pass::Usual if self.is_open() => None,
            pass => Some(pass),
        }
    }

    /// A call that is made in any case: what belongs to running work outlasts an outage.
    fn pass(&self, now: Tick) -> Pass {
        if !self.is_open() {
            return Pass::Usual;
        }
        let mut state = self.state.lock();
        if !self.is_open() || now < state.next_probe {
            return Pass::Usual;
        }
        // Moved when it goes, not when it ends: a probe whose caller leaves is followed by another.
        state.next_probe = now + BETWEEN_PROBES;
        Pass::Probe
    }

    fn ended(&self, pass: Pass, is_answered: bool, now: Tick) -> Option<Turned> {
        let mut state = self.state.lock();
        if self.is_open() {
            // Calls from before it opened, and those of running work, say nothing about now.
            if pass == Pass::Probe && is_answered {
                *state = State::default();
                self.is_open.store(false, Ordering::Release);
                return Some(Turned::Closed);
            }
            return None;
        }
        state.count(second(now), is_answered);
        if !is_answered && state.is_bad(second(now)) {
            state.next_probe = now + BETWEEN_PROBES;
            self.is_open.store(true, Ordering::Release);
            return Some(Turned::Opened);
        }
        None
    }
}

impl State {
    fn count(&mut self, at: u64, is_answered: bool) {
        let room = &mut self.seconds[usize::try_from(at % WINDOW as u64).unwrap_or(0)];
        if room.at != at {
            *room = Second { at, ..Second::default() };
        }
        room.calls = room.calls.saturating_add(1);
        room.errors = room.errors.saturating_add(u32::from(!is_answered));
    }

    fn is_bad(&self, at: u64) -> bool {
        let recent = self.seconds.iter().filter(|s| s.at + WINDOW as u64 > at);
        let (calls, errors) = recent.fold((0_u32, 0_u32), |(calls, errors), s| {
            (calls.saturating_add(s.calls), errors.saturating_add(s.errors))
        });
        calls >= LEAST && errors >= calls.div_ceil(2)
    }
}

fn second(now: Tick) -> u64 {
    now.as_nanos() / 1_000_000_000
}

/// Who needs a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Needed {
    /// Nobody whose work runs: it may be left out.
    Not,
    /// Running work: it is sent whatever the breaker says.
    ByWork,
}

/// What a call that is left out ends with.
pub(super) fn held_up() -> StoreError {
    let mut error = StoreError::unavailable(Did::Nothing);
    error.retry_after = Some(BETWEEN_PROBES);
    error
}

impl Inner {
    /// The right to make a call; `None` where it is to be left out.
    #[inline]
    pub(super) fn pass(&self, needed: Needed) -> Option<Pass> {
        if !self.breaker.is_used {
            return Some(Pass::Usual);
        }
        match needed {
            Needed::Not => self.breaker.admit(self.now()),
            Needed::ByWork => Some(self.breaker.pass(self.now())),
        }
    }

    /// The same for a call that may be left out, with the error that it ends with then.
    pub(super) fn admit(&self) -> Result<Pass, StoreError> {
        self.pass(Needed::Not).ok_or_else(held_up)
    }

    /// Tells the breaker how a call ended.
    #[inline]
    pub(super) fn ended<T>(&self, pass: Pass, result: &Result<T, StoreError>) {
        if self.breaker.is_used {
            self.answered(pass, !matches!(result, Err(error) if error.kind == StoreErrorKind::Unavailable));
        }
    }

    fn answered(&self, pass: Pass, is_answered: bool) {
        let what = match self.breaker.ended(pass, is_answered, self.now()) {
            None => return,
            Some(Turned::Opened) => What::BreakerOpened,
            Some(Turned::Closed) => What::BreakerClosed,
        };
        self.emit(&Event::new(&Identity::nobody(), "", what));
        // Who looks after the store looks sooner now.
        self.store_health.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Tick {
        Tick::from_nanos(5_000_000_000_000 + millis * 1_000_000)
    }

    fn call(breaker: &Breaker, millis: u64, is_answered: bool) -> Option<Turned> {
        let pass = breaker.pass(at(millis));
        breaker.ended(pass, is_answered, at(millis))
    }

    fn opened() -> Breaker {
        let breaker = Breaker::new(true);
        for n in 0..LEAST {
            let turned = call(&breaker, 0, false);
            assert_eq!(turned, (n + 1 == LEAST).then_some(Turned::Opened), "call {n}");
        }
        breaker
    }

    #[test]
    fn half_of_twenty_calls_open_it_and_less_do_not() {
        opened();
        let breaker = Breaker::new(true);
        for n in 0..1_000 {
            assert_eq!(call(&breaker, n, n % 5 > 1), None, "two of five fail");
        }
        let breaker = Breaker::new(true);
        let turned: Vec<_> = (0..20).filter_map(|n| call(&breaker, n, n % 2 == 0)).collect();
        assert_eq!(turned, [Turned::Opened], "one of two fails");
    }

    #[test]
    fn few_calls_say_nothing() {
        let breaker = Breaker::new(true);
        for n in 0..19 {
            assert_eq!(call(&breaker, n, false), None);
        }
        // Eleven seconds later those are forgotten.
        for n in 0..19 {
            assert_eq!(call(&breaker, 11_000 + n, false), None);
        }
    }

    #[test]
    fn errors_of_ten_seconds_count_together() {
        let breaker = Breaker::new(true);
        let turned: Vec<_> = (0..20).filter_map(|n| call(&breaker, n * 480, false)).collect();
        assert_eq!(turned, [Turned::Opened]);
    }

    #[test]
    fn while_open_one_call_a_second_goes_as_a_probe() {
        let breaker = opened();
        assert_eq!(breaker.admit(at(999)), None);
        assert_eq!(breaker.admit(at(1_000)), Some(Pass::Probe));
        assert_eq!(breaker.admit(at(1_001)), None);
        assert_eq!(breaker.ended(Pass::Probe, false, at(1_250)), None);
        assert_eq!(breaker.admit(at(1_999)), None);
        assert_eq!(breaker.admit(at(2_000)), Some(Pass::Probe), "the first one's caller may have left");
    }

    #[test]
    fn a_good_probe_closes_it_and_the_count_begins_anew() {
        let breaker = opened();
        let probe = breaker.admit(at(1_000)).unwrap();
        assert_eq!(breaker.ended(probe, true, at(1_001)), Some(Turned::Closed));
        assert_eq!(breaker.admit(at(1_002)), Some(Pass::Usual));
        assert_eq!(call(&breaker, 1_003, false), None);
    }

    #[test]
    fn only_a_probe_closes_it() {
        let breaker = opened();
        assert_eq!(breaker.pass(at(500)), Pass::Usual);
        assert_eq!(breaker.ended(Pass::Usual, true, at(600)), None);
        assert!(breaker.is_open());
    }
}
