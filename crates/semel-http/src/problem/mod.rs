//! Refusals as answers: problem+json (RFC 9457), the one place where errors become responses.
//!
//! Types are `urn:semel:problem:NAME`. Every document says whether the same request may be sent again (`retryable`);
//! with an identity it carries the first 16 digits of it, with a `traceparent` the trace. A caller who prefers
//! text/plain gets the sentence alone.

mod asker;
#[cfg(feature = "axum")]
mod axum;
mod kind;
mod write;

use std::{borrow::Cow, time::Duration};

pub use asker::Asker;
use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
pub use kind::ProblemKind;
use semel_core::{identity::IdentityPrefix, refusal::Refusal};

use crate::{
    names::{GUARD, IDEMPOTENCY_ERROR_SOURCE, IDEMPOTENCY_STATUS, Status},
    replay::Head,
    time::http_date,
};

/// Why a request was not run, or came back without an answer; see the [module](self).
///
/// ```
/// use http::{HeaderMap, StatusCode};
/// use semel_http::problem::{Asker, Problem, ProblemKind};
/// let answer = Problem::new(ProblemKind::UpstreamUnreachable).answer(&Asker::of(&HeaderMap::new()));
/// assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
/// assert!(answer.body().starts_with(br#"{"type":"urn:semel:problem:upstream-unreachable""#));
/// ```
#[derive(Clone, Debug)]
pub struct Problem {
    kind: ProblemKind,
    /// The kind's own, unless a rule says otherwise.
    status: StatusCode,
    detail: Option<Cow<'static, str>>,
    retry_after: Option<Duration>,
    identity: Option<IdentityPrefix>,
    members: Vec<(&'static str, Member)>,
}

/// The value of an extension member.
#[derive(Clone, Debug)]
enum Member {
    Text(String),
    Number(u64),
}

impl Problem {
    /// A problem of a kind, with the kind's own sentence.
    #[must_use]
    pub const fn new(kind: ProblemKind) -> Self {
        Self { kind, status: kind.status(), detail: None, retry_after: None, identity: None, members: Vec::new() }
    }

    /// A refusal of the engine. Of what is recorded only status, `Location` and time get out, and only with
    /// `outcome-unavailable`: that caller asked the same question.
    #[must_use]
    pub fn of(refusal: &Refusal) -> Self {
        let mut problem = Self::new(ProblemKind::of(refusal));
        match refusal {
            Refusal::Duplicate { message, .. } => {
                problem.detail = message.as_ref().map(|m| Cow::Owned(m.to_string()));
            }
            Refusal::Stranger => problem.detail = Some(Cow::Borrowed(STRANGER)),
            Refusal::OutcomeUnknown { since, last } => {
                problem.members.push(("since", Member::Text(http_date(*since))));
                if let Some(status) = last.as_deref().and_then(last_status) {
                    problem.members.push(("last_status", Member::Number(status)));
                }
            }
            Refusal::OutcomeUnavailable { kept: Some(recorded) } => {
                problem.members.push(("settled_at", Member::Text(http_date(recorded.settled_at))));
                if let Some(head) = Head::decode(recorded.outcome.head.clone()) {
                    problem.members.push(("original_status", Member::Number(u64::from(head.status.as_u16()))));
                    if let Some(location) = head.headers.get(header::LOCATION).and_then(|l| l.to_str().ok()) {
                        problem.members.push(("location", Member::Text(location.to_owned())));
                    }
                }
            }
            _ => {}
        }
        // A rejected duplicate is 409 so that no client retries by itself: it is not told when to. A rule that wants 429 tells.
        if !matches!(refusal, Refusal::Duplicate { .. }) {
            problem.retry_after = refusal.retry_after();
        }
        problem
    }

    /// What kind it is.
    #[must_use]
    pub const fn kind(&self) -> ProblemKind {
        self.kind
    }

    /// Another sentence for the caller. It must not hold anything that was sent or stored.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// When it is worth coming back; rounded up to seconds.
    #[must_use]
    pub const fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// Answered with 429, to be repeated after that time at the earliest.
    #[must_use]
    pub const fn too_many_requests(mut self, retry_after: Duration) -> Self {
        self.status = StatusCode::TOO_MANY_REQUESTS;
        self.retry_after(retry_after)
    }

    /// Whose record it is about.
    #[must_use]
    pub const fn identity(mut self, identity: IdentityPrefix) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The answer, in the form and language that `asker` prefers.
    #[must_use]
    pub fn answer(&self, asker: &Asker) -> Response<Bytes> {
        let detail = match (&self.detail, self.kind) {
            (Some(detail), _) => detail.as_ref(),
            (None, ProblemKind::Duplicate) if asker.prefers_chinese() => "已提交，请勿重复操作。",
            (None, kind) => kind.sentence(),
        };
        let (kind, body) = if asker.prefers_text() {
            ("text/plain; charset=utf-8", format!("{detail}\n"))
        } else {
            ("application/problem+json", write::document(self, detail, asker.trace_id()))
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(&IDEMPOTENCY_ERROR_SOURCE, GUARD.clone());
        headers.insert(&IDEMPOTENCY_STATUS, self.kind.outcome().value());
        if let Some(after) = self.retry_after {
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
        response
    }
}

/// Told where only the credentials differ: a rotated token is nothing that was submitted before.
const STRANGER: &str = "This key was used with other credentials; nothing is told about it and nothing was run.";

/// What an unknown outcome is recorded with: the status that left it unknown.
pub(crate) fn status_words(status: http::StatusCode) -> Box<str> {
    format!("status {}", status.as_u16()).into()
}

/// The last error is for people with rights; its status alone is not a secret.
fn last_status(last: &str) -> Option<u64> {
    last.strip_prefix("status ")?.parse().ok()
}

impl ProblemKind {
    /// Whether the caller's request was refused, or ran and left nobody the wiser.
    const fn outcome(self) -> Status {
        match self {
            Self::OutcomeUnknown | Self::UpstreamBroken | Self::UpstreamTimeout => Status::Unknown,
            _ => Status::Rejected,
        }
    }
}

#[cfg(test)]
mod tests;
