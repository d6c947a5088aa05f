//! Which header fields are recorded.

use http::{HeaderMap, HeaderName, header};

/// Which header fields of an answer are recorded, beyond the fixed rules.
///
/// Never recorded: hop-by-hop fields and what `Connection` names, `Content-Length`, `Transfer-Encoding`, `Date`,
/// `Set-Cookie`, `WWW-Authenticate`, `Proxy-Authenticate`, `Server-Timing`, request and trace ids, rate limits,
/// `Alt-Svc`, CORS fields, and this guard's own. All others are.
#[derive(Clone, Debug, Default)]
pub struct ReplayHeaders {
    allow: Vec<HeaderName>,
    deny: Vec<HeaderName>,
}

impl ReplayHeaders {
    /// Records these too, although they are on the list: `Set-Cookie`, where a replay may set it again. What belongs to
    /// one connection or one message (`Connection`, `Content-Length`, `Transfer-Encoding`, `Date`) cannot be allowed.
    #[must_use]
    pub fn allow(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.allow.extend(names);
        self
    }

    /// Does not record these.
    #[must_use]
    pub fn deny(mut self, names: impl IntoIterator<Item = HeaderName>) -> Self {
        self.deny.extend(names);
        self
    }

    /// Calls `each` with the header lines of `headers` that are recorded, in order.
    pub(crate) fn lines<'a>(&self, headers: &'a HeaderMap, mut each: impl FnMut(&'a HeaderName, &'a [u8])) {
        // A pass over the names: a look would have to hash, and answers have few.
        let connection = headers.keys().any(|name| *name == header::CONNECTION);
        for (name, value) in headers {
            if self.takes(name) && !(connection && is_named_by_connection(headers, name)) {
                each(name, value.as_bytes());
            }
        }
    }

    fn takes(&self, name: &HeaderName) -> bool {
        match kind(name) {
            Kind::Message => false,
            Kind::Personal => self.allow.contains(name) && !self.deny.contains(name),
            Kind::Content => self.deny.is_empty() || !self.deny.contains(name),
        }
    }
}

#[derive(PartialEq, Eq)]
enum Kind {
    /// Belongs to one connection, one message, or this guard.
    Message,
    /// Belongs to one exchange with one caller.
    Personal,
    /// Belongs to the answer.
    Content,
}

fn kind(name: &HeaderName) -> Kind {
    match *name {
        // What most answers have, told apart without a look at the text.
        header::CONTENT_TYPE
        | header::SERVER
        | header::CACHE_CONTROL
        | header::ETAG
        | header::LOCATION
        | header::VARY => Kind::Content,
        header::CONTENT_LENGTH | header::DATE | header::CONNECTION | header::TRANSFER_ENCODING => Kind::Message,
        _ => by_text(name.as_str()),
    }
}

fn by_text(name: &str) -> Kind {
    match name {
        "keep-alive"
        | "proxy-connection"
        | "te"
        | "upgrade"
        | "semel-outcome"
        | "semel-identity"
        | "semel-fence"
        | "semel-attempt"
        | "semel-unguarded"
        | "idempotent-replayed"
        | "idempotency-status"
        | "idempotency-expires"
        | "idempotency-error-source" => Kind::Message,
        "set-cookie"
        | "set-cookie2"
        | "www-authenticate"
        | "proxy-authenticate"
        | "authentication-info"
        | "proxy-authentication-info"
        | "server-timing"
        | "alt-svc"
        | "x-request-id"
        | "request-id"
        | "x-correlation-id"
        | "correlation-id"
        | "x-trace-id"
        | "traceparent"
        | "tracestate"
        | "traceresponse"
        | "b3"
        | "x-amzn-trace-id"
        | "x-amzn-requestid"
        | "x-cloud-trace-context"
        | "x-envoy-upstream-service-time" => Kind::Personal,
        _ => {
            const FAMILIES: [&str; 5] = ["access-control-", "ratelimit", "x-ratelimit-", "x-rate-limit-", "x-b3-"];
            let family =
                matches!(name.as_bytes()[0], b'a' | b'r' | b'x') && FAMILIES.iter().any(|f| name.starts_with(f));
            if family { Kind::Personal } else { Kind::Content }
        }
    }
}

fn is_named_by_connection(headers: &HeaderMap, name: &HeaderName) -> bool {
    let named = |line: &http::HeaderValue| {
        line.as_bytes().split(|&b| b == b',').any(|n| n.trim_ascii().eq_ignore_ascii_case(name.as_str().as_bytes()))
    };
    headers.get_all(header::CONNECTION).iter().any(named)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn kept(rule: &ReplayHeaders, lines: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_static(value));
        }
        let mut out = Vec::new();
        rule.lines(&headers, |name, value| out.push(format!("{name}: {}", String::from_utf8_lossy(value))));
        out
    }

    #[test]
    fn what_belongs_to_the_answer_is_kept_in_order() {
        let lines = [
            ("location", "/orders/7"),
            ("set-cookie", "a=1"),
            ("set-cookie", "b=2"),
            ("etag", "\"x\""),
            ("date", "now"),
            ("content-length", "3"),
            ("cache-control", "no-store, private"),
            ("access-control-allow-origin", "*"),
            ("ratelimit-remaining", "3"),
            ("x-request-id", "1"),
            ("link", "</a>; rel=next"),
            ("link", "</b>; rel=last"),
            ("idempotency-status", "fresh"),
        ];
        assert_eq!(
            kept(&ReplayHeaders::default(), &lines),
            [
                "location: /orders/7",
                "etag: \"x\"",
                "cache-control: no-store, private",
                "link: </a>; rel=next",
                "link: </b>; rel=last"
            ]
        );
    }

    #[test]
    fn what_connection_names_is_not_kept() {
        let lines = [("connection", "close, X-Hop"), ("x-hop", "1"), ("x-end", "2")];
        assert_eq!(kept(&ReplayHeaders::default(), &lines), ["x-end: 2"]);
    }

    #[test]
    fn a_rule_allows_and_denies() {
        let lines = [("set-cookie", "a=1"), ("content-length", "3"), ("etag", "x"), ("link", "y")];
        let rule = ReplayHeaders::default().allow([header::SET_COOKIE, header::CONTENT_LENGTH]).deny([header::ETAG]);
        assert_eq!(kept(&rule, &lines), ["set-cookie: a=1", "link: y"]);
    }
}
