//! A fingerprint exists for every question, is the same for the same question, and another body makes another one in
//! the modes that look at bodies by their bytes.
#![no_main]

use http::{HeaderMap, HeaderValue, Method, header};
use libfuzzer_sys::fuzz_target;
use semel_core::identity::Secret;
use semel_http::fingerprint::{FingerprintMode, Json, Question};

fuzz_target!(|input: (u8, &str, Vec<u8>, Vec<u8>)| {
    let (mode, target, kind, body) = input;
    let secret = Secret::from_material(b"0123456789abcdef").expect("long enough");
    let json = || Json::default().without("/a").and_then(|j| j.unordered("/b")).expect("pointers");
    let mode = match mode % 5 {
        0 => FingerprintMode::Bytes,
        1 => FingerprintMode::Json(Json::default()),
        2 => FingerprintMode::Json(json()),
        3 => FingerprintMode::Form,
        _ => FingerprintMode::Route,
    };
    let mut headers = HeaderMap::new();
    if let Ok(kind) = HeaderValue::from_bytes(&kind) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    let question = Question { method: &Method::POST, target, headers: &headers, body: &body };
    let one = mode.of(&secret, &question);
    assert!(one.same(&mode.of(&secret, &question)));
    assert!(!one.same(&mode.of(&secret, &Question { method: &Method::PUT, ..question })));
    if matches!(mode, FingerprintMode::Bytes) {
        let mut longer = body.clone();
        longer.push(b' ');
        assert!(!one.same(&mode.of(&secret, &Question { body: &longer, ..question })));
    }
});
