//! A digest of the caller's credentials, for scopes that everybody shares.

use http::{HeaderMap, HeaderName, header};
use semel_core::identity::{Purpose, Secret};

/// The header fields that tell one caller from another unless a rule names others.
pub static DEFAULT_CREDENTIALS: [HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];

/// The header fields whose values tell one caller from another where the scope is no verified principal.
///
/// They are not part of the identity: a rotated token must never cause a second run. A duplicate with others is not run
/// and gets no stored byte.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    names: Vec<HeaderName>,
    /// They are [`DEFAULT_CREDENTIALS`].
    usual: bool,
}

impl Default for Credentials {
    fn default() -> Self {
        Self::headers(DEFAULT_CREDENTIALS.iter().cloned())
    }
}

impl Credentials {
    /// These header fields. None at all means that every caller of a shared scope is the same one.
    #[must_use]
    pub fn headers(names: impl IntoIterator<Item = HeaderName>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        Self { usual: names == DEFAULT_CREDENTIALS, names }
    }

    /// Whether they are [`DEFAULT_CREDENTIALS`]: whoever passes over a request's names anyway can tell whether it has one.
    pub(crate) const fn are_usual(&self) -> bool {
        self.usual
    }

    /// A keyed digest of those that the request has, every line of them; `None` where it has none.
    ///
    /// Cost: one BLAKE3 keyed hash over the values.
    #[must_use]
    pub fn digest(&self, secret: &Secret, headers: &HeaderMap) -> Option<[u8; 16]> {
        let mut parts: Vec<&[u8]> = Vec::new();
        for name in &self.names {
            for line in headers.get_all(name) {
                parts.extend([name.as_str().as_bytes(), line.as_bytes()]);
            }
        }
        if parts.is_empty() {
            return None;
        }
        Some(secret.digest(Purpose::Credentials, &parts).short())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_counts_and_none_is_a_caller_of_its_own() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let digest = |lines: &[(HeaderName, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(name, http::HeaderValue::from_static(value));
            }
            Credentials::default().digest(&secret, &headers)
        };
        let (auth, cookie) = (header::AUTHORIZATION, header::COOKIE);
        assert_eq!(digest(&[]), None);
        assert_eq!(digest(&[(header::ACCEPT, "a")]), None);
        let alice = digest(&[(auth.clone(), "alice")]);
        assert_eq!(alice, digest(&[(header::ACCEPT, "a"), (auth.clone(), "alice")]));
        assert_ne!(alice, digest(&[(auth, "bob")]));
        assert_ne!(alice, digest(&[(cookie.clone(), "alice")]));
        assert_ne!(digest(&[(cookie.clone(), "a"), (cookie.clone(), "b")]), digest(&[(cookie, "ab")]));
    }
}
