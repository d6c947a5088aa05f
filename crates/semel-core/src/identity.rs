//! What makes two requests the same intent: namespace + scope + key, as one keyed digest.

use std::{collections::HashSet, fmt, str::FromStr};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::ids::first_eight;

/// Version of the way an identity is made; the first byte that goes into the digest.
const FORMAT: u8 = 1;

/// The deployment's secret: the key of every digest. Without it nobody can tell from a record which key it belongs to.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl Secret {
    /// A secret from material of at least 16 bytes (a file, an environment variable). White space at the end is
    /// ignored, since editors add it.
    ///
    /// # Errors
    /// [`SecretTooShort`] when fewer than 16 bytes are left.
    pub fn from_material(material: &[u8]) -> Result<Self, SecretTooShort> {
        let material = material.trim_ascii_end();
        if material.len() < 16 {
            return Err(SecretTooShort { len: material.len() });
        }
        Ok(Self(blake3::derive_key("semel 2026 deployment secret", material)))
    }

    /// A fresh random secret, for a store that lives and dies with this process.
    #[must_use]
    pub fn random(rng: &dyn crate::env::Rng) -> Self {
        let mut bytes = [0; 32];
        rng.fill(&mut bytes);
        Self(bytes)
    }

    /// The key itself, for digests that begin with a [`Purpose`].
    pub(crate) const fn key(&self) -> &[u8; 32] {
        &self.0
    }

    /// A keyed digest of length-prefixed parts for one named purpose: credentials, request ids.
    #[must_use]
    pub fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> Digest {
        let mut buf = Vec::with_capacity(8 + parts.iter().map(|p| 4 + p.len()).sum::<usize>());
        buf.push(purpose as u8);
        for part in parts {
            put(&mut buf, part);
        }
        Digest(*blake3::keyed_hash(&self.0, &buf).as_bytes())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The secret's material is too short to be one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SecretTooShort {
    /// How many bytes there were.
    pub len: usize,
}

impl fmt::Display for SecretTooShort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the secret has {} bytes; at least 16 are needed (make one with `head -c 32 /dev/urandom | base64`)",
            self.len
        )
    }
}

impl std::error::Error for SecretTooShort {}

/// What a keyed digest is for. Each purpose is a domain of its own, so that equal bytes never meet across two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[non_exhaustive]
pub enum Purpose {
    /// A caller's credentials.
    Credentials = 0x81,
    /// A request id, as `retry_id` compares it.
    RequestId = 0x82,
    /// An API key that names a principal.
    ApiKey = 0x83,
    /// A fingerprint of what was asked.
    Fingerprint = 0x84,
    /// A store's proof of the secret that its records were made with.
    Proof = 0x85,
}

/// A 32-byte keyed digest; see [`Secret::digest`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// All 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 bytes: enough for an equality that no caller can search.
    #[must_use]
    pub fn short(&self) -> [u8; 16] {
        let mut out = [0; 16];
        out.copy_from_slice(&self.0[..16]);
        out
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}…", u64::from_be_bytes(first_eight(&self.0)))
    }
}

/// The entrance and the service a record belongs to, `http:orders` say. It begins with the entrance by construction,
/// so two layers on one store never meet.
///
/// Names are interned for the life of the process: make them from configuration, never from requests.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Namespace(&'static str);

impl Namespace {
    /// Requests through the gateway, for one service.
    ///
    /// # Errors
    /// [`BadName`] unless the name is 1 to 64 of `[a-z0-9._-]`; so for the other constructors.
    pub fn http(service: &str) -> Result<Self, BadName> {
        Self::new("http", service)
    }

    /// Requests through a tower layer in the service itself.
    ///
    /// # Errors
    /// See [`Namespace::http`].
    pub fn layer(service: &str) -> Result<Self, BadName> {
        Self::new("layer", service)
    }

    /// Calls of one function.
    ///
    /// # Errors
    /// See [`Namespace::http`].
    pub fn once(name: &str) -> Result<Self, BadName> {
        Self::new("once", name)
    }

