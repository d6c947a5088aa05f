#![doc = include_str!("fingerprint.md")]

mod form;
mod json;
mod target;

use std::borrow::Cow;

use http::{HeaderMap, Method, header};
use semel_core::{
    fingerprint::{Fingerprint, Hasher, Version},
    identity::Secret,
};

pub use json::{Json, JsonError, PointerError, canonical_digest};
#[cfg(feature = "axum")]
pub use target::AxumOriginalUri;
pub use target::{OriginalUri, RequestUri, Target};

/// What of a request must be the same for a second copy to be the same question.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub enum FingerprintMode {
    /// Method, target, content type, content coding and every byte of the body.
    #[default]
    Bytes,
    /// As `Bytes`, with a JSON body in canonical form.
    Json(Json),
    /// As `Bytes`, with the pairs of an URL-encoded form ordered by name.
    Form,
    /// Method and path alone.
    Route,
    /// Nothing: the key says it all.
    None,
}

/// What was asked.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// The method.
    pub method: &'a Method,
    /// Path and query, as the client sent them.
    pub target: &'a str,
    /// The header fields; content type and content coding are read.
    pub headers: &'a HeaderMap,
    /// The whole body.
    pub body: &'a [u8],
}

/// So many bytes are hashed in about 50 µs on a processor of today.
const LONG_BYTES: usize = 128 << 10;

/// So many bytes of JSON or of a form are put in order and hashed in about 50 µs.
const LONG_CANONICAL: usize = 8 << 10;

/// How the body went in; a part of the digest, so that raw bytes never meet a canonical form.
const RAW: &[u8] = b"raw";
const CANONICAL: &[u8] = b"canonical";

impl FingerprintMode {
    /// The version that fingerprints of this mode carry.
    #[must_use]
    pub fn version(&self) -> Version {
        match self {
            Self::None => Version { algorithm: 0, parameters: 0 },
            Self::Bytes => Version { algorithm: 1, parameters: 0 },
            Self::Json(json) => Version { algorithm: 2, parameters: json.parameters() },
            Self::Form => Version { algorithm: 3, parameters: 0 },
            Self::Route => Version { algorithm: 4, parameters: 0 },
        }
    }

    /// From how many bytes of a body on its fingerprint takes so long (some 50 µs) that it had better be made on another
    /// thread than the one that serves.
    pub(crate) const fn long(&self) -> usize {
        match self {
            Self::Bytes => LONG_BYTES,
            Self::Json(_) | Self::Form => LONG_CANONICAL,
            Self::Route | Self::None => usize::MAX,
        }
    }

    /// The fingerprint of `question`.
    ///
    /// Cost: BLAKE3 over the body; `Json` and `Form` also read it once and hold at most a few times its size.
    #[must_use]
    pub fn of(&self, secret: &Secret, question: &Question<'_>) -> Fingerprint {
        if matches!(self, Self::None) {
            return Fingerprint::NONE;
        }
        let mut hasher = Hasher::new(secret, self.version());
        let target = target::normal(question.target);
        hasher.part(question.method.as_str().as_bytes());
        if matches!(self, Self::Route) {
            let path = target.split_once('?').map_or(&*target, |(path, _)| path);
            hasher.part(path.as_bytes());
            return hasher.finish();
        }
        let (kind, coding) = described(question.headers);
        hasher.part(target.as_bytes()).part(kind.as_bytes()).part(coding.as_bytes());
        // A body that was compressed, or is not what the rule expects, counts by its bytes: an exact copy is still the
        // same question, and nothing else is.
        let plain = coding.is_empty() || coding == "identity";
        let canonical = match self {
            Self::Json(json) if plain && is_json(&kind) => json.digest(question.body).ok(),
            Self::Form if plain && kind == "application/x-www-form-urlencoded" => Some(form::digest(question.body)),
            _ => None,
        };
        match canonical {
            Some(digest) => hasher.part(CANONICAL).part(&digest),
            None => hasher.part(RAW).part(question.body),
        };
        hasher.finish()
    }
}

