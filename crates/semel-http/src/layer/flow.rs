//! The way of one guarded request: body → fingerprint → engine → answer.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, header};
use http_body::Body;
use semel_core::{
    engine::{Answer, Call},
    fingerprint::Fingerprint,
};
use tower_service::Service;

use super::{
    BoxError, RequestBody,
    admit::{Claimant, Ticket, of_body, turned_away},
    answer::Answering,
    arrival::Arrival,
    aside::{Long, fingerprint},
    future::Flowed,
    work::{Done, Work},
};
use crate::{
    problem::{Problem, ProblemKind},
    suspect::Asked,
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
    let beside = match Long::of(&work) {
        // Boxed: this future has no room for what hardly any request needs.
        Some(long) => Box::pin(long.fingerprint()).await,
        None => None,
    };
    let fingerprint = beside.unwrap_or_else(|| fingerprint(&work));
    match engage::<S, B, R>(&answering.0, claimant, work, fingerprint).await {
        Answer::Executed { value, kept } => answering.executed(value, kept, true),
        Answer::Unguarded { value, kept, .. } => answering.executed(value, kept, false),
        Answer::Replayed { recorded, waited } => Flowed::Answer(Ok(answering.replayed(recorded, waited))),
        Answer::Refused(refusal) => Flowed::Answer(Ok(answering.refused(&refusal))),
        Answer::Broken(broken) => Flowed::Answer(Ok(answering.broken(&broken))),
        _ => Flowed::Answer(Ok(answering.problem(&Problem::new(ProblemKind::OutcomeUnknown)))),
    }
}

/// Puts the question to the engine. Not async itself: what is moved into the engine is not carried along here as well.
fn engage<'a, S, B, R>(
    ticket: &'a Ticket,
    claimant: Claimant,
    mut work: Box<Work<S>>,
    fingerprint: Fingerprint,
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
    if rule.suspects.is_some() {
        work.asked = Asked::of(claimant.scope, &claimant.caller, &fingerprint).map(Box::new);
    }
    let Claimant { scope, caller, shown, upgrade } = claimant;
    // The offer is not taken up: the answer to a guarded request is recorded.
    if upgrade {
        work.head.headers.remove(header::UPGRADE);
    }
    let call =
        Call::new(ticket.identity, fingerprint, Arc::clone(&rule.policy)).by(caller).in_scope(scope).shown(shown);
    engine.run(call, move |run| work.run::<B, R>(run))
}
