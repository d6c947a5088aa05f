//! What makes two requests the same intent: namespace + scope + key, as one keyed digest.

mod input;
mod key;
mod mark;
mod namespace;
mod scope;
mod secret;

pub(crate) use input::Input;
pub use key::{Display, IntoKey, Key, KeyWriter, PartTag};
pub use mark::{Birth, Mark, MarkError};
pub use namespace::{BadName, Kind, Namespace};
pub use scope::{Principal, PrincipalKind, Scope, ScopeTag};
pub use secret::{Digest, Purpose, Secret, SecretTooShort};

use std::{fmt, str::FromStr};

use self::input::Sink;
use crate::ids::first_eight;

/// Version of the way an identity is made; the first byte that goes into the digest.
const FORMAT: u8 = 1;

/// One intent of one caller: a 32-byte keyed digest, with the namespace and kind that stores name their keys by.
///
/// Every argument of [`Identity::new`] is mandatory, so that a forgotten scope does not compile. Equality and hash are
/// those of the digest, which covers namespace and kind.
#[derive(Clone, Copy)]
pub struct Identity {
    digest: [u8; 32],
    namespace: Namespace,
    kind: Kind,
}

impl Identity {
    /// The identity of `key` in `scope`.
    ///
    /// Cost: one BLAKE3 keyed hash over about 60 bytes plus the key.
    #[must_use]
    pub fn new(secret: &Secret, kind: Kind, namespace: Namespace, scope: &Scope, key: &Key) -> Self {
        let mut input = Input::<160>::new();
        input.push(&[FORMAT, kind as u8]);
        put(&mut input, namespace.as_str().as_bytes());
        scope.feed(&mut input);
        input.push(key.parts());
        Self { digest: *blake3::keyed_hash(secret.key(), input.bytes()).as_bytes(), namespace, kind }
    }

    /// The identity of what happened to nobody in particular: an event needs one.
    #[must_use]
    pub fn nobody() -> Self {
        static NOBODY: std::sync::OnceLock<Identity> = std::sync::OnceLock::new();
        *NOBODY.get_or_init(|| Self::stored([0; 32], Namespace::stored("semel:nobody"), Kind::Key))
    }

    /// An identity as a store kept it.
    #[must_use]
    pub const fn stored(digest: [u8; 32], namespace: Namespace, kind: Kind) -> Self {
        Self { digest, namespace, kind }
    }

    /// The digest: the whole identity, as stores key it.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The namespace it was made in.
    #[must_use]
    pub const fn namespace(&self) -> Namespace {
        self.namespace
    }

    /// What kind of identity it is.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Appends `namespace:kind:hex`, what `Display` shows, without the formatting: that would cost more than the name.
    pub fn append_to(&self, name: &mut String) {
        name.push_str(self.namespace.as_str());
        name.push(':');
        name.push(self.kind.letter());
        name.push(':');
        // Some stores name a key so in each call: this takes no memory of its own.
        name.push_str(const_hex::Buffer::<32>::new().format(&self.digest));
    }

    /// What people and problem documents see of it: the first 8 bytes.
    #[must_use]
    pub fn prefix(&self) -> IdentityPrefix {
        IdentityPrefix(first_eight(&self.digest))
    }
}

impl PartialEq for Identity {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl Eq for Identity {}

impl std::hash::Hash for Identity {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        // The digest is uniform already: eight bytes of it are as good as all.
        state.write_u64(u64::from_be_bytes(first_eight(&self.digest)));
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}:{}:{})", self.namespace.as_str(), self.kind.letter(), self.prefix())
    }
}

/// `namespace:kind:hex`, the readable key name of an identity.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = String::with_capacity(self.namespace.as_str().len() + 67);
        self.append_to(&mut name);
        f.write_str(&name)
    }
}

impl FromStr for Identity {
    type Err = NotAnIdentity;

    fn from_str(text: &str) -> Result<Self, NotAnIdentity> {
        let mut parts = text.splitn(4, ':');
        let (Some(entrance), Some(name), Some(kind), Some(hex)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(NotAnIdentity);
        };
        if !matches!(entrance, "http" | "layer" | "once" | "token" | "inbox") {
            return Err(NotAnIdentity);
        }
        let namespace = Namespace::new(entrance, name).map_err(|_| NotAnIdentity)?;
        let kind = match kind.as_bytes() {
            [letter] => Kind::from_letter(*letter).ok_or(NotAnIdentity)?,
            _ => return Err(NotAnIdentity),
        };
        // Digits behind an `0x` would be read, too.
        let digest = (hex.len() == 64).then(|| const_hex::decode_to_array(hex));
        let digest = digest.ok_or(NotAnIdentity)?.map_err(|_| NotAnIdentity)?;
        Ok(Self { digest, namespace, kind })
    }
}

/// The text is not `entrance:name:kind:64 hex digits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotAnIdentity;

