//! Which other paths a path can be read as.
//!
//! `//orders`, `/x/../orders`, `/orders;v=1`, `/orders%20` and `/x%2F..%2Forders` are paths of their own to a router that
//! compares text, and `/orders` to another one. Which of them the service behind is, nobody here can know. So whoever lets a
//! request pass because of its path has to look at what else that path can mean: [`readings`].

use std::borrow::Cow;

/// No longer path is read in other ways, in bytes: the work for one request is bounded.
pub const LONGEST: usize = 8 * 1024;

/// How often percent-encodings are decoded: more is no mistake of a client any more.
const DECODINGS: usize = 4;

/// Whether every reader takes `path` for the same one: no percent sign, backslash or semicolon, no empty or dot
/// segment, no blank or control character, no dot at the end of a segment. Case and a slash at the end are left out of it:
/// see [`canonical`].
///
/// Cost: one pass, and another where it is not all ASCII.
#[must_use]
pub fn is_plain(path: &str) -> bool {
    let (mut last, mut is_ascii) = (b' ', true);
    let even = path.bytes().all(|byte| {
        let odd = match byte {
            ..=b' ' | 0x7f | b'%' | b'\\' | b';' => true,
            b'/' => matches!(last, b'/' | b'.'),
            b'.' => last == b'/',
            _ => false,
        };
        is_ascii &= byte.is_ascii();
        last = byte;
        !odd
    });
    even && last != b'.' && (is_ascii || !path.chars().any(|c| is_control(c) || c.is_whitespace()))
}

/// What readers end a text at, or a line, or leave out.
fn is_control(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}')
}

/// What else `path` can mean: percent-encodings decoded, once or to the end; backslashes as slashes; parameters of
/// segments (`;v=1`) left out; blanks around segments and dots at their ends left out; empty and dot segments resolved, in
/// either order. Without `path` itself, each once.
///
/// `None` where it is longer than [`LONGEST`], encoded many times over, or has control characters, as they are or encoded,
/// so that nobody can say: readers end a path at one, leave it out, or take what is around it for lines.
///
/// Cost: nothing but a pass for a plain path; else at most 24 times a few passes over it.
///
/// ```
/// let readings = semel_http::path::readings("/x/../orders;v=1").expect("short");
/// assert!(readings.contains(&b"/orders".to_vec()));
/// assert!(semel_http::path::readings("/orders/7").expect("short").is_empty());
/// ```
#[must_use]
pub fn readings(path: &str) -> Option<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    if is_plain(path) {
        return Some(found);
    }
    if path.len() > LONGEST {
        return None;
    }
    let once = decoded(path.as_bytes());
    let last = decoded_to_the_end(once.clone().into_owned())?;
    if has_controls(&last) {
        return None;
    }
    for text in [path.as_bytes(), &once, &last] {
        let slashed: Vec<u8> = text.iter().map(|&byte| if byte == b'\\' { b'/' } else { byte }).collect();
        let bare = without_parameters(&slashed);
        let (trimmed, bare_trimmed) = (without_edges(&slashed), without_edges(&bare));
        for text in [&slashed, &bare, &trimmed, &bare_trimmed] {
            for reading in [without_dots(&without_empty(text)), without_empty(&without_dots(text))] {
                if reading != path.as_bytes() && !found.contains(&reading) {
                    found.push(reading);
                }
            }
        }
    }
    Some(found)
}

/// One spelling for all that `path` is likely to be one with: decoded to the end, without control characters, parameters,
/// blanks and dots at the edges of segments, empty and dot segments, in small letters, without a slash at the end. For identities: two paths that share it are *not* known to
/// be one, so what else tells them apart (a fingerprint) has to have the last word.
///
/// Cost: a few passes.
#[must_use]
pub fn canonical(path: &str) -> Vec<u8> {
    let mut text = match is_plain(path) {
        true => path.as_bytes().to_vec(),
        false => {
            // Encoded over and over it stays as it is: a path of its own.
            let mut text = decoded_to_the_end(path.as_bytes().to_vec()).unwrap_or_else(|| path.as_bytes().to_vec());
            text.iter_mut().filter(|byte| **byte == b'\\').for_each(|byte| *byte = b'/');
            let text = without_edges(&without_parameters(&without_controls(&text)));
            without_dots(&without_empty(&text))
        }
    };
    if text.len() > 1 && text.ends_with(b"/") {
        text.pop();
    }
    text.make_ascii_lowercase();
    text
}

