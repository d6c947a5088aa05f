//! A waker that does not wake a task which is already looking.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Nobody polls, nothing rang since the last poll.
const QUIET: u8 = 0;
/// Being polled, nothing rang since this pass began.
const LOOKING: u8 = 1;
/// Being polled, and rung meanwhile: another pass is due.
const LOOKING_RUNG: u8 = 2;
/// Rung after the last poll ended: the task was woken, or there was none.
const RUNG: u8 = 3;

/// Passes over the same pieces before the task gives way to others.
const PASSES: u8 = 16;

/// Wakes the task that waits for a set of pieces driven together.
///
/// hyper hands a body from the connection to its reader through a channel and wakes the other side at each step. When
/// both sides live in one task, every such wake would send the task through the scheduler once more. A bell that rings
/// while the task is looking only asks for another pass.
///
/// A bell also remembers that it rang while nobody was looking: an idle connection whose bell is silent has seen
/// neither data nor an end of file.
#[derive(Default)]
pub(crate) struct Bell {
    state: AtomicU8,
    task: AtomicWaker,
}

impl Bell {
    /// Calls `look` until it is ready or nothing rings any more; not at all where nothing rang since the last time,
    /// unless `asked`. The waker in `look`'s context must ring this bell. `look` is told whether it rang.
    pub(crate) fn watch<T>(
        &self,
        waker: &Waker,
        cx: &Context<'_>,
        asked: bool,
        mut look: impl FnMut(&mut Context<'_>, bool) -> Poll<T>,
    ) -> Poll<T> {
        // Registered before the state is read: a ring after that wakes the task.
        self.task.register(cx.waker());
        let mut rang = self.rang();
        if !rang && !asked {
            return Poll::Pending;
        }
        self.state.store(LOOKING, Ordering::SeqCst);
        let mut inner = Context::from_waker(waker);
        let mut passes = PASSES;
        loop {
            if let Poll::Ready(ready) = look(&mut inner, rang) {
                if self.leave().is_err() {
                    // What rang has not been looked at: whoever takes the pieces next must know.
                    self.state.store(RUNG, Ordering::SeqCst);
                }
                return Poll::Ready(ready);
            }
            if self.leave().is_ok() {
                return Poll::Pending;
            }
            passes -= 1;
            if passes == 0 {
                self.state.store(RUNG, Ordering::SeqCst);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            rang = true;
            self.state.store(LOOKING, Ordering::SeqCst);
        }
    }

    fn leave(&self) -> Result<u8, u8> {
        self.state.compare_exchange(LOOKING, QUIET, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Within a look: whether something rang since it began. The caller is about to answer it.
    pub(crate) fn answer(&self) -> bool {
        self.state.swap(LOOKING, Ordering::SeqCst) == LOOKING_RUNG
    }

    /// Whether something rang since the last look.
    pub(crate) fn rang(&self) -> bool {
        self.state.load(Ordering::SeqCst) != QUIET
    }

    /// Forgets the task: a ring from now on wakes nobody, and is remembered.
    pub(crate) fn forget_task(&self) {
        drop(self.task.take());
    }

    /// Rings.
    pub(crate) fn ring(&self) {
        let mut state = self.state.load(Ordering::SeqCst);
        loop {
            let next = match state {
                QUIET => RUNG,
                LOOKING => LOOKING_RUNG,
                _ => return,
            };
            match self.state.compare_exchange_weak(state, next, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(QUIET) => return self.task.wake(),
                Ok(_) => return,
                Err(now) => state = now,
            }
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_ring_while_looking_asks_for_another_pass_and_wakes_nobody() {
        let (bell, task) = (Arc::new(Bell::default()), Arc::new(Count::default()));
        let (waker, outer) = (Waker::from(bell.clone()), Waker::from(task.clone()));
        let mut passes = 0;
        let polled = bell.watch(&waker, &Context::from_waker(&outer), true, |cx, _| {
            passes += 1;
            if passes < 3 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(())
        });
        assert!(polled.is_ready());
        assert_eq!((passes, task.0.load(Ordering::SeqCst)), (3, 0));
        assert!(!bell.rang());
    }

    #[test]
    fn a_ring_after_the_look_wakes_the_task_once() {
        let (bell, task) = (Arc::new(Bell::default()), Arc::new(Count::default()));
        let (waker, outer) = (Waker::from(bell.clone()), Waker::from(task.clone()));
        assert!(bell.watch::<()>(&waker, &Context::from_waker(&outer), true, |_, _| Poll::Pending).is_pending());
        waker.wake_by_ref();
        waker.wake_by_ref();
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
        assert!(bell.rang());
    }

    #[test]
    fn pieces_that_never_rest_give_way_to_other_tasks() {
        let (bell, task) = (Arc::new(Bell::default()), Arc::new(Count::default()));
        let (waker, outer) = (Waker::from(bell.clone()), Waker::from(task.clone()));
        let polled = bell.watch::<()>(&waker, &Context::from_waker(&outer), true, |cx, _| {
            cx.waker().wake_by_ref();
            Poll::Pending
        });
        assert!(polled.is_pending());
        assert_eq!(task.0.load(Ordering::SeqCst), 1);
    }

    #[test]
    fn without_a_ring_nobody_looks() {
        let bell = Arc::new(Bell::default());
        let (waker, outer) = (Waker::from(bell.clone()), Waker::from(Arc::new(Count::default())));
        let cx = Context::from_waker(&outer);
        assert!(bell.watch(&waker, &cx, false, |_, _| Poll::Ready(())).is_pending());
        bell.ring();
        assert_eq!(bell.watch(&waker, &cx, false, |_, rang| Poll::Ready(rang)), Poll::Ready(true));
        assert!(bell.watch(&waker, &cx, false, |_, _| Poll::Ready(())).is_pending());
    }

    #[test]
    fn a_ring_with_no_task_is_remembered() {
        let (bell, task) = (Arc::new(Bell::default()), Arc::new(Count::default()));
        let (waker, outer) = (Waker::from(bell.clone()), Waker::from(task.clone()));
        assert!(bell.watch::<()>(&waker, &Context::from_waker(&outer), true, |_, _| Poll::Pending).is_pending());
        bell.forget_task();
        assert!(!bell.rang());
        waker.wake_by_ref();
        assert!(bell.rang());
        assert_eq!(task.0.load(Ordering::SeqCst), 0);
    }
}
