//! What runs under the grant: the inner service.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use semel_core::engine::{Engine, Ran, Run};
use tokio::sync::oneshot;
use tower_service::Service;

use super::{
    BoxError, RequestBody,
    future::Early,
    gather::Whole,
    record::{Recorder, failed},
    sign::sign,
};
use crate::{problem::ProblemKind, rule::Rule};

/// What is needed to run; dropped as soon as the claim is not ours.
pub(super) struct Work<S> {
    pub(super) service: S,
    pub(super) head: http::request::Parts,
    pub(super) body: Whole,
    pub(super) rule: Arc<Rule>,
    pub(super) engine: Engine,
    pub(super) early: oneshot::Sender<Early>,
}

/// What the work gives to the first caller.
pub(super) enum Done<E> {
    /// A whole answer. Boxed: it changes hands several times.
    Answer(Box<Given>),
    /// The inner service's error.
    Failed(E),
    /// The answer broke off.
    Broken,
    /// The answer went ahead; whether all of it was handed over.
    Streamed { complete: bool },
}

/// A whole answer.
pub(super) struct Given {
    pub(super) head: http::response::Parts,
    pub(super) body: Whole,
    /// It was made by whoever could not reach the service.
    pub(super) not_sent: bool,
    /// It stands for an answer that is missing, of this kind.
    pub(super) instead: Option<ProblemKind>,
}

impl<S> Work<S> {
    pub(super) async fn run<B, R>(mut self: Box<Self>, run: Run) -> Ran<Done<S::Error>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        sign(&mut self.head.headers, &run, self.engine.facts().fence);
        let Self { mut service, mut head, body, rule, engine, early } = *self;
        head.extensions.insert(run);
        let request = Request::from_parts(head, RequestBody::whole(body));
        match service.call(request).await {
            Ok(answer) => Recorder { rule: &rule, engine: &engine }.record(answer, early).await,
            Err(error) => Ran { value: Done::Failed(error), verdict: failed(&rule, "the service failed") },
        }
    }
}
