//! What the terminal can show: its width, whether colour is welcome, text broken at that width.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;

/// Width used where nobody can say: a pipe, a file.
const UNKNOWN_WIDTH: usize = 80;

/// Keeps two words on one line.
pub const GLUE: char = '\u{a0}';

/// How text for stdout should look.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Columns a line may take.
    pub width: usize,
    /// Escape sequences are welcome.
    pub colour: bool,
    /// Whether lines end at an edge. In a pipe or a file nothing is cut away.
    pub has_edge: bool,
}

impl Look {
    /// Colour only on a terminal and without `NO_COLOR`; the terminal's width within 40 and 120.
    pub fn of_stdout() -> Self {
        Self::of(&std::io::stdout())
    }

    /// The same for stderr.
    pub fn of_stderr() -> Self {
        Self::of(&std::io::stderr())
    }

    fn of(stream: &(impl AsFd + IsTerminal)) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty())
            || std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        let width = rustix::termios::tcgetwinsize(stream).map_or(UNKNOWN_WIDTH, |size| usize::from(size.ws_col));
        let width = if width == 0 { UNKNOWN_WIDTH } else { width };
        let has_edge = stream.is_terminal();
        Self { width: width.clamp(40, 120), colour: has_edge && !unwanted, has_edge }
    }

    /// A terminal without colour.
    pub fn plain(width: usize) -> Self {
        Self { width, colour: false, has_edge: true }
    }

    /// Green: as it should be.
    pub fn good(self, text: &str) -> String {
        self.paint("32", text)
    }

    /// Red and bold: wrong.
    pub fn bad(self, text: &str) -> String {
        self.paint("1;31", text)
    }

    /// Yellow: not known.
    pub fn open(self, text: &str) -> String {
        self.paint("33", text)
    }

    /// Bold: a heading.
    pub fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn paint(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Breaks `text` between words so that each line fits; every line but the first begins with `indent` blanks, and
    /// the first is taken to start there already. A word longer than a line (a URL) stays whole; a blank that does not break
    /// ([`GLUE`]) is part of a word. What steers a terminal is escaped: [`shown`].
    pub fn wrap(self, text: &str, indent: usize) -> String {
        let room = self.width.saturating_sub(indent).max(20);
        let mut out = String::new();
        let mut used = 0;
        for word in text.split(|c: char| c.is_whitespace() && c != GLUE).filter(|word| !word.is_empty()) {
            let word = shown(word);
            let length = word.chars().count();
            if used > 0 && used + 1 + length > room {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                used = 0;
            } else if used > 0 {
                out.push(' ');
                used += 1;
            }
            out.push_str(&word);
            used += length;
        }
        out
    }

    /// A message: as [`fit`](Self::fit) on a terminal; elsewhere its lines stay whole, for whoever searches a log.
    pub fn told(self, text: &str) -> String {
        self.rows().fit(text)
    }

    /// For rows of a table and lines of a list: without an edge they stay whole, for whoever reads them by line.
    pub fn rows(self) -> Self {
        Self { width: if self.has_edge { self.width } else { usize::MAX }, ..self }
    }

    /// Breaks the lines of `text` that are too long. What follows stands under the text behind a line's label, which
    /// two blanks or a colon end, or under its beginning. Lines of a file that are shown are not broken. What steers a
    /// terminal is escaped: [`shown`]; so paint what was fitted, and do not fit what was painted.
    pub fn fit(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for line in text.lines() {
            let line = &*shown(line);
            if line.chars().count() <= self.width || line.contains(" | ") {
                out.push_str(line);
            } else {
                let indent = hanging(line).min(self.width / 2);
                let (head, rest) = line.split_at(line.char_indices().nth(indent).map_or(line.len(), |(at, _)| at));
                out.push_str(head);
                out.push_str(&self.wrap(rest, indent));
            }
            out.push('\n');
        }
        out
    }
}

/// Text that others chose (clients, other people, a file), as it may be shown to people: what would steer a terminal
/// (control characters) or turn the reading order of a line around (marks of direction) stands there escaped.
pub fn shown(text: &str) -> Cow<'_, str> {
    let steers = |c: char| {
        let turns =
            matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() || turns
    };
    if !text.contains(steers) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if steers(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    Cow::Owned(out)
}

/// The column at which the text of a line begins, in characters.
fn hanging(line: &str) -> usize {
    let blanks = line.chars().take_while(|c| *c == ' ').count();
    let rest = &line[blanks..];
    let label = rest.find("  ").or_else(|| {
        let short = ["why: ", "fix: "].iter().any(|label| rest.starts_with(label));
        short.then_some("why:".len())
    });
    label.map_or(blanks, |label| {
        let gap = rest[label..].chars().take_while(|c| *c == ' ').count();
        blanks + rest[..label].chars().count() + gap
    })
}

/// Standard output, whose errors say what could not be written.
#[derive(Debug)]
pub struct Out(io::Stdout);

impl Out {
    /// The process's.
    pub fn stdout() -> Self {
        Self(io::stdout())
    }
}

fn of_stdout(error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot write to standard output: {error}"))
}

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(|error| of_stdout(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(|error| of_stdout(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_go_on_under_their_text() {
        let look = Look::plain(40);
        assert_eq!(
            look.fit("  callers    share one key space; others are refused\nshort\n"),
            "  callers    share one key space; others\n             are refused\nshort\n"
        );
        assert_eq!(
            look.fit("  why: one two three four five six seven eight"),
            "  why: one two three four five six seven\n       eight\n"
        );
        let shown = format!("    8 | {}", "x".repeat(60));
        assert_eq!(look.fit(&shown), format!("{shown}\n"));
    }

    #[test]
    fn lines_break_between_words_and_keep_their_indent() {
        let wrapped = Look::plain(24).wrap("one two three four five six seven", 4);
        assert_eq!(wrapped, "one two three four\n    five six seven");
        let url = format!("see http://127.0.0.1/{} there", "x".repeat(40));
        assert!(Look::plain(24).wrap(&url, 0).lines().any(|line| line.starts_with("http://")));
    }

    #[test]
    fn what_is_glued_together_stays_on_one_line() {
        let parts = ["under 1h: 12", "under 6h: 345", "later: 6"].map(|part| part.replace(' ', "\u{a0}")).join(", ");
        let lines = Look::plain(24).wrap(&parts, 2);
        assert_eq!(lines.replace(GLUE, " "), "under 1h: 12,\n  under 6h: 345,\n  later: 6");
    }

    #[test]
    fn what_steers_a_terminal_is_shown_and_not_done() {
        assert_eq!(shown("plain, größer, 注文"), "plain, größer, 注文");
        assert_eq!(shown("a\x1b[2J\r\nb\u{9b}31m\u{202e}c"), "a\\u{1b}[2J\\r\\nb\\u{9b}31m\\u{202e}c");
        assert_eq!(Look::plain(60).told("one\ntwo\x07"), "one\ntwo\\u{7}\n");
        let long = format!("{} b\n", "a".repeat(50));
        assert_eq!(Look { has_edge: false, ..Look::plain(40) }.told(&long), long);
    }

    #[test]
    fn without_colour_no_escape_is_written() {
        assert_eq!(Look::plain(60).bad("no"), "no");
        let colourful = Look { colour: true, ..Look::plain(60) };
        assert_eq!(colourful.good("yes"), "\x1b[32myes\x1b[0m");
    }
}
