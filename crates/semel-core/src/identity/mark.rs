//! What a shared store keeps of the deployment: which secret its records were made with, and since when it keeps them.

use std::fmt;

use super::{Purpose, Secret};
use crate::env::Rng;

const MAGIC: [u8; 4] = *b"SMK\x01";
const CONFIGURED: usize = 56;
const OWN: usize = 88;

/// The mark of a shared store, written once by the first process that finds none (first writer wins) and read at every
/// connection. A process with another secret would find none of the records and run everything again: it is refused. A
/// mark that is gone, or that was born anew, says that the store lost its records.
///
/// ```text
///  0  4  "SMK", format version 1
///  4  1  0: the secret is configured, and not in here · 1: the store keeps the secret
///  5  3  zero
///  8 16  birth: random, new whenever a mark is made
/// 24 32  proof: keyed digest by the secret
/// 56 32  the secret, where the store keeps it
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Mark {
    birth: Birth,
    proof: [u8; 32],
    own: Option<[u8; 32]>,
}

/// When a store's records began: random, and new whenever the store was found without a mark.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Birth([u8; 16]);

impl Birth {
    fn new(rng: &dyn Rng) -> Self {
        let mut bytes = [0; 16];
        rng.fill(&mut bytes);
        Self(bytes)
    }

    /// The bytes, as stored.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// As much of it as tells two of them apart for a person: eight hexadecimal digits.
    #[must_use]
    pub fn short(&self) -> String {
        let [a, b, c, d, ..] = self.0;
        format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
    }
}

impl fmt::Debug for Birth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Birth({:032x})", u128::from_be_bytes(self.0))
    }
}

impl Mark {
    /// A mark for the configured secret, or, where there is none, for a fresh one that the store is to keep.
    #[must_use]
    pub fn new(configured: Option<&Secret>, rng: &dyn Rng) -> Self {
        match configured {
            Some(secret) => Self { birth: Birth::new(rng), proof: proof(secret), own: None },
            None => {
                let secret = Secret::random(rng);
                Self { birth: Birth::new(rng), proof: proof(&secret), own: Some(*secret.key()) }
            }
        }
    }

    /// The same mark born anew: what a process puts in place of one that the store lost.
    #[must_use]
    pub fn reborn(&self, rng: &dyn Rng) -> Self {
        Self { birth: Birth::new(rng), ..self.clone() }
    }

    /// Since when the store has its records.
    #[must_use]
    pub const fn birth(&self) -> Birth {
        self.birth
    }

    /// The secret that the store's records are made with, given the one that is configured here.
    ///
    /// # Errors
    /// [`MarkError::OtherSecret`] where they differ, [`MarkError::NeedsSecret`] where the store's is configured elsewhere
    /// and here none is.
    pub fn secret(&self, configured: Option<&Secret>) -> Result<Secret, MarkError> {
        let secret = match (configured, self.own) {
            (Some(secret), _) => secret.clone(),
            (None, Some(own)) => Secret::from_key(own),
            (None, None) => return Err(MarkError::NeedsSecret),
        };
        if proof(&secret) == self.proof { Ok(secret) } else { Err(MarkError::OtherSecret) }
    }

    /// The mark's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(OWN);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[u8::from(self.own.is_some()), 0, 0, 0]);
        out.extend_from_slice(&self.birth.0);
        out.extend_from_slice(&self.proof);
        if let Some(own) = &self.own {
            out.extend_from_slice(own);
        }
        out
    }

    /// A mark from its bytes.
    ///
    /// # Errors
    /// [`MarkError::Unreadable`] where they are none of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, MarkError> {
        let take = |from: usize| bytes.get(from..from + 32).and_then(|b| <[u8; 32]>::try_from(b).ok());
        let birth = bytes.get(8..24).and_then(|b| <[u8; 16]>::try_from(b).ok()).map(Birth);
        match (bytes.get(..4), bytes.get(4), bytes.len(), birth, take(24)) {
            (Some(m), Some(0), CONFIGURED, Some(birth), Some(proof)) if m == MAGIC => {
                Ok(Self { birth, proof, own: None })
            }
            (Some(m), Some(1), OWN, Some(birth), Some(proof)) if m == MAGIC => Ok(Self { birth, proof, own: take(56) }),
            _ => Err(MarkError::Unreadable),
        }
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mark({:?}, {})", self.birth, if self.own.is_some() { "own secret" } else { "configured secret" })
    }
}