/// What the body is: its media type without parameters, and all of its content codings in order. In one pass over the
/// fields, which costs less than two looks. Every line counts: nobody knows which of them a service reads.
fn described(headers: &HeaderMap) -> (Cow<'_, str>, Cow<'_, str>) {
    let (mut kinds, mut codings) = (None, None);
    for (name, value) in headers {
        match *name {
            header::CONTENT_TYPE => add_line(&mut kinds, essence(value.as_bytes())),
            header::CONTENT_ENCODING => add_line(&mut codings, lower(value.as_bytes().trim_ascii())),
            _ => {}
        }
    }
    (kinds.unwrap_or_default(), codings.unwrap_or_default())
}

fn add_line<'a>(to: &mut Option<Cow<'a, str>>, line: Cow<'a, str>) {
    match to {
        None => *to = Some(line),
        Some(all) => {
            let all = all.to_mut();
            all.push(',');
            all.push_str(&line);
        }
    }
}

const JSON: &str = "application/json";

/// A media type without its parameters, in lower case; a list of several in full, as behind a comma another may follow.
fn essence(value: &[u8]) -> Cow<'_, str> {
    let end = value.iter().position(|&b| b == b';').filter(|&end| !value[end..].contains(&b','));
    lower(value[..end.unwrap_or(value.len())].trim_ascii())
}

fn lower(value: &[u8]) -> Cow<'_, str> {
    // What most bodies are costs one comparison instead of two passes over it.
    if value == JSON.as_bytes() {
        return Cow::Borrowed(JSON);
    }
    match std::str::from_utf8(value) {
        Ok(text) if !text.bytes().any(|b| b.is_ascii_uppercase()) => Cow::Borrowed(text),
        Ok(text) => Cow::Owned(text.to_ascii_lowercase()),
        // Not text: kept apart from everything that is, byte for byte.
        Err(_) => Cow::Owned(value.escape_ascii().to_string()),
    }
}

