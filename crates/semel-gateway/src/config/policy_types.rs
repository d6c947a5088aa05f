//! The types of a rule's settings: how each is written in the file and how it is shown.

use std::fmt;
use std::time::Duration;

use http::HeaderName;
use semel_http::key::{Pattern, PatternError};
use toml::de::{DeTable, DeValue};

use super::read::{Fault, Node, Read, one_or_many, text, whole_number};
use super::units::show_duration;
use super::words::words;

/// Names of header fields, in order, none twice.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct HeaderList(pub Vec<HeaderName>);

impl fmt::Display for HeaderList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<&str> = self.0.iter().map(HeaderName::as_str).collect();
        f.write_str(&names.join(", "))
    }
}

impl Read for HeaderList {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        if node.get_ref().as_str().is_some_and(|s| s.contains("{{")) {
            return Err(Fault::new("is an expression")
                .why("keys computed from the request are not in this version")
                .fix("name the header that carries the client's key: key = \"Idempotency-Key\""));
        }
        let names: Vec<HeaderName> = one_or_many(node)?;
        match names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
            Some((_, twice)) => Err(Fault::new(format!("names `{twice}` twice")).fix("name it once")),
            None => Ok(Self(names)),
        }
    }
}

words! {
    /// What a key must look like.
    KeyFormat {
        /// Visible ASCII.
        Any = "any",
        /// A UUID in its usual form.
        Uuid = "uuid",
    }
}

/// What a whole key must look like: a glob.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPattern(pub Pattern);

impl fmt::Display for KeyPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Read for KeyPattern {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = String::read(node)?;
        text.parse().map(Self).map_err(|why: PatternError| {
            Fault::new(why.to_string()).fix("a glob like \"order-[0-9]*\"; \"*\" for every key")
        })
    }
}

words! {
    /// A request of the rule that carries no key.
    Missing {
        /// Gets 400 key-missing.
        Required = "required",
        /// Passes unguarded, marked as bypassed.
        Optional = "optional",
    }
}

words! {
    /// A duplicate of a finished request.
    OnDuplicate {
        /// Gets the recorded answer.
        Replay = "replay",
        /// Is told that it is one.
        Reject = "reject",
    }
}

words! {
    /// A request that is equal in all but the key to one of the same caller.
    Suspect {
        /// Is not looked for.
        Off = "off",
        /// Is counted and runs.
        Count = "count",
        /// Is counted and refused as a duplicate.
        Reject = "reject",
    }
}

words! {
    /// A request while the store is away.
    OnStoreError {
        /// Gets 503 and is not run.
        Closed = "closed",
        /// Runs without a grant, marked and counted: another gateway may run it too.
        Open = "open",
    }
}

words! {
    /// An answer that does not tell whether the effect took place.
    Strictness {
        /// Is an unknown outcome: never run again by itself.
        Strict = "strict",
        /// Frees the key: the retry runs again.
        Relaxed = "relaxed",
    }
}

/// How long an unknown outcome stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    /// This long, then its end is an event.
    For(Duration),
    /// Until someone settles it.
    Forever,
}

impl fmt::Display for Keep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => f.write_str(&show_duration(*time)),
            Self::Forever => f.write_str("until someone settles it"),
        }
    }
}

impl Read for Keep {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match node.get_ref().as_str() {
            Some("never") => Ok(Self::Forever),
            _ => Duration::read(node)
                .map(Self::For)
                .map_err(|f| f.fix("a time like \"7 days\", or \"never\" to keep it until settled")),
        }
    }
}

/// How often the work of one record is begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attempts {
    /// As often as it is freed.
    Unlimited,
    /// At most this often; then the record is parked for a person.
    Most(u16),
}

impl fmt::Display for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlimited => f.write_str("unlimited"),
            Self::Most(n) => write!(f, "{n}"),
        }
    }
}

impl Read for Attempts {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        if node.get_ref().as_str() == Some("unlimited") {
            return Ok(Self::Unlimited);
        }
        match u32::read(node).map(u16::try_from) {
            Ok(Ok(n)) => Ok(Self::Most(n)),
            Ok(Err(_)) => Err(Fault::new("is more than 65535").fix("a smaller number, or \"unlimited\"")),
            Err(fault) => Err(fault.fix("a whole number from 1, or \"unlimited\"")),
        }
    }
}

