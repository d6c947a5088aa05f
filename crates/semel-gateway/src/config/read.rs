//! A table of the file, read key by key. What was never asked for is unknown, so a key cannot be accepted and ignored.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::problem::{Problem, Source};
use super::setting::{Origin, Setting};
use super::units::{self, Bytes};

/// The problems found so far, and the text they are in.
pub(super) struct Report {
    pub(super) source: Option<Source>,
    pub(super) problems: Vec<Problem>,
}

impl Report {
    pub(super) fn push(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    pub(super) fn origin(&self, span: &Range<usize>) -> Origin {
        self.source.as_ref().map_or(Origin::Default, |source| Origin::File(source.position(span)))
    }
}

/// Why a value is not what its key wants.
pub(super) struct Fault {
    what: String,
    why: String,
    fix: String,
    /// The part that is wrong, where it is not the whole value.
    span: Option<Range<usize>>,
}

impl Fault {
    pub(super) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), why: String::new(), fix: String::new(), span: None }
    }

    pub(super) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    pub(super) fn at(mut self, span: Range<usize>) -> Self {
        self.span.get_or_insert(span);
        self
    }

    fn expected(what: &str, found: &DeValue<'_>, fix: &str) -> Self {
        Self::new(format!("wants {what}, found {}", kind(found))).fix(fix)
    }

    /// A choice that does not exist, with the nearest one that does.
    pub(super) fn unknown_word(word: &str, words: &[&str]) -> Self {
        let fault = Self::new(format!("has no choice `{word}`"));
        match nearest(word, words.iter().copied()) {
            Some(near) => fault.fix(format!("did you mean \"{near}\"? Choices: {}", quoted(words))),
            None => fault.fix(format!("choices: {}", quoted(words))),
        }
    }
}

pub(super) type Node<'i> = Spanned<DeValue<'i>>;

/// Made from one value of the file.
pub(super) trait Read: Sized {
    fn read(node: &Node<'_>) -> Result<Self, Fault>;
}

/// A table of the file. [`Section::finish`] reports every key nobody asked for.
pub(super) struct Section<'i> {
    fields: DeTable<'i>,
    /// What messages put before a key: `store.` or `rule.`, nothing at the root.
    prefix: String,
    origin: Origin,
    known: Vec<&'static str>,
}

impl<'i> Section<'i> {
    pub(super) fn new(fields: DeTable<'i>, prefix: impl Into<String>, origin: Origin) -> Self {
        Self { fields, prefix: prefix.into(), origin, known: Vec::new() }
    }

    /// Where the table begins.
    pub(super) fn origin(&self) -> Origin {
        self.origin
    }

    pub(super) fn name(&self, key: &str) -> String {
        format!("{}{key}", self.prefix)
    }

    pub(super) fn node(&mut self, key: &'static str) -> Option<Node<'i>> {
        self.known.push(key);
        self.fields.remove(key)
    }

    /// Reads one key; a bad value is reported and counts as absent.
    pub(super) fn read<T: Read>(&mut self, key: &'static str, report: &mut Report) -> Option<Setting<T>> {
        let node = self.node(key)?;
        match T::read(&node) {
            Ok(value) => Some(Setting { value, origin: report.origin(&node.span()) }),
            Err(fault) => {
                let span = fault.span.clone().unwrap_or_else(|| node.span());
                let what = format!("`{}` {}", self.name(key), fault.what);
                report.push(Problem::error(report.origin(&span), what).why(fault.why).fix(fault.fix));
                None
            }
        }
    }

    /// Reads one key that has a built-in value.
    pub(super) fn read_or<T: Read>(&mut self, key: &'static str, built_in: T, report: &mut Report) -> Setting<T> {
        self.read(key, report).unwrap_or_else(|| Setting::default(built_in))
    }

    /// The table under `key`; an empty one where it is absent or no table.
    pub(super) fn section(&mut self, key: &'static str, report: &mut Report) -> Self {
        let prefix = format!("{}{key}.", self.prefix);
        let Some(node) = self.node(key) else { return Self::new(DeTable::new(), prefix, Origin::Default) };
        let origin = report.origin(&node.span());
        match node.into_inner() {
            DeValue::Table(fields) => Self::new(fields, prefix, origin),
            other => {
                let what = format!("`{}` wants a table, found {}", self.name(key), kind(&other));
                report
                    .push(Problem::error(origin, what).fix(format!("write [{}] on a line of its own", self.name(key))));
                Self::new(DeTable::new(), prefix, origin)
            }
        }
    }

    /// The named tables under `key`, as in `[upstream.NAME]`, in the order of the file.
    pub(super) fn named(&mut self, key: &'static str, report: &mut Report) -> Vec<(String, Self)> {
        let inner = self.section(key, report);
        let mut tables = Vec::new();
        for (name, node) in inner.fields {
            let span = name.span();
            let name = name.into_inner().into_owned();
            let origin = report.origin(&span);
            match node.into_inner() {
                DeValue::Table(fields) => {
                    let prefix = format!("{key}.{name}.");
                    tables.push((name, Self::new(fields, prefix, origin)));
                }
                other => {
                    let what = format!("`{key}.{name}` wants a table, found {}", kind(&other));
                    report
                        .push(Problem::error(origin, what).fix(format!("write [{key}.NAME] with its settings below")));
                }
            }
        }
        tables.sort_by_key(|(_, section)| section.origin.position());
        tables
    }

    /// The tables of `[[key]]`, in order.
    pub(super) fn list(&mut self, key: &'static str, report: &mut Report) -> Vec<Self> {
        let Some(node) = self.node(key) else { return Vec::new() };
        let origin = report.origin(&node.span());
        let fix = format!("begin each one with [[{key}]]");
        let DeValue::Array(items) = node.into_inner() else {
            report.push(Problem::error(origin, format!("`{key}` is a list of tables")).fix(fix));
            return Vec::new();
        };
        let mut sections = Vec::new();
        for item in items {
            let origin = report.origin(&item.span());
            match item.into_inner() {
                DeValue::Table(fields) => sections.push(Self::new(fields, format!("{key}."), origin)),
                other => {
                    let what = format!("`{key}` is a list of tables, found {}", kind(&other));
                    report.push(Problem::error(origin, what).fix(fix.clone()));
                }
            }
        }
        sections
    }

    /// A key of a later version: refused with the reason, never read and ignored.
    pub(super) fn refuse(&mut self, key: &'static str, why: &str, fix: &str, report: &mut Report) {
        if let Some(node) = self.fields.remove(key) {
            let what = format!("`{}` is not in this version", self.name(key));
            report.push(Problem::error(report.origin(&node.span()), what).why(why).fix(fix));
        }
    }

    /// Reports what is left over.
    pub(super) fn finish(self, report: &mut Report) {
        for name in self.fields.keys() {
            let origin = report.origin(&name.span());
            let name: &str = name.get_ref();
            let what = format!("unknown key `{}{name}`", self.prefix);
            let fix = match nearest(name, self.known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known here: {}", self.known.join(", ")),
            };
            report.push(Problem::error(origin, what).fix(fix));
        }
    }
}

/// The word that was probably meant: a slip or two away, or one that begins alike.
fn nearest<'w>(word: &str, words: impl Iterator<Item = &'w str>) -> Option<&'w str> {
    let lower = word.to_lowercase().replace('-', "_");
    let slips = (lower.chars().count() / 3).max(1);
    words
        .map(|w| (strsim::jaro_winkler(&lower, w), w))
        .filter(|(score, w)| *score > 0.8 || strsim::osa_distance(&lower, w) <= slips)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, w)| w)
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The text of a value.
pub(super) fn text<'n>(node: &'n Node<'_>, wants: &str, fix: &str) -> Result<&'n str, Fault> {
    node.get_ref().as_str().ok_or_else(|| Fault::expected(wants, node.get_ref(), fix))
}

