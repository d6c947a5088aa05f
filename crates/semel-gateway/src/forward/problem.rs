//! Answers of the gateway itself.

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE},
};
use semel_http::{Mark, names::IDEMPOTENCY_ERROR_SOURCE, problem::ProblemKind};

/// What the gateway's own transport answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Problem {
    UpstreamUnreachable,
    UpstreamBroken,
    UpstreamTimeout,
    RequestIncomplete,
    RequestTimeout,
    BadRequest(&'static str),
    NotImplemented(&'static str),
    /// The head is not one of HTTP/1.1.
    HttpVersion,
    HeadTooLarge,
    TargetTooLong,
    RequestTooLarge,
    LoopDetected,
    Overloaded,
}

impl Problem {
    fn parts(self) -> (StatusCode, &'static str, &'static str, bool) {
        let as_the_guard = |kind: ProblemKind| (kind.status(), kind.name(), kind.sentence(), kind.is_retryable());
        match self {
            Self::UpstreamUnreachable => as_the_guard(ProblemKind::UpstreamUnreachable),
            Self::UpstreamBroken => as_the_guard(ProblemKind::UpstreamBroken),
            Self::UpstreamTimeout => as_the_guard(ProblemKind::UpstreamTimeout),
            Self::RequestIncomplete => (
                StatusCode::BAD_REQUEST,
                "request-incomplete",
                "The request's body broke off before its announced end, or its chunks are malformed.",
                false,
            ),
            Self::RequestTimeout => (
                StatusCode::REQUEST_TIMEOUT,
                "request-timeout",
                "Nothing of the request's body arrived for too long.",
                true,
            ),
            Self::BadRequest(detail) => (StatusCode::BAD_REQUEST, ProblemKind::BadRequest.name(), detail, false),
            Self::RequestTooLarge => as_the_guard(ProblemKind::RequestTooLarge),
            Self::HeadTooLarge => (
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "head-too-large",
                "The head of the request is larger, or has more fields, than is taken here; nothing was run.",
                false,
            ),
            Self::TargetTooLong => (
                StatusCode::URI_TOO_LONG,
                "target-too-long",
                "The target of the request is longer than is taken here; nothing was run.",
                false,
            ),
            Self::HttpVersion => (
                StatusCode::HTTP_VERSION_NOT_SUPPORTED,
                "http-version",
                "HTTP/2 is not spoken here, HTTP/1.1 is; nothing was run.",
                false,
            ),
            Self::LoopDetected => (
                StatusCode::LOOP_DETECTED,
                "loop-detected",
                "The request has come by here before, again and again: what is behind the gateway leads back to it.",
                false,
            ),
            Self::NotImplemented(detail) => (StatusCode::NOT_IMPLEMENTED, "not-implemented", detail, false),
            Self::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                "overloaded",
                "Too many connections. Nothing of the request was sent; it can be sent again.",
                true,
            ),
        }
    }

    /// The problem as the guard tells it, where it has the same one.
    fn kind(self) -> Option<ProblemKind> {
        match self {
            Self::UpstreamUnreachable => Some(ProblemKind::UpstreamUnreachable),
            Self::UpstreamBroken => Some(ProblemKind::UpstreamBroken),
            Self::UpstreamTimeout => Some(ProblemKind::UpstreamTimeout),
            _ => None,
        }
    }

    /// What the answer says about the effect; nothing where no upstream was asked.
    fn mark(self) -> Option<Mark> {
        match self {
            Self::UpstreamUnreachable => Some(Mark::NothingSent),
            Self::UpstreamBroken | Self::UpstreamTimeout | Self::RequestIncomplete | Self::RequestTimeout => {
                Some(Mark::Lost)
            }
            _ => None,
        }
    }

    fn closes(self) -> bool {
        matches!(self, Self::BadRequest(_) | Self::NotImplemented(_) | Self::RequestIncomplete | Self::RequestTimeout)
    }

    /// The RFC 9457 document.
    pub(crate) fn text(self) -> String {
        let (status, name, detail, retryable) = self.parts();
        let (status, title) = (status.as_u16(), status.canonical_reason().unwrap_or_default());
        // Every string is ours and free of characters that JSON escapes.
        format!(
            "{{\"type\":\"urn:semel:problem:{name}\",\"title\":\"{title}\",\"status\":{status},\
             \"detail\":\"{detail}\",\"retryable\":{retryable}}}"
        )
    }

    /// The whole answer. After a malformed or half-understood request the connection is closed: where the next one begins is not
    /// known for sure.
    pub(crate) fn answer<T: From<Bytes>>(self) -> Response<T> {
        let mut answer = Response::new(T::from(Bytes::from(self.text())));
        *answer.status_mut() = self.parts().0;
        let headers = answer.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        headers.insert(&IDEMPOTENCY_ERROR_SOURCE, HeaderValue::from_static("guard"));
        if self.closes() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(mark) = self.mark() {
            answer.extensions_mut().insert(mark);
        }
        if let Some(kind) = self.kind() {
            answer.extensions_mut().insert(kind);
        }
        answer
    }

    /// The answer as bytes, for a connection that hyper does not serve or serves no more; where that helps, with the advice
    /// to come again.
    pub(crate) fn raw(self) -> String {
        let (status, body) = (self.parts().0, self.text());
        let (code, reason, length) = (status.as_u16(), status.canonical_reason().unwrap_or_default(), body.len());
        let advice = if self.parts().3 { "retry-after: 1\r\n" } else { "" };
        format!(
            "HTTP/1.1 {code} {reason}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
             idempotency-error-source: guard\r\ncontent-length: {length}\r\nconnection: close\r\n{advice}\r\n{body}"
        )
    }
}
