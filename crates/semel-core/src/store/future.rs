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
    Pending(Pin<Box<dyn Future<Output = T> + Send + 'a>>),
}

impl<'a, T> StoreFuture<'a, T> {
    /// An answer that is there already.
    pub const fn ready(value: T) -> Self {
        Self(Step::Ready(Some(value)))
    }

    /// An answer that takes a while.
    pub fn new(future: impl Future<Output = T> + Send + 'a) -> Self {
        Self(Step::Pending(Box::pin(future)))
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
    /// The future itself, when it is one that takes a while (or was polled to its end).
    pub fn try_ready(self) -> Result<T, Self> {
        match self.0 {
            Step::Ready(Some(value)) => Ok(value),
            other => Err(Self(other)),
        }
    }
}

impl<T> Unpin for StoreFuture<'_, T> {}

impl<T> Future for StoreFuture<'_, T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match &mut self.get_mut().0 {
            Step::Ready(value) => Poll::Ready(value.take().expect("a store future is not polled after its end")),
            Step::Pending(future) => future.as_mut().poll(cx),
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