impl fmt::Display for NotAnIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an identity: expected `entrance:name:kind:` and 64 hexadecimal digits")
    }
}

impl std::error::Error for NotAnIdentity {}

/// The first 8 bytes of an identity, for people.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct IdentityPrefix([u8; 8]);

impl fmt::Display for IdentityPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(const_hex::Buffer::<8>::new().format(&self.0))
    }
}

fn put(to: &mut impl Sink, part: &[u8]) {
    // A part of 4 GiB never gets here: bodies and keys are capped far below.
    to.take(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.take(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::from_material(text.as_bytes()).unwrap()
    }

    fn identity(scope: &Scope, key: &Key) -> Identity {
        Identity::new(&secret("0123456789abcdef"), Kind::Key, Namespace::http("orders").unwrap(), scope, key)
    }

    #[test]
    fn parts_never_run_into_each_other() {
        let shared = Scope::shared();
        let one = identity(&shared, &Key::new(&("ab", "c"), Display::Masked));
        let two = identity(&shared, &Key::new(&("a", "bc"), Display::Masked));
        let three = identity(&shared, &Key::new("abc", Display::Masked));
        assert!(one != two && two != three && one != three);
    }

    #[test]
    fn scope_namespace_kind_and_secret_each_make_another_identity() {
        let key = Key::new("k", Display::Masked);
        let user = |kind| Scope::of(Principal::new(kind, &b"7"[..]));
        let a = identity(&user(PrincipalKind::Subject), &key);
        assert_ne!(a, identity(&user(PrincipalKind::Address), &key));
        assert_ne!(a, identity(&Scope::shared(), &key));
        let ns = Namespace::http("orders").unwrap();
        let scope = user(PrincipalKind::Subject);
        assert_ne!(a, Identity::new(&secret("0123456789abcdeX"), Kind::Key, ns, &scope, &key));
        assert_ne!(a, Identity::new(&secret("0123456789abcdef"), Kind::Window, ns, &scope, &key));
        let layer = Namespace::layer("orders").unwrap();
        assert_ne!(a, Identity::new(&secret("0123456789abcdef"), Kind::Key, layer, &scope, &key));
    }

    #[test]
    fn an_identity_survives_its_text() {
        let id = identity(&Scope::shared(), &Key::new("k", Display::Masked));
        let back: Identity = id.to_string().parse().unwrap();
        assert_eq!(back, id);
        assert_eq!(back.namespace(), id.namespace());
        let digits = "0f".repeat(32);
        assert!(format!("http:orders:k:{digits}").parse::<Identity>().is_ok());
        for (before, digits) in [
            ("http:orders:k:", &*format!("0x{digits}")),
            ("http:orders:k:", &format!("0x{}", &digits[2..])),
            ("http:orders:k:", &digits[1..]),
            ("http:orders:k:", &digits.replacen('f', "g", 1)),
            ("ftp:orders:k:", &digits),
            ("http:Orders:k:", &digits),
            ("http:orders:q:", &digits),
            ("http:orders:", &digits),
            ("http:orders:k", ""),
            ("", ""),
        ] {
            let bad = format!("{before}{digits}");
            assert_eq!(bad.parse::<Identity>(), Err(NotAnIdentity), "{bad}");
        }
    }

    #[test]
    fn a_masked_key_shows_at_most_a_quarter() {
        assert_eq!(Key::new("4711", Display::Masked).shown(), "4…(4)");
        assert_eq!(Key::new("8e03978e-40d5-43e8-bc93-6894a57f9324", Display::Masked).shown(), "8e03…(36)");
        assert_eq!(Key::new("", Display::Masked).shown(), "…(0)");
        assert_eq!(Key::new(&("änderung", "7"), Display::Masked).shown(), "än…(10)");
        assert_eq!(Key::new(&("änderung-änderung", 7), Display::Masked).shown(), "ände…(19)");
    }

    #[test]
    fn a_key_in_full_is_shown_up_to_64_characters() {
        let shown = |text: &str| Key::new(&(text, 42), Display::Full).shown().to_owned();
        assert_eq!(shown("tenant-7"), "tenant-7/42");
        assert_eq!(shown(&"ü".repeat(62)), "ü".repeat(62) + "/4");
        assert_eq!(shown(&"ü".repeat(70)), "ü".repeat(64));
        assert_eq!(shown(&"a".repeat(70)), "a".repeat(64));
    }

    #[test]
    fn a_secret_is_never_printed_and_never_short() {
        assert_eq!(format!("{:?}", secret("0123456789abcdef")), "Secret(…)");
        assert_eq!(Secret::from_material(b"short\n").unwrap_err().len, 5);
    }

    #[test]
    fn names_that_some_store_cannot_hold_are_refused() {
        for bad in ["", "Orders", "a:b", "a{b}", "a b", &"x".repeat(65)] {
            assert!(Namespace::http(bad).is_err(), "{bad}");
        }
    }
}
