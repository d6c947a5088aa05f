//! Requests that say something else when they go on.

use super::{Fired, Speaks, lens::Piece};

/// What is said instead of what.
#[derive(Debug)]
pub(super) struct Rewording {
    within: String,
    from: String,
    to: String,
    fired: Fired,
}

impl Rewording {
    pub(super) fn new(within: &str, from: &str, to: &str) -> (Self, Fired) {
        let fired = Fired::new();
        let rewording = Self { within: within.into(), from: from.into(), to: to.into(), fired: fired.clone() };
        (rewording, fired)
    }

    /// Rewords the request that a piece is, if it is one that says it.
    pub(super) fn of(&self, speaks: Speaks, piece: &mut Piece) {
        if piece.request().is_none() {
            return;
        }
        let reworded = match speaks {
            Speaks::Anything | Speaks::Redis => self.text(&piece.bytes).inspect(|reworded| {
                assert_eq!(reworded.len(), piece.bytes.len(), "{} and {} differ in length", self.from, self.to);
            }),
            Speaks::Postgres => self.messages(&piece.bytes),
            Speaks::MySql => self.packet(&piece.bytes),
        };
        if let Some(reworded) = reworded {
            piece.bytes = reworded;
            self.fired.again();
        }
    }

    fn text(&self, text: &[u8]) -> Option<Vec<u8>> {
        let has = |words: &str| text.windows(words.len()).any(|w| w == words.as_bytes());
        if !has(&self.within) || !has(&self.from) {
            return None;
        }
        let mut reworded = Vec::with_capacity(text.len());
        let mut rest = text;
        while let Some(first) = rest.first() {
            if rest.starts_with(self.from.as_bytes()) {
                reworded.extend_from_slice(self.to.as_bytes());
                rest = &rest[self.from.len()..];
            } else {
                reworded.push(*first);
                rest = &rest[1..];
            }
        }
        Some(reworded)
    }

    /// PostgreSQL: a letter, a length that counts itself, and so on.
    fn messages(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut reworded, mut any, mut rest) = (Vec::with_capacity(bytes.len()), false, bytes);
        while let [kind, a, b, c, d, ..] = *rest {
            let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?.max(4);
            let body = rest.get(5..1 + length)?;
            rest = &rest[1 + length..];
            let new = self.text(body).filter(|_| matches!(kind, b'P' | b'Q'));
            any |= new.is_some();
            let body = new.as_deref().unwrap_or(body);
            reworded.push(kind);
            reworded.extend(u32::try_from(body.len() + 4).ok()?.to_be_bytes());
            reworded.extend_from_slice(body);
        }
        any.then_some(reworded)
    }

    /// MySQL: a length in three bytes, a number, and so on.
    fn packet(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let body = self.text(bytes.get(4..)?)?;
        let length = u32::try_from(body.len()).ok()?.to_le_bytes();
        Some([&length[..3], &bytes[3..4], &body].concat())
    }
}
