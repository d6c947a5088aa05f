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
    admit::Ticket,
    answer::Answering,
    future::{Early, Flowed},
    gather::{Gathered, Whole, gather},
    work::Work,
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
    ticket: Ticket,
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
    let Ticket { rule, identity, key, scope, caller, asker } = ticket;
    let answering = Answering { shared: &shared, rule: &rule, asker, identity: identity.prefix() };
    let (mut head, body) = request.into_parts();
    let body = match read(body, rule.caps.request).await {
        Ok(body) => body,
        Err(kind) => return Flowed::Answer(Ok(answering.problem(&Problem::new(kind)))),
    };
    // The offer is not taken up: the answer to a guarded request is recorded.
    head.headers.remove(header::UPGRADE);
    let fingerprint = {
        let target = rule.target.target(&RequestView::of_parts(&head));
        let question = Question { method: &head.method, target: &target, headers: &head.headers, body: &body.data };
        rule.fingerprint.of(shared.engine.secret(), &question)
    };
    let call = Call::new(identity, fingerprint, Arc::clone(&rule.policy)).by(caller).in_scope(scope).shown(key.shown());
    let work = Work { service: ready, head, body, rule: Arc::clone(&rule), engine: shared.engine.clone(), early };
    match shared.engine.run(call, move |run| work.run(run)).await {
        Answer::Executed { value, kept } => answering.executed(value, kept),
        Answer::Replayed { recorded, waited } => Flowed::Answer(Ok(answering.replayed(recorded, waited))),
        Answer::Refused(refusal) => Flowed::Answer(Ok(answering.problem(&Problem::of(&refusal)))),
        Answer::Broken(broken) => Flowed::Answer(Ok(answering.broken(&broken))),
        _ => Flowed::Answer(Ok(answering.problem(&Problem::new(ProblemKind::OutcomeUnknown)))),
    }
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
