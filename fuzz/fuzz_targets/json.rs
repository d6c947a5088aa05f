//! The canonical digest of JSON: another parser's rewriting of the same value changes nothing, and what that parser
//! refuses has no digest.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_http::fingerprint::{Json, canonical_digest};
use serde_json::Value;

fuzz_target!(|body: &[u8]| {
    let digest = canonical_digest(body);
    assert_eq!(Json::default().digest(body), digest);
    let Ok(digest) = digest else { return };
    assert_eq!(canonical_digest(&[b" \t", body, b"\r\n"].concat()), Ok(digest), "white space around it is nothing");
    if let Ok(nested) = canonical_digest(&[b"[", body, b"]"].concat()) {
        assert_ne!(nested, digest, "an array around it is another value");
    }
    match serde_json::from_slice::<Value>(body) {
        Ok(value) => {
            for rewritten in [serde_json::to_vec(&value), serde_json::to_vec_pretty(&value)] {
                let rewritten = rewritten.expect("a value can be written");
                assert_eq!(canonical_digest(&rewritten), Ok(digest), "{}", String::from_utf8_lossy(&rewritten));
            }
        }
        // Its limit of nesting is one below ours.
        Err(error) => assert!(error.to_string().contains("recursion limit"), "{error}"),
    }
});