/// What a rejected duplicate is answered with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RejectStatus {
    /// 409, which most clients do not repeat by themselves.
    Conflict,
    /// 429, with the rest of the time in which it is a duplicate as `Retry-After`.
    TooManyRequests,
}

impl fmt::Display for RejectStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Conflict => "409",
            Self::TooManyRequests => "429 with Retry-After",
        })
    }
}

impl Read for RejectStatus {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match whole_number(node, 409)? {
            409 => Ok(Self::Conflict),
            429 => Ok(Self::TooManyRequests),
            other => Err(Fault::new(format!("has no choice {other}"))
                .why("clients know these two for what was asked too often: 409 is final, 429 may be repeated later")
                .fix("409 or 429")),
        }
    }
}

/// What a rejected duplicate is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// "Already submitted.", in Chinese where the client prefers it.
    Standard,
    /// The operator's words, the same for everybody.
    Text(String),
}

impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Standard => f.write_str("\"Already submitted.\" (also in Chinese)"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

impl Read for Message {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = String::read(node)?;
        if text.chars().count() > 500 { Err(Fault::new("is longer than 500 characters")) } else { Ok(Self::Text(text)) }
    }
}

/// A duplicate of a running request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InFlight {
    /// Waits for its answer, at most this long, then gets 409 in-flight.
    Wait(Duration),
    /// Gets 409 in-flight at once.
    Reject,
}

/// How long a duplicate waits where no time is named.
pub(super) const WAIT: Duration = Duration::from_secs(10);

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(time) => write!(f, "wait, at most {}", show_duration(*time)),
            Self::Reject => f.write_str("reject"),
        }
    }
}

impl Read for InFlight {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let fix = "\"reject\", \"wait\" (10 s), or { wait = \"5s\" }";
        match node.get_ref() {
            DeValue::String(word) => match &**word {
                "reject" => Ok(Self::Reject),
                "wait" => Ok(Self::Wait(WAIT)),
                other => Err(Fault::unknown_word(other, &["wait", "reject"])),
            },
            DeValue::Table(table) => match table.get("wait") {
                Some(time) if table.len() == 1 => Duration::read(time).map(Self::Wait).map_err(|f| f.at(time.span())),
                _ => Err(Fault::new("wants `wait` with a time, and nothing else").fix(fix)),
            },
            _ => Err(Fault::new("wants a word or { wait = \"5s\" }").fix(fix)),
        }
    }
}

/// What must be equal in two requests with one key. The same key with another fingerprint is 422.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fingerprint {
    /// Method, path, query, content type and the body as it is.
    Bytes,
    /// The body as JSON: members in any order, equal numbers equal.
    Json(JsonFields),
    /// The body as a form: fields in any order.
    Form,
    /// Method and path only.
    Route,
    /// Nothing: the key alone.
    None,
}

/// Which parts of a JSON body count, as JSON pointers (`/amount`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct JsonFields {
    /// Only these; all where empty.
    pub include: Vec<String>,
    /// All but these.
    pub exclude: Vec<String>,
    /// Arrays whose order does not count.
    pub unordered: Vec<String>,
}

const FINGERPRINTS: &[&str] = &["bytes", "json", "form", "route", "none"];

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes => f.write_str("method, host, path, query, content type and the body byte for byte"),
            Self::Json(fields) => {
                f.write_str("method, host, path, query, content type and the body as JSON")?;
                for (word, list) in
                    [("only", &fields.include), ("without", &fields.exclude), ("in any order", &fields.unordered)]
                {
                    if !list.is_empty() {
                        write!(f, ", {word} {}", list.join(" "))?;
                    }
                }
                Ok(())
            }
            Self::Form => f.write_str("method, host, path, query, content type and the body as a form"),
            Self::Route => f.write_str("method, host and path"),
            Self::None => f.write_str("nothing beyond the key"),
        }
    }
}

/// A JSON pointer that names a part, never the whole.
struct Pointer(String);

impl Read for Pointer {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let pointer = text(node, "a JSON pointer", "write it like \"/amount\"")?;
        let escapes_hold = pointer.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
        if pointer.starts_with('/') && escapes_hold {
            Ok(Self(pointer.to_owned()))
        } else {
            Err(Fault::new(format!("has no JSON pointer in `{pointer}`"))
                .fix("write it like \"/amount\" or \"/items/0/sku\""))
        }
    }
}

