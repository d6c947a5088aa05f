//! What a record carries beside the fields that stores compare: who it is for people, how callers are told apart, and
//! the outcome.
//!
//! ```text
//!  0  1  version of this part (2; in 1 there is no sum)
//!  1  1  flags: 1 credentials, 2 request id
//!  2  1  kind: k t d m
//!  3  4  parameters of the fingerprint, big endian
//!  7  2  attempts the record allows, big endian
//!  9  1  n, then n bytes: namespace
//!     1  n, then n bytes: rule
//!     1  n, then n bytes: the key as people may see it
//!    16  digest of the caller's credentials, if flagged
//!    16  digest of the request id, if flagged
//!     1  payload: 0 nothing, 1 outcome, 2 outcome without body, 3 words
//!
//! payload 1:  2 codec, 4 shape, 8 settled at (µs), 4 length of the head, head, body, 8 sum
//! payload 2:  2 codec, 4 shape, 8 settled at (µs), 1 why (1 too large, 2 no store, 3 dropped), 8 length, head, 8 sum
//! payload 3:  UTF-8: the last error, for people; 8 sum
//! ```
//!
//! The sum is over all that stands before it (`sum.rs`): an outcome that was cut short, lengthened or damaged is torn, never
//! another answer. Version 1 is read, and nothing writes it any more.

use bytes::{BufMut, Bytes};

use super::{
    Body, Format, Outcome, Withheld,
    room::written,
    sum::{self, sum},
};
use crate::{
    identity::{Identity, Kind, Namespace},
    ids::StoreTime,
};

const VERSION: u8 = 2;
const WITHOUT_SUM: u8 = 1;
const HAS_CREDENTIALS: u8 = 1;
const HAS_REQUEST: u8 = 2;

/// The bytes are no `rest` of a version this process knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Torn;

/// What stands before the payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Meta<'a> {
    /// The kind of identity.
    pub kind: Kind,
    /// The parameters of the fingerprint's version.
    pub parameters: u32,
    /// How many attempts the record allows before it is parked.
    pub max_attempts: u16,
    /// Where the record belongs.
    pub namespace: &'a str,
    /// The rule that made it.
    pub rule: &'a str,
    /// The key as people may see it.
    pub key: &'a str,
    /// A digest of the caller's credentials, where the scope is no verified principal.
    pub credentials: Option<[u8; 16]>,
    /// A digest of the request id, where the rule reads one.
    pub request: Option<[u8; 16]>,
}

impl Meta<'_> {
    /// The bytes of this part alone, ready for [`Rest::write`].
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let texts = self.texts();
        written(self.len(texts), |out| _ = self.put(texts, out))
    }

    /// A whole `rest` with nothing but this part: what a claim carries.
    #[must_use]
    pub fn rest(&self) -> Bytes {
        let texts = self.texts();
        written(self.len(texts) + 1, |out| self.put(texts, out).put_u8(0))
    }

    /// What is written as text, each cut to what its length's byte can say.
    fn texts(&self) -> [&[u8]; 3] {
        [self.namespace, self.rule, self.key].map(|text| &text.as_bytes()[..floor_char(text, 255)])
    }

    fn len(&self, texts: [&[u8]; 3]) -> usize {
        let digests = usize::from(self.credentials.is_some()) + usize::from(self.request.is_some());
        9 + texts.iter().map(|text| 1 + text.len()).sum::<usize>() + 16 * digests
    }

    /// Writes this part, and gives back what is behind it.
    fn put<'a>(&self, texts: [&[u8]; 3], mut out: &'a mut [u8]) -> &'a mut [u8] {
        let flag = |set: bool, bit: u8| if set { bit } else { 0 };
        out.put_u8(VERSION);
        out.put_u8(flag(self.credentials.is_some(), HAS_CREDENTIALS) | flag(self.request.is_some(), HAS_REQUEST));
        out.put_u8(self.kind as u8);
        out.put_u32(self.parameters);
        out.put_u16(self.max_attempts);
        for text in texts {
            out.put_u8(u8::try_from(text.len()).unwrap_or(0));
            out.put_slice(text);
        }
        for digest in [&self.credentials, &self.request].into_iter().flatten() {
            out.put_slice(digest);
        }
        out
    }
}

