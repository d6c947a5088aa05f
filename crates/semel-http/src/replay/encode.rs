//! The recorded head of an answer.
//!
//! ```text
//! 0  1  version (1)
//! 1  2  status, big endian
//! 3  2  header lines, big endian; each: 2 length of the name, name, 4 length of the value, value
//!    2  trailer lines, likewise
//! ```
//!
//! Strict on the way back: bytes that end early, or a line that is no header line, are no head at all, and the outcome
//! counts as unavailable.

use bytes::{Buf, BufMut, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::ReplayHeaders;

const VERSION: u8 = 1;

/// A recorded head, read back.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<Box<HeaderMap>>,
}

/// The head's bytes: a copy of their own, never slices of a connection's buffer.
pub(crate) fn encode_head(
    status: StatusCode,
    headers: &HeaderMap,
    trailers: Option<&HeaderMap>,
    rule: &ReplayHeaders,
) -> Bytes {
    let mut out = Vec::with_capacity(256);
    out.push(VERSION);
    out.put_u16(status.as_u16());
    lines(&mut out, headers, rule);
    match trailers {
        Some(trailers) => lines(&mut out, trailers, rule),
        None => out.put_u16(0),
    }
    Bytes::from(out)
}

fn lines(out: &mut Vec<u8>, headers: &HeaderMap, rule: &ReplayHeaders) {
    let at = out.len();
    out.extend_from_slice(&[0; 2]);
    let mut count: u16 = 0;
    rule.lines(headers, |name, value| {
        let name = name.as_str().as_bytes();
        // Longer ones cannot come over a wire that any server accepts.
        let (Ok(name_len), Ok(value_len)) = (u16::try_from(name.len()), u32::try_from(value.len())) else { return };
        let Some(next) = count.checked_add(1) else { return };
        count = next;
        out.reserve(6 + name.len() + value.len());
        out.extend_from_slice(&name_len.to_be_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(&value_len.to_be_bytes());
        out.extend_from_slice(value);
    });
    out[at..at + 2].copy_from_slice(&count.to_be_bytes());
}

impl Head {
    /// Reads a head; values share its bytes.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.try_get_u8().ok()? != VERSION {
            return None;
        }
        let status = StatusCode::from_u16(bytes.try_get_u16().ok()?).ok()?;
        let count = bytes.try_get_u16().ok()?;
        let headers = read(&mut bytes, count, OURS)?;
        let trailers = match bytes.try_get_u16().ok()? {
            0 => None,
            count => Some(Box::new(read(&mut bytes, count, 0)?)),
        };
        bytes.is_empty().then_some(Self { status, headers, trailers })
    }
}

/// `count` lines, into a map with room for `more`.
fn read(bytes: &mut Bytes, count: u16, more: usize) -> Option<HeaderMap> {
    // Each line takes at least seven bytes: a torn count reserves nothing.
    let room = usize::from(count).min(bytes.len() / 7) + more;
    let mut headers = HeaderMap::try_with_capacity(room).ok()?;
    for _ in 0..count {
        let len = usize::from(bytes.try_get_u16().ok()?);
        let name = HeaderName::from_bytes(&take(bytes, len)?).ok()?;
        let len = usize::try_from(bytes.try_get_u32().ok()?).ok()?;
        let value = HeaderValue::from_maybe_shared(take(bytes, len)?).ok()?;
        headers.try_append(name, value).ok()?;
    }
    Some(headers)
}

/// Room for the fields that a replay gains.
const OURS: usize = 4;

fn take(bytes: &mut Bytes, len: usize) -> Option<Bytes> {
    (bytes.len() >= len).then(|| bytes.split_to(len))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (HeaderMap, HeaderMap) {
        let mut headers = HeaderMap::new();
        headers.append("location", HeaderValue::from_static("/a,b, c"));
        headers.append("link", HeaderValue::from_static("one"));
        headers.append("link", HeaderValue::from_static("two"));
        headers.append("x-bytes", HeaderValue::from_bytes(b"\xff\xfe").unwrap());
        let mut trailers = HeaderMap::new();
        trailers.append("grpc-status", HeaderValue::from_static("0"));
        (headers, trailers)
    }

    #[test]
    fn a_head_survives_its_bytes_and_no_cut_is_a_head() {
        let (headers, trailers) = sample();
        let rule = ReplayHeaders::default();
        let bytes = encode_head(StatusCode::SEE_OTHER, &headers, Some(&trailers), &rule);
        let head = Head::decode(bytes.clone()).unwrap();
        assert_eq!((head.status, &head.headers), (StatusCode::SEE_OTHER, &headers));
        assert_eq!(head.trailers, Some(Box::new(trailers)));
        for cut in 0..bytes.len() {
            assert!(Head::decode(bytes.slice(..cut)).is_none(), "{cut}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(Head::decode(longer.into()).is_none());
    }

    #[test]
    fn bytes_of_another_version_or_with_a_bad_line_are_no_head() {
        let (headers, _) = sample();
        let good = encode_head(StatusCode::OK, &headers, None, &ReplayHeaders::default());
        for (at, byte) in [(0, 2), (1, 0xff), (5, b' '), (7, b'\n')] {
            let mut bad = good.to_vec();
            bad[at] = byte;
            assert!(Head::decode(bad.into()).is_none(), "{at}");
        }
    }
}
