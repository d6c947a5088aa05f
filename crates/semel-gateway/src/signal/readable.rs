//! Not asking a socket twice whether anything has come.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

struct Flag {
    stirred: AtomicBool,
    target: Waker,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stirred.store(true, Ordering::Release);
        self.target.wake_by_ref();
    }
}

/// Remembers that a socket had nothing to read.
///
/// hyper tries to read at every poll, to notice an end of file, and each try costs a trip through the reactor's
/// registration. Between a "not yet" and the wake-up that follows it, the answer is known.
#[derive(Default)]
pub(crate) struct Readable {
    flag: Option<(Arc<Flag>, Waker)>,
    waits: bool,
}

impl Readable {
    /// `read`, unless it would be as pending as the last time.
    #[inline]
    pub(crate) fn poll<T>(&mut self, cx: &Context<'_>, read: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
        let known = self.flag.as_ref().is_some_and(|(flag, _)| flag.target.will_wake(cx.waker()));
        if known && self.waits && !self.take_stirred() {
            return Poll::Pending;
        }
        if !known {
            let flag = Arc::new(Flag { stirred: AtomicBool::new(false), target: cx.waker().clone() });
            self.flag = Some((flag.clone(), Waker::from(flag)));
        }
        let waker = self.flag.as_ref().map_or(Waker::noop(), |(_, waker)| waker);
        let polled = read(&mut Context::from_waker(waker));
        self.waits = polled.is_pending();
        polled
    }

    fn take_stirred(&self) -> bool {
        self.flag
            .as_ref()
            .is_some_and(|(flag, _)| flag.stirred.load(Ordering::Acquire) && flag.stirred.swap(false, Ordering::AcqRel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};

    #[test]
    fn a_blocked_socket_is_asked_again_only_after_it_stirred() {
        let (asked, waker) = (Cell::new(0), RefCell::new(None));
        let mut readable = Readable::default();
        let mut ask = |cx: &Context<'_>| {
            readable.poll::<()>(cx, |cx| {
                asked.set(asked.get() + 1);
                *waker.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            })
        };
        struct Nobody;
        impl Wake for Nobody {
            fn wake(self: Arc<Self>) {}
        }
        let task = Waker::from(Arc::new(Nobody));
        let cx = Context::from_waker(&task);
        assert!(ask(&cx).is_pending() && ask(&cx).is_pending());
        assert_eq!(asked.get(), 1);
        let stirred = waker.borrow_mut().take().unwrap();
        stirred.wake();
        assert!(ask(&cx).is_pending() && ask(&cx).is_pending());
        assert_eq!(asked.get(), 2);
    }
}
