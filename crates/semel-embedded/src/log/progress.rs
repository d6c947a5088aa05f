//! How far the writer has come, and who waits for how much of it.
//!
//! A wake-up from another thread costs a system call, and a batch answers many callers. So the writer wakes one caller of
//! each thread that has some in the batch, and that one wakes the others of its thread, which costs it next to nothing. It
//! does so when it is polled, or when it is dropped. Should it be neither, for it is a future like any other, the writer
//! wakes the others itself a little later.

use std::{
    future::Future,
    pin::Pin,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;
use semel_core::lanes::{Lane as Number, Lanes};

use super::{Need, Stopped};

/// In how many batches a lane's callers may be due before the writer wakes them itself.
const PATIENCE: u32 = 64;

/// How far the log has got. Numbers are those of its entries.
#[derive(Default)]
pub(crate) struct Progress {
    written: AtomicU64,
    synced: AtomicU64,
    /// What is beyond has failed.
    failed: OnceLock<Stopped>,
    lanes: Lanes<Mutex<Lane>>,
}

#[derive(Default)]
struct Lane {
    waiting: Vec<Waiting>,
    /// Those that have what they wait for, but for one that was woken and is to wake them.
    due: Vec<Waiting>,
    /// In how many batches that one has not been heard of.
    unheard: u32,
}

impl Lane {
    /// Finds those who have what they wait for, and says who is to be woken now.
    fn answer(&mut self, has: impl Fn(&Waiting) -> bool) -> Vec<Waiting> {
        let outstanding = !self.due.is_empty();
        self.due.extend(self.waiting.extract_if(.., |w| has(w)));
        self.unheard = if outstanding { self.unheard + 1 } else { 0 };
        match self.due.len() {
            0 => Vec::new(),
            len if !outstanding => self.due.split_off(len - 1),
            _ if self.unheard >= PATIENCE => std::mem::take(&mut self.due),
            _ => Vec::new(),
        }
    }
}

struct Waiting {
    number: u64,
    need: Need,
    waker: Waker,
}

impl Progress {
    /// A future for entry `number`.
    pub(super) fn ticket(&self, number: u64, need: Need) -> Ticket<'_> {
        Ticket { progress: self, number, need, lane: Number::here(), registered: false }
    }

    /// Everything up to `number` is written.
    pub(super) fn written(&self, number: u64) {
        self.written.store(number, Ordering::Release);
        self.answer();
    }

    /// Everything up to `number` is synced.
    pub(super) fn synced(&self, number: u64) {
        self.written.store(number, Ordering::Release);
        self.synced.store(number, Ordering::Release);
        self.answer();
    }

    /// Nothing beyond what was reached will be.
    pub(super) fn fail(&self, why: Stopped) {
        // The first reason is the reason.
        let _ = self.failed.set(why);
        self.answer();
        self.wake_due();
    }

    fn of(&self, number: u64, need: Need) -> Option<Result<(), Stopped>> {
        let reached = match need {
            Need::Written => &self.written,
            Need::Synced => &self.synced,
        };
        if reached.load(Ordering::Acquire) >= number {
            return Some(Ok(()));
        }
        self.failed.get().map(|why| Err(why.clone()))
    }

    fn answer(&self) {
        for lane in self.lanes.iter() {
            // Never under the lock: a waker may run what drops a ticket.
            let woken = lane.lock().answer(|w| self.of(w.number, w.need).is_some());
            woken.into_iter().for_each(|w| w.waker.wake());
        }
    }

    /// Wakes those whom somebody else was to wake, and has not.
    pub(super) fn wake_due(&self) {
        for lane in self.lanes.iter() {
            let due = std::mem::take(&mut lane.lock().due);
            due.into_iter().for_each(|w| w.waker.wake());
        }
    }

    /// Whether somebody is to be woken by somebody else.
    pub(super) fn has_due(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.lock().due.is_empty())
    }
}

/// Resolves when what it waits for has come to pass, or cannot any more. Dropping it loses the answer only.
pub(crate) struct Ticket<'a> {
    progress: &'a Progress,
    number: u64,
    need: Need,
    lane: Number,
    registered: bool,
}

impl Future for Ticket<'_> {
    type Output = Result<(), Stopped>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { progress, number, need, lane, registered } = *self;
        if !registered && let Some(answer) = progress.of(number, need) {
            return Poll::Ready(answer);
        }
        let mut lane = progress.lanes[lane].lock();
        if let Some(answer) = progress.of(number, need) {
            drop(lane);
            self.leave();
            return Poll::Ready(answer);
        }
        let waker = cx.waker().clone();
        // Wakers are dropped outside the lock as well: one may be the last that holds a task with a ticket in it.
        let before = match lane.waiting.iter_mut().find(|w| registered && w.number == number) {
            Some(waiting) => Some(std::mem::replace(&mut waiting.waker, waker)),
            None => {
                lane.waiting.push(Waiting { number, need, waker });
                None
            }
        };
        drop(lane);
        drop(before);
        self.registered = true;
        Poll::Pending
    }
}

