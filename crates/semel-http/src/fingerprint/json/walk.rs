//! From tokens to one digest.
//!
//! A value in the buffer is one of: `n` `t` `f` · `#` number `\0` · `"` length, characters · `[` or `{` and what the
//! container holds: length and content below 32 bytes, else 32 and the content's digest. The content of an object is
//! its members, name and value, ordered by name; of an array its elements.

use super::{
    JsonError,
    lexer::Lexer,
    pointer::{Place, Selection},
};

pub(super) const MAX_DEPTH: usize = 128;

/// A value that is being read: where its name and itself begin in the buffer.
#[derive(Clone, Copy)]
struct Pending {
    name: u32,
    value: u32,
    place: Place,
}

/// A container that is open.
struct Frame {
    outer: Pending,
    object: bool,
    /// Members, or elements where their order does not count, are in [`Walk::parts`] from here on.
    parts: usize,
    sorted: bool,
    index: usize,
}

/// One member or element in the buffer.
#[derive(Clone, Copy)]
struct Part {
    name: u32,
    value: u32,
    end: u32,
}

struct Walk<'a> {
    lexer: Lexer<'a>,
    selection: &'a Selection,
    out: Vec<u8>,
    frames: Vec<Frame>,
    parts: Vec<Part>,
}

pub(super) fn digest(body: &[u8], selection: &Selection) -> Result<[u8; 32], JsonError> {
    if let Err(torn) = std::str::from_utf8(body) {
        return Err(JsonError::Syntax { at: torn.valid_up_to() });
    }
    // The written form of a value is never longer than four times its JSON, so that offsets fit.
    if body.len() > (u32::MAX / 4) as usize {
        return Err(JsonError::TooLong);
    }
    let mut walk = Walk { lexer: Lexer::new(body), selection, out: Vec::new(), frames: Vec::new(), parts: Vec::new() };
    walk.run()?;
    Ok(*blake3::hash(&walk.out).as_bytes())
}

