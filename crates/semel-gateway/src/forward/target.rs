//! Which resource a request is for, in the one form that goes on.

use http::{
    HeaderValue, Request, Uri,
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
    let path = parts.path_and_query.take().filter(|p| !p.as_str().is_empty());
    *request.uri_mut() = Uri::from(path.unwrap_or(PathAndQuery::from_static("/")));
    let named = host.is_some();
    if let Some(host) = host {
        request.headers_mut().insert(HOST, host);
    }
    named
}

/// Whether the target is one that this gateway passes on: a path, `*`, or `http://…`.
pub(crate) fn is_known_form(uri: &Uri) -> bool {
    match (uri.scheme(), uri.authority()) {
        (None, None) => true,
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
    }

    #[test]
    fn a_bare_authority_is_no_target() {
        assert!(!is_known_form(&"example.com:80".parse().unwrap()));
        assert!(!is_known_form(&"http://u@example.com/".parse().unwrap()));
        assert!(is_known_form(&"*".parse().unwrap()));
    }
}
