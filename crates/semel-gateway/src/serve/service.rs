//! The stack as hyper calls it, once per request of a connection.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use parking_lot::Mutex;
use pin_project_lite::pin_project;
use tower_service::Service;

use super::{
    Door, Lasting, RequestBody,
    admit::admit,
    body::Served,
    line::{InService, Line},
};

pub(super) struct PerConnection<S> {
    /// hyper calls through a shared reference, one request after the other: never waited for.
    stack: Mutex<S>,
    line: Arc<Line>,
    body_idle: Duration,
    door: Door,
}

impl<S> PerConnection<S> {
    pub(super) fn new(stack: S, line: Arc<Line>, body_idle: Duration, door: Door) -> Self {
        Self { stack: Mutex::new(stack), line, body_idle, door }
    }
}

impl<S, R> hyper::service::Service<Request<Incoming>> for PerConnection<S>
where
    S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible> + Clone,
    S::Future: Lasting,
{
    type Response = Response<Served<R>>;
    type Error = Infallible;
    type Future = Serving<S, S::Future>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.line.request_begins();
        let in_service = Some(InService::new(self.line.clone()));
        let mut request = request.map(|body| RequestBody::new(body, self.line.clone(), self.body_idle));
        if let Err(problem) = admit(&mut request, &self.door) {
            self.line.lasts(false);
            let state = State::Refused { answer: Some(problem.answer::<Own>()) };
            return Serving { in_service, state };
        }
        let mut stack = self.stack.lock();
        let state = match stack.poll_ready(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(())) => {
                let future = stack.call(request);
                self.line.lasts(future.lasts());
                State::Called { future }
            }
            Poll::Ready(Err(never)) => match never {},
            // The clone that will be polled ready is the one that gets the request.
            Poll::Pending => {
                self.line.lasts(false);
                State::Queued { stack: stack.clone(), request: Some(request) }
            }
        };
        Serving { in_service, state }
    }
}

struct Own(Bytes);

impl From<Bytes> for Own {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

pin_project! {
    pub(super) struct Serving<S, F> {
        in_service: Option<InService>,
        #[pin]
        state: State<S, F>,
    }
}

pin_project! {
    #[project = StateProj]
    enum State<S, F> {
        Called { #[pin] future: F },
        Queued { stack: S, request: Option<Request<RequestBody>> },
        Refused { answer: Option<Response<Own>> },
    }
}

impl<S, R> Future for Serving<S, S::Future>
where
    S: Service<Request<RequestBody>, Response = Response<R>, Error = Infallible>,
{
    type Output = Result<Response<Served<R>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let answer = match this.state.as_mut().project() {
                StateProj::Called { future } => match future.poll(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Ok(answer)) => {
                        this.in_service.take().map(|in_service| answer.map(|body| Served::Theirs { body, in_service }))
                    }
                    Poll::Ready(Err(never)) => match never {},
                },
                StateProj::Refused { answer } => answer
                    .take()
                    .zip(this.in_service.take())
                    .map(|(answer, in_service)| answer.map(|Own(body)| Served::Ours { body: Some(body), in_service })),
                StateProj::Queued { stack, request } => match stack.poll_ready(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(never)) => match never {},
                    Poll::Ready(Ok(())) => {
                        if let Some(request) = request.take() {
                            let future = stack.call(request);
                            this.state.set(State::Called { future });
                            continue;
                        }
                        None
                    }
                },
            };
            // Polled after its end: nothing will come.
            return answer.map_or(Poll::Pending, |answer| Poll::Ready(Ok(answer)));
        }
    }
}
