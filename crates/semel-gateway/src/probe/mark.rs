//! What makes a request a probe: a sign that only a holder of the deployment's secret can make.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::HeaderName;
use semel_core::identity::{Purpose, Secret};

/// The header field that carries the mark.
pub const ASK: HeaderName = HeaderName::from_static("semel-probe");

/// A mark is good for so long, by the gateway's clock: clocks that differ by more are found as marks that are too old.
const GOOD_FOR: Duration = Duration::from_hours(1);

/// How the first copy of a probe is to be answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// With 200.
    Answer,
    /// With 503, so that whoever sends such a request again shows itself: its copy is answered with 200.
    Refuse,
}

/// The mark of a probe: its number, when it was made, and how it is to be answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// Random; copies have the same.
    pub nonce: [u8; 16],
    /// When it was made, by the asker's clock, in milliseconds since 1970.
    pub at_ms: u64,
    /// How it is to be answered.
    pub wish: Wish,
}

/// Why a request to the probe's path is none. The words are the answer's body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadMark {
    /// There is none: it was not sent, or something on the way took it away.
    Missing,
    /// It was not made with this gateway's secret, or was changed on the way.
    Other,
    /// It is too old, or of the future.
    Old,
}

impl BadMark {
    /// What such a request is answered, with 404.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Missing => "semel probe: no mark\n",
            Self::Other => "semel probe: the mark is of another secret\n",
            Self::Old => "semel probe: the mark is of another time\n",
        }
    }

    /// The reason that an answer's body tells.
    #[must_use]
    pub fn of(body: &[u8]) -> Option<Self> {
        [Self::Missing, Self::Other, Self::Old].into_iter().find(|bad| body == bad.words().as_bytes())
    }
}

impl fmt::Display for BadMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.words().trim_end())
    }
}

impl std::error::Error for BadMark {}

impl Mark {
    fn text(&self) -> String {
        let wish = match self.wish {
            Wish::Answer => "answer",
            Wish::Refuse => "refuse",
        };
        format!("1;{};{};{wish}", const_hex::encode(self.nonce), self.at_ms)
    }

    /// As it is sent.
    #[must_use]
    pub fn sign(&self, secret: &Secret) -> String {
        let text = self.text();
        let sign = secret.digest(Purpose::Probe, &[b"ask", text.as_bytes()]);
        format!("{text};{}", const_hex::encode(sign.as_bytes()))
    }

    /// Reads a mark that came with a request.
    ///
    /// # Errors
    /// [`BadMark`].
    pub fn read(text: Option<&str>, secret: &Secret, now: SystemTime) -> Result<Self, BadMark> {
        let (text, sign) = text.ok_or(BadMark::Missing)?.rsplit_once(';').ok_or(BadMark::Other)?;
        let made = secret.digest(Purpose::Probe, &[b"ask", text.as_bytes()]);
        if !same(const_hex::encode(made.as_bytes()).as_bytes(), sign.as_bytes()) {
            return Err(BadMark::Other);
        }
        // Whoever has the secret wrote it as `text` does.
        let mut parts = text.split(';').skip(1);
        let nonce = parts.next().and_then(unhex).ok_or(BadMark::Other)?;
        let at_ms = parts.next().and_then(|ms| ms.parse().ok()).ok_or(BadMark::Other)?;
        let wish = match parts.next() {
            Some("refuse") => Wish::Refuse,
            _ => Wish::Answer,
        };
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(at_ms);
        let apart = now.duration_since(at).unwrap_or_else(|later| later.duration());
        if apart > GOOD_FOR { Err(BadMark::Old) } else { Ok(Self { nonce, at_ms, wish }) }
    }
}

/// Compares in a time that does not tell where they differ.
pub(super) fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

fn unhex(text: &str) -> Option<[u8; 16]> {
    // Digits behind an `0x` would be read, too.
    (text.len() == 32).then(|| const_hex::decode_to_array(text).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(material: &[u8]) -> Secret {
        Secret::from_material(material).unwrap()
    }

    #[test]
    fn a_mark_is_read_by_whoever_has_the_secret() {
        let (ours, other) = (secret(b"sixteen bytes or more"), secret(b"another sixteen bytes"));
        let mark = Mark { nonce: [0xa7; 16], at_ms: 1_000_000_000_000, wish: Wish::Refuse };
        let sent = mark.sign(&ours);
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(mark.at_ms + 3_599_000);
        assert_eq!(Mark::read(Some(&sent), &ours, now), Ok(mark));
        assert_eq!(Mark::read(Some(&sent), &other, now), Err(BadMark::Other));
        assert_eq!(Mark::read(Some(&sent.replace("refuse", "answer")), &ours, now), Err(BadMark::Other));
        assert_eq!(Mark::read(Some(&sent), &ours, now + GOOD_FOR), Err(BadMark::Old));
        for text in ["", ";", "1;a7", "1;;;;"] {
            assert_eq!(Mark::read(Some(text), &ours, now), Err(BadMark::Other), "{text}");
        }
        assert_eq!(Mark::read(None, &ours, now), Err(BadMark::Missing));
        assert_eq!(unhex(&"a7".repeat(16)), Some([0xa7; 16]));
        for text in
            [format!("0x{}", "a7".repeat(16)), format!("0x{}", "a7".repeat(15)), "g7".repeat(16), "a7".repeat(17)]
        {
            assert_eq!(unhex(&text), None, "{text}");
        }
    }

    #[test]
    fn a_refusal_is_known_by_its_words() {
        for bad in [BadMark::Missing, BadMark::Other, BadMark::Old] {
            assert_eq!(BadMark::of(bad.words().as_bytes()), Some(bad));
        }
        assert_eq!(BadMark::of(b"<html>404</html>"), None);
    }
}
