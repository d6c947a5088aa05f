//! Fields that belong to one connection and go no further.

use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{
        CONNECTION, CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING,
        UPGRADE,
    },
};

/// Removes `Connection` and every field it names. Where it asks for an upgrade that is named in `Upgrade`, that wish
/// alone is left. Cheap where there is no `Connection`.
///
/// Must run before the gateway adds fields of its own: a client could name those.
pub(crate) fn strip_named(headers: &mut HeaderMap) {
    let mut values = headers.get_all(CONNECTION).iter();
    match (values.next(), values.next()) {
        (None, _) => return,
        // What nearly all say: it names nothing but itself, or the field that goes no further anyway.
        (Some(one), None) if one == "keep-alive" || one == "close" => {
            headers.remove(CONNECTION);
            return;
        }
        _ => {}
    }
    let (mut names, mut upgrade) = (Vec::new(), false);
    for value in headers.get_all(CONNECTION) {
        for token in value.as_bytes().split(|b| *b == b',').map(<[u8]>::trim_ascii) {
            if token.eq_ignore_ascii_case(b"upgrade") {
                upgrade = true;
            } else if let Ok(name) = HeaderName::from_bytes(token) {
                // Without these the message would be another one.
                if ![HOST, CONTENT_LENGTH, TRANSFER_ENCODING, TE].contains(&name) {
                    names.push(name);
                }
            }
        }
    }
    headers.remove(CONNECTION);
    for name in names {
        headers.remove(name);
    }
    if upgrade && headers.contains_key(UPGRADE) {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// What one pass over the names finds; each look-up saved is a hash saved. `one_hop` leaves out `Connection`: what
/// [`strip_named`] lets stand of it comes with an `Upgrade`.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) host: bool,
    pub(crate) connection: bool,
    pub(crate) transfer_encoding: bool,
    one_hop: bool,
}

impl Names {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut names = Self::default();
        for name in headers.keys() {
            match *name {
                HOST => names.host = true,
                TRANSFER_ENCODING => names.transfer_encoding = true,
                CONNECTION => names.connection = true,
                _ => names.one_hop |= of_one_hop(name),
            }
        }
        names
    }
}

fn of_one_hop(name: &HeaderName) -> bool {
    match *name {
        CONNECTION | EXPECT | PROXY_AUTHENTICATE | PROXY_AUTHORIZATION | TE | UPGRADE => true,
        _ => matches!(name.as_str(), "keep-alive" | "proxy-connection" | "http2-settings"),
    }
}

/// Removes what a request must not carry to the upstream. `Transfer-Encoding` stays: it is `chunked` alone by now,
/// and hyper sends a body of unknown length on a GET only where the field says so. `Expect` was answered here.
pub(super) fn strip_request(headers: &mut HeaderMap, names: &Names, keep_upgrade: bool) {
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

/// Removes what an answer must not carry to the client. False where its body is coded for this hop in a way that
/// cannot be passed on.
pub(super) fn strip_response(headers: &mut HeaderMap, keep_upgrade: bool) -> bool {
    let names = Names::of(headers);
    if names.connection {
        strip_named(headers);
    }
    if names.one_hop {
        strip(headers, keep_upgrade);
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

/// Whether `Transfer-Encoding` is exactly one `chunked`. A coding before it would be lost on the way, and two fields
/// are one too many to agree about.
pub(crate) fn only_chunked(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(TRANSFER_ENCODING).iter();
    matches!((values.next(), values.next()), (Some(one), None) if one.as_bytes().eq_ignore_ascii_case(b"chunked"))
}

fn strip(headers: &mut HeaderMap, keep_upgrade: bool) {
    let doomed: Vec<_> = headers
        .keys()
        .filter(|name| of_one_hop(name) && !(keep_upgrade && (**name == CONNECTION || **name == UPGRADE)))
        .cloned()
        .collect();
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

    #[test]
    fn named_fields_go_and_framing_stays() {
        let mut h = map(&[
            ("connection", "keep-alive, X-Secret , host,content-length"),
            ("x-secret", "1"),
            ("host", "a"),
            ("content-length", "3"),
            ("accept", "*/*"),
        ]);
        strip_named(&mut h);
        assert_eq!(names(&h), ["accept", "content-length", "host"]);
    }

    #[test]
    fn a_wish_to_upgrade_survives_only_with_a_protocol() {
        let mut h = map(&[("connection", "Upgrade, x-a"), ("upgrade", "websocket"), ("x-a", "1")]);
        strip_named(&mut h);
        assert_eq!((names(&h), h[CONNECTION].as_bytes()), (vec!["connection", "upgrade"], &b"upgrade"[..]));
        let mut h = map(&[("connection", "upgrade")]);
        strip_named(&mut h);
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
        let there = Names::of(&h);
        strip_request(&mut h, &there, false);
        assert_eq!((names(&h), h[TE].as_bytes()), (vec!["connection", "te", "x"], &b"trailers"[..]));
    }

    #[test]
    fn a_coding_before_chunked_cannot_be_passed_on() {
        assert!(!strip_response(&mut map(&[("transfer-encoding", "gzip, chunked")]), false));
        let mut h = map(&[("transfer-encoding", "Chunked"), ("content-length", "4"), ("keep-alive", "x")]);
        assert!(strip_response(&mut h, false));
        assert!(h.is_empty());
    }
}
