//! Which header fields a request has that the guard asks for.

use http::{HeaderMap, header};

use crate::names::TRACEPARENT;

/// What one pass over the names finds. Most requests have none of these, and a look for each costs more than the pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Seen {
    /// A name that begins as those do which only the guard may write.
    pub(super) ours: bool,
    /// One of the [usual credentials](crate::principal::DEFAULT_CREDENTIALS).
    pub(super) credentials: bool,
    /// What decides how a problem is told: see [`Asker`](crate::problem::Asker).
    pub(super) asker: bool,
    /// An offer to upgrade.
    pub(super) upgrade: bool,
}

impl Seen {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let mut seen = Self::default();
        for name in headers.keys() {
            match *name {
                // What most requests have, told apart without a look at the text.
                header::HOST
                | header::CONTENT_TYPE
                | header::CONTENT_LENGTH
                | header::USER_AGENT
                | header::ACCEPT_ENCODING => {}
                header::AUTHORIZATION | header::COOKIE => seen.credentials = true,
                header::ACCEPT | header::ACCEPT_LANGUAGE => seen.asker = true,
                header::UPGRADE => seen.upgrade = true,
                _ => {
                    let text = name.as_str();
                    seen.ours |= is_ours(text);
                    seen.asker |= text == TRACEPARENT.as_str();
                }
            }
        }
        seen
    }
}

/// Whether only the guard may write under this name. To a service that sees its fields as CGI variables `Semel_Fence` is
/// `Semel-Fence`.
pub(super) fn is_ours(name: &str) -> bool {
    name.starts_with("semel") && matches!(name.as_bytes().get(5), Some(b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::names::{SEMEL_ATTEMPT, SEMEL_FENCE, SEMEL_IDENTITY, SEMEL_UNGUARDED};

    fn seen(name: &HeaderName) -> Seen {
        let mut headers = HeaderMap::new();
        for common in [header::HOST, header::CONTENT_TYPE, header::ACCEPT_ENCODING] {
            headers.insert(common, HeaderValue::from_static("x"));
        }
        headers.insert(HeaderName::from_static("x-other"), HeaderValue::from_static("x"));
        assert_eq!(Seen::of(&headers), Seen::default());
        headers.insert(name, HeaderValue::from_static("x"));
        Seen::of(&headers)
    }

    #[test]
    fn each_name_that_is_asked_for_is_seen() {
        for name in [SEMEL_IDENTITY.clone(), SEMEL_FENCE.clone(), SEMEL_ATTEMPT.clone(), SEMEL_UNGUARDED.clone()] {
            assert_eq!(seen(&name), Seen { ours: true, ..Seen::default() });
        }
        for name in crate::principal::DEFAULT_CREDENTIALS.iter() {
            assert_eq!(seen(name), Seen { credentials: true, ..Seen::default() });
        }
        for name in [header::ACCEPT, header::ACCEPT_LANGUAGE, TRACEPARENT.clone()] {
            assert_eq!(seen(&name), Seen { asker: true, ..Seen::default() });
        }
        assert_eq!(seen(&header::UPGRADE), Seen { upgrade: true, ..Seen::default() });
    }
}
