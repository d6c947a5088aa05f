//! What the server polls for an answer.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use pin_project_lite::pin_project;
use semel_core::engine::Engine;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use super::{
    ResponseBody,
    body::{End, Ending, Live},
    gather::Whole,
};
use crate::{
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

/// The head of an answer that goes ahead, and its frames as they come.
pub(super) struct Early {
    pub(super) head: http::response::Parts,
    pub(super) frames: mpsc::Receiver<Frame<Bytes>>,
    pub(super) length: Option<u64>,
    pub(super) engine: Engine,
}

impl Early {
    fn answer<R>(self, ending: Ending) -> Response<ResponseBody<R>> {
        Response::from_parts(self.head, ResponseBody::live(Live::new(self.frames, self.length, ending)))
    }

    /// The answer whose end comes later. The way to it goes on in a task of its own: its reader polls for frames, and
    /// those come only if the way is polled.
    fn goes_ahead<R: Send + 'static, E: Send + 'static>(self, rest: Flow<R, E>) -> Response<ResponseBody<R>> {
        let (tell, told) = oneshot::channel();
        let way = async move {
            let end = match rest.await {
                Flowed::Ended(end) => end,
                Flowed::Answer(_) => End::Cut,
            };
            // Nobody there to hear it: the reader has left.
            _ = tell.send(end);
        };
        self.engine.env().tasks.spawn("semel answer", Box::pin(way.in_current_span()));
        self.answer(Box::pin(async move { told.await.unwrap_or(End::Cut) }))
    }
}

pin_project! {
    /// The answer to come.
    ///
    /// What passes is polled in place: no box, no task. What is guarded is boxed once, and runs to its end in a task of
    /// the engine when this future is dropped.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, R, E> {
        #[pin]
        state: State<F, R, E>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<F, R, E> {
        Passed { #[pin] future: F, status: Option<Status> },
        Refused { answer: Option<Box<Response<Bytes>>> },
        Guarded { flow: Option<Flow<R, E>>, early: Option<oneshot::Receiver<Early>> },
    }
}

impl<F, R, E> ResponseFuture<F, R, E> {
    pub(super) const fn passed(future: F, status: Option<Status>) -> Self {
        Self { state: State::Passed { future, status } }
    }

    pub(super) const fn refused(answer: Box<Response<Bytes>>) -> Self {
        Self { state: State::Refused { answer: Some(answer) } }
    }

    pub(super) const fn guarded(flow: Flow<R, E>, early: oneshot::Receiver<Early>) -> Self {
        Self { state: State::Guarded { flow: Some(flow), early: Some(early) } }
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
        match self.project().state.project() {
            StateProj::Passed { future, status } => {
                let mut answer = ready!(future.poll(cx))?.map(ResponseBody::passed);
                if let Some(status) = status {
                    answer.headers_mut().insert(&IDEMPOTENCY_STATUS, status.value());
                }
                Poll::Ready(Ok(answer))
            }
            StateProj::Refused { answer } => {
                let answer = answer.take().expect("a future is not polled after it was ready");
                Poll::Ready(Ok((*answer).map(|data| ResponseBody::whole(Whole { data, trailers: None }))))
            }
            StateProj::Guarded { flow, early } => poll_guarded(flow, early, cx),
        }
    }
}

fn poll_guarded<R: Send + 'static, E: Send + 'static>(
    flow: &mut Option<Flow<R, E>>,
    early: &mut Option<oneshot::Receiver<Early>>,
    cx: &mut Context<'_>,
) -> Poll<Result<Response<ResponseBody<R>>, E>> {
    let running = flow.as_mut().expect("a future is not polled after it was ready");
    match running.as_mut().poll(cx) {
        Poll::Ready(Flowed::Answer(answer)) => {
            *flow = None;
            return Poll::Ready(answer);
        }
        Poll::Ready(Flowed::Ended(end)) => {
            *flow = None;
            // Head and end came between two polls.
            let went = early.take().and_then(|mut e| e.try_recv().ok());
            return Poll::Ready(Ok(match went {
                Some(went) => went.answer(Box::pin(std::future::ready(end))),
                None => Problem::new(ProblemKind::UpstreamBroken)
                    .answer(&Asker::default())
                    .map(|data| ResponseBody::whole(Whole { data, trailers: None })),
            }));
        }
        Poll::Pending => {}
    }
    let Some(arrives) = early else { return Poll::Pending };
    match ready!(Pin::new(arrives).poll(cx)) {
        Ok(went) => {
            let rest = flow.take().expect("it was polled above");
            Poll::Ready(Ok(went.goes_ahead(rest)))
        }
        // Nothing goes ahead: the way's end is the answer.
        Err(_) => {
            *early = None;
            Poll::Pending
        }
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
