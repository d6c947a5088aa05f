//! What goes into the fingerprint as "where".

use std::borrow::Cow;

use http::Uri;

use crate::view::RequestView;

/// What goes into the fingerprint as "where": path and query as the client sent them.
///
/// A router that strips prefixes makes `/v1/orders/7` and `/v2/orders/7` arrive alike. The default of a rule is
/// [`RequestUri`]; with the feature `axum` it is `AxumOriginalUri`, which looks for what axum's router has kept.
pub trait Target: Send + Sync + 'static {
    /// Path and query.
    fn target<'a>(&self, request: &RequestView<'a>) -> Cow<'a, str>;

    /// Where the path begins in a `target` of its making: after a host, say. At its beginning unless said otherwise.
    fn path_at(&self, target: &str) -> usize {
        let _ = target;
        0
    }
}

/// The target as some layer in front has kept it, before a router touched it. Put it into the request's extensions, and
/// [`RequestUri`] takes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginalUri(pub Uri);

/// The request's target, or the [`OriginalUri`] that a layer in front has kept.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestUri;

impl Target for RequestUri {
    fn target<'a>(&self, request: &RequestView<'a>) -> Cow<'a, str> {
        Cow::Borrowed(path_and_query(request.extensions.get::<OriginalUri>().map_or(request.uri, |o| &o.0)))
    }
}

/// The target that axum's router has kept in front of all `nest`ing; without one, as [`RequestUri`].
#[cfg(feature = "axum")]
#[derive(Clone, Copy, Debug, Default)]
pub struct AxumOriginalUri;

#[cfg(feature = "axum")]
impl Target for AxumOriginalUri {
    fn target<'a>(&self, request: &RequestView<'a>) -> Cow<'a, str> {
        match request.extensions.get::<axum::extract::OriginalUri>() {
            Some(original) => Cow::Borrowed(path_and_query(&original.0)),
            None => RequestUri.target(request),
        }
    }
}

fn path_and_query(uri: &Uri) -> &str {
    uri.path_and_query().map_or("/", |pq| pq.as_str())
}

/// `target` with its percent-encodings in normal form; see the [module](super).
pub(super) fn normal(target: &str) -> Cow<'_, str> {
    if !target.contains('%') {
        return Cow::Borrowed(target);
    }
    let mut out = String::with_capacity(target.len());
    let mut rest = target;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let byte = rest.get(..2).filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
                    out.push(char::from(byte));
                } else {
                    out.push('%');
                    out.push_str(&rest[..2].to_ascii_uppercase());
                }
                rest = &rest[2..];
            }
            None => out.push('%'),
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encodings_have_one_spelling() {
        for (given, expected) in [
            ("/a", "/a"),
            ("/%61%2f%C3%a4", "/a%2F%C3%A4"),
            ("/%zz%", "/%zz%"),
            ("/%4", "/%4"),
            ("/%ä1", "/%ä1"),
            ("/%2561", "/%2561"),
            ("/?q=%7E%20", "/?q=~%20"),
        ] {
            assert_eq!(normal(given), expected, "{given}");
            assert_eq!(normal(expected), expected, "{given}");
        }
    }

    #[test]
    fn a_kept_uri_wins_over_a_stripped_one() {
        let mut request = http::Request::builder().uri("/orders/7?x=1").body(()).unwrap();
        assert_eq!(RequestUri.target(&RequestView::of(&request)), "/orders/7?x=1");
        request.extensions_mut().insert(OriginalUri(Uri::from_static("/v1/orders/7?x=1")));
        assert_eq!(RequestUri.target(&RequestView::of(&request)), "/v1/orders/7?x=1");
    }
}