/// `%XX` as the byte it means; a broken escape stays as it is.
fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'%') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(Decoded(text).collect())
}

fn decoded_to_the_end(mut text: Vec<u8>) -> Option<Vec<u8>> {
    for _ in 0..DECODINGS {
        let next = decoded(&text).into_owned();
        if next == text {
            return Some(text);
        }
        text = next;
    }
    None
}

/// The bytes of a text with `%XX` read as the byte it means; a broken escape stays as it is.
#[derive(Clone, Copy, Debug)]
pub struct Decoded<'a>(pub &'a [u8]);

impl Iterator for Decoded<'_> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok());
        if let [b'%', high, low, rest @ ..] = self.0
            && let (Some(high), Some(low)) = (digit(*high), digit(*low))
        {
            self.0 = rest;
            return Some(high << 4 | low);
        }
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }
}

fn has_controls(text: &[u8]) -> bool {
    text.utf8_chunks().any(|chunk| chunk.valid().contains(is_control))
}

fn without_controls(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for part in chunk.valid().split(is_control) {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(chunk.invalid());
    }
    out
}

/// Segments without the blanks around them and the dots at their ends; what is `.` or `..` then stays so.
fn without_edges(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for (n, part) in path.split(|&byte| byte == b'/').enumerate() {
        if n > 0 {
            out.push(b'/');
        }
        out.extend_from_slice(trimmed(part));
    }
    out
}

fn trimmed(part: &[u8]) -> &[u8] {
    let part = std::str::from_utf8(part).map_or_else(|_| part.trim_ascii(), |text| text.trim().as_bytes());
    if matches!(part, b"." | b"..") {
        return part;
    }
    match std::str::from_utf8(part) {
        Ok(text) => text.trim_end_matches(|c: char| c == '.' || c.is_whitespace()).as_bytes(),
        Err(_) => {
            let end = part.iter().rposition(|byte| *byte != b'.' && !byte.is_ascii_whitespace());
            end.map_or(&[], |end| &part[..=end])
        }
    }
}

fn without_parameters(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut inside = false;
    for &byte in path {
        inside = byte != b'/' && (inside || byte == b';');
        if !inside {
            out.push(byte);
        }
    }
    out
}

fn without_empty(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    for &byte in path {
        if byte != b'/' || out.last() != Some(&b'/') {
            out.push(byte);
        }
    }
    out
}

