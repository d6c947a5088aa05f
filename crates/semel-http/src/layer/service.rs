//! The guarded service.

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use semel_core::pinned;
use tower_service::Service;

use super::{
    BoxError, RequestBody, ResponseBody, ResponseFuture, Shared,
    admit::{Admitted, admit, strip},
    early::Listener,
    flow,
    seen::Seen,
    work::Work,
};
use crate::{
    cors::{Across, Cors},
    view::RequestView,
};

/// A service with the guard in front; made by [`GuardLayer`](super::GuardLayer).
///
/// Its error is the inner service's: refusals are answers, so that `Infallible` stays `Infallible`.
#[derive(Clone)]
pub struct Guard<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Guard<S> {
    pub(super) const fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self { inner, shared }
    }
}

impl<S, B, R> Service<Request<B>> for Guard<S>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, R, S::Error>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Only this guard says who was granted what; what a client sends under these names reaches nobody.
        let seen = Seen::of(request.headers());
        if seen.ours {
            strip(request.headers_mut());
        }
        let across = match &self.shared.cors {
            None => None,
            Some(cors) => across(cors, &self.shared, &RequestView::of(&request)),
        };
        match admit(&self.shared, &RequestView::of(&request), seen, request.body().size_hint().lower()) {
            Admitted::Passes(status) => {
                ResponseFuture::passed(self.inner.call(request.map(RequestBody::passed)), status, across)
            }
            Admitted::Refused(answer) => ResponseFuture::refused(answer, across),
            Admitted::Guarded(ticket, claimant) => {
                // The instance that was polled ready goes with the request. It is dropped, with the permits it holds, as
                // soon as the claim is not ours: duplicates that wait hold nothing of an inner limit.
                let next = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, next);
                let listener = Listener(Arc::clone(&ticket));
                let (head, body) = request.into_parts();
                let work = Work::begin(ticket, ready, head);
                ResponseFuture::guarded(pinned(|| flow::guarded(claimant, work, body)), listener, across)
            }
        }
    }
}

#[cold]
fn across(cors: &Cors, shared: &Shared, request: &RequestView<'_>) -> Option<Box<Across>> {
    cors.asked(request, |method| shared.rules.find(&RequestView { method, ..*request }))
}

impl<S: fmt::Debug> fmt::Debug for Guard<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("inner", &self.inner).finish_non_exhaustive()
    }
}
