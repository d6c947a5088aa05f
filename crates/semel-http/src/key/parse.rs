//! One header value → one key: a Structured Field String (RFC 9651), read leniently.

use std::borrow::Cow;

use super::KeyError;

/// The longest key, in characters.
pub const MAX_LEN: usize = 255;

/// What a rule takes for a key. The default takes 1 to [`MAX_LEN`] visible ASCII characters, quoted or bare.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Syntax {
    min_len: usize,
    uuid: bool,
    quoted: bool,
}

impl Default for Syntax {
    fn default() -> Self {
        Self { min_len: 1, uuid: false, quoted: false }
    }
}

impl Syntax {
    /// At least `n` characters (at most [`MAX_LEN`]); short keys are guessed and reused.
    #[must_use]
    pub const fn min_len(mut self, n: usize) -> Self {
        self.min_len = if n > MAX_LEN { MAX_LEN } else { n };
        self
    }

    /// Only UUIDs, `8-4-4-4-12` hexadecimal digits. Case is kept: two spellings are two keys.
    #[must_use]
    pub const fn uuid(mut self) -> Self {
        self.uuid = true;
        self
    }

    /// Only quoted strings, as the draft wants it.
    #[must_use]
    pub const fn quoted(mut self) -> Self {
        self.quoted = true;
        self
    }

    fn check(&self, key: &str) -> Result<(), KeyError> {
        if key.is_empty() {
            Err(KeyError::Empty)
        } else if key.len() > MAX_LEN {
            Err(KeyError::TooLong)
        } else if key.len() < self.min_len {
            Err(KeyError::TooShort { min: self.min_len })
        } else if self.uuid && !is_uuid(key) {
            Err(KeyError::NotUuid)
        } else {
            Ok(())
        }
    }
}

/// Reads one header value as a key.
///
/// `"k"` and `k` are one key. Well-formed parameters after it are ignored. A bare key holds any visible ASCII but the
/// quote, the comma and the semicolon; a quoted one holds all of it, `\"` and `\\` as escapes.
///
/// # Errors
/// [`KeyError`] says what is wrong with it.
///
/// ```
/// use semel_http::key::{KeyError, Syntax, parse};
/// assert_eq!(parse(br#""k-1";v=2"#, &Syntax::default())?, "k-1");
/// assert_eq!(parse(b"k-1", &Syntax::default())?, "k-1");
/// assert_eq!(parse(b"k-1, k-2", &Syntax::default()), Err(KeyError::List));
/// # Ok::<(), KeyError>(())
/// ```
pub fn parse<'a>(value: &'a [u8], syntax: &Syntax) -> Result<Cow<'a, str>, KeyError> {
    let value = trim(value);
    let (key, rest) = match value.first() {
        None => return Err(KeyError::Empty),
        Some(b'"') => quoted(&value[1..])?,
        Some(_) if syntax.quoted => return Err(KeyError::NotQuoted),
        Some(_) => bare(value)?,
    };
    parameters(rest)?;
    syntax.check(&key)?;
    Ok(key)
}

fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

const fn is_visible(b: u8) -> bool {
    matches!(b, 0x21..=0x7e)
}

/// What a bare key is made of.
const fn is_bare(b: u8) -> bool {
    is_visible(b) & (b != b';') & (b != b',') & (b != b'"')
}

/// Whether nothing but a bare key is there. Without a way out before the end: so the compiler asks many bytes at once.
fn all_bare(value: &[u8]) -> bool {
    value.iter().fold(true, |all, b| all & is_bare(*b))
}

type Split<'a> = (Cow<'a, str>, &'a [u8]);

fn bare(value: &[u8]) -> Result<Split<'_>, KeyError> {
    if all_bare(value) {
        return Ok((text(value)?, &[]));
    }
    let end = value.iter().position(|b| !is_bare(*b)).unwrap_or(value.len());
    let (key, rest) = value.split_at(end);
    match rest.first() {
        None | Some(b';' | b',' | b' ' | b'\t' | b'"') => Ok((text(key)?, rest)),
        Some(_) => Err(KeyError::NotVisible),
    }
}

/// `key` is visible ASCII.
fn text(key: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    std::str::from_utf8(key).map(Cow::Borrowed).map_err(|_| KeyError::NotVisible)
}

fn visible(key: &[u8]) -> Result<Cow<'_, str>, KeyError> {
    if key.iter().copied().all(is_visible) { text(key) } else { Err(KeyError::NotVisible) }
}

/// `value` begins after the opening quote.
fn quoted(value: &[u8]) -> Result<Split<'_>, KeyError> {
    let stop = value.iter().position(|b| matches!(b, b'"' | b'\\')).ok_or(KeyError::BadString)?;
    if value[stop] == b'"' {
        return Ok((visible(&value[..stop])?, &value[stop + 1..]));
    }
    let mut key = visible(&value[..stop])?.into_owned();
    let mut rest = &value[stop..];
    loop {
        match rest {
            [b'"', after @ ..] => return Ok((Cow::Owned(key), after)),
            [b'\\', escaped @ (b'"' | b'\\'), after @ ..] => {
                key.push(char::from(*escaped));
                rest = after;
            }
            [b'\\', ..] | [] => return Err(KeyError::BadString),
            [plain, after @ ..] if is_visible(*plain) => {
                key.push(char::from(*plain));
                rest = after;
            }
            [_, ..] => return Err(KeyError::NotVisible),
        }
        if key.len() > MAX_LEN {
            return Err(KeyError::TooLong);
        }
    }
}

