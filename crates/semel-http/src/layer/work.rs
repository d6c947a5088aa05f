//! What runs under the grant: the inner service.

use std::{future::Future, ops::ControlFlow, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use semel_core::{
    boxed,
    engine::{Ran, Run, Verdict},
};
use tower_service::Service;

use super::{
    BoxError, RequestBody,
    admit::Ticket,
    gather::Whole,
    record::Recorder,
    sign::sign,
    then::{Then, then},
    watch,
};
use crate::{Mark, problem::ProblemKind, suspect::Asked};

/// What is needed to run; dropped as soon as the claim is not ours.
///
/// Boxed from its beginning: it goes through several hands before it runs.
pub(super) struct Work<S> {
    pub(super) ticket: Arc<Ticket>,
    /// Was polled ready.
    service: S,
    pub(super) head: http::request::Parts,
    /// Empty until it has been read.
    pub(super) body: Whole,
    /// What it asks, where the rule looks for suspects.
    pub(super) asked: Option<Box<Asked>>,
}

/// What the work gives to the first caller.
pub(super) enum Done<E> {
    /// A whole answer. Boxed: it changes hands several times.
    Answer(Box<Given>),
    /// The inner service's error.
    Failed(E),
    /// The answer broke off.
    Broken,
    /// It was not run: the same was asked under another key, and is a duplicate for that long.
    Suspect { left: Duration },
    /// The answer went ahead; whether all of it was handed over.
    Streamed { complete: bool },
}

/// A whole answer.
pub(super) struct Given {
    pub(super) head: http::response::Parts,
    pub(super) body: Whole,
    /// What it says of the work, by its rule.
    pub(super) mark: Mark,
    /// It stands for an answer that is missing, of this kind.
    pub(super) instead: Option<ProblemKind>,
}

impl<S> Work<S> {
    /// `service` was polled ready.
    pub(super) fn begin(ticket: Arc<Ticket>, service: S, head: http::request::Parts) -> Box<Self> {
        boxed(|| Self { ticket, service, head, body: Whole::default(), asked: None })
    }

    /// Not async itself: what the service has taken is not carried along.
    #[expect(clippy::boxed_local, reason = "by value it would be copied once more")]
    pub(super) fn run<B, R>(self: Box<Self>, run: Run) -> impl Future<Output = Ran<Done<S::Error>>>
    where
        S: Service<Request<RequestBody<B>>, Response = Response<R>>,
        R: Body<Data = Bytes>,
        R::Error: Into<BoxError>,
    {
        let Self { ticket, mut service, mut head, body, asked } = *self;
        let watched = match asked.map(|asked| watch::begin(&ticket, &asked)) {
            None => None,
            Some(Ok(watched)) => watched,
            Some(Err(left)) => {
                let verdict = Verdict::Release { counts: false, answer: None };
                return Then::Ended { output: Some(Ran { value: Done::Suspect { left }, verdict }) };
            }
        };
        let is_guarded = run.unguarded().is_none();
        sign(&mut head.headers, &run, ticket.shared.engine.facts().fence);
        if ticket.shared.run_in_extensions {
            head.extensions.insert(run.clone());
        }
        let answer = service.call(Request::from_parts(head, RequestBody::whole(body, run)));
        then(answer, move |answer| {
            let recorder = Recorder { ticket, is_guarded, watched };
            match answer {
                Ok(answer) => ControlFlow::Continue(recorder.record(answer)),
                Err(error) => ControlFlow::Break(recorder.failure(error)),
            }
        })
    }
}
