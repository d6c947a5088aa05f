//! Which requests a rule is about: methods, host, path. Compiled once; matching allocates nothing.

use std::fmt;

use http::Method;
use semel_http::path::Decoded;

use super::read::{Fault, Node, Read, text};

/// Whether a request with this method may have an effect. Safe methods and CONNECT are never guarded.
pub fn is_unsafe(method: &Method) -> bool {
    !method.is_safe() && *method != Method::CONNECT
}

/// The methods of a rule.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Methods {
    /// Every method that may have an effect: written `*`.
    AllUnsafe,
    /// These.
    These(Vec<Method>),
}

impl Methods {
    /// Where a rule names none: POST and PATCH.
    pub(super) fn built_in() -> Self {
        Self::These(vec![Method::POST, Method::PATCH])
    }

    /// Whether the rule names the method.
    pub fn contains(&self, method: &Method) -> bool {
        match self {
            Self::AllUnsafe => is_unsafe(method),
            Self::These(list) => list.contains(method),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::AllUnsafe, _) => true,
            (Self::These(_), Self::AllUnsafe) => false,
            (Self::These(all), Self::These(some)) => some.iter().all(|m| all.contains(m)),
        }
    }

    pub(super) fn parse(words: &[String]) -> Result<Self, Fault> {
        let mut list = Vec::new();
        for word in words {
            if word == "*" {
                return Ok(Self::AllUnsafe);
            }
            let method = Method::from_bytes(word.as_bytes())
                .ok()
                .filter(|_| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'-'))
                .ok_or_else(|| {
                    Fault::new(format!("names no method: `{word}`"))
                        .fix("capital letters, like \"POST\"; \"*\" is every unsafe one")
                })?;
            if !is_unsafe(&method) {
                return Err(Fault::new(format!("names {method}"))
                    .why("GET, HEAD, OPTIONS, TRACE and CONNECT pass through untouched and are never guarded")
                    .fix("name the methods that change something"));
            }
            list.push(method);
        }
        if list.is_empty() { Ok(Self::built_in()) } else { Ok(Self::These(list)) }
    }
}

impl fmt::Display for Methods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AllUnsafe => f.write_str("every unsafe method"),
            Self::These(list) => f.write_str(&list.iter().map(Method::as_str).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// The host of a rule, without port: `api.example.com`, or `*.example.com` for every name under it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPattern {
    under: bool,
    /// In small letters; with its leading dot where `under`.
    name: String,
}

impl HostPattern {
    /// Whether a request's host (a port is ignored, case does not count) is meant.
    pub fn matches(&self, host: &str) -> bool {
        let host = without_port(host);
        let host = host.strip_suffix('.').unwrap_or(host);
        if !self.under {
            return host.eq_ignore_ascii_case(&self.name);
        }
        let Some(start) = host.len().checked_sub(self.name.len()) else { return false };
        start > 0 && host.is_char_boundary(start) && host[start..].eq_ignore_ascii_case(&self.name)
    }

    fn covers(&self, other: &Self) -> bool {
        match (self.under, other.under) {
            (false, true) => false,
            (false, false) => self.name == other.name,
            (true, false) => self.matches(&other.name),
            (true, true) => other.name.ends_with(&self.name),
        }
    }
}

fn without_port(host: &str) -> &str {
    match host.rfind(':') {
        Some(colon) if host[colon + 1..].bytes().all(|b| b.is_ascii_digit()) && !host[..colon].contains("::") => {
            &host[..colon]
        }
        _ => host,
    }
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.under { "*" } else { "" }, self.name)
    }
}

impl Read for HostPattern {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let host = text(node, "a host", "write it like \"api.example.com\"")?;
        let under = host.starts_with("*.");
        let name = if under { &host[1..] } else { host };
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        let v6 = name.starts_with('[') && name.ends_with(']');
        if name.is_empty() || name == "." || !(v6 || name.bytes().all(plain)) {
            return Err(Fault::new(format!("is no host: `{host}`"))
                .fix("a name without port, like \"api.example.com\" or \"*.example.com\""));
        }
        Ok(Self { under, name: name.to_ascii_lowercase() })
    }
}

/// The path of a rule: `/orders/{id}/items/*`. `{name}` stands for one segment that is not empty; `*`, at the end only, for the rest,
/// at least one segment, empty or not: `/files/*` means `/files/` and `/files/a/b`, not `/files`.
/// A segment written with percent signs is compared by what it means, so `/%6Frders` is `/orders`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PathPattern {
    segments: Vec<Segment>,
    rest: bool,
    written: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Segment {
    Literal(Vec<u8>),
    Any,
}

impl PathPattern {
    /// Every path.
    pub(super) fn all() -> Self {
        Self { segments: Vec::new(), rest: true, written: "/*".to_owned() }
    }