fn floor_char(text: &str, max: usize) -> usize {
    if text.len() <= max { text.len() } else { (0..=max).rev().find(|&i| text.is_char_boundary(i)).unwrap_or(0) }
}

/// What comes after the meta part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Payload {
    /// Nothing: in flight, or free.
    Nothing,
    /// An outcome, and when it was settled by the clock of the process that did.
    Outcome {
        /// What came back.
        outcome: Outcome,
        /// When.
        settled_at: StoreTime,
    },
    /// The last error, for people.
    Words(Box<str>),
}

/// A parsed `rest`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rest<'a> {
    /// Who and whose.
    pub meta: Meta<'a>,
    /// What came back.
    pub payload: Payload,
    /// Length of the meta part: `&bytes[..meta_len]` is what [`Rest::write`] takes.
    pub meta_len: usize,
}

impl<'a> Rest<'a> {
    /// Reads `rest`; head and body of an outcome share its bytes.
    ///
    /// # Errors
    /// [`Torn`] where the bytes end early, have a version this process does not know, or are not what was written.
    ///
    /// Cost: what carries an outcome is summed up.
    pub fn read(bytes: &'a Bytes) -> Result<Self, Torn> {
        let mut at = Cursor { bytes, at: 0 };
        let version = at.byte()?;
        if !matches!(version, VERSION | WITHOUT_SUM) {
            return Err(Torn);
        }
        let flags = at.byte()?;
        let kind = Kind::from_letter(at.byte()?).ok_or(Torn)?;
        let parameters = u32::from_be_bytes(at.array()?);
        let max_attempts = u16::from_be_bytes(at.array()?);
        let (namespace, rule, key) = (at.text()?, at.text()?, at.text()?);
        let credentials = if flags & HAS_CREDENTIALS != 0 { Some(at.array()?) } else { None };
        let request = if flags & HAS_REQUEST != 0 { Some(at.array()?) } else { None };
        let meta_len = at.at;
        let meta = Meta { kind, parameters, max_attempts, namespace, rule, key, credentials, request };
        let payload = match bytes.get(meta_len) {
            None | Some(0) => Payload::Nothing,
            Some(_) if version == WITHOUT_SUM => at.payload()?,
            Some(_) => Cursor { bytes: &summed(bytes)?, at: meta_len }.payload()?,
        };
        Ok(Self { meta, payload, meta_len })
    }

    /// The fingerprint parameters alone, without reading further; zero where there are none.
    #[must_use]
    pub(crate) fn parameters_of(bytes: &[u8]) -> u32 {
        match bytes.first_chunk::<7>() {
            Some([VERSION | WITHOUT_SUM, _, _, p @ ..]) => u32::from_be_bytes(*p),
            _ => 0,
        }
    }

    /// A `rest` from an encoded meta part and a payload: one allocation, head and body copied into it.
    #[must_use]
    pub fn write(meta: &[u8], payload: &Payload) -> Bytes {
        match payload {
            Payload::Nothing => written(meta.len() + 1, |mut out| {
                out.put_slice(meta);
                out.put_u8(0);
            }),
            Payload::Outcome { outcome, settled_at } => Self::write_outcome(meta, outcome, *settled_at),
            Payload::Words(words) => summed_up(meta, meta.len() + 1 + words.len(), |mut out| {
                out.put_u8(3);
                out.put_slice(words.as_bytes());
            }),
        }
    }

    /// A `rest` with an outcome: one allocation, into which head and body are copied.
    #[must_use]
    pub fn write_outcome(meta: &[u8], outcome: &Outcome, settled_at: StoreTime) -> Bytes {
        let (tag, extra) = match &outcome.body {
            Body::Whole(_) => (1, 4),
            Body::Withheld(_) => (2, 9),
        };
        summed_up(meta, meta.len() + 15 + extra + outcome.len(), |mut out| {
            out.put_u8(tag);
            out.put_u16(outcome.format.codec);
            out.put_u32(outcome.format.shape);
            out.put_i64(settled_at.as_micros());
            match &outcome.body {
                Body::Whole(body) => {
                    out.put_u32(u32::try_from(outcome.head.len()).unwrap_or(u32::MAX));
                    out.put_slice(&outcome.head);
                    out.put_slice(body);
                }
                Body::Withheld(why) => {
                    let (why, len) = match *why {
                        Withheld::TooLarge { len } => (1, len),
                        Withheld::NoStore => (2, 0),
                        Withheld::Dropped => (3, 0),
                    };
                    out.put_u8(why);
                    out.put_u64(len);
                    out.put_slice(&outcome.head);
                }
            }
        })
    }

