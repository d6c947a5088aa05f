//! Whose key it is.

use std::fmt;

use http::HeaderName;
use toml::Spanned;

use super::problem::Problem;
use super::read::{Fault, Node, Read, Report, Section};
use super::setting::{Origin, Setting};

/// `[principal]`: what tells callers apart. Two callers with the same key are two intents.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Principal {
    /// One scope for all callers; a duplicate with other credentials is refused, never answered with another person's data.
    Shared,
    /// A header that the authenticating proxy in front sets, and that no client can send past it.
    Header(HeaderName),
    /// The digest of an API key in this header.
    ApiKey(HeaderName),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared by all callers"),
            Self::Header(name) => write!(f, "the header {name}, trusted"),
            Self::ApiKey(name) => write!(f, "the digest of the API key in {name}"),
        }
    }
}

const AVAILABLE: &str =
    "header = \"X-Authenticated-User\" (set by your proxy), api_key = \"X-Api-Key\", or shared = true";

struct True;

impl Read for True {
    fn read(node: &Spanned<toml::de::DeValue<'_>>) -> Result<Self, Fault> {
        match bool::read(node)? {
            true => Ok(Self),
            false => Err(Fault::new("= false says nothing").fix(AVAILABLE)),
        }
    }
}

/// A header's name, alone or as `{ header = "…" }`.
struct Name(HeaderName);

impl Read for Name {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        match node.get_ref().as_table() {
            None => HeaderName::read(node).map(Self),
            Some(table) => match table.get("header") {
                Some(inner) if table.len() == 1 => HeaderName::read(inner).map(Self).map_err(|f| f.at(inner.span())),
                _ => Err(Fault::new("wants a header's name").fix("write it like \"X-Api-Key\"")),
            },
        }
    }
}

impl Principal {
    /// `None` where the file says nothing.
    pub(super) fn read(mut section: Section<'_>, report: &mut Report) -> Option<Setting<Self>> {
        let origin = section.origin();
        let before = report.problems.len();
        let header = section.read::<Name>("header", report);
        let api_key = section.read::<Name>("api_key", report);
        let shared = section.read::<True>("shared", report);
        for key in ["jwt", "mtls", "cookie", "by_address"] {
            section.refuse(key, "this version takes a header or an API key as the principal", AVAILABLE, report);
        }
        section.finish(report);
        let found: Vec<Setting<Self>> = [
            header.map(|s| Setting { value: Self::Header(s.value.0), origin: s.origin }),
            api_key.map(|s| Setting { value: Self::ApiKey(s.value.0), origin: s.origin }),
            shared.map(|s| Setting { value: Self::Shared, origin: s.origin }),
        ]
        .into_iter()
        .flatten()
        .collect();
        if let [_, second, ..] = found.as_slice() {
            report.push(
                Problem::error(second.origin, "`principal` has two sources")
                    .why("a caller who can choose between them has two scopes, and one key runs twice")
                    .fix("keep one"),
            );
        }
        let chosen = found.into_iter().next();
        if chosen.is_none() && origin != Origin::Default && report.problems.len() == before {
            report.push(Problem::error(origin, "`principal` names no source").fix(AVAILABLE));
        }
        // One report per mistake: a broken section is not also a missing one.
        chosen.or_else(|| (origin != Origin::Default).then(|| Setting { value: Self::Shared, origin }))
    }

    /// Guarded rules in a file without a principal.
    pub(super) fn missing(at: Origin) -> Problem {
        Problem::error(at, "rules, but no [principal]")
            .why("without one, two customers who send the same key are one intent to the gateway")
            .fix(AVAILABLE)
    }
}