    /// One-time tokens.
    ///
    /// # Errors
    /// See [`Namespace::http`].
    pub fn token(service: &str) -> Result<Self, BadName> {
        Self::new("token", service)
    }

    /// Messages of one consumer group.
    ///
    /// # Errors
    /// See [`Namespace::http`].
    pub fn inbox(group: &str) -> Result<Self, BadName> {
        Self::new("inbox", group)
    }

    fn new(entrance: &str, name: &str) -> Result<Self, BadName> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'.' | b'_' | b'-');
        if name.is_empty() || name.len() > 64 || !name.bytes().all(fits) {
            return Err(BadName { name: name.chars().take(80).collect() });
        }
        Ok(Self(intern(&format!("{entrance}:{name}"))))
    }

    /// A namespace as a store kept it; it was checked when it was made.
    #[must_use]
    pub fn stored(text: &str) -> Self {
        Self(intern(text))
    }

    /// The text, `http:orders`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

fn intern(text: &str) -> &'static str {
    static KNOWN: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut known = KNOWN.lock();
    let known = known.get_or_insert_with(HashSet::new);
    if let Some(found) = known.get(text) {
        return found;
    }
    let kept: &'static str = Box::leak(text.to_owned().into_boxed_str());
    known.insert(kept);
    kept
}

/// A namespace's name has characters that keys of some store cannot have.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BadName {
    /// The name as given, cut to 80 characters.
    pub name: String,
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not a name: use 1 to 64 of a-z, 0-9, dot, underscore, hyphen", self.name)
    }
}

impl std::error::Error for BadName {}

/// What kind of identity a record stands for; part of the digest and of readable key names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Kind {
    /// A key from the client, or computed by a rule.
    Key = b'k',
    /// A one-time token.
    Token = b't',
    /// A digest window.
    Window = b'd',
    /// A message.
    Message = b'm',
}

impl Kind {
    /// The letter, as stored.
    #[must_use]
    pub const fn letter(self) -> char {
        self as u8 as char
    }

    /// The kind of a stored letter.
    #[must_use]
    pub const fn from_letter(letter: u8) -> Option<Self> {
        match letter {
            b'k' => Some(Self::Key),
            b't' => Some(Self::Token),
            b'd' => Some(Self::Window),
            b'm' => Some(Self::Message),
            _ => None,
        }
    }
}

/// Who calls, once verified.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Principal {
    kind: PrincipalKind,
    id: Bytes,
}

impl Principal {
    /// A principal of a kind with its stable id: a subject, a certificate's name, never a rotating token.
    #[must_use]
    pub fn new(kind: PrincipalKind, id: impl Into<Bytes>) -> Self {
        Self { kind, id: id.into() }
    }

    /// How the caller was verified.
    #[must_use]
    pub const fn kind(&self) -> PrincipalKind {
        self.kind
    }
}

impl fmt::Debug for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Principal({:?}, {} bytes)", self.kind, self.id.len())
    }
}

/// How a principal was verified. The kind is part of the scope: user `7` and address `7` never meet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum PrincipalKind {
    /// The subject of a verified token.
    Subject = 1,
    /// The subject of a client certificate.
    Certificate = 2,
    /// The digest of an API key.
    ApiKeyDigest = 3,
    /// A header set by the authenticating proxy in front.
    Header = 4,
    /// A session.
    Session = 5,
    /// The peer's address.
    Address = 6,
}

/// Whose key it is. There is no `Default`: a scope that everybody shares has to be asked for.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Scope(Option<Principal>);

impl Scope {
    /// The scope of one verified caller.
    #[must_use]
    pub const fn of(principal: Principal) -> Self {
        Self(Some(principal))
    }

    /// One scope for all callers. The record then keeps a digest of the caller's credentials, and a duplicate with
    /// others gets no stored byte.
    #[must_use]
    pub const fn shared() -> Self {
        Self(None)
    }

