//! What keys of a rule look like: a glob.

use std::{fmt, str::FromStr};

use super::MAX_LEN;

/// A glob that a whole key has to match: `*` is any run of characters, `?` is one, `[a-z0-9_]` is one of these,
/// `[!a-z]` one of the others, `\` takes the next character as it is. Case counts.
///
/// Cost of a match: at most the product of both lengths, which are at most [`MAX_LEN`]; without a `*` one pass.
///
/// ```
/// use semel_http::key::Pattern;
/// let orders: Pattern = "order-[0-9]*".parse()?;
/// assert!(orders.matches("order-4711"));
/// assert!(!orders.matches("order-") && !orders.matches("my order-1"));
/// # Ok::<(), semel_http::key::PatternError>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    pieces: Box<[Piece]>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// Any run, an empty one too.
    Run,
    /// One of these.
    One(Set),
}

/// ASCII characters, a bit each.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Set(u128);

impl Set {
    const ALL: Self = Self(u128::MAX);

    fn range(first: u8, last: u8) -> Self {
        Self((first..=last).fold(0, |set, b| set | (1_u128 << b)))
    }

    const fn has(self, b: u8) -> bool {
        b.is_ascii() && (self.0 >> b) & 1 == 1
    }
}

impl Pattern {
    /// Every key.
    #[must_use]
    pub fn any() -> Self {
        Self { text: "*".into(), pieces: [Piece::Run].into() }
    }

    /// Whether the pattern says nothing.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.pieces.iter().all(|piece| *piece == Piece::Run)
    }

    /// Whether all of `key` is like this.
    #[must_use]
    pub fn matches(&self, key: &str) -> bool {
        let (pieces, key) = (&*self.pieces, key.as_bytes());
        let (mut piece, mut at) = (0, 0);
        // Where the last run stands, and where it ends for now. Only the last can have to be longer.
        let mut run = None;
        loop {
            match pieces.get(piece) {
                None if at == key.len() => return true,
                Some(Piece::Run) => {
                    run = Some((piece + 1, at));
                    piece += 1;
                    continue;
                }
                Some(Piece::One(set)) if key.get(at).is_some_and(|b| set.has(*b)) => {
                    (piece, at) = (piece + 1, at + 1);
                    continue;
                }
                _ => {}
            }
            match run {
                Some((behind, end)) if end < key.len() => {
                    run = Some((behind, end + 1));
                    (piece, at) = (behind, end + 1);
                }
                _ => return false,
            }
        }
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > MAX_LEN {
            return Err(PatternError::TooLong);
        }
        if !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(PatternError::NotVisible);
        }
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        while let [first, after @ ..] = rest {
            rest = after;
            pieces.push(match first {
                b'*' => Piece::Run,
                b'?' => Piece::One(Set::ALL),
                b'[' => Piece::One(set(&mut rest)?),
                b'\\' => Piece::One(one(&mut rest)?),
                plain => Piece::One(Set::range(*plain, *plain)),
            });
        }
        Ok(Self { text: text.into(), pieces: pieces.into() })
    }
}

/// The character behind a backslash.
fn one(rest: &mut &[u8]) -> Result<Set, PatternError> {
    let (b, after) = rest.split_first().ok_or(PatternError::Open)?;
    *rest = after;
    Ok(Set::range(*b, *b))
}

/// What stands between brackets; `rest` begins behind the first of them.
fn set(rest: &mut &[u8]) -> Result<Set, PatternError> {
    let but = rest.first() == Some(&b'!');
    if but {
        *rest = &rest[1..];
    }
    let mut set = Set(0);
    loop {
        let mut next = || -> Result<u8, PatternError> {
            let (b, after) = rest.split_first().ok_or(PatternError::Open)?;
            *rest = after;
            Ok(*b)
        };
        let first = match next()? {
            b']' if set.0 == 0 => return Err(PatternError::EmptySet),
            b']' => return Ok(if but { Set(!set.0) } else { set }),
            b'\\' => next()?,
            b => b,
        };
        let (last, after) = match *rest {
            [b'-', b'\\', last, after @ ..] => (*last, after),
            [b'-', last, after @ ..] if *last != b']' => (*last, after),
            after => (first, after),
        };
        *rest = after;
        if last < first {
            return Err(PatternError::Backwards);
        }
        set.0 |= Set::range(first, last).0;
    }
}

