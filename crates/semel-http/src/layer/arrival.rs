//! A request's body, read whole within a time.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::Body;
use pin_project_lite::pin_project;
use semel_core::env::BoxFuture;

use super::{
    BoxError,
    admit::Ticket,
    gather::{Gather, Gathered, Whole},
};
use crate::problem::ProblemKind;

pin_project! {
    /// Gathers the body of a request for as long as it may take.
    ///
    /// The time begins when nothing is there for the second time. A server reads on when somebody asks, so the first time
    /// says nothing, and nearly every body is whole before a second: no timer is made for it.
    pub(super) struct Arrival<'a, B> {
        #[pin]
        gather: Gather<'a, B>,
        ticket: &'a Ticket,
        asked: bool,
        late: Option<BoxFuture>,
    }
}

impl<'a, B: Body> Arrival<'a, B> {
    pub(super) fn of(body: B, ticket: &'a Ticket) -> Self {
        let gather = Gather::new(body, ticket.rule.caps.request, &ticket.shared.bodies.requests);
        Self { gather, ticket, asked: false, late: None }
    }
}

impl<B> Future for Arrival<'_, B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Output = Result<Whole, ProblemKind>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Poll::Ready(gathered) = this.gather.as_mut().poll(cx) else {
            if !std::mem::replace(this.asked, true) {
                return Poll::Pending;
            }
            let shared = &this.ticket.shared;
            let late = this.late.get_or_insert_with(|| {
                let clock = &shared.engine.env().clock;
                clock.sleep_until(clock.now() + shared.bodies.arrival)
            });
            ready!(late.as_mut().poll(cx));
            return Poll::Ready(Err(ProblemKind::RequestTimeout));
        };
        Poll::Ready(match gathered {
            Gathered::Whole(mut whole) => {
                if let Some(held) = this.gather.held() {
                    whole.data = held.with(whole.data);
                }
                Ok(whole)
            }
            Gathered::Longer(_) => Err(ProblemKind::RequestTooLarge),
            Gathered::NoRoom(_) => Err(ProblemKind::TooManyBodies),
            Gathered::Broken(error) => {
                tracing::debug!(%error, "a request's body could not be read");
                Err(why(&*error))
            }
        })
    }
}

/// What became of a body that broke off: a layer in front has a smaller cap, or the server gave up waiting.
fn why(error: &(dyn std::error::Error + 'static)) -> ProblemKind {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<http_body_util::LengthLimitError>() {
            return ProblemKind::RequestTooLarge;
        }
        if error.is::<Overdue>() {
            return ProblemKind::RequestTimeout;
        }
        next = error.source();
    }
    ProblemKind::RequestIncomplete
}

/// Among the sources of a body's error: the server gave up waiting for the rest. Such a request is answered 408
/// `request-timeout`.
#[derive(Clone, Copy, Debug)]
pub struct Overdue;

impl std::fmt::Display for Overdue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the rest did not come in time")
    }
}

impl std::error::Error for Overdue {}
