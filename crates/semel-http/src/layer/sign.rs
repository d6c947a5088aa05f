//! What a service is told of the grant that it runs under.

use http::{HeaderMap, HeaderValue};
use semel_core::{engine::Run, identity::Identity, store::FenceStrength};

use crate::names::{SEMEL_ATTEMPT, SEMEL_FENCE, SEMEL_IDENTITY, SEMEL_UNGUARDED};

/// Tells the service which grant it runs under. Written without the formatter: this goes out with every guarded request.
pub(super) fn sign(headers: &mut HeaderMap, run: &Run, strength: FenceStrength) {
    if let Ok(identity) = HeaderValue::try_from(text(run.identity())) {
        headers.insert(&SEMEL_IDENTITY, identity);
    }
    if let Some(why) = run.unguarded() {
        // There is no number that a service could compare.
        headers.insert(&SEMEL_UNGUARDED, HeaderValue::from_static(why.name()));
        return;
    }
    headers.insert(&SEMEL_FENCE, fence(run.fence().get(), strength));
    headers.insert(&SEMEL_ATTEMPT, attempt(run.attempt()));
}

/// [`Identity`]'s text.
fn text(identity: &Identity) -> Vec<u8> {
    const PAIRS: [[u8; 2]; 256] = {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let (mut pairs, mut i) = ([[0; 2]; 256], 0);
        while i < 256 {
            pairs[i] = [DIGITS[i >> 4], DIGITS[i & 15]];
            i += 1;
        }
        pairs
    };
    let namespace = identity.namespace().as_str();
    let mut out = Vec::with_capacity(namespace.len() + 67);
    out.extend_from_slice(namespace.as_bytes());
    out.extend_from_slice(&[b':', identity.kind() as u8, b':']);
    let digits: [[u8; 2]; 32] = identity.digest().map(|byte| PAIRS[usize::from(byte)]);
    out.extend_from_slice(digits.as_flattened());
    out
}

/// The number, and `;advisory` where the store cannot promise that it rises.
fn fence(number: u64, strength: FenceStrength) -> HeaderValue {
    const ADVISORY: &[u8] = b";advisory";
    /// The digits of the largest number.
    const MOST: usize = 20;
    let mut text = [0; MOST + ADVISORY.len()];
    text[MOST..].copy_from_slice(ADVISORY);
    let (mut rest, mut begin) = (number, MOST);
    // Two digits at a time: there are sixteen of them.
    loop {
        begin -= 2;
        let pair = (rest % 100) as u8;
        text[begin] = b'0' + pair / 10;
        text[begin + 1] = b'0' + pair % 10;
        rest /= 100;
        if rest == 0 {
            break;
        }
    }
    begin += usize::from(text[begin] == b'0');
    let end = match strength {
        FenceStrength::Strong => MOST,
        FenceStrength::Advisory => text.len(),
    };
    HeaderValue::from_bytes(&text[begin..end]).unwrap_or_else(|_| HeaderValue::from(number))
}

/// Nearly always the first.
fn attempt(number: u32) -> HeaderValue {
    if number == 1 { HeaderValue::from_static("1") } else { HeaderValue::from(number) }
}

#[cfg(test)]
mod tests {
    use semel_core::identity::{Display, Key, Kind, Namespace, Scope, Secret};

    use super::*;

    #[test]
    fn the_identity_goes_out_as_it_is_read() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let key = Key::new("k", Display::Masked);
        let namespace = Namespace::http("orders").unwrap();
        let identity = Identity::new(&secret, Kind::Key, namespace, &Scope::shared(), &key);
        assert_eq!(text(&identity), identity.to_string().into_bytes());
    }

    #[test]
    fn numbers_go_out_in_full() {
        for number in [0, 1, 9, 10, 1_764_455_528_123_456, u64::MAX] {
            assert_eq!(fence(number, FenceStrength::Strong), number.to_string());
            assert_eq!(fence(number, FenceStrength::Advisory), format!("{number};advisory"));
        }
        for number in [0, 1, 2, 10, u32::MAX] {
            assert_eq!(attempt(number), number.to_string());
        }
    }
}
