//! A header value is a key or an error; a key is what it says, and its quoted and its bare form are one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_http::key::{MAX_LEN, Syntax, parse};

fuzz_target!(|value: &[u8]| {
    let any = Syntax::default();
    let read = parse(value, &any);
    for stricter in [any.uuid(), any.quoted(), any.min_len(20)] {
        if let Ok(key) = parse(value, &stricter) {
            assert_eq!(read.as_deref(), Ok(&*key), "a stricter syntax reads another key");
        }
    }
    let Ok(key) = read else { return };
    assert!((1..=MAX_LEN).contains(&key.len()));
    assert!(key.bytes().all(|b| (b'!'..=b'~').contains(&b)), "{key:?}");
    let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(parse(quoted.as_bytes(), &any).as_deref(), Ok(&*key));
    if !key.contains(['"', ',', ';']) {
        assert_eq!(parse(key.as_bytes(), &any).as_deref(), Ok(&*key));
    }
});