    /// Whether this is one verified caller's own scope.
    #[must_use]
    pub const fn is_verified(&self) -> bool {
        self.0.is_some()
    }

    /// A number to count by: how much of one scope runs and waits.
    #[must_use]
    pub fn tag(&self) -> ScopeTag {
        use std::hash::BuildHasher;
        static KEYED: std::sync::OnceLock<std::hash::RandomState> = std::sync::OnceLock::new();
        match &self.0 {
            None => ScopeTag::SHARED,
            Some(p) => ScopeTag(KEYED.get_or_init(std::hash::RandomState::new).hash_one(p) | 1),
        }
    }

    fn feed(&self, buf: &mut Vec<u8>) {
        match &self.0 {
            None => buf.push(0),
            Some(p) => {
                buf.push(p.kind as u8);
                put(buf, &p.id);
            }
        }
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("Scope(shared)"),
            Some(p) => write!(f, "Scope({p:?})"),
        }
    }
}

/// A scope as a number, keyed at random per process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ScopeTag(u64);

impl ScopeTag {
    /// The shared scope: everybody's, so that limits per scope do not apply.
    pub const SHARED: Self = Self(0);
}

/// How a key may be shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Display {
    /// Its first characters and its length. For keys that come from outside.
    #[default]
    Masked,
    /// In full. For keys that the program builds itself, an order number say.
    Full,
}

/// A key: typed, length-prefixed parts. Made from [`IntoKey`] values; strings and numbers never meet.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    parts: Vec<u8>,
    shown: String,
}

impl Key {
    /// A key of one part or a tuple of parts.
    ///
    /// ```
    /// use semel_core::identity::{Display, Key};
    /// let key = Key::new(&("tenant-7", 42_u64), Display::Full);
    /// assert_eq!(key.shown(), "tenant-7/42");
    /// assert_ne!(key, Key::new(&("tenant-7", "42"), Display::Full));
    /// ```
    #[must_use]
    pub fn new(from: &(impl IntoKey + ?Sized), display: Display) -> Self {
        let mut out = KeyWriter { parts: Vec::with_capacity(48), shown: String::with_capacity(48) };
        from.feed(&mut out);
        let shown = match display {
            Display::Full => cut(&out.shown, 64),
            Display::Masked => mask(&out.shown),
        };
        Self { parts: out.parts, shown }
    }

    /// The form for people: masked unless the key's maker said otherwise.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.shown)
    }
}

fn cut(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

/// At most four characters and never more than a quarter of the key, then its length.
fn mask(text: &str) -> String {
    let len = text.chars().count();
    let keep = (len / 4).min(4);
    let end = text.char_indices().nth(keep).map_or(text.len(), |(at, _)| at);
    let mut out = String::with_capacity(end + 12);
    out.push_str(&text[..end]);
    out.push_str("…(");
    // Written by hand: the formatter costs more than the rest of this function.
    let (mut digits, mut rest, mut at) = ([b'0'; 20], len, 20);
    while at == 20 || rest > 0 {
        at -= 1;
        digits[at] = b'0' + u8::try_from(rest % 10).unwrap_or(0);
        rest /= 10;
    }
    out.extend(digits[at..].iter().map(|d| char::from(*d)));
    out.push(')');
    out
}

/// Collects the parts of a [`Key`].
#[derive(Debug)]
pub struct KeyWriter {
    parts: Vec<u8>,
    shown: String,
}

impl KeyWriter {
    /// One part: a type tag, so that `1` and `"1"` differ; its bytes; what people may see of it.
    pub fn part(&mut self, tag: PartTag, bytes: &[u8], shown: fmt::Arguments<'_>) {
        self.parts.push(tag as u8);
        put(&mut self.parts, bytes);
        if !self.shown.is_empty() {
            self.shown.push('/');
        }
        let _ = fmt::Write::write_fmt(&mut self.shown, shown);
    }
}

/// The type of a key's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum PartTag {
    /// UTF-8 text.
    Text = 1,
    /// An integer, 16 bytes, two's complement, big endian: the same for every width.
    Integer = 2,
    /// Raw bytes.
    Bytes = 3,
}

