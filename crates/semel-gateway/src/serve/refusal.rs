//! Heads that hyper cannot read. It answers some of them by itself, with a status and nothing else; those answers are held
//! back here, and the client gets one that says why.

use http::StatusCode;

use crate::forward::problem::Problem;

/// The status of an answer that hyper made by itself, where `bytes` are one.
///
/// Only looked at where a head was begun and none is in service. A service's answer can come by there, of a client that
/// takes nothing and sends on; one with exactly these fields and no body would say no more than what takes its place.
#[inline]
pub(super) fn of_hyper(bytes: &[u8]) -> Option<StatusCode> {
    // All but a few answers end here.
    if bytes.get(9) != Some(&b'4') {
        return None;
    }
    by_its_fields(bytes)
}

#[cold]
fn by_its_fields(bytes: &[u8]) -> Option<StatusCode> {
    let text = std::str::from_utf8(bytes).ok()?.strip_prefix("HTTP/1.1 ")?.strip_suffix("\r\n\r\n")?;
    let mut lines = text.split("\r\n");
    let status = StatusCode::from_bytes(lines.next()?.as_bytes().get(..3)?).ok()?;
    let is_known =
        |line: &str| line == "connection: close" || line == "content-length: 0" || line.starts_with("date: ");
    (lines.all(is_known)).then_some(status)
}

/// What to tell about a connection that ended with `error`: `answered` is the status that was held back, `unread` what was
/// not read of what came. Nothing where it ended for another reason than its head.
pub(super) fn of(error: &hyper::Error, answered: Option<StatusCode>, unread: &[u8]) -> Option<Problem> {
    if error.is_parse_version_h2() {
        return Some(Problem::HttpVersion);
    }
    Some(match answered? {
        StatusCode::URI_TOO_LONG => Problem::TargetTooLong,
        // A head that is too large is left unread. Where it was read, its length is what is.
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE if begins_with_a_head(unread) => Problem::HeadTooLarge,
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => Problem::RequestTooLarge,
        _ => Problem::BadRequest(malformed(&error.to_string())),
    })
}

/// hyper holds so much of a head at least.
const LEAST_BUFFER: usize = 8 * 1024;

fn begins_with_a_head(unread: &[u8]) -> bool {
    match unread.iter().position(|&byte| byte == b'\n') {
        Some(end) => {
            [&b"HTTP/1.1"[..], b"HTTP/1.0"].iter().any(|version| unread[..end].trim_ascii_end().ends_with(version))
        }
        // Of a target that has no end, not even the version has come.
        None => unread.len() >= LEAST_BUFFER,
    }
}

/// hyper's words for people, told in ours: every string is free of characters that JSON escapes.
fn malformed(words: &str) -> &'static str {
    for (word, detail) in [
        ("content-length", "Content-Length is not one number; nothing was run."),
        ("transfer-encoding", "Transfer-Encoding is not chunked; nothing was run."),
        ("method", "The request does not begin with a method; nothing was run."),
        ("URI", "The first line is not METHOD TARGET HTTP/1.1, or its target is no path and no URL; nothing was run."),
        ("version", "The request is not of HTTP/1.1 or HTTP/1.0, which are what is spoken here; nothing was run."),
    ] {
        if words.contains(word) {
            return detail;
        }
    }
    "The head of the request is not one of HTTP/1.1: a line in it is malformed; nothing was run."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_without_words_is_hyper_s_own() {
        let own = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Mon, 30 Nov 2026 01:00:00 GMT\r\n\r\n";
        assert_eq!(of_hyper(own), Some(StatusCode::BAD_REQUEST));
        for other in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\nserver: x\r\n\r\n",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\nno",
            b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n",
            b"HTTP/1.1 4",
            b"",
        ] {
            assert_eq!(of_hyper(other), None, "{}", other.escape_ascii());
        }
    }

    #[test]
    fn a_head_that_is_still_there_was_too_large() {
        for head in [&b"POST /orders HTTP/1.1\r\nx: y"[..], b"GET / HTTP/1.0\n", &[b'a'; LEAST_BUFFER]] {
            assert!(begins_with_a_head(head), "{}", head.escape_ascii());
        }
        for body in [&b"{\"item\":\n1}"[..], b"abc", b""] {
            assert!(!begins_with_a_head(body), "{}", body.escape_ascii());
        }
    }
}
