//! Fields that belong to one connection and go no further.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, DATE, EXPECT, HOST,
        PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, SERVER, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
    },
};
use semel_http::names::{SEMEL_OUTCOME, X_REQUEST_ID};

/// Removes `Connection` and every field it names. Where it asks for an upgrade that is named in `Upgrade`, that wish
/// alone is left. `says` is what [`Fields`] has found of it.
///
/// Must run before the gateway adds fields of its own: a client could name those.
pub(crate) fn strip_named(headers: &mut HeaderMap, says: Connection) {
    match says {
        Connection::Nothing => return,
        Connection::Usual => {
            headers.remove(CONNECTION);
            return;
        }
        Connection::More => {}
    }
    let names: Vec<_> = named(headers).collect();
    headers.remove(CONNECTION);
    let mut upgrade = false;
    for name in names {
        match name {
            UPGRADE => upgrade = true,
            // Without these the message would be another one.
            HOST | CONTENT_LENGTH | TRANSFER_ENCODING | TE => {}
            name => {
                headers.remove(name);
            }
        }
    }
    if upgrade && headers.contains_key(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// The fields that `Connection` names, all lines of it.
pub(crate) fn named(headers: &HeaderMap) -> impl Iterator<Item = HeaderName> {
    let tokens = headers.get_all(CONNECTION).iter().flat_map(|value| value.as_bytes().split(|b| *b == b','));
    tokens.filter_map(|token| HeaderName::from_bytes(token.trim_ascii()).ok())
}

/// What `Connection` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Connection {
    /// It is not there.
    #[default]
    Nothing,
    /// What nearly all say, once: it names nothing but itself, or the field that goes no further anyway.
    Usual,
    /// It may name fields.
    More,
}

impl Connection {
    /// With one line more.
    fn and(self, line: &HeaderValue) -> Self {
        if self == Self::Nothing && (line == "keep-alive" || line == "close") { Self::Usual } else { Self::More }
    }
}

/// What one pass over the fields finds; each look-up saved is a hash saved.
#[derive(Default)]
pub(crate) struct Fields<'a> {
    pub(crate) names: Names,
    /// The first, where there are several.
    pub(crate) host: Option<&'a HeaderValue>,
    /// The first, where there are several.
    pub(crate) request_id: Option<&'a HeaderValue>,
}

/// Of the fields that matter to a proxy, those that are there. `one_hop` leaves out `Connection`: what [`strip_named`]
/// lets stand of it comes with an `Upgrade`.
#[derive(Clone, Copy, Default)]
pub(crate) struct Names {
    pub(crate) connection: Connection,
    pub(crate) transfer_encoding: bool,
    pub(crate) via: bool,
    one_hop: bool,
    /// Of a request that goes on: something is said to follow its body.
    trailer: bool,
    /// Of a request that arrives: a name that is not known here has an underscore.
    pub(crate) underscore: bool,
    /// Of an answer: words that are the gateway's alone.
    ours: bool,
}

impl<'a> Fields<'a> {
    /// Of a request that arrives.
    pub(crate) fn of(headers: &'a HeaderMap) -> Self {
        Self::pass(headers, |names, name| names.underscore |= name.as_str().contains('_'))
    }

    /// Of a request that goes on.
    pub(super) fn of_outgoing(headers: &'a HeaderMap) -> Self {
        Self::pass(headers, |names, name| names.trailer |= *name == TRAILER)
    }

    fn pass(headers: &'a HeaderMap, note: impl Fn(&mut Names, &HeaderName)) -> Self {
        let mut fields = Self::default();
        let names = &mut fields.names;
        for (name, value) in headers {
            match *name {
                HOST => fields.host = fields.host.or(Some(value)),
                TRANSFER_ENCODING => names.transfer_encoding = true,
                CONNECTION => names.connection = names.connection.and(value),
                VIA => names.via = true,
                _ if is_common(name) => {}
                _ if *name == X_REQUEST_ID => fields.request_id = fields.request_id.or(Some(value)),
                _ => {
                    names.one_hop |= of_one_hop(name);
                    note(names, name);
                }
            }
        }
        fields
    }
}

/// Names that most messages have and that mean nothing to a proxy: told apart without a look at their text.
pub(crate) fn is_common(name: &HeaderName) -> bool {
    matches!(
        *name,
        ACCEPT | ACCEPT_ENCODING | AUTHORIZATION | CONTENT_LENGTH | CONTENT_TYPE | DATE | SERVER | USER_AGENT
    )
}

fn of_one_hop(name: &HeaderName) -> bool {
    match *name {
        CONNECTION | EXPECT | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | UPGRADE => true,
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings"),
    }
}

/// Removes what a request must not carry to the upstream. `Transfer-Encoding` stays: it is `chunked` alone by now,
/// and hyper sends a body of unknown length on a GET only where the field says so. `Expect` was answered here. Nothing
/// follows the body: many a service merges that with the fields of the head, and nobody here has looked at it.
pub(super) fn strip_request(headers: &mut HeaderMap, names: Names, keep_upgrade: bool) {
    if names.trailer {
        headers.remove(TRAILER);
    }
    if !names.one_hop {
        return;
    }
    let trailers = headers.get_all(TE).iter().any(wants_trailers);
    strip(headers, keep_upgrade);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
        headers.append(CONNECTION, HeaderValue::from_static("te"));
    }
}

/// In an answer these are the gateway's own words, about what it guards. From a service they would be taken for the
/// gateway's: an error whose source is `guard`, say, was not run.
fn is_ours(name: &HeaderName) -> bool {
    let name = name.as_str();
    name.starts_with("semel-")
        || matches!(
            name,
            "idempotency-status" | "idempotent-replayed" | "idempotency-expires" | "idempotency-error-source"
        )
}

