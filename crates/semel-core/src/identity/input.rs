//! Bytes on their way into a digest.

/// What a digest is made of, gathered: the first `N` bytes on the stack, all of them on the heap where there are more.
///
/// Hashing at once what was gathered takes half of what hashing it piece by piece does; and most of what is digested here
/// is short, so that it needs no allocation either.
pub(crate) struct Input<const N: usize> {
    few: [u8; N],
    len: usize,
    /// Everything, once it is more than `few` holds.
    many: Vec<u8>,
}

impl<const N: usize> Input<N> {
    pub(crate) const fn new() -> Self {
        Self { few: [0; N], len: 0, many: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes().len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        if self.many.is_empty() { &self.few[..self.len] } else { &self.many }
    }

    #[inline]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        match self.few.get_mut(self.len..self.len + bytes.len()) {
            Some(room) if self.many.is_empty() => {
                room.copy_from_slice(bytes);
                self.len += bytes.len();
            }
            _ => self.spill(bytes),
        }
    }

    /// Two pieces, with one look at the room.
    #[inline]
    pub(crate) fn push_both(&mut self, first: [u8; 8], second: &[u8]) {
        let end = self.len + first.len() + second.len();
        match self.few.get_mut(self.len..end).and_then(<[u8]>::split_first_chunk_mut) {
            Some((before, behind)) if self.many.is_empty() => {
                *before = first;
                behind.copy_from_slice(second);
                self.len = end;
            }
            _ => {
                self.push(&first);
                self.push(second);
            }
        }
    }

    #[cold]
    fn spill(&mut self, bytes: &[u8]) {
        if self.many.is_empty() {
            self.many.reserve(2 * N + bytes.len());
            self.many.extend_from_slice(&self.few[..self.len]);
        }
        self.many.extend_from_slice(bytes);
    }
}

/// Where a digest's parts are written.
pub(super) trait Sink {
    fn take(&mut self, bytes: &[u8]);
}

impl<const N: usize> Sink for Input<N> {
    #[inline]
    fn take(&mut self, bytes: &[u8]) {
        self.push(bytes);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn take(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pieces_at_once_are_the_two_of_them() {
        for (before, len) in [(0, 0), (0, 3), (3, 5), (3, 6), (8, 0), (9, 0), (6, 2), (6, 3), (16, 2), (20, 3)] {
            let (mut both, mut each) = (Input::<16>::new(), Input::<16>::new());
            let (first, second) = (*b"12345678", &[9; 6][..len]);
            both.push(&vec![7; before]);
            both.push_both(first, second);
            each.push(&vec![7; before]);
            each.push(&first);
            each.push(second);
            assert_eq!(both.bytes(), each.bytes(), "{before} {len}");
        }
    }

    #[test]
    fn what_is_gathered_is_what_was_pushed_whatever_its_length() {
        for pieces in [&[][..], &[0], &[3, 5], &[8], &[8, 0], &[8, 1, 2], &[3, 6, 7], &[20], &[20, 0, 1]] {
            let (mut input, mut all) = (Input::<8>::new(), Vec::new());
            for (n, len) in pieces.iter().enumerate() {
                let piece = vec![u8::try_from(n).unwrap() + 1; *len];
                input.push(&piece);
                all.extend_from_slice(&piece);
                assert_eq!((input.bytes(), input.len()), (&all[..], all.len()), "{pieces:?}");
            }
        }
    }
}
