//! The guard behind pages of other origins.
//!
//! A browser sends the key across origins only where the service's answer to its preflight allows the header, shows a page
//! only the fields that are named, and nothing at all of an answer that names no origin. The service does not know of the
//! guard's header fields, and never sees what the guard answers by itself. So the guard adds its own words to what the service
//! allows, and says of its own answers for which origins they are.

use std::{fmt, mem::take, sync::Arc};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

use crate::{
    names::{
        GUARD, IDEMPOTENCY_ERROR_SOURCE, IDEMPOTENCY_EXPIRES, IDEMPOTENCY_STATUS, IDEMPOTENT_REPLAYED, RETRY_AFTER,
        TRUE, X_REQUEST_ID,
    },
    rule::Rule,
    view::RequestView,
};

/// What a page may read of the guard.
static EXPOSED: [&HeaderName; 6] = [
    &IDEMPOTENCY_STATUS,
    &IDEMPOTENT_REPLAYED,
    &IDEMPOTENCY_EXPIRES,
    &IDEMPOTENCY_ERROR_SOURCE,
    &RETRY_AFTER,
    &X_REQUEST_ID,
];

/// Lets pages of other origins use the guard; see [`GuardLayer::cors`](crate::GuardLayer::cors). Clones are one.
///
/// - A preflight that the service allows also allows the key's header field of the rule that the request will meet.
/// - An answer that the service lets a page read also lets it read `Idempotency-Status` and the others of ours,
///   `Retry-After` and `X-Request-Id`.
/// - A refusal or a recorded answer, which the service never sees, may be read by pages of the named origins, with
///   credentials.
///
/// Whether a page may send anything stays the service's word alone. Recorded answers have no CORS fields of the service's:
/// which of its own fields a page may read of them, a rule says with `Access-Control-Expose-Headers` among its
/// [`ReplayHeaders`](crate::ReplayHeaders).
///
/// ```
/// # use semel_core::engine::Engine;
/// # use semel_http::{Cors, GuardLayer, Rule, principal};
/// # let engine = Engine::memory();
/// # let rule = Rule::key().principal(principal::shared()).build()?;
/// let layer = GuardLayer::new(engine, rule).cors(Cors::origins(["https://shop.example.com"])?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cors(Arc<[HeaderValue]>);

impl Cors {
    /// Pages of these origins, each as a browser writes it: `https://shop.example.com`, `http://localhost:5173`.
    ///
    /// # Errors
    /// [`BadOrigin`] for what is none: `*`, `null`, a path, a name in capitals.
    pub fn origins(origins: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, BadOrigin> {
        origins.into_iter().map(|text| origin(text.as_ref())).collect::<Result<_, _>>().map(Self)
    }

    /// What is to be added to the answer of `request`; nothing where no other origin's page asks. `rule_for` tells which rule
    /// a request with this method meets.
    pub(crate) fn asked(
        &self,
        request: &RequestView<'_>,
        rule_for: impl FnOnce(&Method) -> Option<Arc<Rule>>,
    ) -> Option<Box<Across>> {
        let origin = request.headers.get(header::ORIGIN)?;
        if *request.method == Method::OPTIONS {
            let method = request.headers.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
            let mut keys = Vec::new();
            let rule = rule_for(&Method::from_bytes(method.as_bytes()).ok()?)?;
            rule.key.headers(&mut |name| keys.push(name.clone()));
            return Some(Box::new(Across::Preflight { keys }));
        }
        if request.method.is_safe() {
            return None;
        }
        let is_named = self.0.contains(origin);
        Some(Box::new(Across::Request { origin: is_named.then(|| origin.clone()) }))
    }
}

/// The origins, with commas between them.
impl fmt::Display for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, origin) in self.0.iter().enumerate() {
            let between = if index == 0 { "" } else { ", " };
            write!(f, "{between}{}", origin.to_str().unwrap_or_default())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Cors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cors").field(&self.0).finish()
    }
}

fn origin(text: &str) -> Result<HeaderValue, BadOrigin> {
    let bad = || BadOrigin(text.to_owned());
    let (scheme, host) = text.split_once("://").ok_or_else(bad)?;
    // A path, a query, a user, a capital, an impossible port, or no host at all: no browser sends it, so it would never match.
    let is_plain =
        !host.is_empty() && !host.contains(['/', '?', '#', '@', '*', '\\']) && text == text.to_ascii_lowercase();
    // What does not read as a port is taken for none.
    let is_known = text.parse::<Uri>().is_ok_and(|uri| match uri.port() {
        Some(port) => port.as_str() == port.as_u16().to_string(),
        None => uri.host() == Some(host),
    });
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "",
    };
    if is_plain && is_known && (default.is_empty() || !host.ends_with(default)) {
        HeaderValue::from_str(text).map_err(|_| bad())
    } else {
        Err(bad())
    }
}