/// What is kept of an answer although it goes no further than here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keep {
    Nothing,
    /// The protocol that was switched to.
    Upgrade,
    /// `Semel-Outcome`: a guard reads it, and removes it.
    Word,
}

/// Removes what an answer must not carry to the client. False where its body is coded for this hop in a way that
/// cannot be passed on.
pub(super) fn strip_response(headers: &mut HeaderMap, keep: Keep) -> bool {
    let names = Fields::pass(headers, |names, name| names.ours |= is_ours(name)).names;
    strip_named(headers, names.connection);
    if names.one_hop {
        strip(headers, keep == Keep::Upgrade);
    }
    if names.ours {
        remove(headers, |name| is_ours(name) && !(keep == Keep::Word && *name == SEMEL_OUTCOME));
    }
    if names.transfer_encoding {
        if !only_chunked(headers) {
            return false;
        }
        headers.remove(TRANSFER_ENCODING);
        headers.remove(CONTENT_LENGTH);
    }
    true
}

/// Removes from what followed an answer's body what its head must not carry either.
#[cold]
pub(super) fn strip_trailers(trailers: &mut HeaderMap) {
    remove(trailers, |name| is_ours(name) || of_one_hop(name));
}

/// Whether `Transfer-Encoding` is exactly one `chunked`. A coding before it would be lost on the way, and two fields
/// are one too many to agree about.
pub(crate) fn only_chunked(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    matches!((values.next(), values.next()), (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

fn strip(headers: &mut HeaderMap, keep_upgrade: bool) {
    remove(headers, |name| of_one_hop(name) && !(keep_upgrade && (*name == CONNECTION || *name == UPGRADE)));
}

fn remove(headers: &mut HeaderMap, is_doomed: impl Fn(&HeaderName) -> bool) {
    let doomed: Vec<_> = headers.keys().filter(|name| is_doomed(name)).cloned().collect();
    for name in doomed {
        headers.remove(name);
    }
}

fn wants_trailers(value: &HeaderValue) -> bool {
    value.as_bytes().split(|b| *b == b',').any(|t| t.trim_ascii().eq_ignore_ascii_case(b"trailers"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(of: &[(&'static str, &'static str)]) -> HeaderMap {
        of.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v))).collect()
    }

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<_> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    fn strip_what_is_named(headers: &mut HeaderMap) {
        let says = Fields::of(headers).names.connection;
        strip_named(headers, says);
    }

    #[test]
    fn named_fields_go_and_framing_stays() {
        let mut h = map(&[
            ("connection", "keep-alive, X-Secret , host,content-length"),
            ("x-secret", "1"),
            ("host", "a"),
            ("content-length", "3"),
            ("accept", "*/*"),
        ]);
        strip_what_is_named(&mut h);
        assert_eq!(names(&h), ["accept", "content-length", "host"]);
    }

    #[test]
    fn only_one_usual_line_is_known_to_name_nothing() {
        let says = |lines: &[&'static str]| {
            let mut h = HeaderMap::new();
            for line in lines {
                h.append(CONNECTION, HeaderValue::from_static(line));
            }
            Fields::of(&h).names.connection
        };
        assert_eq!(says(&[]), Connection::Nothing);
        assert_eq!((says(&["keep-alive"]), says(&["close"])), (Connection::Usual, Connection::Usual));
        for more in [&["keep-alive", "close"][..], &["x-a", "close"], &["close, x-a"], &["upgrade"], &[""]] {
            assert_eq!(says(more), Connection::More, "{more:?}");
        }
    }

    #[test]
    fn a_wish_to_upgrade_survives_only_with_a_protocol() {
        let mut h = map(&[("connection", "Upgrade, x-a"), ("upgrade", "websocket"), ("x-a", "1")]);
        strip_what_is_named(&mut h);
        assert_eq!((names(&h), h[CONNECTION].as_bytes()), (vec!["connection", "upgrade"], &b"upgrade"[..]));
        let mut h = map(&[("connection", "upgrade")]);
        strip_what_is_named(&mut h);
        assert!(h.is_empty());
    }

    #[test]
    fn a_request_keeps_only_its_wish_for_trailers() {
        let mut h = map(&[
            ("te", "gzip, trailers"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "keep-alive"),
            ("expect", "100-continue"),
            ("upgrade", "h2c"),
            ("http2-settings", "AAMAAABkAAQ"),
            ("x", "1"),
        ]);
        let there = Fields::of(&h).names;
        strip_request(&mut h, there, false);
        assert_eq!((names(&h), h[TE].as_bytes()), (vec!["connection", "te", "x"], &b"trailers"[..]));
    }

    #[test]
    fn a_coding_before_chunked_cannot_be_passed_on() {
        assert!(!strip_response(&mut map(&[("transfer-encoding", "gzip, chunked")]), Keep::Nothing));
        let mut h = map(&[("transfer-encoding", "Chunked"), ("content-length", "4"), ("keep-alive", "x")]);
        assert!(strip_response(&mut h, Keep::Nothing));
        assert!(h.is_empty());
    }

    #[test]
    fn the_gateway_s_own_words_are_taken_from_an_answer_and_the_service_s_stay() {
        let fields = [("semel-fence", "1"), ("semel-outcome", "keep"), ("idempotency-status", "fresh"), ("x", "1")];
        for (keep, left) in [(Keep::Nothing, &["x"][..]), (Keep::Word, &["semel-outcome", "x"])] {
            let mut h = map(&fields);
            assert!(strip_response(&mut h, keep));
            assert_eq!(names(&h), left);
        }
        // A service that takes keys itself may say so.
        let mut h = map(&[("idempotency-key", "k")]);
        assert!(strip_response(&mut h, Keep::Nothing));
        assert_eq!(names(&h), ["idempotency-key"]);
    }
}
