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
    notes::Notes,
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
    notes: Mutex<Known>,
}

/// What is known of a segment's entries.
pub(super) enum Known {
    /// In memory: it is written to, or was until a moment ago. No resolved one ends before `earliest`.
    Here { notes: Notes, earliest: StoreTime },
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

impl Known {
    pub(super) fn none() -> Self {
        Self::Here { notes: Notes::default(), earliest: StoreTime::MAX }
    }

    fn add(&mut self, note: Note) {
        let Self::Here { notes, earliest } = self else { return };
        if note.kind == Noted::Resolved {
            *earliest = note.ends.min(*earliest);
        }
        notes.push(note);
    }

    /// An entry later in the same segment is about the same digest as the one at `place`.
    fn overrule(&mut self, place: Place) {
        if let Self::Here { notes, .. } = self {
            notes.overrule(place.offset);
        }
    }
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
        Ok(Self::new(head.number, path, file, Known::none(), SegmentHead::LEN as u64, head.after.batch))
    }

    pub(super) fn new(number: u32, path: PathBuf, file: File, notes: Known, len: u64, last_batch: u64) -> Self {
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
        matches!(&*self.notes.lock(), Known::There(_))
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
            Known::Here { notes, earliest } if *earliest <= until => {
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
            Known::There(summary) if summary.earliest <= until => {
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
            Known::Here { .. } | Known::There(_) => {}
        }
        Ok(gone)
    }

    /// Writes the summary, once nothing is appended any more and all of it is synced. Of entries about one record the last
    /// one counts: what a later segment says may not be synced.
    pub(super) fn summarise(&self) -> io::Result<()> {
        let mut last = match &*self.notes.lock() {
            Known::Here { notes, .. } => {
                notes.iter().filter(|n| n.kind != Noted::Overruled).copied().collect::<Vec<_>>()
            }
            Known::There(_) => return Ok(()),
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
        *self.notes.lock() = Known::There(Summary::open(&path, &last)?);
        Ok(())
    }

    /// How large its summary is, at most.
    pub(super) fn summary_len(&self) -> u64 {
        match &*self.notes.lock() {
            Known::Here { notes, .. } => (SummaryHead::LEN + notes.len() * Note::LEN) as u64,
            Known::There(_) => 0,
        }
    }

    pub(super) fn summary_path(&self) -> PathBuf {
        self.path.with_extension("sum")
    }

    /// All notes of a summarised segment.
    pub(super) fn notes(&self) -> io::Result<Vec<Note>> {
        match &*self.notes.lock() {
            Known::Here { notes, .. } => Ok(notes.iter().copied().collect()),
            Known::There(summary) => summary.read(0, usize::MAX, self.number),
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