/// What can be (part of) a key: integers, text, bytes, and tuples of them. Never an `Option` (a missing value is not a
/// key) and never a float (equal amounts have unequal bits).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be (part of) a key",
    note = "keys are integers, text, bytes and tuples of them; a missing value is not a key, and equal amounts can be unequal floats"
)]
pub trait IntoKey {
    /// Writes the value's parts.
    fn feed(&self, out: &mut KeyWriter);
}

impl IntoKey for str {
    fn feed(&self, out: &mut KeyWriter) {
        out.part(PartTag::Text, self.as_bytes(), format_args!("{self}"));
    }
}

impl IntoKey for String {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_str().feed(out);
    }
}

impl IntoKey for [u8] {
    fn feed(&self, out: &mut KeyWriter) {
        out.part(PartTag::Bytes, self, format_args!("{} bytes", self.len()));
    }
}

impl IntoKey for Vec<u8> {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_slice().feed(out);
    }
}

impl IntoKey for Bytes {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_ref().feed(out);
    }
}

impl<const N: usize> IntoKey for [u8; N] {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_slice().feed(out);
    }
}

impl<T: IntoKey + ?Sized> IntoKey for &T {
    fn feed(&self, out: &mut KeyWriter) {
        (**self).feed(out);
    }
}

macro_rules! integer_keys {
    ($($t:ty),*) => {$(
        impl IntoKey for $t {
            fn feed(&self, out: &mut KeyWriter) {
                out.part(PartTag::Integer, &i128::from(*self).to_be_bytes(), format_args!("{self}"));
            }
        }
    )*};
}
integer_keys!(u8, u16, u32, u64, i8, i16, i32, i64, i128);

macro_rules! tuple_keys {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: IntoKey),+> IntoKey for ($($name,)+) {
            fn feed(&self, out: &mut KeyWriter) {
                $(self.$index.feed(out);)+
            }
        }
    )*};
}
tuple_keys! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5) }

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
        let mut buf = Vec::with_capacity(96 + namespace.0.len() + key.parts.len());
        buf.push(FORMAT);
        buf.push(kind as u8);
        put(&mut buf, namespace.0.as_bytes());
        scope.feed(&mut buf);
        buf.extend_from_slice(&key.parts);
        Self { digest: *blake3::keyed_hash(&secret.0, &buf).as_bytes(), namespace, kind }
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
        write!(f, "Identity({}:{}:{})", self.namespace.0, self.kind.letter(), self.prefix())
    }
}

/// `namespace:kind:hex`, the readable key name of an identity.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:", self.namespace.0, self.kind.letter())?;
        self.digest.iter().try_for_each(|b| write!(f, "{b:02x}"))
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
        if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(NotAnIdentity);
        }
        let mut digest = [0; 32];
        for (i, byte) in digest.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).map_err(|_| NotAnIdentity)?;
        }
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
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

fn put(buf: &mut Vec<u8>, part: &[u8]) {
    // A part of 4 GiB never gets here: bodies and keys are capped far below.
    buf.extend_from_slice(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
    buf.extend_from_slice(part);
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
        for bad in ["", "http:orders:k", "ftp:a:k:00", "http:Orders:k:00", "http:orders:q:00"] {
            assert_eq!(bad.parse::<Identity>(), Err(NotAnIdentity), "{bad}");
        }
    }

    #[test]
    fn a_masked_key_shows_at_most_a_quarter() {
        assert_eq!(Key::new("4711", Display::Masked).shown(), "4…(4)");
        assert_eq!(Key::new("8e03978e-40d5-43e8-bc93-6894a57f9324", Display::Masked).shown(), "8e03…(36)");
        assert_eq!(Key::new("", Display::Masked).shown(), "…(0)");
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
