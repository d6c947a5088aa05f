//! What is wrong with a configuration, told so that a person can mend it.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;

use super::setting::{Origin, Position};

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The gateway refuses to start.
    Error,
    /// The gateway starts; a person should look.
    Warning,
    /// Worth knowing, nothing to mend.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// One finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// Where it was said.
    pub origin: Origin,
    /// What is wrong, in one line.
    pub what: String,
    /// Why that matters; empty where it goes without saying.
    pub why: String,
    /// What to do; empty where there is nothing to do.
    pub fix: String,
}

impl Problem {
    pub(super) fn new(severity: Severity, origin: Origin, what: impl Into<String>) -> Self {
        Self { severity, origin, what: what.into(), why: String::new(), fix: String::new() }
    }

    pub(super) fn error(origin: Origin, what: impl Into<String>) -> Self {
        Self::new(Severity::Error, origin, what)
    }

    pub(super) fn warning(origin: Origin, what: impl Into<String>) -> Self {
        Self::new(Severity::Warning, origin, what)
    }

    pub(super) fn note(origin: Origin, what: impl Into<String>) -> Self {
        Self::new(Severity::Note, origin, what)
    }

    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// Writes the finding with its line of the file underlined. Without a source only the words are written.
    ///
    /// ```text
    /// semel.toml:4:8: error: `ttl` has no unit
    ///     4 | ttl = 10
    ///       |       ^^
    ///   fix: write it with a unit: "10s", "250ms", "24h"
    /// ```
    pub fn render(&self, source: Option<&Source>) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut out, source);
        out
    }

    fn write(&self, out: &mut String, source: Option<&Source>) -> fmt::Result {
        match (self.origin, source) {
            (Origin::File(at), Some(source)) => write!(out, "{}:{}:{}: ", source.name, at.line, at.column)?,
            (Origin::Flag(name), _) => {
                let variable = name.trim_start_matches('-').replace('-', "_").to_ascii_uppercase();
                write!(out, "{name} or SEMEL_{variable}: ")?;
            }
            (_, Some(source)) => write!(out, "{}: ", source.name)?,
            (_, None) => {}
        }
        writeln!(out, "{}: {}", self.severity, self.what)?;
        if let (Some(at), Some(source)) = (self.origin.position(), source) {
            source.underline(at, out)?;
        }
        if !self.why.is_empty() {
            writeln!(out, "  why: {}", self.why)?;
        }
        if !self.fix.is_empty() {
            writeln!(out, "  fix: {}", self.fix)?;
        }
        Ok(())
    }
}

/// The text of a file and its name, kept for messages. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    name: Arc<str>,
    text: Arc<str>,
}

impl Source {
    /// A file that has been read: `name` is what messages call it.
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), text: text.into() }
    }

    /// What messages call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn position(&self, span: &Range<usize>) -> Position {
        let start = floor_char(&self.text, span.start);
        let before = &self.text[..start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        let line = count(before.matches('\n').count() + 1);
        let column = count(before[line_start..].chars().count() + 1);
        let end = floor_char(&self.text, span.end.max(start));
        let on_line = self.text[start..end].split('\n').next().unwrap_or_default();
        Position { line, column, width: count(on_line.trim_end().chars().count()).max(1) }
    }

    fn underline(&self, at: Position, out: &mut String) -> fmt::Result {
        let index = usize::try_from(at.line.saturating_sub(1)).unwrap_or(usize::MAX);
        let Some(line) = self.text.split('\n').nth(index) else { return Ok(()) };
        let line = line.trim_end_matches('\r');
        let gutter = at.line.to_string();
        writeln!(out, "  {gutter:>5} | {line}")?;
        let skip = usize::try_from(at.column.saturating_sub(1)).unwrap_or(0);
        // A tab stays a tab, so that the mark stands under its word whatever the width of a tab is.
        let indent: String = line.chars().take(skip).map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let marks = "^".repeat(usize::try_from(at.width).unwrap_or(1));
        writeln!(out, "  {:>5} | {indent}{marks}", "")
    }
}

fn floor_char(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Why a configuration was refused: every problem that could be found in one go, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The problems; at least one is an error.
    pub problems: Vec<Problem>,
    /// The file they are about, if there was one.
    pub source: Option<Source>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_char('\n')?;
            }
            f.write_str(&problem.render(self.source.as_ref()))?;
        }
        Ok(())
    }
}

impl std::error::Error for Refused {}

/// In the order of the file; what has no place in it comes first.
pub(super) fn sort(problems: &mut [Problem]) {
    problems.sort_by_key(|p| p.origin.position());
}
