//! What an answer means: the outcome table.
//!
//! In order of precedence: a [`Mark`] in the answer's extensions, `Semel-Outcome` from the service, the rule's
//! [`Classify`].

mod table;

use http::{HeaderMap, HeaderValue, StatusCode};
pub use table::{Outcomes, Strictness};

use crate::Mark;

/// A whole answer, without its body.
#[derive(Clone, Copy, Debug)]
pub struct Answered<'a> {
    /// Its status.
    pub status: StatusCode,
    /// Its header fields.
    pub headers: &'a HeaderMap,
    /// What came after the body.
    pub trailers: Option<&'a HeaderMap>,
}

/// Answer → verdict. Object safe; [`Outcomes`] is the one that rules have unless they bring their own.
pub trait Classify: Send + Sync + 'static {
    /// What the answer means.
    fn verdict(&self, answer: &Answered<'_>) -> Mark;

    /// What it means that there is no answer: the service failed, or cut its answer short.
    fn failed(&self) -> Mark {
        Mark::Unknown
    }
}

/// What the service itself says in `Semel-Outcome`, if it says something we know.
pub(crate) fn told(outcome: &HeaderValue) -> Option<Mark> {
    match outcome.as_bytes() {
        b"keep" => Some(Mark::Keep),
        b"release" => Some(Mark::Release),
        b"unknown" => Some(Mark::Unknown),
        _ => None,
    }
}
