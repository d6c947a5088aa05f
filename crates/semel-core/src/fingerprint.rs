//! What was asked, as a versioned keyed digest: the same key with another question is a mismatch.

use std::fmt;

use subtle::ConstantTimeEq;

use crate::identity::{Input, Purpose, Secret};

/// Which algorithm made a digest, and with which parameters (the chosen JSON fields, say). Only digests of one version
/// are ever compared; another one makes an outcome unavailable, never a mismatch and never a second run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Version {
    /// The algorithm; what stores compare. Zero means that nothing was digested.
    pub algorithm: u8,
    /// A digest of the algorithm's parameters; zero where it has none.
    pub parameters: u32,
}

/// A digest of what was asked. No `PartialEq`: [`Fingerprint::same`] compares in constant time and within one version.
#[derive(Clone, Copy)]
pub struct Fingerprint {
    version: Version,
    digest: [u8; 32],
}

impl Fingerprint {
    /// Where what was asked does not matter, or is part of the identity already.
    pub const NONE: Self = Self { version: Version { algorithm: 0, parameters: 0 }, digest: [0; 32] };

    /// A fingerprint as it was stored.
    #[must_use]
    pub const fn stored(version: Version, digest: [u8; 32]) -> Self {
        Self { version, digest }
    }

    /// The version it was made with.
    #[must_use]
    pub const fn version(&self) -> Version {
        self.version
    }

    /// The digest, as stored.
    #[must_use]
    pub const fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// Whether both were made the same way from the same question; in constant time.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        self.version == other.version && bool::from(self.digest.ct_eq(&other.digest))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint(v{})", self.version.algorithm)
    }
}

/// Makes a [`Fingerprint`] from length-prefixed parts; a part may come in pieces.
///
/// Keyed with the deployment's secret, so that a stored fingerprint tells nobody what was asked. The digest begins with
/// a byte that is this purpose's own, then the version, then the parts.
///
/// Cost: one BLAKE3 keyed hash over the parts. Up to 1 KiB they are gathered and hashed at once, which takes half of
/// what hashing them one by one does.
pub struct Hasher {
    version: Version,
    key: [u8; 32],
    gathered: Input<256>,
    /// Takes over where the parts are many or long.
    inner: Option<Box<blake3::Hasher>>,
}

/// One chunk of BLAKE3.
const GATHERED: usize = 1024;

impl Hasher {
    /// A hasher for one version.
    #[must_use]
    pub fn new(secret: &Secret, version: Version) -> Self {
        let mut gathered = Input::new();
        gathered.push(&[Purpose::Fingerprint as u8, version.algorithm]);
        gathered.push(&version.parameters.to_be_bytes());
        Self { version, key: *secret.key(), gathered, inner: None }
    }

    /// A part whose bytes are at hand.
    pub fn part(&mut self, bytes: &[u8]) -> &mut Self {
        let len = (bytes.len() as u64).to_be_bytes();
        if self.inner.is_none() && self.gathered.len() + len.len() + bytes.len() <= GATHERED {
            self.gathered.push_both(len, bytes);
            return self;
        }
        self.more(&len).more(bytes)
    }

    /// Announces a part of `len` bytes, which [`more`](Self::more) then brings in pieces.
    pub fn begin_part(&mut self, len: u64) -> &mut Self {
        self.more(&len.to_be_bytes())
    }

    /// The next piece of the part that was begun.
    pub fn more(&mut self, piece: &[u8]) -> &mut Self {
        if self.inner.is_none() && self.gathered.len() + piece.len() <= GATHERED {
            self.gathered.push(piece);
            return self;
        }
        let inner = self.inner.get_or_insert_with(|| {
            let mut inner = Box::new(blake3::Hasher::new_keyed(&self.key));
            inner.update(self.gathered.bytes());
            inner
        });
        inner.update(piece);
        self
    }

    /// The fingerprint of all parts.
    #[must_use]
    pub fn finish(&self) -> Fingerprint {
        let digest = match &self.inner {
            Some(inner) => inner.finalize(),
            None => blake3::keyed_hash(&self.key, self.gathered.bytes()),
        };
        Fingerprint { version: self.version, digest: *digest.as_bytes() }
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hasher(v{})", self.version.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_parts_in_the_same_version_are_the_same() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let v1 = Version { algorithm: 1, parameters: 0 };
        let make = |version, parts: &[&[u8]]| {
            let mut h = Hasher::new(&secret, version);
            for p in parts {
                h.part(p);
            }
            h.finish()
        };
        let ab = make(v1, &[b"a", b"b"]);
        assert!(ab.same(&make(v1, &[b"a", b"b"])));
        assert!(!ab.same(&make(v1, &[b"ab"])));
        assert!(!ab.same(&make(v1, &[b"ab", b""])));
        assert!(!ab.same(&make(Version { algorithm: 1, parameters: 9 }, &[b"a", b"b"])));
        let mut pieces = Hasher::new(&secret, v1);
        pieces.begin_part(4).more(b"bo").more(b"dy");
        assert!(pieces.finish().same(&make(v1, &[b"body"])));
    }

    #[test]
    fn gathered_or_in_pieces_is_one_digest() {
        let secret = Secret::from_material(b"0123456789abcdef").unwrap();
        let bytes = vec![7; 5000];
        for len in [0, 1, 1000, 1009, 1010, 1011, 1024, 1025, 5000] {
            let at_once = Hasher::new(&secret, Version { algorithm: 1, parameters: 0 }).part(&bytes[..len]).finish();
            let mut pieces = Hasher::new(&secret, Version { algorithm: 1, parameters: 0 });
            pieces.begin_part(len as u64);
            for piece in bytes[..len].chunks(7) {
                pieces.more(piece);
            }
            assert!(pieces.finish().same(&at_once), "{len}");
        }
    }
}
