//! Where a key is read from.

use std::{borrow::Cow, fmt};

use http::HeaderName;

use super::{KeyError, Pattern, Syntax, parse};
use crate::view::RequestView;

/// Reads the client's key from a request. Object safe, so that rules from a file and rules in code mix.
pub trait ExtractKey: Send + Sync + 'static {
    /// The key; `None` where there is none.
    ///
    /// # Errors
    /// [`KeyError`] where there is something that is no key. It is never taken for a missing one.
    fn extract<'a>(&self, request: &RequestView<'a>) -> Result<Option<Cow<'a, str>>, KeyError>;

    /// Calls `each` with the header fields it reads: what a preflight is told to allow ([`Cors`](crate::Cors)).
    fn headers(&self, each: &mut dyn FnMut(&HeaderName)) {
        let _ = each;
    }
}

impl fmt::Debug for dyn ExtractKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExtractKey(")?;
        let mut names = Vec::new();
        self.headers(&mut |name| names.push(name.clone()));
        f.debug_list().entries(names).finish()?;
        f.write_str(")")
    }
}

/// A key in one of some header fields; see [`header`].
#[derive(Clone, Debug)]
pub struct HeaderKey {
    names: Vec<HeaderName>,
    syntax: Syntax,
    /// None where it says nothing.
    pattern: Option<Pattern>,
}

/// The key is in the first of these header fields that the request has.
///
/// ```
/// use semel_http::{key, names::IDEMPOTENCY_KEY};
/// let source = key::header([IDEMPOTENCY_KEY.clone()]);
/// let strict = key::header([IDEMPOTENCY_KEY.clone()]).syntax(key::Syntax::default().min_len(16));
/// ```
#[must_use]
pub fn header(names: impl IntoIterator<Item = HeaderName>) -> HeaderKey {
    HeaderKey { names: names.into_iter().collect(), syntax: Syntax::default(), pattern: None }
}

impl HeaderKey {
    /// What is taken for a key.
    #[must_use]
    pub const fn syntax(mut self, syntax: Syntax) -> Self {
        self.syntax = syntax;
        self
    }

    /// What a key looks like, as a whole. Another one is 400 `key-invalid`.
    #[must_use]
    pub fn like(mut self, pattern: Pattern) -> Self {
        self.pattern = Some(pattern).filter(|pattern| !pattern.is_any());
        self
    }
}

impl ExtractKey for HeaderKey {
    fn extract<'a>(&self, request: &RequestView<'a>) -> Result<Option<Cow<'a, str>>, KeyError> {
        for name in &self.names {
            // The first line of that name. A pass costs half of a look, which has to hash the name.
            let Some((_, line)) = request.headers.iter().find(|(this, _)| *this == name) else { continue };
            let key = parse(line.as_bytes(), &self.syntax)?;
            // Where no name occurs twice, which the two lengths tell at once, this one does not.
            if request.headers.len() != request.headers.keys_len() {
                for line in request.headers.get_all(name).iter().skip(1) {
                    if parse(line.as_bytes(), &self.syntax)? != key {
                        return Err(KeyError::Unequal);
                    }
                }
            }
            return match &self.pattern {
                Some(pattern) if !pattern.matches(&key) => Err(KeyError::Unlike),
                _ => Ok(Some(key)),
            };
        }
        Ok(None)
    }

    fn headers(&self, each: &mut dyn FnMut(&HeaderName)) {
        self.names.iter().for_each(each);
    }
}

/// The first source that has a key; see [`first`].
pub struct FirstOf(Vec<Box<dyn ExtractKey>>);

/// The key of the first source that has one, in order. A source with something that is no key ends the search: 400.
#[must_use]
pub fn first(of: Vec<Box<dyn ExtractKey>>) -> FirstOf {
    FirstOf(of)
}

impl ExtractKey for FirstOf {
    fn extract<'a>(&self, request: &RequestView<'a>) -> Result<Option<Cow<'a, str>>, KeyError> {
        for source in &self.0 {
            if let Some(key) = source.extract(request)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn headers(&self, each: &mut dyn FnMut(&HeaderName)) {
        for source in &self.0 {
            source.headers(&mut *each);
        }
    }
}

impl fmt::Debug for FirstOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FirstOf").field(&self.0).finish()
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;
    use crate::names::{IDEMPOTENCY_KEY, X_REQUEST_ID};

    fn key_of(lines: &[(&HeaderName, &str)]) -> Result<Option<String>, KeyError> {
        let mut request = Request::new(());
        for (name, value) in lines {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let source = header([IDEMPOTENCY_KEY.clone(), X_REQUEST_ID.clone()]);
        source.extract(&RequestView::of(&request)).map(|k| k.map(Cow::into_owned))
    }

    #[test]
    fn the_header_twice_is_one_key_when_equal_and_refused_when_not() {
        let k = &IDEMPOTENCY_KEY;
        assert_eq!(key_of(&[(k, "a"), (k, "\"a\"")]), Ok(Some("a".to_owned())));
        assert_eq!(key_of(&[(k, "a"), (k, "b")]), Err(KeyError::Unequal));
        assert_eq!(key_of(&[(k, "a"), (k, "")]), Err(KeyError::Empty));
        assert_eq!(key_of(&[]), Ok(None));
    }

    #[test]
    fn the_first_source_wins_and_a_bad_key_is_not_a_missing_one() {
        let (k, x) = (&IDEMPOTENCY_KEY, &X_REQUEST_ID);
        assert_eq!(key_of(&[(x, "second"), (k, "first")]), Ok(Some("first".to_owned())));
        assert_eq!(key_of(&[(x, "second")]), Ok(Some("second".to_owned())));
        assert_eq!(key_of(&[(x, "second"), (k, "")]), Err(KeyError::Empty));
        let one = |name: &HeaderName| Box::new(header([name.clone()])) as Box<dyn ExtractKey>;
        let mut request = Request::new(());
        request.headers_mut().insert(x, "second".parse().unwrap());
        let found = first(vec![one(k), one(x)]).extract(&RequestView::of(&request)).map(|k| k.map(Cow::into_owned));
        assert_eq!(found, Ok(Some("second".to_owned())));
    }

    #[test]
    fn a_key_that_does_not_look_as_the_rule_says_is_no_key() {
        let source = header([IDEMPOTENCY_KEY.clone()]).like("[0-9]*[0-9]".parse().unwrap());
        let key = |text: &'static str| {
            let request = Request::builder().header(&IDEMPOTENCY_KEY, text).body(()).unwrap();
            source.extract(&RequestView::of(&request)).map(|k| k.map(Cow::into_owned))
        };
        assert_eq!(key("4711"), Ok(Some("4711".to_owned())));
        assert_eq!(key("a-4711"), Err(KeyError::Unlike));
    }
}
