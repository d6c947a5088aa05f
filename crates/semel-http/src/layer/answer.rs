//! From what the engine says to an answer.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::Response;
use semel_core::{
    engine::{Broken, Kept},
    judge::Recorded,
    record::Body,
    refusal::Refusal,
};

use super::{
    ResponseBody,
    admit::{Ticket, of_body},
    bodies::Held,
    body::End,
    future::Flowed,
    gather::Whole,
    work::{Done, Given},
};
use crate::{
    Mark,
    names::{
        IDEMPOTENCY_ERROR_SOURCE, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_STATUS, IDEMPOTENT_REPLAYED, Status, TRUE, UPSTREAM,
    },
    problem::{Problem, ProblemKind},
    replay::Head,
    rule::RejectStatus,
    time,
};

const NO_ROOM: &str = "This request was processed and its answer is recorded, but too many answers are being given out at \
                       the moment; it is not run again, ask again later.";

/// Who is answered, and about what.
pub(super) struct Answering(pub(super) Arc<Ticket>);

impl Answering {
    pub(super) fn problem<R>(&self, problem: &Problem) -> Response<ResponseBody<R>> {
        self.told(problem).map(|data| ResponseBody::whole(Whole { data, trailers: None }))
    }

    /// A refusal of the engine, as the rule answers it.
    pub(super) fn refused<R>(&self, refusal: &Refusal) -> Response<ResponseBody<R>> {
        let problem = Problem::of(refusal);
        self.problem(&match refusal {
            // Of what still runs the window has not begun: the whole of it is to come.
            Refusal::Duplicate { rest_of_window, .. } => {
                self.rejected(problem, rest_of_window.unwrap_or_else(|| self.0.rule.policy.ttl()))
            }
            _ => problem,
        })
    }

    /// A rejected duplicate, with what is left of the time in which it is one.
    fn rejected(&self, problem: Problem, left: Duration) -> Problem {
        match self.0.rule.reject_status {
            RejectStatus::Conflict => problem,
            RejectStatus::TooManyRequests => problem.too_many_requests(left),
        }
    }

    fn told(&self, problem: &Problem) -> Response<Bytes> {
        problem.clone().identity(self.0.identity.prefix()).answer(&self.0.asker)
    }

    /// The answer for the one whose request was run, under a grant or without one.
    pub(super) fn executed<R, E>(&self, done: Done<E>, kept: Kept, is_guarded: bool) -> Flowed<R, E> {
        let Given { mut head, mut body, mark, instead } = match done {
            Done::Streamed { complete } => {
                let lost = is_guarded && matches!(kept, Kept::Lost { .. });
                return Flowed::Ended(if complete && !lost { End::Clean } else { End::Cut });
            }
            Done::Suspect { left } => {
                let message = self.0.rule.policy.message().cloned();
                return Flowed::Answer(Ok(self.refused(&Refusal::Duplicate { message, rest_of_window: Some(left) })));
            }
            Done::Failed(error) => return Flowed::Answer(Err(error)),
            Done::Broken => {
                return Flowed::Answer(Ok(self.problem(&Problem::new(ProblemKind::UpstreamBroken))));
            }
            Done::Answer(given) => *given,
        };
        let (status, left) = match kept {
            Kept::Stored | Kept::Restored => (Status::Fresh, self.0.rule.policy.ttl()),
            Kept::Released => (Status::Fresh, Duration::ZERO),
            Kept::Unrecorded => (Status::Unrecorded, Duration::ZERO),
            // Another copy is under way with a grant. This one has run all the same, which its rule allows.
            Kept::Lost { recorded: None } if !is_guarded => (Status::Bypassed, Duration::ZERO),
            // Somebody else's outcome stands, or a person's word: what came back here must not be given out.
            Kept::Lost { recorded } => {
                return Flowed::Answer(Ok(match recorded {
                    Some(recorded) => self.replayed(*recorded, false),
                    None => self.problem(&Problem::new(ProblemKind::OutcomeUnknown)),
                }));
            }
            _ => (Status::Unknown, Duration::ZERO),
        };
        // A proxy's own words for a missing answer are told as the guard's: with the identity, in the form asked for.
        if let Some(kind) = instead {
            let (told, data) = self.told(&Problem::new(kind)).into_parts();
            (head, body) = (told, Whole { data, trailers: None });
            head.headers.remove(&IDEMPOTENCY_STATUS);
        }
        let status = match mark {
            // Nothing was run, so nothing is fresh. Whoever could not reach the service may have said so already.
            Mark::NothingSent => Status::Rejected,
            // Whether anybody could record that or not.
            Mark::Unknown | Mark::Lost => Status::Unknown,
            Mark::Keep | Mark::Release if is_guarded => status,
            Mark::Keep | Mark::Release => Status::Bypassed,
        };
        if !(mark == Mark::NothingSent && head.headers.contains_key(&IDEMPOTENCY_STATUS)) {
            head.headers.insert(&IDEMPOTENCY_STATUS, status.value());
        }
        self.expires(&mut head, left);
        blame(&mut head);
        Flowed::Answer(Ok(Response::from_parts(head, ResponseBody::whole(body))))
    }

    /// A recorded answer.
    pub(super) fn replayed<R>(&self, recorded: Recorded, waited: bool) -> Response<ResponseBody<R>> {
        let (Some(kept), Body::Whole(data)) = (Head::decode(recorded.outcome.head.clone()), &recorded.outcome.body)
        else {
            let gone = Refusal::OutcomeUnavailable { kept: Some(Box::new(recorded)) };
            return self.problem(&Problem::of(&gone));
        };
        let bodies = &self.0.shared.bodies;
        let Some(data) = Held::lent(data.clone(), &bodies.answers) else {
            bodies.requests.refuse();
            return self.problem(&of_body(ProblemKind::TooManyBodies).detail(NO_ROOM));
        };
        let whole = Whole { data, trailers: kept.trailers };
        let (mut head, ()) = Response::new(()).into_parts();
        head.status = kept.status;
        head.headers = kept.headers;
        let status = if waited { Status::Waited } else { Status::Replayed };
        head.headers.insert(&IDEMPOTENT_REPLAYED, TRUE.clone());
        head.headers.insert(&IDEMPOTENCY_STATUS, status.value());
        self.expires(&mut head, recorded.left);
        blame(&mut head);
        Response::from_parts(head, ResponseBody::whole(whole))
    }

    /// The answer after work that came to no end.
    pub(super) fn broken<R>(&self, broken: &Broken) -> Response<ResponseBody<R>> {
        let kind = match broken {
            Broken::Overheld => ProblemKind::UpstreamTimeout,
            _ => ProblemKind::UpstreamBroken,
        };
        self.problem(&Problem::new(kind))
    }

    fn expires(&self, head: &mut http::response::Parts, left: Duration) {
        if left > Duration::ZERO
            && let Some(value) = time::expires(self.0.shared.engine.env().clock.wall(), left)
        {
            head.headers.insert(&IDEMPOTENCY_EXPIRES, value);
        }
    }
}

/// Says that an error is the service's, unless whoever made it has said so.
pub(super) fn blame(head: &mut http::response::Parts) {
    let error = head.status.is_client_error() || head.status.is_server_error();
    if error && !head.headers.contains_key(&IDEMPOTENCY_ERROR_SOURCE) {
        head.headers.insert(&IDEMPOTENCY_ERROR_SOURCE, UPSTREAM.clone());
    }
}
