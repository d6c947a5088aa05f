//! Why something is not a key.

use std::fmt;

use super::MAX_LEN;

/// Why a header field holds no key. Answered with 400 `key-invalid`; the text never repeats what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum KeyError {
    /// Nothing, or an empty string.
    Empty,
    /// More than [`MAX_LEN`] characters.
    TooLong,
    /// Fewer characters than the rule asks for.
    TooShort {
        /// What it asks for.
        min: usize,
    },
    /// A character that is not visible ASCII.
    NotVisible,
    /// Several keys with commas between them.
    List,
    /// A quoted string without its end, or with an escape that there is not.
    BadString,
    /// Something that is no parameter follows the key.
    BadParameters,
    /// Two header lines with unequal keys.
    Unequal,
    /// The rule wants UUIDs.
    NotUuid,
    /// The rule wants a quoted string.
    NotQuoted,
    /// The rule wants keys that look otherwise.
    Unlike,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("the key is empty"),
            Self::TooLong => write!(f, "the key has more than {MAX_LEN} characters"),
            Self::TooShort { min } => write!(f, "the key has fewer than {min} characters"),
            Self::NotVisible => f.write_str("the key has characters other than visible ASCII"),
            Self::List => f.write_str("a list is not a key: send one key"),
            Self::BadString => f.write_str("the key is a quoted string that does not end, or has an unknown escape"),
            Self::BadParameters => f.write_str("what follows the key is not a parameter"),
            Self::Unequal => f.write_str("the key was sent twice, with unequal values"),
            Self::NotUuid => f.write_str("the key is not a UUID"),
            Self::NotQuoted => f.write_str("the key is not a quoted string"),
            Self::Unlike => f.write_str("the key does not look as this route's keys do"),
        }
    }
}

impl std::error::Error for KeyError {}
