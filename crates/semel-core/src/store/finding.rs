//! What is wrong, or only worth knowing, about a store's server: for people, with the cure.

use std::fmt;

/// One thing found about a store's surroundings: how its server is set up, whether it keeps what it acknowledges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// How bad it is.
    pub grade: Grade,
    /// What was found, with the values.
    pub what: String,
    /// Why it matters.
    pub why: String,
    /// What to do about it; empty for a [`Grade::Note`].
    pub cure: String,
    /// A restart of the server forgets every record: what must not run twice is not to be kept there.
    pub forgets: bool,
}

/// How bad a finding is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Grade {
    /// Good to know.
    Note,
    /// It works, with less than people may expect.
    Warning,
    /// It would break the promise: a start is refused.
    Fatal,
}

impl Finding {
    /// Something good to know.
    pub fn note(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self { grade: Grade::Note, what: what.into(), why: why.into(), cure: String::new(), forgets: false }
    }

    /// Something that works with less than people may expect.
    pub fn warning(what: impl Into<String>, why: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { grade: Grade::Warning, what: what.into(), why: why.into(), cure: cure.into(), forgets: false }
    }

    /// Something under which the promise does not hold.
    pub fn fatal(what: impl Into<String>, why: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { grade: Grade::Fatal, what: what.into(), why: why.into(), cure: cure.into(), forgets: false }
    }

    /// The same, of a server whose restart forgets every record.
    #[must_use]
    pub fn forgetting(self) -> Self {
        Self { forgets: true, ..self }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)?;
        if !self.cure.is_empty() {
            write!(f, ". {}", self.cure)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_says_what_why_and_what_to_do() {
        let finding = Finding::fatal("maxmemory-policy is allkeys-lru", "claims would be evicted", "Set noeviction");
        assert_eq!(finding.to_string(), "maxmemory-policy is allkeys-lru: claims would be evicted. Set noeviction");
        assert_eq!(Finding::note("version 7.0.15", "supported").to_string(), "version 7.0.15: supported");
    }

    #[test]
    fn the_worst_grade_is_the_greatest() {
        assert!(Grade::Fatal > Grade::Warning && Grade::Warning > Grade::Note);
    }
}