impl Walk<'_> {
    fn offset(&self) -> u32 {
        u32::try_from(self.out.len()).unwrap_or(u32::MAX)
    }

    fn run(&mut self) -> Result<(), JsonError> {
        let mut pending = Pending { name: 0, value: 0, place: self.selection.root() };
        loop {
            if self.opens(pending)? {
                pending = self.child()?;
                continue;
            }
            // The value is complete; it may complete those around it.
            loop {
                let Some(frame) = self.frames.last() else {
                    return match self.lexer.look() {
                        None => Ok(()),
                        Some(_) => Err(self.lexer.stopped()),
                    };
                };
                let end = if frame.object { b'}' } else { b']' };
                if self.lexer.take(b',') {
                    pending = self.child()?;
                    break;
                }
                self.lexer.expect(end)?;
                self.close()?;
            }
        }
    }

    /// Reads a scalar or an empty container, or opens a container that has something in it.
    fn opens(&mut self, pending: Pending) -> Result<bool, JsonError> {
        match self.lexer.look() {
            Some(open @ (b'{' | b'[')) => {
                if self.frames.len() == MAX_DEPTH {
                    return Err(JsonError::TooDeep);
                }
                self.lexer.expect(open)?;
                let object = open == b'{';
                let sorted = object || self.selection.is_unordered(pending.place);
                self.frames.push(Frame { outer: pending, object, parts: self.parts.len(), sorted, index: 0 });
                if !self.lexer.take(if object { b'}' } else { b']' }) {
                    return Ok(true);
                }
                self.close()?;
                return Ok(false);
            }
            Some(b'"') => self.text()?,
            Some(b'n') => {
                self.lexer.literal(b"null")?;
                self.out.push(b'n');
            }
            Some(b't') => {
                self.lexer.literal(b"true")?;
                self.out.push(b't');
            }
            Some(b'f') => {
                self.lexer.literal(b"false")?;
                self.out.push(b'f');
            }
            _ => {
                self.out.push(b'#');
                self.lexer.number(&mut self.out)?;
                self.out.push(0);
            }
        }
        self.done(pending, false);
        Ok(false)
    }

    /// A string, with its length in front.
    fn text(&mut self) -> Result<(), JsonError> {
        let start = self.out.len();
        self.out.extend_from_slice(b"\"\0");
        self.lexer.string(&mut self.out)?;
        let len = self.out.len() - start - 2;
        if len < 0x80 {
            self.out[start + 1] = u8::try_from(len).unwrap_or(0x7f);
        } else {
            // A long one: four bytes of length, told from a short one by the bit in front.
            let len = u32::try_from(len).map_err(|_| JsonError::TooLong)? | 0x8000_0000;
            self.out.splice(start + 1..start + 2, len.to_be_bytes());
        }
        Ok(())
    }

    /// Begins the next member or element of the innermost container.
    fn child(&mut self) -> Result<Pending, JsonError> {
        let name = self.offset();
        let Some(frame) = self.frames.last_mut() else { return Err(self.lexer.stopped()) };
        let (outer, object, index) = (frame.outer.place, frame.object, frame.index);
        frame.index += 1;
        if !object {
            return Ok(Pending { name, value: name, place: self.selection.element(outer, index) });
        }
        if self.lexer.look() != Some(b'"') {
            return Err(self.lexer.stopped());
        }
        self.text()?;
        self.lexer.expect(b':')?;
        let written = &self.out[name as usize + 1..];
        let text = if written[0] < 0x80 { &written[1..] } else { &written[4..] };
        Ok(Pending { name, value: self.offset(), place: self.selection.member(outer, text) })
    }

    /// A value is complete: it stays, or what was written of it goes.
    fn done(&mut self, pending: Pending, container: bool) {
        let keeps = self.selection.keeps(pending.place, container);
        if !keeps {
            self.out.truncate(pending.value as usize);
        }
        let end = self.offset();
        match self.frames.last() {
            // A member that does not count keeps its name until its object closes: it may be there twice.
            Some(frame) if frame.sorted => {
                self.parts.push(Part { name: pending.name, value: pending.value, end });
            }
            Some(_) | None => {}
        }
    }

    /// The innermost container is complete: its content becomes a length and itself, or its digest.
    fn close(&mut self) -> Result<(), JsonError> {
        let Some(frame) = self.frames.pop() else { return Err(self.lexer.stopped()) };
        let start = frame.outer.value as usize;
        let out = &mut self.out;
        let mut content = Content::default();
        if frame.sorted {
            let parts = &mut self.parts[frame.parts..];
            if frame.object {
                let name = |p: &Part| p.name as usize..p.value as usize;
                parts.sort_unstable_by(|a, b| out[name(a)].cmp(&out[name(b)]));
                if parts.windows(2).any(|two| out[name(&two[0])] == out[name(&two[1])]) {
                    return Err(JsonError::DuplicateMember);
                }
            } else {
                let all = |p: &Part| p.name as usize..p.end as usize;
                parts.sort_unstable_by(|a, b| out[all(a)].cmp(&out[all(b)]));
            }
            for part in parts.iter().filter(|p| p.end > p.value) {
                content.add(&out[part.name as usize..part.end as usize]);
            }
            self.parts.truncate(frame.parts);
        } else {
            content.add(&out[start..]);
        }
        out.truncate(start);
        out.push(if frame.object { b'{' } else { b'[' });
        content.write(out);
        self.done(frame.outer, true);
        Ok(())
    }
}

/// What a container holds, in order: itself while it is short, its digest from then on.
#[derive(Default)]
struct Content {
    short: [u8; 31],
    len: usize,
    long: Option<Box<blake3::Hasher>>,
}

impl Content {
    fn add(&mut self, piece: &[u8]) {
        if self.long.is_none()
            && let Some(room) = self.short.get_mut(self.len..self.len + piece.len())
        {
            room.copy_from_slice(piece);
            self.len += piece.len();
            return;
        }
        let hasher = self.long.get_or_insert_with(|| {
            let mut hasher = Box::new(blake3::Hasher::new());
            hasher.update(&self.short[..self.len]);
            hasher
        });
        hasher.update(piece);
    }

    fn write(&self, out: &mut Vec<u8>) {
        match &self.long {
            None => {
                out.push(u8::try_from(self.len).unwrap_or(31));
                out.extend_from_slice(&self.short[..self.len]);
            }
            Some(hasher) => {
                out.push(32);
                out.extend_from_slice(hasher.finalize().as_bytes());
            }
        }
    }
}
