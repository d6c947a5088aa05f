//! The canonical form of JSON, as a digest.
//!
//! One pass over the bytes, without recursion. Each value is written to a buffer in a form that is equal exactly for
//! equal values; when an array or object ends, its content is replaced by its digest, so every byte is copied and
//! hashed a bounded number of times however deep the nesting is.

mod lexer;
mod pointer;
mod walk;

use std::fmt;

pub use pointer::PointerError;
use pointer::Selection;

/// How much of a JSON body counts, and where order does not.
///
/// ```
/// use semel_http::fingerprint::Json;
/// let json = Json::default().without("/client_time")?.unordered("/items")?;
/// assert_eq!(
///     json.digest(br#"{"items":[1,2],"client_time":17}"#),
///     json.digest(br#"{"client_time":18,"items":[2,1.0]}"#),
/// );
/// # Ok::<(), semel_http::fingerprint::PointerError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Json {
    selection: Selection,
}

impl Json {
    /// Only the value at this JSON pointer (RFC 6901) and those of further calls count. `*` stands for every element of
    /// an array. A value that is missing differs from `null`.
    ///
    /// # Errors
    /// [`PointerError`] unless it is empty or begins with a slash.
    pub fn only(mut self, pointer: &str) -> Result<Self, PointerError> {
        self.selection.include(pointer)?;
        Ok(self)
    }

    /// The value at this JSON pointer does not count: a time of sending, say.
    ///
    /// # Errors
    /// See [`only`](Self::only).
    pub fn without(mut self, pointer: &str) -> Result<Self, PointerError> {
        self.selection.exclude(pointer)?;
        Ok(self)
    }

    /// The order of the array at this JSON pointer does not count.
    ///
    /// # Errors
    /// See [`only`](Self::only).
    pub fn unordered(mut self, pointer: &str) -> Result<Self, PointerError> {
        self.selection.unordered(pointer)?;
        Ok(self)
    }

    /// The digest of a body's canonical form.
    ///
    /// # Errors
    /// [`JsonError`] where it has none.
    pub fn digest(&self, body: &[u8]) -> Result<[u8; 32], JsonError> {
        walk::digest(body, &self.selection)
    }

    /// A digest of the parameters, for the fingerprint's version: fingerprints made with others are never compared.
    pub(super) fn parameters(&self) -> u32 {
        self.selection.parameters()
    }
}

/// The digest of a body's canonical form, all of it.
///
/// # Errors
/// [`JsonError`] where it has none.
pub fn canonical_digest(body: &[u8]) -> Result<[u8; 32], JsonError> {
    walk::digest(body, &Selection::default())
}

/// Why a body has no canonical form.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JsonError {
    /// Not JSON, or not UTF-8; where the reader stopped.
    Syntax {
        /// The byte's index.
        at: usize,
    },
    /// An object has a member twice.
    DuplicateMember,
    /// Nested deeper than 128.
    TooDeep,
    /// An exponent outside 64 bits.
    NumberRange,
    /// An escape for half a character.
    LoneSurrogate,
    /// Longer than 4 GiB.
    TooLong,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { at } => write!(f, "not JSON at byte {at}"),
            Self::DuplicateMember => f.write_str("an object has a member twice"),
            Self::TooDeep => write!(f, "nested deeper than {}", walk::MAX_DEPTH),
            Self::NumberRange => f.write_str("an exponent is outside 64 bits"),
            Self::LoneSurrogate => f.write_str("an escape stands for half a character"),
            Self::TooLong => f.write_str("longer than 4 GiB"),
        }
    }
}

impl std::error::Error for JsonError {}

#[cfg(test)]
mod tests;