/// `*( SP ";" SP name [ "=" item ] )`, read over and ignored. What is not well formed is refused: in `order;7` nobody
/// can tell whether `;7` belongs to the key.
fn parameters(mut rest: &[u8]) -> Result<(), KeyError> {
    loop {
        rest = trim(rest);
        rest = match rest {
            [] => return Ok(()),
            [b',', ..] => return Err(KeyError::List),
            [b';', after @ ..] => trim(after),
            [b, ..] if is_visible(*b) => return Err(KeyError::BadParameters),
            [_, ..] => return Err(KeyError::NotVisible),
        };
        if !matches!(rest.first(), Some(b'a'..=b'z' | b'*')) {
            return Err(KeyError::BadParameters);
        }
        let named = |b: &u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'*');
        rest = &rest[rest.iter().position(|b| !named(b)).unwrap_or(rest.len())..];
        if let [b'=', value @ ..] = rest {
            rest = item(value)?;
        }
    }
}

/// Steps over a parameter's value.
fn item(value: &[u8]) -> Result<&[u8], KeyError> {
    if let [b'"', inside @ ..] = value {
        let mut at = 0;
        loop {
            match inside.get(at) {
                Some(b'"') => return Ok(&inside[at + 1..]),
                Some(b'\\') if matches!(inside.get(at + 1), Some(b'"' | b'\\')) => at += 2,
                Some(0x20..=0x7e) if inside[at] != b'\\' => at += 1,
                _ => return Err(KeyError::BadParameters),
            }
        }
    }
    match value.iter().position(|&b| !is_bare(b)).unwrap_or(value.len()) {
        0 => Err(KeyError::BadParameters),
        end => Ok(&value[end..]),
    }
}

fn is_uuid(key: &str) -> bool {
    key.len() == 36
        && key.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(value: &str) -> Result<String, KeyError> {
        parse(value.as_bytes(), &Syntax::default()).map(Cow::into_owned)
    }

    #[test]
    fn a_quoted_and_a_bare_key_are_one() {
        for same in ["k", "\"k\"", "  k  ", "\t\"k\" ", "k;a", "\"k\"; a=1;b=\"x,\\\"y\" ;c=:aGk=:", "k ;*x.y=?1"] {
            assert_eq!(read(same).as_deref(), Ok("k"), "{same}");
        }
        assert_eq!(read(r#""a\"b\\c,d;e""#).as_deref(), Ok(r#"a"b\c,d;e"#));
        assert_eq!(read("8e03978e-40d5-43e8-bc93-6894a57f9324").as_deref(), Ok("8e03978e-40d5-43e8-bc93-6894a57f9324"));
    }

    #[test]
    fn what_is_not_one_key_is_refused_with_its_reason() {
        for (value, why) in [
            ("", KeyError::Empty),
            ("   ", KeyError::Empty),
            ("\"\"", KeyError::Empty),
            (";a=1", KeyError::Empty),
            ("a, b", KeyError::List),
            ("a,a", KeyError::List),
            ("\"a\", \"b\"", KeyError::List),
            ("\"a", KeyError::BadString),
            ("\"a\\x\"", KeyError::BadString),
            ("\"a\\", KeyError::BadString),
            ("a b", KeyError::BadParameters),
            ("\"a\"b", KeyError::BadParameters),
            ("a\"b", KeyError::BadParameters),
            ("order;7", KeyError::BadParameters),
            ("a;", KeyError::BadParameters),
            ("a;b=", KeyError::BadParameters),
            ("a;b=\"x", KeyError::BadParameters),
            ("\"a b\"", KeyError::NotVisible),
            ("schlüssel", KeyError::NotVisible),
            ("\"schlüssel\"", KeyError::NotVisible),
        ] {
            assert_eq!(read(value), Err(why), "{value}");
        }
    }

    #[test]
    fn the_length_counts_the_key_and_nothing_else() {
        let longest = "k".repeat(MAX_LEN);
        assert_eq!(read(&longest).as_deref(), Ok(longest.as_str()));
        assert_eq!(read(&format!("\"{longest}\";a=1")).as_deref(), Ok(longest.as_str()));
        for long in [256, 300, 10_000] {
            assert_eq!(read(&"k".repeat(long)), Err(KeyError::TooLong));
            assert_eq!(read(&format!("\"{}\"", "\\\"".repeat(long))), Err(KeyError::TooLong));
        }
    }

    #[test]
    fn a_rule_may_ask_for_more() {
        let with = |value: &[u8], syntax: Syntax| parse(value, &syntax).map(Cow::into_owned);
        let uuid = Syntax::default().uuid();
        assert!(with(b"8e03978e-40d5-43e8-bc93-6894a57f9324", uuid).is_ok());
        assert_eq!(with(b"8e03978e-40d5-43e8-bc93-6894a57f932g", uuid), Err(KeyError::NotUuid));
        assert_eq!(with(b"short", Syntax::default().min_len(16)), Err(KeyError::TooShort { min: 16 }));
        assert_eq!(with(b"k", Syntax::default().quoted()), Err(KeyError::NotQuoted));
        assert_eq!(with(b"\"k\"", Syntax::default().quoted()).as_deref(), Ok("k"));
    }

    proptest! {
        #[test]
        fn every_visible_text_survives_quoting(key in "[!-~]{1,255}") {
            let value = format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(read(&value), Ok(key));
        }

        #[test]
        fn every_text_without_separators_is_itself(key in "[!#-+\\-.-:<-~]{1,255}") {
            prop_assert_eq!(read(&key), Ok(key));
        }

        #[test]
        fn no_bytes_panic_and_what_is_read_is_a_key(value in proptest::collection::vec(any::<u8>(), 0..400)) {
            if let Ok(key) = parse(&value, &Syntax::default()) {
                prop_assert!((1..=MAX_LEN).contains(&key.len()));
                prop_assert!(key.bytes().all(is_visible));
            }
        }
    }
}