/// The text it was made from.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

/// Why something is no [`Pattern`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PatternError {
    /// Nothing.
    Empty,
    /// More than [`MAX_LEN`] characters.
    TooLong,
    /// A character that no key has.
    NotVisible,
    /// A `[` without its `]`, or a `\` at the end.
    Open,
    /// `[]`.
    EmptySet,
    /// `[z-a]`.
    Backwards,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty, so no key could pass",
            Self::TooLong => "has more than 255 characters, as no key has",
            Self::NotVisible => "has characters other than visible ASCII, which no key has",
            Self::Open => "ends within brackets, or with a backslash",
            Self::EmptySet => "has brackets with nothing between them",
            Self::Backwards => "has a range that runs backwards",
        })
    }
}

impl std::error::Error for PatternError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, key: &str) -> bool {
        pattern.parse::<Pattern>().unwrap().matches(key)
    }

    #[test]
    fn a_whole_key_is_like_the_pattern_or_not() {
        for (pattern, like, unlike) in [
            ("*", &["a", "order-1"][..], &[][..]),
            ("order", &["order"], &["orders", "Order", "orde"]),
            ("order-*", &["order-", "order-1"], &["my-order-1", "order"]),
            ("*-order", &["-order", "a-order-order"], &["a-order-", "order"]),
            ("a*b*c", &["abc", "a1b2c", "abbcc", "abcbc"], &["ab", "acb", "abcd"]),
            ("??", &["ab", "??"], &["a", "abc"]),
            ("[a-c_]?", &["a1", "_z"], &["d1", "a", "a11"]),
            ("[!0-9]*", &["a", "a1"], &["1", "1a"]),
            ("[a-]", &["a", "-"], &["b"]),
            (r"\*[\]\\]", &["*]", r"*\"], &["a]", "*a"]),
            ("[a-c][0-9][0-9]", &["a12"], &["a1", "a123", "d12"]),
        ] {
            assert!(like.iter().all(|key| matches(pattern, key)), "{pattern}");
            assert!(!unlike.iter().any(|key| matches(pattern, key)), "{pattern}");
        }
        assert!(Pattern::any().is_any() && matches("**", "x") && !"a*".parse::<Pattern>().unwrap().is_any());
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_reason() {
        for (text, why) in [
            ("", PatternError::Empty),
            ("a b", PatternError::NotVisible),
            ("ü", PatternError::NotVisible),
            ("[a", PatternError::Open),
            ("[a-", PatternError::Open),
            ("[!", PatternError::Open),
            ("a\\", PatternError::Open),
            ("[]", PatternError::EmptySet),
            ("[]a]", PatternError::EmptySet),
            ("[!]", PatternError::EmptySet),
            ("[z-a]", PatternError::Backwards),
        ] {
            assert_eq!(text.parse::<Pattern>(), Err(why), "{text}");
        }
        assert_eq!("a".repeat(256).parse::<Pattern>(), Err(PatternError::TooLong));
    }

    proptest! {
        /// Against the definition, tried in every way.
        #[test]
        fn it_matches_what_its_definition_matches(pattern in "[ab*?]{1,8}", key in "[abc]{1,10}") {
            fn slow(pattern: &[u8], key: &[u8]) -> bool {
                match pattern {
                    [] => key.is_empty(),
                    [b'*', rest @ ..] => (0..=key.len()).any(|n| slow(rest, &key[n..])),
                    [b'?', rest @ ..] => !key.is_empty() && slow(rest, &key[1..]),
                    [b, rest @ ..] => key.first() == Some(b) && slow(rest, &key[1..]),
                }
            }
            prop_assert_eq!(matches(&pattern, &key), slow(pattern.as_bytes(), key.as_bytes()));
        }

        #[test]
        fn no_text_panics(pattern in "[ -~]{0,20}", key in "[!-~]{1,20}") {
            if let Ok(pattern) = pattern.parse::<Pattern>() {
                let _ = pattern.matches(&key);
                prop_assert_eq!(&pattern, &pattern.to_string().parse::<Pattern>().unwrap());
            }
        }
    }
}
