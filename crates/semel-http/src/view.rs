//! A borrowed look at a request's head.

use http::{Extensions, HeaderMap, Method, Request, Uri};

/// What keys, principals, targets and rules are read from: the head of a request, borrowed, without its body.
#[derive(Clone, Copy, Debug)]
pub struct RequestView<'a> {
    /// The method.
    pub method: &'a Method,
    /// The target as it stands now; a router may have stripped a prefix: see [`Target`](crate::fingerprint::Target).
    pub uri: &'a Uri,
    /// The header fields.
    pub headers: &'a HeaderMap,
    /// What layers in front have left for us.
    pub extensions: &'a Extensions,
}

impl<'a> RequestView<'a> {
    /// The head of `request`.
    #[must_use]
    pub fn of<B>(request: &'a Request<B>) -> Self {
        Self {
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            extensions: request.extensions(),
        }
    }

    /// The head in `parts`.
    #[must_use]
    pub const fn of_parts(parts: &'a http::request::Parts) -> Self {
        Self { method: &parts.method, uri: &parts.uri, headers: &parts.headers, extensions: &parts.extensions }
    }
}