impl Ticket<'_> {
    /// Waits no more; and wakes those whom it may have been woken for.
    fn leave(&mut self) {
        if !std::mem::take(&mut self.registered) {
            return;
        }
        let mut lane = self.progress.lanes[self.lane].lock();
        let at = lane.waiting.iter().position(|w| w.number == self.number);
        let own = at.map(|at| lane.waiting.swap_remove(at));
        let due = std::mem::take(&mut lane.due);
        drop(lane);
        drop(own);
        due.into_iter().filter(|w| w.number != self.number).for_each(|w| w.waker.wake());
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, atomic::AtomicUsize},
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A ticket that was polled once, and how often it was woken.
    struct Caller<'a> {
        ticket: Option<Pin<Box<Ticket<'a>>>>,
        woken: Arc<Count>,
    }

    impl<'a> Caller<'a> {
        fn new(progress: &'a Progress, number: u64, need: Need) -> Self {
            let mut caller = Self { ticket: Some(Box::pin(progress.ticket(number, need))), woken: Arc::default() };
            assert!(caller.poll().is_pending());
            caller
        }

        fn poll(&mut self) -> Poll<Result<(), Stopped>> {
            let waker = Waker::from(Arc::clone(&self.woken));
            self.ticket.as_mut().expect("it is there").as_mut().poll(&mut Context::from_waker(&waker))
        }

        fn woken(&self) -> usize {
            self.woken.0.load(Ordering::SeqCst)
        }
    }

    fn callers(progress: &Progress) -> Vec<Caller<'_>> {
        (1..=5).map(|n| Caller::new(progress, n, Need::Synced)).collect()
    }

    fn woken(callers: &[Caller<'_>]) -> usize {
        callers.iter().filter(|c| c.woken() > 0).count()
    }

    #[test]
    fn one_caller_of_a_thread_is_woken_and_wakes_the_others() {
        let progress = Progress::default();
        let mut callers = callers(&progress);
        progress.written(5);
        assert_eq!(woken(&callers), 0);
        progress.synced(4);
        assert_eq!(woken(&callers), 1);
        let first = callers.iter_mut().find(|c| c.woken() > 0).expect("one was woken");
        assert!(first.poll().is_ready());
        assert_eq!(woken(&callers), 4);
        assert!(callers[..4].iter_mut().all(|c| c.woken() == 1) && callers[4].poll().is_pending());
        assert!(!progress.has_due());
    }

    #[test]
    fn a_woken_caller_that_is_dropped_wakes_the_others_all_the_same() {
        let progress = Progress::default();
        let mut callers = callers(&progress);
        progress.synced(5);
        let first = callers.iter_mut().find(|c| c.woken() > 0).expect("one was woken");
        first.ticket = None;
        assert_eq!(woken(&callers), 5);
    }

    #[test]
    fn a_woken_caller_that_does_nothing_holds_the_others_up_for_a_while_only() {
        let progress = Progress::default();
        let idle = callers(&progress);
        progress.synced(5);
        assert!(progress.has_due());
        progress.wake_due();
        assert_eq!(woken(&idle), 5);

        let busy = Progress::default();
        let callers = callers(&busy);
        busy.synced(2);
        for _ in 1..PATIENCE {
            busy.synced(5);
            assert_eq!(woken(&callers), 1);
        }
        busy.synced(5);
        assert_eq!(woken(&callers), 5);
    }

    #[test]
    fn a_caller_that_looks_by_itself_is_not_the_one_that_is_relied_on() {
        let progress = Progress::default();
        let mut callers = callers(&progress);
        progress.synced.store(5, Ordering::SeqCst);
        // Before the writer came to wake anybody.
        assert!(callers[4].poll().is_ready());
        progress.synced(5);
        assert_eq!((woken(&callers), callers[4].woken()), (1, 0));
        let first = callers.iter_mut().find(|c| c.woken() > 0).expect("one was woken");
        assert!(first.poll().is_ready());
        assert_eq!(woken(&callers), 4);
    }

    #[test]
    fn a_failure_is_told_to_everybody_beyond_what_was_reached() {
        let progress = Progress::default();
        let mut callers = callers(&progress);
        progress.synced(2);
        progress.fail(Stopped::Failed("broken".to_owned()));
        assert_eq!(woken(&callers), 5);
        for (i, caller) in callers.iter_mut().enumerate() {
            let Poll::Ready(answer) = caller.poll() else { panic!("{i} waits") };
            assert_eq!(answer.is_ok(), i < 2, "{i}");
        }
        assert!(progress.of(9, Need::Written).is_some_and(|a| a.is_err()));
    }

    #[test]
    fn a_ticket_that_is_polled_again_is_woken_by_its_last_waker() {
        let progress = Progress::default();
        let mut caller = Caller::new(&progress, 1, Need::Written);
        caller.woken = Arc::default();
        assert!(caller.poll().is_pending());
        progress.written(1);
        assert_eq!(caller.woken(), 1);
    }
}
