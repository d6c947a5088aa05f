//! What the server polls for an answer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use pin_project_lite::pin_project;

use super::{ResponseBody, body::End, early::Listener, gather::Whole};
use crate::{
    Mark,
    cors::Across,
    names::{IDEMPOTENCY_STATUS, Status},
    problem::{Asker, Problem, ProblemKind},
};

/// How the way of a guarded request ends.
pub(super) enum Flowed<R, E> {
    /// With an answer, or the inner service's error.
    Answer(Result<Response<ResponseBody<R>>, E>),
    /// The answer went ahead as a stream; this is how it may end.
    Ended(End),
}

pub(super) type Flow<R, E> = Pin<Box<dyn Future<Output = Flowed<R, E>> + Send>>;

pin_project! {
    /// The answer to come.
    ///
    /// What passes is polled in place: no box, no task. What is guarded is boxed once, and runs to its end in a task of
    /// the engine when this future is dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        state: State<F, R, E>,
        across: Option<Box<Across>>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R, E> {
        Passed { #[pin] future: F, status: Option<Status> },
        Refused { answer: Option<Box<Response<Bytes>>> },
        Guarded { flow: Option<Flow<R, E>>, listener: Listener },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(super) const fn passed(future: F, status: Option<Status>, across: Option<Box<Across>>) -> Self {
        Self { state: State::Passed { future, status }, across }
    }

    pub(super) const fn refused(answer: Box<Response<Bytes>>, across: Option<Box<Across>>) -> Self {
        Self { state: State::Refused { answer: Some(answer) }, across }
    }

    pub(super) const fn guarded(flow: Flow<R, E>, listener: Listener, across: Option<Box<Across>>) -> Self {
        Self { state: State::Guarded { flow: Some(flow), listener }, across }
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    /// Whether the request is guarded: what it does then goes on where this future is dropped, and a copy of it gets the
    /// same answer.
    pub const fn is_guarded(&self) -> bool {
        matches!(self.state, State::Guarded { .. })
    }
}

impl<F, R, E> Future for ResponseFuture<F, R, E>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Send + 'static,
    E: Send + 'static,
{
    type Output = Result<Response<ResponseBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answer = answered(this.state, cx);
        if let Some(across) = this.across
            && let Poll::Ready(Ok(answer)) = &mut answer
        {
            across.tell(answer.headers_mut());
        }
        answer
    }
}

#[inline]
fn answered<F, R, E>(
    state: Pin<&mut State<F, R, E>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<ResponseBody<R>>, E>>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Send + 'static,
    E: Send + 'static,
{
    match state.project() {
        StateProj::Passed { future, status } => {
            let mut answer = ready!(future.poll(cx))?.map(ResponseBody::passed);
            if let Some(status) = *status {
                let status = became(status, answer.extensions().get());
                answer.headers_mut().insert(&IDEMPOTENCY_STATUS, status.value());
            }
            Poll::Ready(Ok(answer))
        }
        StateProj::Refused { answer } => {
            let answer = answer.take().expect("a future is not polled after it was ready");
            Poll::Ready(Ok((*answer).map(|data| ResponseBody::whole(Whole { data, trailers: None }))))
        }
        StateProj::Guarded { flow, listener } => poll_guarded(flow, listener, cx),
    }
}

/// What became of a request that nobody guards: whoever could not reach the service, or lost its answer, says so in a mark.
fn became(passed: Status, mark: Option<&Mark>) -> Status {
    match mark {
        Some(Mark::NothingSent) => Status::Rejected,
        Some(Mark::Unknown | Mark::Lost) => Status::Unknown,
        Some(Mark::Keep | Mark::Release) | None => passed,
    }
}

fn poll_guarded<R: Send + 'static, E: Send + 'static>(
    flow: &mut Option<Flow<R, E>>,
    listener: &Listener,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<ResponseBody<R>>, E>> {
    let running = flow.as_mut().expect("a future is not polled after it was ready");
    match running.as_mut().poll(cx) {
        Poll::Ready(Flowed::Answer(answer)) => {
            *flow = None;
            Poll::Ready(answer)
        }
        Poll::Ready(Flowed::Ended(end)) => {
            *flow = None;
            // Head and end came between two polls.
            Poll::Ready(Ok(match listener.take() {
                Some(went) => went.ended(end),
                None => Problem::new(ProblemKind::UpstreamBroken)
                    .answer(&Asker::default())
                    .map(|data| ResponseBody::whole(Whole { data, trailers: None })),
            }))
        }
        Poll::Pending => match listener.take() {
            Some(went) => {
                let rest = flow.take().expect("it was polled above");
                Poll::Ready(Ok(went.goes_ahead(rest)))
            }
            None => Poll::Pending,
        },
    }
}

impl<F, R, E> fmt::Debug for ResponseFuture<F, R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.state {
            State::Passed { .. } => "ResponseFuture(passed)",
            State::Refused { .. } => "ResponseFuture(refused)",
            State::Guarded { .. } => "ResponseFuture(guarded)",
        })
    }
}
