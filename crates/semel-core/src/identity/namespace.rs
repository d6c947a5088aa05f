//! Where a record belongs: entrance and service; and its kind.

use std::{collections::HashSet, fmt};

use parking_lot::Mutex;

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

    pub(super) fn new(entrance: &str, name: &str) -> Result<Self, BadName> {
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

    /// The word for people and for `--json`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Token => "token",
            Self::Window => "window",
            Self::Message => "message",
        }
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
