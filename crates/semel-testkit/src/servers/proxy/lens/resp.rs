//! The protocol of Redis: <https://redis.io/docs/latest/develop/reference/protocol-spec/>.

use super::Piece;

/// The length of the command at the beginning, if it is whole.
pub(super) fn command(bytes: &[u8]) -> Option<usize> {
    match bytes.first()? {
        b'*' => value(bytes, 0),
        // Typed in by hand.
        _ => line(bytes, 0).map(|(_, end)| end),
    }
}

pub(super) fn ask(bytes: &[u8], length: usize) -> Piece {
    Piece::asks(bytes[..length].to_vec(), String::new(), true)
}

/// The reply at the beginning, if it is whole.
pub(super) fn reply(bytes: &[u8]) -> Option<(usize, Piece)> {
    let length = value(bytes, 0)?;
    let whole = bytes[..length].to_vec();
    Some((length, if bytes[0] == b'>' { Piece::push(whole) } else { Piece::end(whole) }))
}

/// The line at a place, without its end, and where the next one begins.
fn line(bytes: &[u8], at: usize) -> Option<(&[u8], usize)> {
    let end = bytes.get(at..)?.windows(2).position(|w| w == b"\r\n")? + at;
    Some((&bytes[at..end], end + 2))
}

/// Where the value at a place ends.
fn value(bytes: &[u8], at: usize) -> Option<usize> {
    let (head, next) = line(bytes, at)?;
    let (kind, rest) = head.split_first()?;
    let number = || std::str::from_utf8(rest).ok().and_then(|text| text.parse::<i64>().ok()).unwrap_or(-1);
    let many = |n: i64| (0..n).try_fold(next, |at, _| value(bytes, at));
    match kind {
        b'$' | b'!' | b'=' => match usize::try_from(number()) {
            // Minus one is "nothing here", and no bytes follow.
            Err(_) => Some(next),
            Ok(length) => (bytes.len() >= next + length + 2).then_some(next + length + 2),
        },
        b'*' | b'~' | b'>' => many(number()),
        b'%' => many(2 * number()),
        // Attributes stand before the value they are about.
        b'|' => many(2 * number()).and_then(|at| value(bytes, at)),
        _ => Some(next),
    }
}
