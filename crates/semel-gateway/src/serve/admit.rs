//! Which requests go any further.
//!
//! hyper refuses what it cannot parse: spaces before a colon, folded lines, bad lengths, `Transfer-Encoding` that does
//! not end in `chunked`. It follows RFC 9112 where that leaves a choice: a line may end in a bare LF; of
//! `Transfer-Encoding` and `Content-Length` together the first counts, the second is dropped, and the connection is
//! closed after the answer; equal lengths sent twice are one. What goes on to the upstream is written anew and has one
//! reading only. Here is refused what hyper lets through and two readers could understand differently.

use http::{HeaderMap, HeaderValue, Method, Request, Version, header::HOST};

use super::Door;
use crate::forward::{hop, problem::Problem, target};

/// Refuses the request, or brings it into the one form that everything behind sees: target as a path, one `Host`, no
/// fields of the client's connection except a wish to upgrade, no second spelling of what is read behind.
pub(super) fn admit<B>(request: &mut Request<B>, door: &Door) -> Result<(), Problem> {
    if *request.method() == Method::CONNECT {
        return Err(Problem::NotImplemented("CONNECT is for forward proxies; this gateway stands before one service."));
    }
    if !target::is_known_form(request.method(), request.uri()) {
        return Err(Problem::BadRequest("The target is neither a path nor an http URL; * is for OPTIONS alone."));
    }
    let names = check_host(request.headers(), request.version())?;
    if names.transfer_encoding && !hop::only_chunked(request.headers()) {
        return Err(Problem::NotImplemented("The only transfer coding understood here is a single chunked."));
    }
    if names.via && door.via.as_ref().is_some_and(|via| via.is_looping(request.headers())) {
        return Err(Problem::LoopDetected);
    }
    if names.connection == hop::Connection::More
        && hop::named(request.headers()).any(|name| door.read_behind.contains(&name))
    {
        return Err(Problem::BadRequest("Connection names a field that is read here, and would have it taken away."));
    }
    target::to_origin_form(request);
    hop::strip_named(request.headers_mut(), names.connection);
    if door.read_behind.is_confusable(names.underscore) {
        door.read_behind.strip_doubles(request.headers_mut());
    }
    Ok(())
}

fn check_host(headers: &HeaderMap, version: Version) -> Result<hop::Names, Problem> {
    let hop::Fields { names, host, .. } = hop::Fields::of(headers);
    let Some(host) = host else {
        return match version {
            Version::HTTP_11 => Err(Problem::BadRequest("There is no Host field.")),
            _ => Ok(names),
        };
    };
    // Where no name occurs twice, which the two lengths tell at once, Host does not.
    if headers.len() != headers.keys_len() && headers.get_all(HOST).iter().count() > 1 {
        return Err(Problem::BadRequest("There is more than one Host field."));
    }
    if is_host(host) {
        Ok(names)
    } else {
        Err(Problem::BadRequest("The Host field is not a host with an optional port."))
    }
}

/// The bytes of a host and port (RFC 3986, 3.2.2 and 3.2.3).
const HOST_BYTES: [bool; 256] = {
    let (mut table, mut i) = ([false; 256], 0);
    while i < 256 {
        table[i] = (i as u8).is_ascii_alphanumeric();
        i += 1;
    }
    let (others, mut i) = (b".:-_[]~%!$&+=;'()*", 0);
    while i < others.len() {
        table[others[i] as usize] = true;
        i += 1;
    }
    table
};

fn is_host(host: &HeaderValue) -> bool {
    host.as_bytes().iter().all(|b| HOST_BYTES[usize::from(*b)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::header::{CONNECTION, TRANSFER_ENCODING};

    fn verdict(build: http::request::Builder) -> Option<&'static str> {
        match admit(&mut build.body(()).unwrap(), &Door::default()) {
            Ok(()) => None,
            Err(Problem::BadRequest(_)) => Some("400"),
            Err(Problem::NotImplemented(_)) => Some("501"),
            Err(_) => Some("other"),
        }
    }

    #[test]
    fn one_host_is_needed_and_one_is_enough() {
        assert_eq!(verdict(Request::get("/").header(HOST, "a:80")), None);
        assert_eq!(verdict(Request::get("/").header(HOST, "[::1]:80")), None);
        assert_eq!(verdict(Request::get("/")), Some("400"));
        assert_eq!(verdict(Request::get("/").version(Version::HTTP_10)), None);
        assert_eq!(verdict(Request::get("/").header(HOST, "a").header(HOST, "a")), Some("400"));
        for bad in ["a/b", "u@a", "a b", "a,b", "a?x", "a#x", "a\\b"] {
            assert_eq!(verdict(Request::get("/").header(HOST, bad)), Some("400"), "{bad}");
        }
    }

    #[test]
    fn only_a_single_chunked_is_a_transfer_coding() {
        let with = |te: &'static str| Request::post("/").header(HOST, "a").header(TRANSFER_ENCODING, te);
        assert_eq!(verdict(with("chunked")), None);
        assert_eq!(verdict(with("Chunked")), None);
        assert_eq!(verdict(with("gzip, chunked")), Some("501"));
        assert_eq!(verdict(with("identity, chunked")), Some("501"));
        assert_eq!(verdict(with("chunked").header(TRANSFER_ENCODING, "chunked")), Some("501"));
    }

    #[test]
    fn a_star_is_for_options_alone() {
        for method in ["GET", "POST", "DELETE", "PURGE"] {
            assert_eq!(verdict(Request::builder().method(method).uri("*").header(HOST, "a")), Some("400"), "{method}");
        }
        assert_eq!(verdict(Request::options("*").header(HOST, "a")), None);
    }

    #[test]
    fn a_field_that_is_read_behind_cannot_be_taken_away() {
        let with = |line: &'static str| Request::post("/").header(HOST, "a").header(CONNECTION, line);
        for line in ["idempotency-key", "close, Cookie", "x-mine ,\tAuthorization", "upgrade,content-type"] {
            assert_eq!(verdict(with(line)), Some("400"), "{line}");
        }
        assert_eq!(verdict(with("close").header(CONNECTION, "X-Request-Id")), Some("400"));
        for line in ["close", "keep-alive, x-mine", "upgrade", "host", "", ",,", "not a name"] {
            assert_eq!(verdict(with(line)), None, "{line}");
        }
    }

    #[test]
    fn nobody_is_connected_to_elsewhere() {
        assert_eq!(verdict(Request::connect("a:80").header(HOST, "a:80")), Some("501"));
    }
}