    /// The identity these words and a stored digest make.
    #[must_use]
    pub fn identity(&self, digest: [u8; 32]) -> Identity {
        Identity::stored(digest, Namespace::stored(self.meta.namespace), self.meta.kind)
    }
}

/// The same `rest` without its outcome's body: what a store under pressure keeps. `None` where there is no body to drop.
#[must_use]
pub fn without_body(bytes: &Bytes) -> Option<Bytes> {
    let rest = Rest::read(bytes).ok()?;
    let Payload::Outcome { outcome, settled_at } = rest.payload else { return None };
    if matches!(outcome.body, Body::Withheld(_)) {
        return None;
    }
    let outcome = Outcome { body: Body::Withheld(Withheld::Dropped), ..outcome };
    Some(Rest::write(&bytes[..rest.meta_len], &Payload::Outcome { outcome, settled_at }))
}

/// `len` bytes and their sum: `meta`, which may be of version 1, then what `write` puts behind it.
fn summed_up(meta: &[u8], len: usize, write: impl FnOnce(&mut [u8])) -> Bytes {
    written(len + sum::LEN, |all| {
        let (content, its_sum) = all.split_at_mut(len);
        let (front, behind) = content.split_at_mut(meta.len());
        front.copy_from_slice(meta);
        write(behind);
        content[0] = VERSION;
        its_sum.copy_from_slice(&sum(content));
    })
}

/// What the sum at the end is over.
fn summed(bytes: &Bytes) -> Result<Bytes, Torn> {
    let (content, its_sum) = bytes.split_last_chunk().ok_or(Torn)?;
    if sum(content) == *its_sum { Ok(bytes.slice(..content.len())) } else { Err(Torn) }
}

