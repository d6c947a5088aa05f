//! The way of one guarded request: body → fingerprint → engine → answer.

use std::{pin::pin, sync::Arc};

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Body;
use semel_core::engine::{Answer, Call};
use tokio::sync::oneshot;
use tower_service::Service;

use super::{
    BoxError, RequestBody, Shared,
    admit::{Ticket, turned_away},
    answer::Answering,
    future::{Early, Flowed},
    gather::{Gathered, Whole, gather},
    work::{Done, Work},
};
use crate::{
    fingerprint::Question,
    problem::{Problem, ProblemKind},
    view::RequestView,
};

/// `ready` was polled ready. A client that leaves while its body is read has claimed nothing; one that leaves later
/// stops waiting, and the work goes on.
pub(super) async fn guarded<S, B, R>(
    shared: Arc<Shared>,
    ticket: Box<Ticket>,
    ready: S,
    request: Request<B>,
    early: oneshot::Sender<Early>,
) -> Flowed<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let answering = Answering { shared: &shared, ticket: &ticket };
    let (head, body) = request.into_parts();
    let body = match read(body, ticket.rule.caps.request).await {
        Ok(body) => body,
        Err(kind) => {
            turned_away(&shared.engine, &ticket.rule, kind);
            return Flowed::Answer(Ok(answering.problem(&Problem::new(kind))));
        }
    };
    let work =
        Work { service: ready, head, body, rule: Arc::clone(&ticket.rule), engine: shared.engine.clone(), early };
    match engage::<S, B, R>(&shared, &ticket, work).await {
        Answer::Executed { value, kept } => answering.executed(value, kept),
        Answer::Replayed { recorded, waited } => Flowed::Answer(Ok(answering.replayed(recorded, waited))),
        Answer::Refused(refusal) => Flowed::Answer(Ok(answering.problem(&Problem::of(&refusal)))),
        Answer::Broken(broken) => Flowed::Answer(Ok(answering.broken(&broken))),
        _ => Flowed::Answer(Ok(answering.problem(&Problem::new(ProblemKind::OutcomeUnknown)))),
    }
}

/// Puts the question to the engine. Not async itself: what is moved into the engine is not carried along here as well.
fn engage<'a, S, B, R>(
    shared: &'a Shared,
    ticket: &Ticket,
    mut work: Work<S>,
) -> impl Future<Output = Answer<Done<S::Error>>> + Send + use<'a, S, B, R>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let rule = &ticket.rule;
    let fingerprint = {
        let head = &work.head;
        let target = rule.target.target(&RequestView::of_parts(head));
        let question =
            Question { method: &head.method, target: &target, headers: &head.headers, body: &work.body.data };
        rule.fingerprint.of(shared.engine.secret(), &question)
    };
    // The offer is not taken up: the answer to a guarded request is recorded.
    work.head.headers.remove(header::UPGRADE);
    let call = Call::new(ticket.identity, fingerprint, Arc::clone(&rule.policy))
        .by(ticket.caller)
        .in_scope(ticket.scope)
        .shown(ticket.key.shown());
    // Boxed: it goes through several hands before it runs.
    let work = Box::new(work);
    shared.engine.run(call, move |run| work.run(run))
}

async fn read<B>(body: B, cap: usize) -> Result<Whole, ProblemKind>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    match gather(pin!(body), cap).await {
        Gathered::Whole(whole) => Ok(whole),
        Gathered::Longer(_) => Err(ProblemKind::RequestTooLarge),
        Gathered::Broken(error) => {
            tracing::debug!(%error, "a request's body could not be read");
            Err(if is_length_limit(&*error) { ProblemKind::RequestTooLarge } else { ProblemKind::RequestIncomplete })
        }
    }
}

/// A layer in front has a smaller cap.
fn is_length_limit(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}
