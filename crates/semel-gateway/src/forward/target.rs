//! Which resource a request is for, in the one form that goes on.

use http::{
    HeaderValue, Method, Request, Uri,
    header::HOST,
    uri::{PathAndQuery, Scheme},
};

/// Turns `GET http://host/path` into `GET /path` with `Host: host`; the host in the target wins over the field
/// (RFC 9112, 3.2.2). True where it did so. Costs one look where the target is a path already.
pub(crate) fn to_origin_form<B>(request: &mut Request<B>) -> bool {
    if request.uri().scheme().is_none() {
        return false;
    }
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    let host = parts.authority.take().and_then(|a| HeaderValue::from_str(a.as_str()).ok());
    let path = parts.path_and_query.take().and_then(|path| match path.as_str() {
        // An empty path is the root, with or without a query (RFC 9112, 3.2.1).
        query if query.starts_with('?') => PathAndQuery::try_from(format!("/{query}")).ok(),
        _ => Some(path),
    });
    *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    let named = host.is_some();
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    named
}

/// Whether the target is one that this gateway passes on: a path, `http://…`, or `*` with OPTIONS, which has no effect.
/// No rule is about anything else, so with another method it would pass all of them by.
pub(crate) fn is_known_form(method: &Method, uri: &Uri) -> bool {
    match (uri.scheme(), uri.authority()) {
        (None, None) => uri.path().starts_with('/') || *method == Method::OPTIONS,
        (Some(scheme), Some(authority)) => {
            (*scheme == Scheme::HTTP || *scheme == Scheme::HTTPS) && !authority.as_str().contains('@')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_target_s_host_wins() {
        let mut r = Request::get("http://a.example/x?y=1").header(HOST, "b.example").body(()).unwrap();
        to_origin_form(&mut r);
        assert_eq!((r.uri().to_string().as_str(), r.headers()[HOST].as_bytes()), ("/x?y=1", &b"a.example"[..]));
        let mut r = Request::get("http://a.example").body(()).unwrap();
        to_origin_form(&mut r);
        assert_eq!(r.uri().to_string(), "/");
        let mut r = Request::get("http://a.example?x=1").body(()).unwrap();
        to_origin_form(&mut r);
        assert_eq!((r.uri().to_string().as_str(), r.uri().path()), ("/?x=1", "/"));
    }

    #[test]
    fn a_bare_authority_is_no_target() {
        assert!(!is_known_form(&Method::POST, &"example.com:80".parse().unwrap()));
        assert!(!is_known_form(&Method::POST, &"http://u@example.com/".parse().unwrap()));
        assert!(!is_known_form(&Method::POST, &"*".parse().unwrap()));
        assert!(is_known_form(&Method::OPTIONS, &"*".parse().unwrap()));
    }
}
