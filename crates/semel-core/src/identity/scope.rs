//! Whose key it is.

use std::fmt;

use bytes::Bytes;

use super::{input::Sink, put};

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

    pub(super) fn feed(&self, to: &mut impl Sink) {
        match &self.0 {
            None => to.take(&[0]),
            Some(p) => {
                to.take(&[p.kind as u8]);
                put(to, &p.id);
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