fn is_json(essence: &str) -> bool {
    essence == JSON || (essence.starts_with("application/") && essence.ends_with("+json"))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    struct Ask {
        method: Method,
        target: &'static str,
        kind: Option<&'static str>,
        coding: Option<&'static str>,
        body: &'static [u8],
    }

    impl Default for Ask {
        fn default() -> Self {
            Self {
                method: Method::POST,
                target: "/orders?a=1",
                kind: Some("application/json"),
                coding: None,
                body: br#"{"a":1,"b":2}"#,
            }
        }
    }

    fn of(mode: &FingerprintMode, ask: &Ask) -> Fingerprint {
        let mut headers = HeaderMap::new();
        if let Some(kind) = ask.kind {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(coding) = ask.coding {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        mode.of(&secret, &Question { method: &ask.method, target: ask.target, headers: &headers, body: ask.body })
    }

    fn json() -> FingerprintMode {
        FingerprintMode::Json(Json::default())
    }

    #[test]
    fn method_target_type_coding_and_body_each_make_another_question() {
        for mode in [FingerprintMode::Bytes, json(), FingerprintMode::Form] {
            let first = of(&mode, &Ask::default());
            assert!(first.same(&of(&mode, &Ask::default())));
            for other in [
                Ask { method: Method::PUT, ..Ask::default() },
                Ask { target: "/orders?a=2", ..Ask::default() },
                Ask { target: "/orders", ..Ask::default() },
                Ask { kind: Some("text/plain"), ..Ask::default() },
                Ask { kind: None, ..Ask::default() },
                Ask { coding: Some("gzip"), ..Ask::default() },
                Ask { body: br#"{"a":1,"b":3}"#, ..Ask::default() },
                Ask { body: b"", ..Ask::default() },
            ] {
                assert!(!first.same(&of(&mode, &other)), "{mode:?}");
            }
        }
    }

    #[test]
    fn spellings_of_one_question_are_the_same() {
        let first = of(&FingerprintMode::Bytes, &Ask::default());
        let spelled = Ask { kind: Some("Application/JSON; charset=utf-8"), ..Ask::default() };
        assert!(first.same(&of(&FingerprintMode::Bytes, &spelled)));
        let path = |target| of(&FingerprintMode::Bytes, &Ask { target, ..Ask::default() });
        assert!(path("/%6frders/%e4").same(&path("/orders/%E4")));
        assert!(!path("/a%2Fb").same(&path("/a/b")));
    }

    #[test]
    fn every_line_that_says_what_the_body_is_counts() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let of = |mode: &FingerprintMode, name: header::HeaderName, lines: &[&'static str], body: &[u8]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(&name, HeaderValue::from_static(line));
            }
            mode.of(&secret, &Question { method: &Method::POST, target: "/", headers: &headers, body })
        };
        for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING] {
            let lines = |lines: &[&'static str]| of(&FingerprintMode::Bytes, name.clone(), lines, b"");
            let one = lines(&["application/json"]);
            for other in [
                &["application/json", "text/plain"][..],
                &["text/plain", "application/json"],
                &["application/json", "application/json"],
                &["application/json, text/plain"],
                &["application/json;a=b, text/plain"],
                &[],
            ] {
                assert!(!one.same(&lines(other)), "{name}: {other:?}");
            }
            assert!(lines(&["a/b", "c/d"]).same(&lines(&["A/b", " c/d"])), "{name}");
            assert!(!lines(&["a/b", "c/d"]).same(&lines(&["c/d", "a/b"])), "{name}");
        }
        // Of two kinds, nobody knows which one a service goes by: the bytes count.
        let spelled = |body| of(&json(), header::CONTENT_TYPE, &["application/json", "text/plain"], body);
        assert!(!spelled(b"[1]").same(&spelled(b"[ 1]")));
    }

    #[test]
    fn only_the_json_mode_looks_into_json() {
        let spelled = || Ask { body: br#" { "b" : 2.0, "a" : 1e0 } "#, ..Ask::default() };
        assert!(of(&json(), &Ask::default()).same(&of(&json(), &spelled())));
        assert!(!of(&FingerprintMode::Bytes, &Ask::default()).same(&of(&FingerprintMode::Bytes, &spelled())));
        let problem = |body| Ask { kind: Some("application/merge-patch+json"), body, ..Ask::default() };
        assert!(of(&json(), &problem(b"[1, 2]")).same(&of(&json(), &problem(b"[1,2]"))));
    }

    #[test]
    fn what_is_no_clear_json_counts_by_its_bytes() {
        for body in [&br#"{"a":1,"a":2}"#[..], b"{", b"\xff", b""] {
            let ask = || Ask { body, ..Ask::default() };
            assert!(of(&json(), &ask()).same(&of(&json(), &ask())));
        }
        let doubled = of(&json(), &Ask { body: br#"{"a":1,"a":2}"#, ..Ask::default() });
        assert!(!doubled.same(&of(&json(), &Ask { body: br#"{"a":2}"#, ..Ask::default() })));
        assert!(!doubled.same(&of(&json(), &Ask { body: br#"{ "a":1,"a":2}"#, ..Ask::default() })));
        let packed = |body| Ask { coding: Some("gzip"), body, ..Ask::default() };
        assert!(!of(&json(), &packed(b"[1]")).same(&of(&json(), &packed(b"[ 1]"))));
    }

    #[test]
    fn a_form_is_ordered_by_name_and_keeps_the_order_of_equal_names() {
        let form = |body| {
            let kind = Some("application/x-www-form-urlencoded");
            of(&FingerprintMode::Form, &Ask { kind, body, ..Ask::default() })
        };
        let first = form(b"a=1&b=2+x");
        for same in [&b"b=2%20x&a=1"[..], b"a=%31&b=2+x&", b"&&b=2+x&a=1"] {
            assert!(first.same(&form(same)));
        }
        for other in [&b"a=1&b=2"[..], b"a=1&b=2+x&c", b"a=1b=2+x", b"b=1&a=2+x"] {
            assert!(!first.same(&form(other)));
        }
        assert!(!form(b"a=1&a=2").same(&form(b"a=2&a=1")));
        assert!(form(b"c&a=1").same(&form(b"a=1&c=")));
    }

    #[test]
    fn a_route_is_method_and_path() {
        let route = |ask: Ask| of(&FingerprintMode::Route, &ask);
        let other_body = Ask { target: "/orders?b=9", body: b"x", kind: None, ..Ask::default() };
        assert!(route(Ask::default()).same(&route(other_body)));
        assert!(!route(Ask::default()).same(&route(Ask { method: Method::PUT, ..Ask::default() })));
        assert!(!route(Ask::default()).same(&route(Ask { target: "/order?a=1", ..Ask::default() })));
    }
}
