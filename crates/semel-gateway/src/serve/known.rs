//! Names that a service cannot tell from one of ours.
//!
//! CGI, WSGI and what has learnt from them see `X-User` as `HTTP_X_USER`, and `X_User` as well. A field of the second name
//! passes every check of the first.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

/// Fields that the gateway sets or goes by whatever the rules say; the last ones frame the message.
const FIXED: [&str; 2] = ["content-length", "transfer-encoding"];

/// What names of such fields begin with.
const FAMILIES: [&str; 3] = ["semel-", "idempoten", "x-forwarded-"];

/// Fields that somebody behind the door goes by. Clones share them.
#[derive(Clone, Debug)]
pub struct Known {
    names: Arc<[HeaderName]>,
    has_underscore: bool,
}

impl Known {
    /// These names.
    pub fn new(names: impl Into<Arc<[HeaderName]>>) -> Self {
        let names = names.into();
        let has_underscore = names.iter().any(|name| name.as_str().contains('_'));
        Self { names, has_underscore }
    }

    /// The names.
    pub fn names(&self) -> &[HeaderName] {
        &self.names
    }

    /// Whether the name is one of them, exactly.
    pub(super) fn contains(&self, name: &HeaderName) -> bool {
        self.names.contains(name)
    }

    /// Whether a request can have a field to strip: one of these names, or one of its own, has an underscore.
    pub(super) const fn is_confusable(&self, has_underscore: bool) -> bool {
        has_underscore || self.has_underscore
    }

    /// Removes every field whose name is not one of ours, and is one where `_` is read as `-`.
    #[cold]
    pub(super) fn strip_doubles(&self, headers: &mut HeaderMap) {
        let doubles: Vec<_> = headers.keys().filter(|name| self.is_double(name)).cloned().collect();
        for name in doubles {
            headers.remove(name);
        }
    }

    fn is_double(&self, name: &HeaderName) -> bool {
        if self.contains(name) {
            return false;
        }
        let text = name.as_str();
        let in_a_family = || {
            FAMILIES.iter().any(|family| text.get(..family.len()).is_some_and(|begin| are_alike(begin, family)))
                || FIXED.iter().any(|fixed| are_alike(text, fixed))
        };
        self.names.iter().any(|known| are_alike(text, known.as_str())) || (text.contains('_') && in_a_family())
    }
}

fn are_alike(one: &str, other: &str) -> bool {
    let dashed = |text: &str| text.bytes().map(|byte| if byte == b'_' { b'-' } else { byte }).collect::<Vec<_>>();
    one.len() == other.len() && dashed(one) == dashed(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(known: &[&'static str], sent: &[&'static str]) -> Vec<String> {
        let known = Known::new(known.iter().map(|name| HeaderName::from_static(name)).collect::<Vec<_>>());
        let mut headers = HeaderMap::new();
        for name in sent {
            headers.append(*name, http::HeaderValue::from_static("1"));
        }
        known.strip_doubles(&mut headers);
        // In the order of sending: a map puts others into the place of what is removed.
        sent.iter().filter(|name| headers.contains_key(**name)).map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn doubles_of_known_names_go_and_others_stay() {
        let sent = ["x-user", "x_user", "x-user_", "x_users", "x_mine", "cookie", "a-b_c", "a_b-c"];
        assert_eq!(left(&["x-user", "cookie", "a-b-c"], &sent), ["x-user", "x-user_", "x_users", "x_mine", "cookie"]);
        assert_eq!(left(&["x_user"], &["x_user", "x-user"]), ["x_user"]);
        assert_eq!(left(&["x_user", "x-user"], &["x_user", "x-user"]), ["x_user", "x-user"]);
    }

    #[test]
    fn what_the_gateway_sets_and_what_frames_has_no_double_either() {
        let sent = ["semel_fence", "semel-new_one", "idempotency_status", "idempotent_replayed", "x_forwarded-for"];
        assert!(left(&[], &sent).is_empty());
        assert!(left(&[], &["content_length", "transfer_encoding"]).is_empty());
        // The exact names are others' matter.
        let exact = ["semel-fence", "x-forwarded-for", "content-length"];
        assert_eq!(left(&[], &exact), exact);
    }
}
