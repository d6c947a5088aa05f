//! What is known of the entries of a segment that is written to.

use super::layout::{Note, Noted};

/// How many notes a piece has room for: some 40 KB.
const PIECE: usize = 1 << 10;

/// Notes in the order of their entries, in pieces: there may be a hundred thousand, and none moves when more come.
#[derive(Default)]
pub(super) struct Notes {
    pieces: Vec<Vec<Note>>,
    /// Where the first entry of each piece was.
    starts: Vec<u32>,
    len: usize,
    overruled: usize,
    /// Those of the overruled that are in the last piece.
    recent: usize,
}

impl Notes {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Note> {
        self.pieces.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Note> {
        self.pieces.iter_mut().flatten()
    }

    /// The next one.
    pub(super) fn push(&mut self, note: Note) {
        if self.pieces.last().is_none_or(|last| last.len() == PIECE) && !self.make_room() {
            self.starts.push(note.place.offset);
            self.pieces.push(Vec::with_capacity(PIECE));
            self.recent = 0;
        }
        if let Some(last) = self.pieces.last_mut() {
            last.push(note);
            self.len += 1;
        }
    }

    /// An entry later in the same segment is about the same digest as the one at `offset`.
    pub(super) fn overrule(&mut self, offset: u32) {
        let Some(piece) = self.starts.partition_point(|start| *start <= offset).checked_sub(1) else { return };
        let notes = &mut self.pieces[piece];
        if let Ok(at) = notes.binary_search_by_key(&offset, |n| n.place.offset)
            && notes[at].kind != Noted::Overruled
        {
            notes[at].kind = Noted::Overruled;
            self.overruled += 1;
            self.recent += usize::from(piece + 1 == self.pieces.len());
        }
    }

    /// Forgets what is overruled, where that is much: of the last piece, for what overrules an entry mostly comes soon; of
    /// all. Whether there is room in the last piece then.
    fn make_room(&mut self) -> bool {
        let counts = |note: &Note| note.kind != Noted::Overruled;
        if let Some(last) = self.pieces.last_mut().filter(|_| self.recent > PIECE / 8) {
            last.retain(counts);
            self.len -= self.recent;
            self.overruled -= std::mem::take(&mut self.recent);
            return true;
        }
        if self.overruled > self.len / 8 {
            let before = std::mem::take(self);
            before.pieces.into_iter().flatten().filter(counts).for_each(|note| self.push(note));
        }
        self.pieces.last().is_some_and(|last| last.len() < PIECE)
    }
}

#[cfg(test)]
mod tests {
    use semel_core::StoreTime;

    use super::*;
    use crate::disk::journal::index::Place;

    fn note(n: u32) -> Note {
        let place = Place { segment: 1, offset: 10 + 2 * n, len: 2 };
        Note { short: [0; 16], place, kind: Noted::Removal, ends: StoreTime::MAX }
    }

    fn offsets(notes: &Notes) -> Vec<u32> {
        notes.iter().filter(|n| n.kind != Noted::Overruled).map(|n| n.place.offset).collect()
    }

    #[test]
    fn a_note_is_found_wherever_it_is() {
        for len in [1, 2, PIECE - 1, PIECE, PIECE + 1, 3 * PIECE + 5] {
            let len = u32::try_from(len).unwrap();
            for n in [0, len / 2, len - 1] {
                let mut notes = Notes::default();
                (0..len).for_each(|n| notes.push(note(n)));
                // Between two, before the first, behind the last: nobody's.
                for offset in [0, 9, 11 + 2 * n, 10 + 2 * len] {
                    notes.overrule(offset);
                }
                assert_eq!(offsets(&notes).len(), len as usize);
                notes.overrule(10 + 2 * n);
                notes.overrule(10 + 2 * n);
                let expected: Vec<_> = (0..len).filter(|m| *m != n).map(|n| 10 + 2 * n).collect();
                assert_eq!(offsets(&notes), expected, "{n} of {len}");
                assert_eq!(notes.overruled, 1);
            }
        }
        Notes::default().overrule(0);
    }

    /// What overrules comes `behind` entries later, as in a store with so many requests under way.
    fn play(entries: u32, behind: u32) -> (Notes, usize) {
        let (mut notes, mut most) = (Notes::default(), 0);
        for n in 0..entries {
            notes.push(note(n));
            if n % 2 == 1 && n > behind {
                notes.overrule(10 + 2 * (n - behind - 1));
            }
            most = most.max(notes.pieces.len());
        }
        (notes, most)
    }

    #[test]
    fn what_is_overruled_takes_no_room_for_long() {
        for behind in [0, 100, 5_000] {
            let entries = 50_000;
            let (notes, most) = play(entries, behind);
            let expected: Vec<_> =
                (0..entries).filter(|n| n % 2 == 1 || n + behind + 1 >= entries).map(|n| 10 + 2 * n).collect();
            assert_eq!(offsets(&notes), expected, "{behind}");
            assert_eq!(notes.len, notes.iter().count());
            assert_eq!(notes.overruled, notes.len - expected.len());
            // Half of the entries count, and an eighth of what is there may be overruled.
            let counts = (entries / 2 + behind) as usize;
            assert!(most <= counts * 8 / 7 / PIECE + 2, "{behind}: {most} pieces");
        }
    }
}