/// What is no origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BadOrigin(String);

impl fmt::Display for BadOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is no origin as browsers send it: a scheme and a host in small letters, a port where it is not the usual \
             one, and nothing behind, like `https://shop.example.com`",
            self.0.escape_debug()
        )
    }
}

impl std::error::Error for BadOrigin {}

/// A request across origins, until it is answered.
pub(crate) enum Across {
    /// A browser asks whether a request may be sent.
    Preflight {
        /// Where that request's key would be.
        keys: Vec<HeaderName>,
    },
    /// A request.
    Request {
        /// Whose page asks, where it may read what the guard says.
        origin: Option<HeaderValue>,
    },
}

impl Across {
    /// Adds what is missing.
    #[cold]
    pub(crate) fn tell(&mut self, answer: &mut HeaderMap) {
        match self {
            Self::Preflight { keys } => {
                if answer.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
                    name(answer, header::ACCESS_CONTROL_ALLOW_HEADERS, keys.iter());
                }
            }
            Self::Request { origin } => {
                if !answer.contains_key(header::ACCESS_CONTROL_ALLOW_ORIGIN) {
                    let Some(origin) = take(origin).filter(|_| is_ours(answer)) else { return };
                    answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
                    answer.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE.clone());
                    name(answer, header::VARY, [&header::ORIGIN].into_iter());
                }
                name(answer, header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED.into_iter());
            }
        }
    }
}

/// Whether the guard made the answer, or repeats it.
fn is_ours(answer: &HeaderMap) -> bool {
    answer.contains_key(&IDEMPOTENT_REPLAYED) || answer.get(&IDEMPOTENCY_ERROR_SOURCE) == Some(&GUARD)
}

/// Adds names to a list of them, in one line: those that are not there.
fn name<'a>(answer: &mut HeaderMap, list: HeaderName, names: impl Iterator<Item = &'a HeaderName>) {
    let mut all = Vec::new();
    for line in answer.get_all(&list) {
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(line.as_bytes());
    }
    for name in names {
        let is_there = |part: &[u8]| part.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes());
        if all.split(|byte| *byte == b',').any(is_there) {
            continue;
        }
        if !all.is_empty() {
            all.extend_from_slice(b", ");
        }
        all.extend_from_slice(name.as_str().as_bytes());
    }
    // Made of fields' values and of names: nothing in it is refused.
    if let Ok(value) = HeaderValue::from_bytes(&all) {
        answer.insert(list, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_sends() {
        for good in ["https://shop.example.com", "http://localhost:5173", "https://[::1]:8443", "app://shop"] {
            assert_eq!(Cors::origins([good]).unwrap().0[0], good);
        }
        for bad in [
            "*",
            "null",
            "",
            "shop.example.com",
            "https://",
            "https://shop.example.com/",
            "https://shop.example.com/path",
            "https://*.example.com",
            "https://Shop.example.com",
            "https://user@shop.example.com",
            "https://shop.example.com:443",
            "http://shop.example.com:80",
            "https://shop.example.com:",
            "https://shop.example.com:99999",
            "https://shop.example.com:08443",
            "https://shop example.com",
        ] {
            let why = Cors::origins([bad]).unwrap_err().to_string();
            assert!(why.contains(&format!("`{bad}`")) && why.contains("https://shop.example.com"), "{why}");
        }
        assert!(Cors::origins([] as [&str; 0]).unwrap().0.is_empty());
    }

    #[test]
    fn names_are_added_once_and_in_one_line() {
        let add = |lines: &[&'static str]| {
            let mut answer = HeaderMap::new();
            for line in lines {
                answer.append(header::VARY, HeaderValue::from_static(line));
            }
            name(&mut answer, header::VARY, [&header::ORIGIN, &header::ACCEPT].into_iter());
            let all: Vec<_> = answer.get_all(header::VARY).iter().map(|v| v.to_str().unwrap().to_owned()).collect();
            all
        };
        assert_eq!(add(&[]), ["origin, accept"]);
        assert_eq!(add(&["Cookie"]), ["Cookie, origin, accept"]);
        assert_eq!(add(&["Cookie", "ORIGIN , x"]), ["Cookie, ORIGIN , x, accept"]);
        assert_eq!(add(&["accept,origin"]), ["accept,origin"]);
        assert_eq!(add(&["*"]), ["*, origin, accept"], "with credentials `*` is a name");
    }
}