    pub(super) fn parse(written: &str) -> Result<Self, Fault> {
        let wrong = |what: String, fix: &str| Err(Fault::new(what).fix(fix.to_owned()));
        let Some(path) = written.strip_prefix('/') else {
            return wrong(format!("has the path `{written}`, which does not begin with `/`"), "\"POST /orders\"");
        };
        if written.contains(['?', '#']) || written.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return wrong(
                format!("has the path `{written}` with a query, a fragment or a space"),
                "rules match the path alone: leave the rest out",
            );
        }
        let mut segments = Vec::new();
        let mut parts = path.split('/').peekable();
        while let Some(part) = parts.next() {
            if part == "*" {
                if parts.peek().is_some() {
                    return wrong(
                        format!("has `*` inside `{written}`"),
                        "`*` stands at the end; one segment is {name}",
                    );
                }
                return Ok(Self { segments, rest: true, written: written.to_owned() });
            }
            let param = part.strip_prefix('{').and_then(|p| p.strip_suffix('}'));
            match param {
                Some(name) if !name.is_empty() && !name.contains(['{', '}', '*']) => segments.push(Segment::Any),
                _ if part.contains(['{', '}', '*']) => {
                    return wrong(
                        format!("has the segment `{part}`, half text and half pattern"),
                        "a segment is a text, {name}, or a last *",
                    );
                }
                _ => segments.push(Segment::Literal(Decoded(part.as_bytes()).collect())),
            }
        }
        Ok(Self { segments, rest: false, written: written.to_owned() })
    }

    /// Whether a request's path, as it came, is meant. Allocates nothing.
    pub fn matches(&self, path: impl AsRef<[u8]>) -> bool {
        Self::fits(&self.segments, self.rest, path.as_ref(), |text, part| text.iter().copied().eq(Decoded(part)))
    }

    /// Whether a service that ignores case, or a slash at the end, would take `path` for one that is meant.
    pub(super) fn is_near(&self, path: &[u8]) -> bool {
        let alike = |text: &[u8], part: &[u8]| {
            text.iter().map(u8::to_ascii_lowercase).eq(Decoded(part).map(|byte| byte.to_ascii_lowercase()))
        };
        if Self::fits(&self.segments, self.rest, path, alike) {
            return true;
        }
        // Of a rest there is one segment at least, empty or not: there the slash counts.
        let segments = match &*self.segments {
            [before @ .., Segment::Literal(text)] if text.is_empty() && !before.is_empty() => before,
            all => all,
        };
        !self.rest && Self::fits(segments, false, path.strip_suffix(b"/").unwrap_or(path), alike)
    }

    fn fits(segments: &[Segment], rest: bool, path: &[u8], same: impl Fn(&[u8], &[u8]) -> bool) -> bool {
        let Some(path) = path.strip_prefix(b"/") else { return false };
        let mut parts = path.split(|&byte| byte == b'/');
        for segment in segments {
            let Some(part) = parts.next() else { return false };
            let fits = match segment {
                Segment::Any => !part.is_empty(),
                Segment::Literal(text) => same(text, part),
            };
            if !fits {
                return false;
            }
        }
        parts.next().is_some() == rest
    }

    /// Whether every path of `other` is a path of this one.
    fn covers(&self, other: &Self) -> bool {
        let enough = match self.rest {
            true => {
                other.segments.len() > self.segments.len()
                    || (other.rest && other.segments.len() == self.segments.len())
            }
            false => !other.rest && other.segments.len() == self.segments.len(),
        };
        enough
            && self.segments.iter().zip(&other.segments).all(|(mine, theirs)| match (mine, theirs) {
                (Segment::Any, Segment::Any) => true,
                (Segment::Any, Segment::Literal(text)) => !text.is_empty(),
                (Segment::Literal(a), Segment::Literal(b)) => a == b,
                (Segment::Literal(_), Segment::Any) => false,
            })
    }
}

impl fmt::Display for PathPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

/// What a request must look like for a rule to be about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The methods it names.
    pub methods: Methods,
    /// The host it names, if any.
    pub host: Option<HostPattern>,
    /// The path.
    pub path: PathPattern,
}

impl Route {
    /// Whether host and path are the rule's, whatever the method.
    pub fn is_at(&self, host: Option<&str>, path: &str) -> bool {
        self.path.matches(path) && self.is_on(host)
    }

    /// Whether the host is the rule's.
    pub(super) fn is_on(&self, host: Option<&str>) -> bool {
        self.host.as_ref().is_none_or(|wanted| host.is_some_and(|host| wanted.matches(host)))
    }

    /// Whether it is about every request that may have an effect.
    pub(super) fn is_everything(&self) -> bool {
        self.methods == Methods::AllUnsafe && self.host.is_none() && self.path == PathPattern::all()
    }