impl Read for bool {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        node.get_ref().as_bool().ok_or_else(|| Fault::expected("true or false", node.get_ref(), "without quotes"))
    }
}

impl Read for String {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = text(node, "a text", "put it between quotes")?;
        if text.trim().is_empty() {
            Err(Fault::new("is empty").fix("write something, or leave the key out"))
        } else {
            Ok(text.to_owned())
        }
    }
}

impl Read for PathBuf {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        String::read(node).map(Self::from)
    }
}

impl Read for u32 {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match whole_number(node, 1)? {
            0 => Err(Fault::new("must be at least 1")),
            n => Ok(n),
        }
    }
}

/// A number; `from` is the least of them, for the words where it is none.
pub(super) fn whole_number(node: &Node<'_>, from: u32) -> Result<u32, Fault> {
    let value = node.get_ref();
    let integer = value.as_integer().ok_or_else(|| Fault::expected("a whole number", value, "without quotes"))?;
    let number = u32::from_str_radix(&integer.as_str().replace('_', ""), integer.radix());
    number.map_err(|_| Fault::new(format!("must be a whole number from {from} to {}", u32::MAX)))
}

impl Read for Duration {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = text(node, "a time with its unit", "write it like \"10s\", \"250ms\", \"24h\"")?;
        units::duration(text).map_err(|why| Fault::new(format!("is no time: {why}")))
    }
}

impl Read for Bytes {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = text(node, "a size with its unit", "write it like \"8 MiB\"")?;
        units::size(text).map(Self).map_err(|why| Fault::new(format!("is no size: {why}")))
    }
}

impl Read for SocketAddr {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        socket_addr(text(node, "an address", "write it like \"127.0.0.1:8080\"")?)
    }
}

/// An address to listen on: numbers, so that nothing has to be looked up, or `localhost`.
pub(super) fn socket_addr(text: &str) -> Result<SocketAddr, Fault> {
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None if text.starts_with(':') => format!("0.0.0.0{text}"),
        None => text.to_owned(),
    };
    numbers.parse().map_err(|_| {
        Fault::new(format!("is no address: `{text}`"))
            .fix("an IP address and a port, like \"127.0.0.1:8080\" or \"[::1]:8080\"")
    })
}

impl Read for HeaderName {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        header_name(text(node, "a header's name", "write it like \"Idempotency-Key\"")?)
    }
}

fn header_name(text: &str) -> Result<HeaderName, Fault> {
    HeaderName::try_from(text)
        .map_err(|_| Fault::new(format!("is no header's name: `{text}`")).fix("letters, digits and dashes"))
}

/// One value or a list of them.
pub(super) fn one_or_many<T: Read>(node: &Node<'_>) -> Result<Vec<T>, Fault> {
    match node.get_ref() {
        DeValue::Array(items) => items.iter().map(|item| T::read(item).map_err(|f| f.at(item.span()))).collect(),
        _ => T::read(node).map(|value| vec![value]),
    }
}
impl Fault {
    /// The same fault told about a flag.
    pub(super) fn of_flag(self, flag: &'static str) -> Problem {
        Problem::error(Origin::Flag(flag), format!("the value {}", self.what)).why(self.why).fix(self.fix)
    }

    /// The same fault told about a value that was found after all were read.
    pub(super) fn into_problem(self, name: &str, origin: Origin) -> Problem {
        Problem::error(origin, format!("`{name}` {}", self.what)).why(self.why).fix(self.fix)
    }
}
