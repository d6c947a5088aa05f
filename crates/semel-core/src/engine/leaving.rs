//! Callers that leave: what they have begun goes on.

use std::{
    future::Future,
    ops::Deref,
    pin::Pin,
    task::{Context, Poll},
};

use tracing::{Instrument, Span};

use super::Inner;

/// A future that nobody stops: polled by whoever waits for it, and moved into a task of the engine where it is dropped
/// before its end.
///
/// Most callers stay, and a task costs more than many a claim with its work. Moved, it is polled at once, so that it
/// hears of what its last poller was to be woken for. Where there is no runtime to move it to, it is dropped, and what
/// is in it says what that means.
pub(super) struct GoesOn<H, T>
where
    H: Deref<Target = Inner>,
    T: Send + 'static,
{
    inner: H,
    name: &'static str,
    rest: Option<Rest<T>>,
    /// Dropped before, it is simply dropped.
    is_begun: bool,
    /// Where it was begun. The one who leaves may have left that as well.
    span: Option<Span>,
}

type Rest<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl<H, T> GoesOn<H, T>
where
    H: Deref<Target = Inner>,
    T: Send + 'static,
{
    /// Begins with its first poll.
    pub(super) const fn once_polled(inner: H, name: &'static str, rest: Rest<T>) -> Self {
        Self { inner, name, rest: Some(rest), is_begun: false, span: None }
    }

    /// Was begun by being made: goes on also where nobody ever polls it.
    pub(super) const fn from_now(inner: H, name: &'static str, rest: Rest<T>) -> Self {
        Self { inner, name, rest: Some(rest), is_begun: true, span: None }
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl<H, T> Future for GoesOn<H, T>
where
    H: Deref<Target = Inner> + Unpin,
    T: Send + 'static,
{
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let this = self.get_mut();
        // Out of the way while it is polled: one that panics is at its end, and goes on nowhere.
        let mut rest = this.rest.take().expect("a future is not polled after it was ready");
        let polled = rest.as_mut().poll(cx);
        if polled.is_pending() {
            this.is_begun = true;
            this.span.get_or_insert_with(Span::current);
            this.rest = Some(rest);
        }
        polled
    }
}

impl<H, T> Drop for GoesOn<H, T>
where
    H: Deref<Target = Inner>,
    T: Send + 'static,
{
    fn drop(&mut self) {
        let Some(rest) = self.rest.take().filter(|_| self.is_begun) else { return };
        let span = self.span.take().unwrap_or_else(Span::current);
        self.inner.env.tasks.spawn(self.name, Box::pin(async move { drop(rest.await) }.instrument(span)));
    }
}
