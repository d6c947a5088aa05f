//! The deployment's secret, and the digests that it keys.

use std::fmt;

use super::{Input, put};
use crate::ids::first_eight;

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

    /// A secret as a store kept it.
    pub(super) const fn from_key(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// The key itself, for digests that begin with a [`Purpose`].
    pub(crate) const fn key(&self) -> &[u8; 32] {
        &self.0
    }

    /// A keyed digest of length-prefixed parts for one named purpose: credentials, request ids.
    #[must_use]
    pub fn digest(&self, purpose: Purpose, parts: &[&[u8]]) -> Digest {
        let mut input = Input::<256>::new();
        input.push(&[purpose as u8]);
        for part in parts {
            put(&mut input, part);
        }
        Digest(*blake3::keyed_hash(&self.0, input.bytes()).as_bytes())
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
    /// A request that asks a gateway what arrives there, and its answer.
    Probe = 0x86,
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
