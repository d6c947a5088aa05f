//! The future of a store's call: an answer that is ready costs no allocation, a real future costs one.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use super::StoreError;

/// What every call of a store returns.
pub type Reply<'a, T> = StoreFuture<'a, Result<T, StoreError>>;

/// A ready value, or one boxed future; so that the traits are dyn-compatible at no measurable cost.
#[must_use = "futures do nothing unless polled"]
pub struct StoreFuture<'a, T>(Step<'a, T>);

enum Step<'a, T> {
    Ready(Option<T>),
    Pending(Pending<'a, T>),
}

/// An answer that takes a while.
#[must_use = "futures do nothing unless polled"]
pub struct Pending<'a, T>(Pin<Box<dyn Future<Output = T> + Send + 'a>>);

impl<T> Future for Pending<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        self.get_mut().0.as_mut().poll(cx)
    }
}

impl<T> fmt::Debug for Pending<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pending")
    }
}

impl<'a, T> StoreFuture<'a, T> {
    /// An answer that is there already.
    pub const fn ready(value: T) -> Self {
        Self(Step::Ready(Some(value)))
    }

    /// An answer that takes a while.
    pub fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Step::Pending(Pending(Box::pin(future))))
    }

    /// An answer that never comes.
    pub fn never() -> Self
    where
        T: Send + 'a,
    {
        Self::new(std::future::pending())
    }

    /// The value, if the answer is there already; otherwise the future back.
    ///
    /// # Errors
    /// The future itself, when it is one that takes a while.
    ///
    /// # Panics
    /// When it was polled to its end before.
    pub fn try_ready(self) -> Result<T, Self> {
        self.split().map_err(|pending| Self(Step::Pending(pending)))
    }

    /// The same; but the future of an answer that takes a while is a pointer: whoever keeps it need not make room for the
    /// value as well.
    ///
    /// # Errors
    /// The future, when it is one that takes a while.
    ///
    /// # Panics
    /// When it was polled to its end before.
    pub fn split(self) -> Result<T, Pending<'a, T>> {
        match self.0 {
            Step::Ready(value) => Ok(value.expect(AFTER_ITS_END)),
            Step::Pending(future) => Err(future),
        }
    }
}

const AFTER_ITS_END: &str = "a store future is not polled after its end";

impl<T> Unpin for StoreFuture<'_, T> {}

impl<T> Future for StoreFuture<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            Step::Ready(value) => Poll::Ready(value.take().expect(AFTER_ITS_END)),
            Step::Pending(future) => Pin::new(future).poll(cx),
        }
    }
}

impl<T> fmt::Debug for StoreFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Step::Ready(_) => "StoreFuture(ready)",
            Step::Pending(_) => "StoreFuture(pending)",
        })
    }
}
