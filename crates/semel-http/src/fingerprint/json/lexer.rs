//! Tokens of JSON (RFC 8259), written out in a form of their own.

use super::JsonError;

/// Reads JSON bytes from front to back. The bytes are UTF-8 already.
pub(super) struct Lexer<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(super) const fn stopped(&self) -> JsonError {
        JsonError::Syntax { at: self.at }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// The next byte that is not white space, not taken.
    pub(super) fn look(&mut self) -> Option<u8> {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.peek()
    }

    /// Takes `byte`, after white space.
    pub(super) fn expect(&mut self, byte: u8) -> Result<(), JsonError> {
        if self.look() == Some(byte) {
            self.at += 1;
            Ok(())
        } else {
            Err(self.stopped())
        }
    }

    /// Takes `byte`, after white space, if it is there.
    pub(super) fn take(&mut self, byte: u8) -> bool {
        self.expect(byte).is_ok()
    }

    /// Takes `word`, a literal.
    pub(super) fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if self.bytes[self.at..].starts_with(word) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.stopped())
        }
    }

    /// Takes a string, appending its characters to `out`.
    pub(super) fn string(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        self.expect(b'"')?;
        loop {
            let start = self.at;
            while matches!(self.peek(), Some(b) if b >= 0x20 && b != b'"' && b != b'\\') {
                self.at += 1;
            }
            out.extend_from_slice(&self.bytes[start..self.at]);
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape(out)?;
                }
                _ => return Err(self.stopped()),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let byte = match self.peek() {
            Some(b @ (b'"' | b'\\' | b'/')) => b,
            Some(b'b') => 8,
            Some(b'f') => 12,
            Some(b'n') => b'\n',
            Some(b'r') => b'\r',
            Some(b't') => b'\t',
            Some(b'u') => {
                self.at += 1;
                let character = self.unicode()?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.stopped()),
        };
        self.at += 1;
        out.push(byte);
        Ok(())
    }

    fn unicode(&mut self) -> Result<char, JsonError> {
        let first = self.hex4()?;
        let code = match first {
            0xd800..=0xdbff => {
                if !self.bytes[self.at..].starts_with(b"\\u") {
                    return Err(JsonError::LoneSurrogate);
                }
                self.at += 2;
                match self.hex4()? {
                    second @ 0xdc00..=0xdfff => 0x1_0000 + ((first - 0xd800) << 10) + (second - 0xdc00),
                    _ => return Err(JsonError::LoneSurrogate),
                }
            }
            code => code,
        };
        char::from_u32(code).ok_or(JsonError::LoneSurrogate)
    }

    fn hex4(&mut self) -> Result<u32, JsonError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|b| char::from(b).to_digit(16)).ok_or(self.stopped())?;
            code = code << 4 | digit;
            self.at += 1;
        }
        Ok(code)
    }

    /// Takes a number, appending its normal form: an optional minus, digits without zeros at either end, and a power
    /// of ten where it is not 0. Zero is `0`. Nothing is expanded, so that `1e999999999` costs nothing.
    pub(super) fn number(&mut self, out: &mut Vec<u8>) -> Result<(), JsonError> {
        let negative = self.peek() == Some(b'-');
        if negative {
            self.at += 1;
        }
        let whole = self.digits()?;
        if whole.len() > 1 && whole[0] == b'0' {
            return Err(self.stopped());
        }
        let mut fraction = &[][..];
        if self.peek() == Some(b'.') {
            self.at += 1;
            fraction = self.digits()?;
        }
        let mut exponent: i64 = 0;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            let minus = self.peek() == Some(b'-');
            if minus || self.peek() == Some(b'+') {
                self.at += 1;
            }
            for digit in self.digits()? {
                let digit = i64::from(digit - b'0');
                let next = exponent.checked_mul(10).and_then(|e| e.checked_add(if minus { -digit } else { digit }));
                exponent = next.ok_or(JsonError::NumberRange)?;
            }
        }
        let start = out.len();
        if negative {
            out.push(b'-');
        }
        let first = out.len();
        for &digit in whole.iter().chain(fraction) {
            if digit != b'0' || out.len() > first {
                out.push(digit);
            }
        }
        let mut power = exponent.checked_sub(len(fraction)).ok_or(JsonError::NumberRange)?;
        let significant = out.iter().skip(first).rposition(|&b| b != b'0').map_or(0, |last| last + 1);
        if significant == 0 {
            out.truncate(start);
            out.push(b'0');
            return Ok(());
        }
        power = power.checked_add(len(&out[first + significant..])).ok_or(JsonError::NumberRange)?;
        out.truncate(first + significant);
        if power != 0 {
            out.push(b'e');
            out.extend_from_slice(power.to_string().as_bytes());
        }
        Ok(())
    }

    fn digits(&mut self) -> Result<&'a [u8], JsonError> {
        let start = self.at;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if start == self.at { Err(self.stopped()) } else { Ok(&self.bytes[start..self.at]) }
    }
}

fn len(digits: &[u8]) -> i64 {
    i64::try_from(digits.len()).unwrap_or(i64::MAX)
}
