//! A deadline that costs next to nothing while it only moves later.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
};

use tokio::time::{Instant, Sleep, sleep_until};

struct Alarm {
    fired: AtomicBool,
    target: Waker,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.fired.store(true, Ordering::Release);
        self.target.wake_by_ref();
    }
}

/// The one timer of a connection.
///
/// Deadlines of a connection move later with each request and are seldom met. So the timer stays armed where it is,
/// and only when it fires is it asked whether that was still the deadline: one load per look, one entry in the timer
/// wheel per deadline's length instead of one per request. A deadline earlier than the armed one arms anew.
pub(crate) struct Deadline {
    sleep: Option<Pin<Box<Sleep>>>,
    armed: Instant,
    alarm: Arc<Alarm>,
    waker: Waker,
}

impl Deadline {
    /// A timer that wakes `target`.
    pub(crate) fn new(target: Waker) -> Self {
        let alarm = Arc::new(Alarm { fired: AtomicBool::new(false), target });
        let waker = Waker::from(alarm.clone());
        Self { sleep: None, armed: Instant::now(), alarm, waker }
    }

    /// Whether `at` has passed; otherwise the target is woken when it does. Needs a tokio runtime with time.
    pub(crate) fn passed(&mut self, at: Instant) -> bool {
        let due = match &self.sleep {
            None => true,
            Some(_) => at < self.armed || self.alarm.fired.load(Ordering::Acquire),
        };
        due && self.arm(at)
    }

    #[cold]
    fn arm(&mut self, at: Instant) -> bool {
        if at <= Instant::now() {
            return true;
        }
        self.alarm.fired.store(false, Ordering::Release);
        self.armed = at;
        let sleep = match &mut self.sleep {
            Some(sleep) => {
                sleep.as_mut().reset(at);
                sleep
            }
            none => none.insert(Box::pin(sleep_until(at))),
        };
        sleep.as_mut().poll(&mut Context::from_waker(&self.waker)).is_ready()
    }
}
