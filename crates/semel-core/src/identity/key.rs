//! Keys: typed, length-prefixed parts.

use std::fmt;

use bytes::Bytes;

use super::put;

/// How a key may be shown to people.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Display {
    /// Its first characters and its length. For keys that come from outside.
    #[default]
    Masked,
    /// In full. For keys that the program builds itself, an order number say.
    Full,
}

/// A key: typed, length-prefixed parts. Made from [`IntoKey`] values; strings and numbers never meet.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    parts: Vec<u8>,
    shown: String,
}

impl Key {
    /// A key of one part or a tuple of parts.
    ///
    /// ```
    /// use semel_core::identity::{Display, Key};
    /// let key = Key::new(&("tenant-7", 42_u64), Display::Full);
    /// assert_eq!(key.shown(), "tenant-7/42");
    /// assert_ne!(key, Key::new(&("tenant-7", "42"), Display::Full));
    /// ```
    #[must_use]
    pub fn new(from: &(impl IntoKey + ?Sized), display: Display) -> Self {
        let most = match display {
            Display::Full => 64,
            Display::Masked => MASKED,
        };
        let shown = Shown { text: String::with_capacity(24), len: 0, most };
        let mut out = KeyWriter { parts: Vec::with_capacity(48), shown };
        from.feed(&mut out);
        let shown = match display {
            Display::Full => out.shown.text,
            Display::Masked => mask(out.shown),
        };
        Self { parts: out.parts, shown }
    }

    /// The parts as they go into a digest.
    pub(super) fn parts(&self) -> &[u8] {
        &self.parts
    }

    /// The form for people: masked unless the key's maker said otherwise.
    #[must_use]
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// The same, when the key itself is needed no more.
    #[must_use]
    pub fn into_shown(self) -> String {
        self.shown
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.shown)
    }
}

/// The beginning of a key's text, and how long all of it is, in characters.
#[derive(Debug)]
struct Shown {
    text: String,
    len: usize,
    /// How much of it is kept.
    most: usize,
}

impl Shown {
    fn push(&mut self, text: &str) {
        let room = self.most.saturating_sub(self.len);
        if text.is_ascii() {
            self.text.push_str(&text[..text.len().min(room)]);
            self.len += text.len();
        } else {
            self.text.extend(text.chars().take(room));
            self.len += text.chars().count();
        }
    }
}

impl fmt::Write for Shown {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// How many characters a masked key shows at most.
const MASKED: usize = 4;

/// At most four characters and never more than a quarter of the key, then its length.
fn mask(Shown { mut text, len, .. }: Shown) -> String {
    let keep = (len / 4).min(MASKED);
    // That many characters are there, and mostly one byte each.
    let end = if text.is_ascii() { keep } else { text.char_indices().nth(keep).map_or(text.len(), |(at, _)| at) };
    text.truncate(end);
    text.push_str("…(");
    text.push_str(itoa::Buffer::new().format(len));
    text.push(')');
    text
}

/// Collects the parts of a [`Key`].
#[derive(Debug)]
pub struct KeyWriter {
    parts: Vec<u8>,
    shown: Shown,
}

impl KeyWriter {
    /// One part: a type tag, so that `1` and `"1"` differ; its bytes; what people may see of it.
    pub fn part(&mut self, tag: PartTag, bytes: &[u8], shown: fmt::Arguments<'_>) {
        self.feed(tag, bytes);
        let _ = fmt::Write::write_fmt(&mut self.shown, shown);
    }

    /// A part of text, shown as it is. Most keys are nothing else, and this does without the formatter.
    fn text(&mut self, text: &str) {
        self.feed(PartTag::Text, text.as_bytes());
        self.shown.push(text);
    }

    fn feed(&mut self, tag: PartTag, bytes: &[u8]) {
        self.parts.push(tag as u8);
        put(&mut self.parts, bytes);
        if self.shown.len > 0 {
            self.shown.push("/");
        }
    }
}

/// The type of a key's part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum PartTag {
    /// UTF-8 text.
    Text = 1,
    /// An integer, 16 bytes, two's complement, big endian: the same for every width.
    Integer = 2,
    /// Raw bytes.
    Bytes = 3,
}

/// What can be (part of) a key: integers, text, bytes, and tuples of them. Never an `Option` (a missing value is not a
/// key) and never a float (equal amounts have unequal bits).
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be (part of) a key",
    note = "keys are integers, text, bytes and tuples of them; a missing value is not a key, and equal amounts can be unequal floats"
)]
pub trait IntoKey {
    /// Writes the value's parts.
    fn feed(&self, out: &mut KeyWriter);
}

impl IntoKey for str {
    fn feed(&self, out: &mut KeyWriter) {
        out.text(self);
    }
}

impl IntoKey for String {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_str().feed(out);
    }
}

impl IntoKey for [u8] {
    fn feed(&self, out: &mut KeyWriter) {
        out.part(PartTag::Bytes, self, format_args!("{} bytes", self.len()));
    }
}

impl IntoKey for Vec<u8> {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_slice().feed(out);
    }
}

impl IntoKey for Bytes {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_ref().feed(out);
    }
}

impl<const N: usize> IntoKey for [u8; N] {
    fn feed(&self, out: &mut KeyWriter) {
        self.as_slice().feed(out);
    }
}

impl<T: IntoKey + ?Sized> IntoKey for &T {
    fn feed(&self, out: &mut KeyWriter) {
        (**self).feed(out);
    }
}

macro_rules! integer_keys {
    ($($t:ty),*) => {$(
        impl IntoKey for $t {
            fn feed(&self, out: &mut KeyWriter) {
                out.part(PartTag::Integer, &i128::from(*self).to_be_bytes(), format_args!("{self}"));
            }
        }
    )*};
}
integer_keys!(u8, u16, u32, u64, i8, i16, i32, i64, i128);

macro_rules! tuple_keys {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: IntoKey),+> IntoKey for ($($name,)+) {
            fn feed(&self, out: &mut KeyWriter) {
                $(self.$index.feed(out);)+
            }
        }
    )*};
}
tuple_keys! { (A 0) (A 0, B 1) (A 0, B 1, C 2) (A 0, B 1, C 2, D 3) (A 0, B 1, C 2, D 3, E 4) (A 0, B 1, C 2, D 3, E 4, F 5) }
