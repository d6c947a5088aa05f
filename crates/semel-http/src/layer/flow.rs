//! The way of one guarded request: body → fingerprint → engine → answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Body;
use semel_core::engine::{Answer, Call};
use tower_service::Service;

use super::{
    BoxError, RequestBody,
    admit::{Claimant, Ticket, of_body, turned_away},
    answer::Answering,
    arrival::Arrival,
    future::Flowed,
    work::{Done, Work},
};
use crate::{
    fingerprint::Question,
    problem::{Problem, ProblemKind},
    view::RequestView,
};

/// A client that leaves while its body is read has claimed nothing; one that leaves later stops waiting, and the work
/// goes on.
pub(super) async fn guarded<S, B, R>(claimant: Claimant, mut work: Box<Work<S>>, body: B) -> Flowed<R, S::Error>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let answering = Answering(Arc::clone(&work.ticket));
    match Arrival::of(body, &answering.0).await {
        Ok(whole) => work.body = whole,
        Err(kind) => {
            turned_away(&work.ticket.shared.engine, &work.ticket.rule, kind);
            return Flowed::Answer(Ok(answering.problem(&of_body(kind))));
        }
    }
    match engage::<S, B, R>(&answering.0, claimant, work).await {
        Answer::Executed { value, kept } => answering.executed(value, kept, true),
        Answer::Unguarded { value, kept, .. } => answering.executed(value, kept, false),
        Answer::Replayed { recorded, waited } => Flowed::Answer(Ok(answering.replayed(recorded, waited))),
        Answer::Refused(refusal) => Flowed::Answer(Ok(answering.problem(&Problem::of(&refusal)))),
        Answer::Broken(broken) => Flowed::Answer(Ok(answering.broken(&broken))),
        _ => Flowed::Answer(Ok(answering.problem(&Problem::new(ProblemKind::OutcomeUnknown)))),
    }
}

/// Puts the question to the engine. Not async itself: what is moved into the engine is not carried along here as well.
fn engage<'a, S, B, R>(
    ticket: &'a Ticket,
    claimant: Claimant,
    mut work: Box<Work<S>>,
) -> impl Future<Output = Answer<Done<S::Error>>> + Send + use<'a, S, B, R>
where
    S: Service<Request<RequestBody<B>>, Response = Response<R>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    R: Body<Data = Bytes> + Send + 'static,
    R::Error: Into<BoxError>,
{
    let (rule, engine) = (&ticket.rule, &ticket.shared.engine);
    let fingerprint = {
        let head = &work.head;
        let target = rule.target.target(&RequestView::of_parts(head));
        let question =
            Question { method: &head.method, target: &target, headers: &head.headers, body: &work.body.data };
        rule.fingerprint.of(engine.secret(), &question)
    };
    let Claimant { scope, caller, shown, upgrade } = claimant;
    // The offer is not taken up: the answer to a guarded request is recorded.
    if upgrade {
        work.head.headers.remove(header::UPGRADE);
    }
    let call =
        Call::new(ticket.identity, fingerprint, Arc::clone(&rule.policy)).by(caller).in_scope(scope).shown(shown);
    engine.run(call, move |run| work.run::<B, R>(run))
}
