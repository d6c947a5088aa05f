//! No bytes of a header panic, and what is taken for a key is one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_http::key::{MAX_LEN, Syntax, parse};

fuzz_target!(|value: &[u8]| {
    let Ok(key) = parse(value, &Syntax::default()) else { return };
    assert!((1..=MAX_LEN).contains(&key.len()));
    assert!(key.bytes().all(|b| (0x21..=0x7e).contains(&b)));
    // Quoted, it is the same key.
    let quoted = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
    assert_eq!(parse(quoted.as_bytes(), &Syntax::default().quoted()).as_ref(), Ok(&key));
});
