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

/// [`Identity`]'s text, with no more room than it needs: it becomes a value as it is.
fn text(identity: &Identity) -> String {
    let mut text = String::with_capacity(identity.namespace().as_str().len() + 67);
    identity.append_to(&mut text);
    text
}

/// The number, and `;advisory` where the store cannot promise that it rises.
fn fence(number: u64, strength: FenceStrength) -> HeaderValue {
    match strength {
        FenceStrength::Strong => HeaderValue::from(number),
        FenceStrength::Advisory => {
            const ADVISORY: &[u8] = b";advisory";
            let mut digits = itoa::Buffer::new();
            let digits = digits.format(number).as_bytes();
            let mut text = Vec::with_capacity(digits.len() + ADVISORY.len());
            text.extend_from_slice(digits);
            text.extend_from_slice(ADVISORY);
            HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from(number))
        }
    }
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
        assert_eq!(text(&identity), identity.to_string());
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
