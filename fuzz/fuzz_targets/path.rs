//! The readings of a path: few, bounded, each without what readers disagree about; and a canonical spelling that stays
//! what it is, whatever is put into a path that changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use semel_http::path::{LONGEST, canonical, is_plain, readings};

fuzz_target!(|text: &str| {
    let path = format!("/{text}");
    let one = canonical(&path);
    assert!(one.starts_with(b"/") && !one.windows(2).any(|pair| pair == b"//"), "{path:?}");
    let Some(all) = readings(&path) else {
        let controls = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        assert!(
            !is_plain(&path) && (path.len() > LONGEST || path.contains('%') || path.contains(controls)),
            "{path:?}"
        );
        return;
    };
    assert!(all.len() <= 24 && (all.is_empty() || !is_plain(&path)), "{path:?}");
    for reading in &all {
        assert!(reading.starts_with(b"/") && reading.len() <= path.len() + 1, "{path:?}");
        assert_ne!(reading.as_slice(), path.as_bytes());
        assert!(!reading.contains(&b'\\') && !reading.windows(2).any(|pair| pair == b"//"), "{path:?}");
        assert!(!reading.split(|b| *b == b'/').any(|part| part == b"." || part == b".."), "{path:?}");
    }
    if is_plain(&path) {
        // What readers disagree about, put in front of a path that they agree about, is seen through.
        for twist in ["/", "/.", "/x/..", "/%2e", "/;v", "/x%2f..", "/\\", "/x/%252e%252e"] {
            let twisted = format!("{twist}{path}");
            assert_eq!(canonical(&twisted), one, "{twisted:?}");
            let all = readings(&twisted).unwrap_or_default();
            assert!(
                twisted.len() > LONGEST || all.iter().any(|reading| reading == path.as_bytes()),
                "{twisted:?}: {all:?}"
            );
        }
    }
});
