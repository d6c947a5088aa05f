//! The mark by which a gateway knows its own requests again: an entry of `Via` (RFC 9110, 7.6.3).
//!
//! Only a request that came through another proxy gets it, so that one straight from a client costs nothing: what leads
//! back here has been through this gateway, and carries its forwarding fields.

use std::{fmt::Write, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, header::VIA};
use semel_core::{
    env::{BootClock, Clock as _},
    observe::Seldom,
};

/// So often a request may come by: a service that passes all fields on may well ask through the same gateway again.
const PASSES: usize = 10;

/// How often a loop is worth a line in the log.
const TOLD: Duration = Duration::from_secs(10);

/// A gateway's name in `Via`; one for all of its runtimes.
#[derive(Debug)]
pub struct Via {
    entry: HeaderValue,
    told: Seldom,
}

impl Via {
    /// A name made of `id`, which should be random.
    pub fn new(id: u64) -> Self {
        let mut entry = String::new();
        let _ = write!(entry, "1.1 semel-{id:016x}");
        let entry = HeaderValue::from_maybe_shared(Bytes::from(entry)).unwrap_or(HeaderValue::from_static("1.1 semel"));
        Self { entry, told: Seldom::every(TOLD) }
    }

    /// Says that a request passed here.
    pub(super) fn mark(&self, headers: &mut HeaderMap) {
        headers.append(VIA, self.entry.clone());
    }

    /// Whether a request has passed here so often that something behind this gateway must lead back to it.
    pub(super) fn is_looping(&self, headers: &HeaderMap) -> bool {
        let entries = headers.get_all(VIA).iter().flat_map(|line| line.as_bytes().split(|&byte| byte == b','));
        let passes = entries.filter(|entry| received_by(entry) == received_by(self.entry.as_bytes())).count();
        if passes < PASSES {
            return false;
        }
        if let Some(withheld) = self.told.next(BootClock.now()) {
            tracing::warn!(
                passes,
                withheld,
                "a request came here again and again: an upstream, or a proxy behind this gateway, leads back to it"
            );
        }
        true
    }
}

/// `name` in `1.1 name (comment)`.
fn received_by(entry: &[u8]) -> Option<&[u8]> {
    entry.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).nth(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_passes_are_none_and_many_are_a_loop() {
        let (via, other) = (Via::new(7), Via::new(8));
        let mut headers = HeaderMap::new();
        headers.append(VIA, HeaderValue::from_static("1.0 edge, HTTP/1.1 cdn (a comment),1.1"));
        for pass in 0..PASSES {
            assert!(!via.is_looping(&headers), "{pass}");
            via.mark(&mut headers);
            other.mark(&mut headers);
        }
        assert!(via.is_looping(&headers));
        assert!(!Via::new(9).is_looping(&headers));
        // A proxy on the way may have made one line of them.
        let lines: Vec<_> = headers.get_all(VIA).iter().map(|line| line.to_str().unwrap().to_owned()).collect();
        headers.insert(VIA, lines.join(" ,").parse().unwrap());
        assert!(via.is_looping(&headers));
    }
}
