//! No body panics; a body's fingerprint is the same twice; white space around JSON does not matter.
#![no_main]

use http::{HeaderMap, HeaderValue, Method, header};
use libfuzzer_sys::fuzz_target;
use semel_core::identity::Secret;
use semel_http::fingerprint::{FingerprintMode, Json, Question, canonical_digest};

fuzz_target!(|input: (bool, &str, &[u8])| {
    let (form, target, body) = input;
    let secret = Secret::from_material(b"0123456789abcdef").expect("it is long enough");
    let json = || Json::default().without("/a").and_then(|j| j.unordered("/b")).and_then(|j| j.only("/c/*"));
    let modes = [
        FingerprintMode::Bytes,
        FingerprintMode::Json(Json::default()),
        FingerprintMode::Json(json().expect("they are pointers")),
        FingerprintMode::Form,
        FingerprintMode::Route,
    ];
    let kind = if form { "application/x-www-form-urlencoded" } else { "application/json" };
    let mut headers = HeaderMap::new();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    let question = Question { method: &Method::POST, target, headers: &headers, body };
    for mode in modes {
        assert!(mode.of(&secret, &question).same(&mode.of(&secret, &question)));
    }
    if let Ok(digest) = canonical_digest(body) {
        let spaced = [b" \t", body, b"\r\n"].concat();
        assert_eq!(canonical_digest(&spaced), Ok(digest));
        // An array around it is another value.
        if let Ok(nested) = canonical_digest(&[b"[", body, b"]"].concat()) {
            assert_ne!(nested, digest);
        }
    }
});
