//! One segment: a file that batches are appended to, and what is known of its entries.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;
use semel_core::StoreTime;

use super::{
    index::{Index, Place},
    layout::{Note, Noted, Seal, SegmentHead, SummaryHead},
};

/// How many notes of a summary are read at once.
const CHUNK: usize = 256;

pub(super) struct Segment {
    pub(super) number: u32,
    path: PathBuf,
    pub(super) file: File,
    /// Bytes of the entries that are the newest of their records.
    live: AtomicU64,
    /// Bytes of the file that hold something.
    len: AtomicU64,
    /// The number of its last batch.
    last_batch: AtomicU64,
    notes: Mutex<Notes>,
}

/// What is known of a segment's entries.
pub(super) enum Notes {
    /// In memory, in the order of the entries: it is written to, or was until a moment ago. No resolved one ends before
    /// `earliest`.
    Here { notes: Vec<Note>, earliest: StoreTime, overruled: usize },
    /// In its summary, by their ends.
    There(Summary),
}

pub(super) struct Summary {
    file: File,
    /// The first note that was not purged, and how many there are.
    next: u32,
    notes: u32,
    /// No note that was not purged ends before this.
    earliest: StoreTime,
}

impl Notes {
    pub(super) fn none() -> Self {
        Self::Here { notes: Vec::new(), earliest: StoreTime::MAX, overruled: 0 }
    }

    fn add(&mut self, note: Note) {
        let Self::Here { notes, earliest, overruled } = self else { return };
        if note.kind == Noted::Resolved {
            *earliest = note.ends.min(*earliest);
        }
        if notes.len() == notes.capacity() {
            if *overruled > notes.len() / 8 {
                notes.retain(|n| n.kind != Noted::Overruled);
                *overruled = 0;
            }
            // By an eighth: there may be a hundred thousand.
            notes.reserve_exact(notes.len() / 8 + 64);
        }
        notes.push(note);
    }

    /// An entry later in the same segment is about the same digest as the one at `place`.
    fn overrule(&mut self, place: Place) {
        let Self::Here { notes, overruled, .. } = self else { return };
        if let Some(at) = behind(notes, place.offset)
            && notes[at].kind != Noted::Overruled
        {
            notes[at].kind = Noted::Overruled;
            *overruled += 1;
        }
    }
}

/// Where the note of an entry is. Mostly it came not long ago, and the notes in the middle of a hundred thousand are in no
/// cache: looked for from the end on, in steps that double.
fn behind(notes: &[Note], offset: u32) -> Option<usize> {
    let mut step = 16;
    let mut from = notes.len().saturating_sub(step);
    while from > 0 && notes[from].place.offset > offset {
        step *= 2;
        from = notes.len().saturating_sub(step);
    }
    let to = (from + step).min(notes.len());
    notes[from..to].binary_search_by_key(&offset, |n| n.place.offset).ok().map(|at| from + at)
}

pub(super) fn path_of(dir: &Path, number: u32) -> PathBuf {
    dir.join(format!("{number:010}.log"))
}

impl Segment {
    /// A new segment, synced with its directory.
    pub(super) fn create(dir: &Path, head: SegmentHead, seal: &Seal) -> io::Result<Self> {
        let path = path_of(dir, head.number);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        file.write_all_at(&head.encode(seal), 0)?;
        file.sync_all()?;
        super::sync_dir(dir)?;
        Ok(Self::new(head.number, path, file, Notes::none(), SegmentHead::LEN as u64, head.after.batch))
    }

    pub(super) fn new(number: u32, path: PathBuf, file: File, notes: Notes, len: u64, last_batch: u64) -> Self {
        let (live, len, last_batch) = (AtomicU64::new(0), AtomicU64::new(len), AtomicU64::new(last_batch));
        Self { number, path, file, live, len, last_batch, notes: Mutex::new(notes) }
    }

    pub(super) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    pub(super) fn count(&self, place: Place) {
        self.live.fetch_add(u64::from(place.len), Ordering::Relaxed);
    }

    pub(super) fn discount(&self, place: Place) {
        self.live.fetch_sub(u64::from(place.len), Ordering::Relaxed);
    }

    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Says what a batch brought.
    pub(super) fn grew(&self, len: u64, batch: u64, notes: &[Note]) {
        self.len.store(len, Ordering::Relaxed);
        self.last_batch.store(batch, Ordering::Relaxed);
        let mut ours = self.notes.lock();
        notes.iter().for_each(|note| ours.add(*note));
    }

    /// An entry behind the one at `place`, in this segment as well, is about the same digest.
    pub(super) fn overrule(&self, place: Place) {
        self.notes.lock().overrule(place);
    }

    pub(super) fn is_summarised(&self) -> bool {
        matches!(&*self.notes.lock(), Notes::There(_))
    }

