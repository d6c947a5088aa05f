//! One future after another, in the room of the larger one.

use std::{
    future::Future,
    ops::ControlFlow,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project_lite::pin_project;

/// `first`, then what `next` makes of its output: a second future, or the end.
pub(super) const fn then<A, N, B>(first: A, next: N) -> Then<A, N, B>
where
    A: Future,
    N: FnOnce(A::Output) -> ControlFlow<B::Output, B>,
    B: Future,
{
    Then::First { first, next: Some(next) }
}

pin_project! {
    /// See [`then`]; or nothing but an output. An async block holds the second future twice, and the output of the first beside it.
    #[project = ThenProj]
    #[must_use = "futures do nothing unless polled"]
    pub(super) enum Then<A, N, B>
    where
        B: Future,
    {
        First { #[pin] first: A, next: Option<N> },
        Second { #[pin] second: B },
        Ended { output: Option<B::Output> },
    }
}

impl<A, N, B> Future for Then<A, N, B>
where
    A: Future,
    N: FnOnce(A::Output) -> ControlFlow<B::Output, B>,
    B: Future,
{
    type Output = B::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<B::Output> {
        loop {
            let second = match self.as_mut().project() {
                ThenProj::First { first, next } => {
                    let output = ready!(first.poll(cx));
                    match next.take().expect("a future is not polled after it was ready")(output) {
                        ControlFlow::Continue(second) => second,
                        ControlFlow::Break(end) => return Poll::Ready(end),
                    }
                }
                ThenProj::Second { second } => return second.poll(cx),
                ThenProj::Ended { output } => {
                    return Poll::Ready(output.take().expect("a future is not polled after it was ready"));
                }
            };
            self.set(Self::Second { second });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn the_second_begins_with_the_output_of_the_first_or_there_is_none() {
        let make = |told| {
            Box::pin(then(told, |n: Result<u32, _>| match n {
                Ok(n) => ControlFlow::Continue(async move { n + 1 }),
                Err(_) => ControlFlow::Break(0),
            }))
        };
        let (tell, told) = oneshot::channel();
        let mut both = make(told);
        assert!((&mut both).now_or_never().is_none());
        tell.send(6).unwrap();
        assert_eq!(both.now_or_never(), Some(7));
        let (tell, told) = oneshot::channel();
        drop(tell);
        assert_eq!(make(told).now_or_never(), Some(0));
        let mut ended = make(oneshot::channel().1);
        ended.set(Then::Ended { output: Some(3) });
        assert_eq!(ended.now_or_never(), Some(3));
    }

    #[test]
    fn both_take_no_more_room_than_the_larger_with_its_tag() {
        let wait = |room: [u8; 400]| async move {
            std::future::pending::<()>().await;
            room.len()
        };
        let both = then(std::future::ready(()), |()| ControlFlow::Continue(wait([0; 400])));
        assert!(size_of_val(&both) <= size_of_val(&wait([0; 400])) + 8);
    }
}