    /// Whether no request reaches `later` past this one.
    pub(super) fn covers(&self, later: &Self) -> bool {
        let host = match (&self.host, &later.host) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(mine), Some(theirs)) => mine.covers(theirs),
        };
        host && self.methods.covers(&later.methods) && self.path.covers(&later.path)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.methods, self.path)?;
        match &self.host {
            Some(host) => write!(f, " on {host}"),
            None => Ok(()),
        }
    }
}

/// `match = "POST /orders"`: a method, or none, and a path.
pub(super) struct Match {
    pub(super) methods: Option<Methods>,
    pub(super) path: PathPattern,
}

impl Read for Match {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        let text = text(node, "a method and a path", "write it like \"POST /orders\"")?.trim();
        match text.split_once(char::is_whitespace) {
            None => Ok(Self { methods: None, path: PathPattern::parse(text)? }),
            Some((method, path)) => {
                let methods = Methods::parse(&[method.to_owned()])?;
                Ok(Self { methods: Some(methods), path: PathPattern::parse(path.trim_start())? })
            }
        }
    }
}

impl Read for Methods {
    fn read(node: &Node<'_>) -> Result<Self, Fault> {
        Self::parse(&super::read::one_or_many::<String>(node)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(pattern: &str) -> PathPattern {
        PathPattern::parse(pattern).unwrap_or_else(|_| panic!("{pattern}"))
    }

    #[test]
    fn a_path_pattern_matches_segments() {
        for (pattern, hits, misses) in [
            (
                "/orders",
                &["/orders", "/%6Frders", "/%6frders"][..],
                &["/orders/", "/order", "/orders/1", "/Orders", "//orders", "orders", ""][..],
            ),
            ("/orders/{id}", &["/orders/1", "/orders/a%2Fb"], &["/orders/", "/orders", "/orders/1/2"]),
            ("/orders/{id}/*", &["/orders/1/", "/orders/1/a/b"], &["/orders/1", "/orders//a"]),
            ("/*", &["/", "/a", "/a/b/"], &["", "*"]),
            ("/a%20b", &["/a%20b", "/a b"], &["/a+b", "/a%2"]),
            ("/", &["/"], &["/a", "//"]),
        ] {
            for hit in hits {
                assert!(path(pattern).matches(hit), "{pattern} should match {hit}");
            }
            for miss in misses {
                assert!(!path(pattern).matches(miss), "{pattern} should not match {miss}");
            }
        }
    }

    #[test]
    fn case_and_a_last_slash_are_near() {
        for (pattern, hits, misses) in [
            (
                "/orders",
                &["/orders", "/Orders", "/orders/", "/%4Frders/"][..],
                &["/order", "/orders/1", "//orders"][..],
            ),
            ("/Orders/", &["/orders", "/orders/"], &["/", "/orders//"]),
            ("/orders/{id}", &["/ORDERS/7/"], &["/orders/", "/orders//"]),
            ("/orders/*", &["/Orders/", "/orders/7"], &["/orders"]),
            ("/", &["/"], &["/a"]),
        ] {
            for hit in hits {
                assert!(path(pattern).is_near(hit.as_bytes()), "{pattern} should be near {hit}");
            }
            for miss in misses {
                assert!(!path(pattern).is_near(miss.as_bytes()), "{pattern} should not be near {miss}");
            }
        }
    }

    #[test]
    fn a_pattern_covers_what_it_leaves_nothing_of() {
        for (all, some, covers) in [
            ("/orders", "/orders", true),
            ("/orders/{id}", "/orders/7", true),
            ("/orders/{id}", "/orders/{x}", true),
            ("/orders/7", "/orders/{id}", false),
            ("/*", "/orders", true),
            ("/orders/*", "/orders", false),
            ("/orders/*", "/orders/{id}/items", true),
            ("/orders/{id}/*", "/orders/*", false),
            ("/orders/*", "/orders/*", true),
            ("/{any}", "/", false),
        ] {
            assert_eq!(path(all).covers(&path(some)), covers, "{all} over {some}");
        }
    }

    #[test]
    fn a_host_is_matched_without_port_and_case() {
        let exact = HostPattern { under: false, name: "api.example.com".to_owned() };
        let under = HostPattern { under: true, name: ".example.com".to_owned() };
        for host in ["api.example.com", "API.Example.com:8080", "api.example.com."] {
            assert!(exact.matches(host) && under.matches(host), "{host}");
        }
        for host in ["example.com", ".example.com", "", "é.com", "api.example.com.evil"] {
            assert!(!exact.matches(host) && !under.matches(host), "{host}");
        }
        assert!(under.covers(&exact) && !exact.covers(&under));
    }
}
