//! What an answer says about the request it answers.

use std::fmt;

use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::load::{Answer, Reply, Trouble};

/// Problem types of Semel (`urn:semel:problem:…`) that leave open whether the request took effect.
const UNKNOWN_PROBLEMS: [&str; 3] = ["outcome-unknown", "upstream-broken", "upstream-timeout"];

/// Longer ones are no names of ours, and nobody wants them in a table.
const LONGEST_NAME: usize = 40;

/// The seven ways a copy can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// 2xx or 3xx without a mark of a guard: this copy ran.
    Executed,
    /// Marked as a stored answer.
    Replayed,
    /// Marked as having waited for a running one.
    Waited,
    /// Refused: 409, 422, 429 and every other 4xx, or a guard that says it did not run.
    Rejected,
    /// 5xx, or a guard that says it cannot tell.
    Unknown,
    /// No connection, a broken one, no answer in time.
    Error,
    /// Hung up, as told.
    HungUp,
}

impl Class {
    pub(crate) const ALL: [Self; 7] =
        [Self::Executed, Self::Replayed, Self::Waited, Self::Rejected, Self::Unknown, Self::Error, Self::HungUp];

    /// Used in the table and in `--json`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Executed => "executed",
            Self::Replayed => "replayed",
            Self::Waited => "waited",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
            Self::Error => "errors",
            Self::HungUp => "hung_up",
        }
    }

    pub(crate) fn of(reply: &Reply) -> Self {
        match &reply.result {
            Ok(answer) => Self::of_answer(answer),
            Err(Trouble::HungUp) => Self::HungUp,
            Err(Trouble::Connect(_) | Trouble::Broken(_) | Trouble::TimedOut) => Self::Error,
        }
    }

    fn of_answer(answer: &Answer) -> Self {
        let status = mark(answer, "idempotency-status");
        match status {
            Some("waited") => return Self::Waited,
            Some("replayed") => return Self::Replayed,
            Some("unknown") => return Self::Unknown,
            _ => {}
        }
        if mark(answer, "idempotent-replayed").is_some_and(|value| matches!(value, "true" | "?1" | "1")) {
            return Self::Replayed;
        }
        if let Some(problem) = problem(answer) {
            return if UNKNOWN_PROBLEMS.contains(&&*problem) { Self::Unknown } else { Self::Rejected };
        }
        match answer.status {
            code if is_success(code) => Self::Executed,
            code if code.is_client_error() => Self::Rejected,
            _ => Self::Unknown,
        }
    }
}

/// The request took effect, or an answer says it did before.
pub(crate) fn is_success(code: StatusCode) -> bool {
    code.is_success() || code.is_redirection()
}

/// The answer went through a guard that marks what it does.
pub(crate) fn is_marked(answer: &Answer) -> bool {
    ["idempotency-status", "idempotent-replayed"].iter().any(|name| answer.headers.contains_key(*name))
}

fn mark<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    // A structured field may carry parameters; only the item counts.
    let value = answer.headers.get(name)?.to_str().ok()?;
    value.split(';').next().map(str::trim)
}

/// What an answer said: its status, and the name of the problem where it is one of Semel's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Said {
    pub(crate) status: u16,
    problem: Option<Box<str>>,
}

impl Said {
    pub(crate) fn of(answer: &Answer) -> Self {
        Self { status: answer.status.as_u16(), problem: problem(answer) }
    }

    /// The name in `urn:semel:problem:NAME`.
    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

/// `409` or `502 upstream-unreachable`.
impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.status)?;
        self.problem.iter().try_for_each(|name| write!(f, " {name}"))
    }
}

fn problem(answer: &Answer) -> Option<Box<str>> {
    let kind = answer.headers.get(CONTENT_TYPE)?.to_str().ok()?;
    if !kind.starts_with("application/problem+json") {
        return None;
    }
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let name = body.get("type")?.as_str()?.strip_prefix("urn:semel:problem:")?;
    // It goes to a terminal: what is no name of ours could hold anything.
    let is_name = name.len() <= LONGEST_NAME && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
    is_name.then(|| name.into())
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;

    pub(crate) fn answer(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> Answer {
        let headers = headers.iter().map(|(k, v)| (k.parse().unwrap(), v.parse().unwrap())).collect();
        Answer {
            status: StatusCode::from_u16(status).unwrap(),
            headers,
            body: body.into(),
            digest: blake3::hash(body.as_bytes()),
        }
    }

    fn class(status: u16, headers: &[(&'static str, &'static str)], body: &'static str) -> Class {
        Class::of(&Reply { took: Duration::ZERO, result: Ok(answer(status, headers, body)) })
    }

    #[test]
    fn marks_come_before_statuses() {
        assert_eq!(class(201, &[], ""), Class::Executed);
        assert_eq!(class(303, &[("idempotency-status", "fresh")], ""), Class::Executed);
        assert_eq!(class(201, &[("idempotent-replayed", "true")], ""), Class::Replayed);
        assert_eq!(class(400, &[("idempotent-replayed", "true")], ""), Class::Replayed);
        assert_eq!(class(201, &[("idempotent-replayed", "true"), ("idempotency-status", "waited")], ""), Class::Waited);
        assert_eq!(class(201, &[("idempotent-replayed", "false")], ""), Class::Executed);
    }

    #[test]
    fn refusals_and_open_outcomes_are_told_apart() {
        let problem = [("content-type", "application/problem+json")];
        assert_eq!(class(409, &[], ""), Class::Rejected);
        assert_eq!(class(409, &problem, r#"{"type":"urn:semel:problem:in-flight"}"#), Class::Rejected);
        assert_eq!(class(409, &problem, r#"{"type":"urn:semel:problem:outcome-unknown"}"#), Class::Unknown);
        assert_eq!(class(502, &problem, r#"{"type":"urn:semel:problem:upstream-unreachable"}"#), Class::Rejected);
        assert_eq!(class(504, &problem, r#"{"type":"urn:semel:problem:upstream-timeout"}"#), Class::Unknown);
        assert_eq!(class(502, &[], "<html>"), Class::Unknown);
    }

    #[test]
    fn an_answer_is_named_by_its_status_and_by_a_problem_of_ours() {
        let said =
            |status, body| Said::of(&answer(status, &[("content-type", "application/problem+json")], body)).to_string();
        assert_eq!(said(409, r#"{"type":"urn:semel:problem:in-flight"}"#), "409 in-flight");
        assert_eq!(said(409, r#"{"type":"urn:other:in-flight"}"#), "409");
        assert_eq!(said(409, r#"{"type":"urn:semel:problem:\u001b[2J"}"#), "409");
        assert_eq!(Said::of(&answer(404, &[], "")).to_string(), "404");
    }
}