fn proof(secret: &Secret) -> [u8; 32] {
    *secret.digest(Purpose::Proof, &[]).as_bytes()
}

/// Why a store's mark forbids to work on its records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MarkError {
    /// The records were made with another secret than the one configured here.
    OtherSecret,
    /// The records were made with a secret that is configured elsewhere, and none is here.
    NeedsSecret,
    /// No mark of this version: a newer process wrote it, or something else has its name.
    Unreadable,
}

impl fmt::Display for MarkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherSecret => {
                "the store's records were made with another secret: with this one none of them would be found, and their \
                 requests could run a second time. Configure the secret that the other processes have; or, if losing the \
                 records is acceptable, take another prefix or an empty store"
            }
            Self::NeedsSecret => {
                "the store's records were made with a secret that is configured in another process, and here none is. \
                 Configure the same one"
            }
            Self::Unreadable => {
                "the store's mark is of a version that this process does not know. Upgrade this process, or take another \
                 prefix"
            }
        })
    }
}

impl std::error::Error for MarkError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::env::SystemRng;

    fn secret(text: &str) -> Secret {
        Secret::from_material(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_birth_is_shown_by_its_first_digits() {
        let birth = Mark::new(None, &SystemRng).birth();
        let shown = birth.short();
        assert!(shown.len() == 8 && format!("{birth:?}").contains(&format!("({shown}")), "{shown} of {birth:?}");
    }

    #[test]
    fn a_mark_comes_back_from_its_bytes() {
        for configured in [None, Some(secret("sixteen bytes at least"))] {
            let mark = Mark::new(configured.as_ref(), &SystemRng);
            assert_eq!(Mark::decode(&mark.encode()), Ok(mark));
        }
    }

    #[test]
    fn every_process_without_a_secret_gets_the_stores_own() {
        let mark = Mark::new(None, &SystemRng);
        let (one, other) = (mark.secret(None).unwrap(), Mark::decode(&mark.encode()).unwrap().secret(None).unwrap());
        assert_eq!(one.key(), other.key());
    }

    #[test]
    fn another_secret_is_refused() {
        let mine = secret("sixteen bytes at least");
        let other = secret("sixteen other bytes at least");
        assert_eq!(Mark::new(Some(&mine), &SystemRng).secret(Some(&other)).unwrap_err(), MarkError::OtherSecret);
        assert_eq!(Mark::new(None, &SystemRng).secret(Some(&other)).unwrap_err(), MarkError::OtherSecret);
    }

    #[test]
    fn a_process_without_the_configured_secret_is_refused() {
        let mark = Mark::new(Some(&secret("sixteen bytes at least")), &SystemRng);
        assert_eq!(mark.secret(None).unwrap_err(), MarkError::NeedsSecret);
    }

    #[test]
    fn a_configured_secret_is_not_in_the_mark() {
        let mine = secret("sixteen bytes at least");
        let bytes = Mark::new(Some(&mine), &SystemRng).encode();
        assert!(!bytes.windows(32).any(|w| w == mine.key()));
    }

    #[test]
    fn a_mark_put_back_has_another_birth_and_the_same_secret() {
        let mark = Mark::new(None, &SystemRng);
        let again = mark.reborn(&SystemRng);
        assert_ne!(again.birth(), mark.birth());
        assert_eq!(again.secret(None).unwrap().key(), mark.secret(None).unwrap().key());
    }

    #[test]
    fn bytes_of_another_version_are_no_mark() {
        let bytes = Mark::new(None, &SystemRng).encode();
        for len in 0..bytes.len() {
            assert_eq!(Mark::decode(&bytes[..len]), Err(MarkError::Unreadable));
        }
        let newer = [&b"SMK\x02"[..], &bytes[4..]].concat();
        assert_eq!(Mark::decode(&newer), Err(MarkError::Unreadable));
    }
}
