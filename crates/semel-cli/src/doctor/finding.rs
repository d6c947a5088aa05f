//! One thing that was looked at.

use semel_core::store::{Finding, Grade};
use semel_gateway::config::Problem;
use serde::Serialize;

/// How it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    /// As it should be.
    Fine,
    /// Good to know.
    Note,
    /// It works, with less than people may expect.
    Warning,
    /// The gateway would not start, or would not keep its promise.
    Error,
}

/// What was looked at and what was found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Checked {
    pub(super) level: Level,
    /// `file`, `store`, `through`, `upstream`.
    pub(super) about: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u32>,
    pub(super) what: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) why: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) fix: String,
    /// It was not tried, so that nothing is known against it.
    #[serde(skip)]
    pub(super) untried: bool,
}

impl Checked {
    pub(super) fn new(level: Level, about: &'static str, what: impl Into<String>) -> Self {
        Self { level, about, line: None, what: what.into(), why: String::new(), fix: String::new(), untried: false }
    }

    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    pub(super) fn untried(self) -> Self {
        Self { untried: true, ..self }
    }

    pub(super) fn of_file(problem: &Problem) -> Self {
        let checked = Self::new(problem.severity.into(), "file", &problem.what).why(&problem.why).fix(&problem.fix);
        Self { line: problem.origin.position().map(|at| at.line), ..checked }
    }

    pub(super) fn of_store(finding: &Finding) -> Self {
        let level = match finding.grade {
            Grade::Note => Level::Note,
            Grade::Warning => Level::Warning,
            Grade::Fatal => Level::Error,
        };
        Self::new(level, "store", &finding.what).why(&finding.why).fix(&finding.cure)
    }
}
