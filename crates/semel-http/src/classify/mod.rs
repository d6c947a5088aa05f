//! What an answer means: the outcome table.
//!
//! In order of precedence: a [`Mark`] in the answer's extensions, `Semel-Outcome` from the service (unknown, where what it
//! says cannot be read), the rule's [`Classify`].

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

/// What the service itself says in `Semel-Outcome`; `None` where that is no word of ours, or lines say different ones.
pub(crate) fn told<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Option<Mark> {
    let mut lines = lines.into_iter().map(word);
    let first = lines.next()??;
    lines.all(|other| other == Some(first)).then_some(first)
}

fn word(line: &HeaderValue) -> Option<Mark> {
    let words = [("keep", Mark::Keep), ("release", Mark::Release), ("unknown", Mark::Unknown)];
    let said = line.as_bytes().trim_ascii();
    words.into_iter().find_map(|(word, mark)| said.eq_ignore_ascii_case(word.as_bytes()).then_some(mark))
}