impl JsonFields {
    fn read(table: &DeTable<'_>) -> Result<Self, Fault> {
        let mut fields = Self::default();
        for (name, node) in table {
            let list = match &**name.get_ref() {
                "include" => &mut fields.include,
                "exclude" => &mut fields.exclude,
                "unordered" => &mut fields.unordered,
                other => return Err(Fault::unknown_word(other, &["include", "exclude", "unordered"]).at(name.span())),
            };
            let pointers: Vec<Pointer> = one_or_many(node).map_err(|f| f.at(node.span()))?;
            *list = pointers.into_iter().map(|p| p.0).collect();
        }
        if !fields.include.is_empty() && !fields.exclude.is_empty() {
            return Err(Fault::new("names both `include` and `exclude`")
                .why("what is not included is excluded already")
                .fix("keep one of them"));
        }
        Ok(fields)
    }
}

impl Read for Fingerprint {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match node.get_ref() {
            DeValue::String(word) => {
                match &**word {
                    "bytes" => Ok(Self::Bytes),
                    "json" => Ok(Self::Json(JsonFields::default())),
                    "form" => Ok(Self::Form),
                    "route" => Ok(Self::Route),
                    "none" => Ok(Self::None),
                    "multipart" => Err(Fault::new("= \"multipart\" is not in this version")
                        .fix("\"bytes\" compares the body as it is")),
                    other => Err(Fault::unknown_word(other, FINGERPRINTS)),
                }
            }
            DeValue::Table(table) => match table.get("json").map(|n| (n.span(), n.get_ref())) {
                Some((_, DeValue::Table(fields))) if table.len() == 1 => JsonFields::read(fields).map(Self::Json),
                _ => Err(Fault::new("wants { json = { … } }").fix("{ json = { exclude = [\"/sent_at\"] } }")),
            },
            _ => Err(Fault::new("wants a word or { json = { … } }")
                .fix("\"bytes\", \"json\", \"form\", \"route\", \"none\"")),
        }
    }
}

/// `replay = { allow = […], deny = […] }`: changes to the built-in list of recorded fields.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayHeaders {
    /// Recorded although the built-in list leaves them out. Hop-by-hop fields cannot be named.
    pub allow: HeaderList,
    /// Not recorded although the built-in list keeps them.
    pub deny: HeaderList,
}

/// Fields that belong to a connection or a message, not to an outcome: a stored one would break the replay.
const NEVER_REPLAYED: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "content-length",
    "date",
];

impl fmt::Display for ReplayHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.allow.0.is_empty(), self.deny.0.is_empty()) {
            (true, true) => f.write_str("the built-in list"),
            (false, true) => write!(f, "the built-in list and {}", self.allow),
            (true, false) => write!(f, "the built-in list without {}", self.deny),
            (false, false) => write!(f, "the built-in list and {}, without {}", self.allow, self.deny),
        }
    }
}

impl Read for ReplayHeaders {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let fix = "{ allow = [\"Set-Cookie\"], deny = [\"ETag\"] }";
        let Some(table) = node.get_ref().as_table() else {
            return Err(Fault::new("wants a table with `allow` and `deny`").fix(fix));
        };
        let mut lists = Self::default();
        for (name, value) in table {
            let list = HeaderList::read(value).map_err(|f| f.at(value.span()));
            match &**name.get_ref() {
                "allow" => lists.allow = list?,
                "deny" => lists.deny = list?,
                other => return Err(Fault::unknown_word(other, &["allow", "deny"]).at(name.span())),
            }
        }
        if let Some(name) = lists.allow.0.iter().find(|name| NEVER_REPLAYED.contains(&name.as_str())) {
            return Err(Fault::new(format!("allows `{name}`"))
                .why("it belongs to one connection or is computed anew for each answer")
                .fix("leave it out"));
        }
        if let Some(name) = lists.allow.0.iter().find(|name| lists.deny.0.contains(name)) {
            return Err(Fault::new(format!("both allows and denies `{name}`")).fix("keep it in one list"));
        }
        Ok(lists)
    }
}
