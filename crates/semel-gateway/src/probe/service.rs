//! The service that takes probes out of the way.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use semel_core::engine::Engine;
use semel_core::env::Env;
use semel_core::store::StoreAdmin;
use tower_service::Service;

use super::{answer::answer, is_ours};
use crate::serve::Lasting;

/// The gateway that answers probes.
pub(crate) struct Host {
    pub(crate) env: Env,
    pub(crate) engine: Engine,
    pub(crate) store: Arc<dyn StoreAdmin>,
    pub(crate) version: Box<str>,
    /// Random, of this start.
    pub(crate) instance: Box<str>,
    /// Digest of the rules.
    pub(crate) rules: Box<str>,
}

/// Answers probes, and hands everything else on. Costs a look at the end of the path.
#[derive(Clone)]
pub(crate) struct Probing<S> {
    inner: S,
    host: Arc<Host>,
}

impl<S> Probing<S> {
    pub(crate) fn new(inner: S, host: Arc<Host>) -> Self {
        Self { inner, host }
    }
}

impl<S, B, R> Service<Request<B>> for Probing<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible>,
    B: Body<Data = Bytes> + Send + 'static,
    R: From<Bytes>,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if is_ours(request.uri().path()) {
            return Answering::Own { own: Box::pin(answer(Arc::clone(&self.host), request)) };
        }
        Answering::Theirs { theirs: self.inner.call(request) }
    }
}

pin_project! {
    /// An answer to come.
    #[project = AnsweringProj]
    pub(crate) enum Answering<F> {
        Theirs { #[pin] theirs: F },
        Own { own: Pin<Box<dyn Future<Output = Response<Bytes>> + Send>> },
    }
}

impl<F: Lasting> Lasting for Answering<F> {
    fn lasts(&self) -> bool {
        match self {
            Self::Theirs { theirs } => theirs.lasts(),
            Self::Own { .. } => false,
        }
    }
}

impl<F, R> Future for Answering<F>
where
    F: Future<Output = Result<Response<R>, Infallible>>,
    R: From<Bytes>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project() {
            AnsweringProj::Theirs { theirs } => theirs.poll(cx),
            AnsweringProj::Own { own } => own.as_mut().poll(cx).map(|answer| Ok(answer.map(R::from))),
        }
    }
}