struct Cursor<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Torn> {
        let end = self.at.checked_add(n).ok_or(Torn)?;
        let piece = self.bytes.get(self.at..end).ok_or(Torn)?;
        self.at = end;
        Ok(piece)
    }

    fn byte(&mut self) -> Result<u8, Torn> {
        Ok(self.take(1)?[0])
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Torn> {
        self.take(N)?.try_into().map_err(|_| Torn)
    }

    fn text(&mut self) -> Result<&'a str, Torn> {
        let len = usize::from(self.byte()?);
        std::str::from_utf8(self.take(len)?).map_err(|_| Torn)
    }

    fn tail(&self) -> Bytes {
        self.bytes.slice(self.at..)
    }

    fn payload(&mut self) -> Result<Payload, Torn> {
        let tag = self.byte()?;
        match tag {
            1 | 2 => {
                let format =
                    Format { codec: u16::from_be_bytes(self.array()?), shape: u32::from_be_bytes(self.array()?) };
                let settled_at = StoreTime::from_micros(i64::from_be_bytes(self.array()?));
                let outcome = if tag == 1 {
                    let head_len = usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| Torn)?;
                    let start = self.at;
                    self.take(head_len)?;
                    let head = self.bytes.slice(start..self.at);
                    Outcome { format, head, body: Body::Whole(self.tail()) }
                } else {
                    let why = self.byte()?;
                    let len = u64::from_be_bytes(self.array()?);
                    let why = match why {
                        1 => Withheld::TooLarge { len },
                        2 => Withheld::NoStore,
                        3 => Withheld::Dropped,
                        _ => return Err(Torn),
                    };
                    Outcome { format, head: self.tail(), body: Body::Withheld(why) }
                };
                Ok(Payload::Outcome { outcome, settled_at })
            }
            3 => Ok(Payload::Words(std::str::from_utf8(&self.tail()).map_err(|_| Torn)?.into())),
            _ => Err(Torn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta<'static> {
        Meta {
            kind: Kind::Key,
            parameters: 7,
            max_attempts: 10,
            namespace: "http:orders",
            rule: "submit",
            key: "8e03…(36)",
            credentials: Some([1; 16]),
            request: None,
        }
    }

    fn payloads() -> Vec<Payload> {
        let settled_at = StoreTime::from_micros(5);
        let whole = Outcome::new(Format::HTTP, &b"head"[..], &b"body"[..]);
        let large = Outcome::without_body(Format::JSON, &b"head"[..], Withheld::TooLarge { len: 9 });
        vec![
            Payload::Nothing,
            Payload::Outcome { outcome: whole, settled_at },
            Payload::Outcome { outcome: large, settled_at },
            Payload::Words("connection reset".into()),
        ]
    }

    #[test]
    fn rest_survives_its_bytes_and_no_cut_panics() {
        for payload in payloads() {
            let bytes = Rest::write(&meta().encode(), &payload);
            let rest = Rest::read(&bytes).unwrap();
            assert_eq!((rest.meta.clone(), rest.payload.clone()), (meta(), payload));
            assert_eq!(Rest::parameters_of(&bytes), 7);
            for cut in 0..bytes.len() {
                let _ = Rest::read(&bytes.slice(..cut));
            }
        }
    }

    fn outcomes() -> impl Iterator<Item = Payload> {
        payloads().into_iter().filter(|payload| matches!(payload, Payload::Outcome { .. }))
    }

    /// A body that was cut by hand was replayed as if it were whole.
    #[test]
    fn an_outcome_that_was_cut_lengthened_or_damaged_is_no_outcome() {
        for payload in outcomes() {
            let bytes = Rest::write(&meta().encode(), &payload);
            let read = |bytes: Vec<u8>| Rest::read(&Bytes::from(bytes)).map(|rest| rest.payload);
            for cut in 0..bytes.len() {
                // Where it ends before its payload begins it has none.
                let without = if cut == meta().encode().len() { Ok(Payload::Nothing) } else { Err(Torn) };
                assert_eq!(read(bytes[..cut].to_vec()), without, "{cut}");
            }
            assert_eq!(read([&bytes[..], b"x"].concat()), Err(Torn));
            for (at, bit) in (0..bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
                let mut damaged = bytes.to_vec();
                damaged[at] ^= 1 << bit;
                assert!(!matches!(read(damaged), Ok(Payload::Outcome { .. })), "{at} {bit}");
            }
        }
    }

    #[test]
    fn an_outcome_of_version_1_is_read_and_written_anew_as_version_2() {
        for payload in outcomes() {
            let now = Rest::write(&meta().encode(), &payload);
            let mut before = now[..now.len() - sum::LEN].to_vec();
            before[0] = WITHOUT_SUM;
            let before = Bytes::from(before);
            let rest = Rest::read(&before).unwrap();
            assert_eq!((&rest.meta, &rest.payload), (&meta(), &payload));
            assert_eq!(Rest::parameters_of(&before), 7);
            assert_eq!(Rest::write(&before[..rest.meta_len], &payload), now);
        }
    }

    #[test]
    fn a_dropped_body_leaves_head_and_time() {
        let settled_at = StoreTime::from_micros(5);
        let whole = Outcome::new(Format::HTTP, &b"head"[..], vec![0; 1000]);
        let bytes = Rest::write(&meta().encode(), &Payload::Outcome { outcome: whole, settled_at });
        let less = without_body(&bytes).unwrap();
        assert!(less.len() < 200);
        let expected = Outcome::without_body(Format::HTTP, &b"head"[..], Withheld::Dropped);
        assert_eq!(Rest::read(&less).unwrap().payload, Payload::Outcome { outcome: expected, settled_at });
        assert_eq!(without_body(&less), None);
    }

    #[test]
    fn a_name_longer_than_its_length_byte_is_cut_at_a_character() {
        let long = "ä".repeat(200);
        let bytes = Meta { key: &long, ..meta() }.encode();
        assert_eq!(Rest::read(&bytes).unwrap().meta.key.len(), 254);
    }
}