/// As RFC 3986, 5.2.4: what goes above the root stays at it.
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(path.len());
    let mut parts = path.strip_prefix(b"/").unwrap_or(path).split(|&byte| byte == b'/').peekable();
    while let Some(part) = parts.next() {
        match part {
            b"." | b".." => {
                if part == b".." {
                    out.truncate(out.iter().rposition(|&byte| byte == b'/').unwrap_or(0));
                }
                if parts.peek().is_none() {
                    out.push(b'/');
                }
            }
            _ => {
                out.push(b'/');
                out.extend_from_slice(part);
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(path: &str) -> Vec<String> {
        let read = readings(path).unwrap_or_else(|| panic!("{path}"));
        read.into_iter().map(|reading| String::from_utf8(reading).unwrap()).collect()
    }

    #[test]
    fn a_plain_path_has_no_other_reading() {
        for path in
            ["/", "/orders", "/orders/", "/orders/7/items", "/Orders", "/a.b/c..d/e", "/café", "/注文/ひ", "*", ""]
        {
            assert!(is_plain(path) && texts(path).is_empty(), "{path}");
        }
    }

    #[test]
    fn every_spelling_is_read_as_what_it_is_another_one_of() {
        for (path, reading) in [
            ("//orders", "/orders"),
            ("/./orders", "/orders"),
            ("/../orders", "/orders"),
            ("/x/../orders", "/orders"),
            ("/x/%2E%2e/orders", "/orders"),
            ("/orders/.", "/orders/"),
            ("/orders/x/..", "/orders/"),
            ("/orders//7", "/orders/7"),
            ("/orders;x=1/7;y", "/orders/7"),
            ("/x/..;a/orders", "/orders"),
            ("/x%2f..%2forders", "/orders"),
            ("/orders%2f7", "/orders/7"),
            ("/%252e%252e/orders", "/orders"),
            ("/x\\..\\orders", "/orders"),
            ("/x%5c..%5Corders", "/orders"),
            ("/a//../orders", "/orders"),
            ("/a//../orders", "/a/orders"),
            ("/%6frders", "/orders"),
            ("/..%3bv/orders", "/orders"),
            ("/orders%20", "/orders"),
            ("/%20orders%20/7", "/orders/7"),
            ("/orders.", "/orders"),
            ("/orders./7", "/orders/7"),
            ("/orders%2e%2E", "/orders"),
            ("/orders%20.%20;a", "/orders"),
            ("/orders%C2%A0", "/orders"),
            ("/orders%2520", "/orders"),
            ("/x/..%20/orders", "/orders"),
        ] {
            let all = texts(path);
            assert!(all.contains(&reading.to_owned()), "{path}: {all:?}");
            assert!(!all.contains(&path.to_owned()) && all.len() <= 24, "{path}: {all:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_to_the_end_is_not_read() {
        assert_eq!(readings(&format!("/{}%2e", "a".repeat(LONGEST))), None);
        assert!(readings(&format!("/{}", "a".repeat(LONGEST * 2))).is_some_and(|all| all.is_empty()));
        assert_eq!(readings(&format!("/%{}2e", "25".repeat(DECODINGS))), None);
        assert!(readings(&format!("/%{}2e/a", "25".repeat(DECODINGS - 2))).is_some());
        assert_eq!(canonical("/%zz%"), b"/%zz%");
    }

    /// A framework that matches `^/orders$` takes `/orders%0A` for it, where `$` stands before a last line feed as well;
    /// others end a path at a NUL, leave out tabs and line ends, or match line by line.
    #[test]
    fn a_path_with_control_characters_can_mean_anything() {
        for path in [
            "/orders%0A",
            "/orders%0d%0a",
            "/orders%00.json",
            "/ord%09ers",
            "/x%0a/orders",
            "/orders%7F",
            "/orders\u{7f}",
            "/orders%250a",
            "/orders%C2%85",
            "/orders%E2%80%A8",
            "/orders\u{2029}",
        ] {
            assert_eq!(readings(path), None, "{path}");
            assert!(!is_plain(path), "{path}");
        }
        // No text at all: its bytes mean themselves.
        assert!(readings("/%FF%85").is_some_and(|all| all.len() == 1));
    }

    #[test]
    fn a_path_has_one_canonical_spelling() {
        for path in [
            "/orders%0A",
            "/orders%00",
            "/ord%09ers",
            "/orders%20/",
            "/orders.",
            "/orders%2e%20",
            "/orders%C2%A0",
            "//Orders/",
            "/x/../orders",
            "/%6Frders;v=1",
            "/orders%2f",
            "/\\orders\\.",
            "/%254frders",
            "/orders",
        ] {
            assert_eq!(canonical(path), b"/orders", "{path}");
        }
        for path in ["/", "//", "/.", "/..", "/x/.."] {
            assert_eq!(canonical(path), b"/", "{path}");
        }
        assert_ne!(canonical("/orders/7"), canonical("/orders/8"));
        assert_eq!(canonical("*"), b"*");
    }
}