    pub(super) fn read(&self, place: Place) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(place.len).unwrap_or(usize::MAX)];
        self.file.read_exact_at(&mut bytes, u64::from(place.offset))?;
        Ok(bytes)
    }

    /// Forgets at most `max` records that ended, see [`Disk::purge`](crate::disk::Disk::purge).
    pub(super) fn purge(&self, index: &Index, until: StoreTime, max: usize) -> io::Result<usize> {
        let forget = |note: &Note| {
            let forgotten = index.remove_at(&note.short, note.place);
            if forgotten {
                self.discount(note.place);
            }
            usize::from(forgotten)
        };
        let mut gone = 0;
        match &mut *self.notes.lock() {
            Notes::Here { notes, earliest, .. } if *earliest <= until => {
                *earliest = StoreTime::MAX;
                for note in notes.iter_mut().filter(|n| n.kind == Noted::Resolved) {
                    if note.ends <= until && gone < max {
                        gone += forget(note);
                        // An older segment may have an entry that would come back without it.
                        note.kind = Noted::Removal;
                    } else {
                        *earliest = note.ends.min(*earliest);
                    }
                }
            }
            Notes::There(summary) if summary.earliest <= until => {
                while gone < max && summary.next < summary.notes {
                    for note in summary.read(summary.next, CHUNK, self.number)? {
                        summary.earliest = note.ends;
                        if note.ends > until || gone == max {
                            return Ok(gone);
                        }
                        if note.kind == Noted::Resolved {
                            gone += forget(&note);
                        }
                        summary.next += 1;
                    }
                }
                if summary.next == summary.notes {
                    summary.earliest = StoreTime::MAX;
                }
            }
            Notes::Here { .. } | Notes::There(_) => {}
        }
        Ok(gone)
    }

    /// Writes the summary, once nothing is appended any more and all of it is synced. Of entries about one record the last
    /// one counts: what a later segment says may not be synced.
    pub(super) fn summarise(&self) -> io::Result<()> {
        let mut last = match &*self.notes.lock() {
            Notes::Here { notes, .. } => {
                notes.iter().filter(|n| n.kind != Noted::Overruled).copied().collect::<Vec<_>>()
            }
            Notes::There(_) => return Ok(()),
        };
        last.sort_by_key(|n| (n.short, n.place.offset));
        last.reverse();
        last.dedup_by_key(|n| n.short);
        for note in last.iter_mut().filter(|n| n.kind == Noted::Removal) {
            note.ends = StoreTime::from_micros(i64::MIN);
        }
        last.sort_unstable_by_key(|n| (n.ends, n.place.offset));
        let end = u32::try_from(self.len()).map_err(io::Error::other)?;
        let bytes = SummaryHead::write(self.number, self.last_batch.load(Ordering::Relaxed), end, &last);
        let path = self.summary_path();
        let temporary = path.with_extension("tmp");
        fs::write(&temporary, bytes)?;
        File::open(&temporary)?.sync_all()?;
        fs::rename(&temporary, &path)?;
        // What was purged meanwhile is met once more, and is not there.
        *self.notes.lock() = Notes::There(Summary::open(&path, &last)?);
        Ok(())
    }

    /// How large its summary is, at most.
    pub(super) fn summary_len(&self) -> u64 {
        match &*self.notes.lock() {
            Notes::Here { notes, .. } => (SummaryHead::LEN + notes.len() * Note::LEN) as u64,
            Notes::There(_) => 0,
        }
    }

    pub(super) fn summary_path(&self) -> PathBuf {
        self.path.with_extension("sum")
    }

    /// All notes of a summarised segment.
    pub(super) fn notes(&self) -> io::Result<Vec<Note>> {
        match &*self.notes.lock() {
            Notes::Here { notes, .. } => Ok(notes.clone()),
            Notes::There(summary) => summary.read(0, usize::MAX, self.number),
        }
    }

    /// Removes its files. Who has it open reads on.
    pub(super) fn remove(&self) -> io::Result<()> {
        remove(&self.path)
    }
}

/// Removes the summary of the segment at `path`, and then the segment: in this order, so that there is never a summary left that nobody removes.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.with_extension("sum")) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => fs::remove_file(path),
    }
}

impl Summary {
    /// A summary with these notes.
    pub(super) fn open(path: &Path, notes: &[Note]) -> io::Result<Self> {
        let earliest = notes.iter().find(|n| n.kind == Noted::Resolved).map_or(StoreTime::MAX, |n| n.ends);
        let notes = u32::try_from(notes.len()).map_err(io::Error::other)?;
        Ok(Self { file: File::open(path)?, next: 0, notes, earliest })
    }

    fn read(&self, from: u32, max: usize, segment: u32) -> io::Result<Vec<Note>> {
        let count = usize::try_from(self.notes - from).unwrap_or(usize::MAX).min(max);
        let mut bytes = vec![0; count * Note::LEN];
        let start = SummaryHead::LEN as u64 + u64::from(from) * Note::LEN as u64;
        self.file.read_exact_at(&mut bytes, start)?;
        let (notes, _) = bytes.as_chunks::<{ Note::LEN }>();
        let read = |n| Note::decode(n, segment).ok_or_else(|| io::Error::other("a note in a summary is damaged"));
        notes.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_found_wherever_it_is() {
        for len in [0_u32, 1, 15, 16, 17, 31, 33, 1_000] {
            let at = |offset| Place { segment: 1, offset, len: 5 };
            let note = |n| Note { short: [0; 16], place: at(10 + 2 * n), kind: Noted::Removal, ends: StoreTime::MAX };
            let notes: Vec<Note> = (0..len).map(note).collect();
            for (n, note) in notes.iter().enumerate() {
                assert_eq!(behind(&notes, note.place.offset), Some(n), "{n} of {len}");
                assert_eq!(behind(&notes, note.place.offset - 1), None);
            }
            assert_eq!(behind(&notes, 10 + 2 * len), None);
        }
    }
}
