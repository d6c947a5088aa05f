//! What came back, as it is recorded and replayed.

use bytes::Bytes;

/// Codec and shape of an outcome, so that bytes written for one type are never decoded as another.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Format {
    /// How the bytes are encoded.
    pub codec: u16,
    /// What they are: a digest of the type's shape; zero where the codec says it all.
    pub shape: u32,
}

impl Format {
    /// An HTTP answer, as semel-http writes it.
    pub const HTTP: Self = Self { codec: 1, shape: 0 };
    /// JSON.
    pub const JSON: Self = Self { codec: 2, shape: 0 };
}

/// An outcome: a head that is always kept, and a body that may have been too large.
///
/// Both are slices of the record's own compact bytes, never of a connection's read buffer: a 60-byte answer that pins
/// such a buffer costs 5 to 9 kB.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// How to read head and body.
    pub format: Format,
    /// Status and headers, or nothing.
    pub head: Bytes,
    /// The answer itself.
    pub body: Body,
}

impl Outcome {
    /// An outcome with its whole body.
    #[must_use]
    pub fn new(format: Format, head: impl Into<Bytes>, body: impl Into<Bytes>) -> Self {
        Self { format, head: head.into(), body: Body::Whole(body.into()) }
    }

    /// An outcome whose body is not kept; duplicates are told that it happened, not what came back.
    #[must_use]
    pub fn without_body(format: Format, head: impl Into<Bytes>, why: Withheld) -> Self {
        Self { format, head: head.into(), body: Body::Withheld(why) }
    }

    /// How many bytes recording it takes, without the record around it.
    #[must_use]
    pub fn len(&self) -> usize {
        self.head.len() + if let Body::Whole(b) = &self.body { b.len() } else { 0 }
    }

    /// Whether there is neither head nor body.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// An outcome's body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// All of it.
    Whole(Bytes),
    /// Not kept.
    Withheld(Withheld),
}

/// Why a body is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Withheld {
    /// Larger than the rule or the store takes.
    TooLarge {
        /// Its length, as far as it was seen.
        len: u64,
    },
    /// The rule says that bodies are not kept.
    NoStore,
    /// The store was under pressure and dropped it.
    Dropped,
}
