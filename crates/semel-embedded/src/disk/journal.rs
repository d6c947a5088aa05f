//! A journal in segments: what is written is appended and stays where it is, an index in memory says where.
//!
//! ```text
//! 0000000007.log   full          summary 0000000007.sum: what of it counts, by its end
//! 0000000008.log   full          summary 0000000008.sum
//! 0000000009.log   the newest    batches are appended here
//! ```
//!
//! Segments are given up from the oldest on, and only so: then whatever an entry overrules is in an older segment or in
//! its own, and goes no later than the entry. A segment that holds nothing any more goes; where too little of the whole is
//! worth keeping, what the oldest one still holds is copied to the end first ([`tidy`]).

mod index;
mod layout;
mod manifest;
mod notes;
mod replay;
mod segment;
#[cfg(test)]
mod tests;
mod tidy;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt, FileExt},
    path::{Path, PathBuf},
    sync::Arc,
    thread::JoinHandle,
};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use semel_core::StoreTime;

use self::{
    index::{Index, Place},
    layout::{BatchHead, Entry, Note, Reached, Seal, SegmentHead, short},
    segment::Segment,
    tidy::Tidying,
};
pub(crate) use self::{manifest::Manifest, replay::Loss};
use super::{Change, Digest, Disk, DiskError, Mark, Stretch};
use crate::OpenError;

/// How large things are; tests choose small ones.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    /// A batch that would make a segment larger goes into the next one.
    segment: u64,
    /// How far zeros are written ahead. Into blocks that are there already a sync writes no metadata: half the writes, and
    /// half the time.
    ahead: u64,
    /// How much one batch takes along of what moves to the end.
    moves: usize,
}

impl Sizes {
    fn of(segment: u64) -> Self {
        let segment = segment.min(LARGEST);
        Self { segment, ahead: (512 << 10).min(segment / 8), moves: 256 << 10 }
    }
}

/// Places have 32 bits, and a batch may stand behind this.
const LARGEST: u64 = 1 << 31;

/// How often a record is looked for that moves while it is read.
const LOOKS: u32 = 8;

/// A batch's buffer is kept up to this size.
const KEPT: usize = 1 << 20;

/// The journal, with a thread that tidies it up.
pub(crate) struct Journal {
    inner: Arc<Inner>,
    tidier: Option<JoinHandle<()>>,
}

struct Inner {
    dir: PathBuf,
    sizes: Sizes,
    manifest: Manifest,
    index: Index,
    segments: RwLock<BTreeMap<u32, Arc<Segment>>>,
    tail: Mutex<Tail>,
    tidying: Tidying,
}

/// The end of the journal, where the writer is.
struct Tail {
    segment: Arc<Segment>,
    /// Where the next batch goes, and up to where zeros are written.
    at: u64,
    zeroed: u64,
    /// The last batch written.
    mark: Mark,
    /// The oldest segment that is needed, as that batch says.
    oldest: u32,
    buffer: Vec<u8>,
    notes: Vec<Note>,
    zeros: Vec<u8>,
}

impl Journal {
    /// Makes an empty journal at `path`, whole and synced, whose manifest will have this key.
    pub(crate) fn create(path: &Path, key: [u8; 32]) -> Result<(), OpenError> {
        let make = || {
            fs::DirBuilder::new().mode(0o700).create(path)?;
            let head = SegmentHead { number: 1, oldest: 1, after: Mark::default() };
            Segment::create(path, head, &Seal::new(key)).map(drop)
        };
        make().map_err(OpenError::io("making a journal in", path))
    }

    /// Opens what [`create`](Self::create) made, and says what its last batch said. A torn end is cut off first; whether
    /// the store goes on without what it has lost is for `accepts` to say. Segments are begun anew when they have
    /// `segment` bytes.
    pub(crate) fn open(
        path: &Path,
        manifest: Manifest,
        segment: u64,
        accepts: Accepts<'_>,
    ) -> Result<(Self, Opened), OpenError> {
        let (mut journal, opened) = Self::open_with(path, manifest, Sizes::of(segment), accepts)?;
        let tidier = std::thread::Builder::new().name("semel-tidier".to_owned()).spawn({
            let inner = Arc::clone(&journal.inner);
            move || inner.keep_tidy()
        });
        journal.tidier = Some(tidier.map_err(OpenError::io("starting the tidier of", path))?);
        // What is left of the time before.
        journal.inner.tidying.wake();
        Ok((journal, opened))
    }

    fn open_with(
        path: &Path,
        manifest: Manifest,
        sizes: Sizes,
        accepts: Accepts<'_>,
    ) -> Result<(Self, Opened), OpenError> {
        let read = replay::replay(path, &manifest, accepts)?;
        let tail = Tail {
            segment: read.tail,
            at: read.at,
            zeroed: read.zeroed,
            mark: read.mark,
            oldest: read.oldest,
            buffer: Vec::new(),
            notes: Vec::new(),
            zeros: Vec::new(),
        };
        let inner = Arc::new(Inner {
            dir: path.to_owned(),
            sizes,
            manifest,
            index: read.index,
            segments: RwLock::new(read.segments),
            tail: Mutex::new(tail),
            tidying: Tidying::default(),
        });
        if read.lost {
            // Which segments are needed was said by what is lost.
            let mark = Mark { batch: read.mark.batch + 1, ..read.mark };
            inner.write(&[], mark).map_err(OpenError::io("writing to", path))?;
        }
        let mark = inner.settle().map_err(OpenError::io("syncing", path))?;
        let damaged = |e: DiskError| OpenError::Damaged { path: path.to_owned(), why: e.to_string() };
        let unresolved = read.unresolved.iter().map(|place| inner.read(*place)).collect::<Result<_, _>>();
        let unresolved = unresolved.map_err(damaged)?;
        Ok((Self { inner, tidier: None }, Opened { mark, unresolved }))
    }
}

/// Whether the store goes on without what was lost; asked at most once, when nothing was changed yet.
pub(crate) type Accepts<'a> = &'a dyn Fn(&Loss) -> Result<bool, OpenError>;

/// What an open found.
pub(crate) struct Opened {
    /// Of the last batch.
    pub(crate) mark: Mark,
    /// The records whose end is told, and those that this process cannot read.
    pub(crate) unresolved: Vec<(Digest, Bytes)>,
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.inner.tidying.stop();
        if let Some(tidier) = self.tidier.take()
            && tidier.join().is_err()
        {
            tracing::error!(dir = %self.inner.dir.display(), "the journal's tidier had panicked");
        }
        self.inner.sync_manifest();
    }
}

impl Disk for Journal {
    fn write(&self, changes: &[&Change], mark: Mark) -> Result<(), DiskError> {
        self.inner.write(changes, mark).map_err(failed("writing a batch"))
    }

    fn sync(&self) -> Result<(), DiskError> {
        let tail = self.inner.tail.lock();
        let (segment, oldest, at, batch) = (Arc::clone(&tail.segment), tail.oldest, tail.at, tail.mark.batch);
        drop(tail);
        segment.file.sync_data().map_err(failed("syncing the journal"))?;
        let noted = reached(&segment, at, batch).and_then(|reached| self.inner.manifest.note(reached));
        if noted.map_err(failed("noting the end of the journal"))? {
            self.inner.sync_manifest_soon();
        }
        self.inner.free_below(oldest);
        Ok(())
    }

    fn record(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError> {
        let short = short(digest);
        let mut looks = 0;
        while let Some(place) = self.inner.index.get(&short) {
            match self.inner.read(place) {
                // It has moved, and its segment is gone.
                Err(_) if looks < LOOKS && self.inner.index.get(&short) != Some(place) => looks += 1,
                Err(e) => return Err(e),
                Ok((found, value)) => return Ok((found == *digest).then_some(value)),
            }
        }
        Ok(None)
    }

    fn records_from(&self, from: &Digest, max: usize) -> Result<Stretch, DiskError> {
        let (found, more) = self.inner.index.from(&short(from), max);
        let mut records = Vec::with_capacity(found.len());
        for (short, place) in found {
            let record = match self.inner.read(place) {
                Err(e) => {
                    // Moved, or gone, since the index was looked at.
                    let now = self.inner.index.get(&short);
                    match now.filter(|now| *now != place) {
                        Some(now) => self.inner.read(now)?,
                        None if now.is_none() => continue,
                        None => return Err(e),
                    }
                }
                Ok(record) => record,
            };
            if record.0 >= *from {
                records.push(record);
            }
        }
        Ok((records, more))
    }

    fn purge(&self, until: StoreTime, max: usize) -> Result<usize, DiskError> {
        let segments: Vec<_> = self.inner.segments.read().values().map(Arc::clone).collect();
        let mut gone = 0;
        for segment in segments {
            gone += segment.purge(&self.inner.index, until, max - gone).map_err(failed("purging"))?;
            if gone == max {
                break;
            }
        }
        self.inner.tidying.wake();
        Ok(gone)
    }

    fn len(&self) -> u64 {
        self.inner.index.len()
    }

    fn size(&self) -> u64 {
        let segments = self.inner.segments.read();
        segments.values().map(|s| s.len()).sum::<u64>() + self.inner.sizes.ahead
    }

    fn wants_write(&self) -> bool {
        let tail = self.inner.tail.lock();
        self.inner.has_moves() || self.inner.oldest(&tail) != tail.oldest || self.inner.leaves(&tail.segment)
    }

    fn room(&self, spare: u64, is_short: bool) {
        self.inner.tidying.room(spare, is_short);
    }

    fn tell(&self, news: Box<dyn Fn() + Send + Sync>) {
        self.inner.tidying.tell(news);
    }
}

impl Inner {
    /// What was found is answered from now on, and was perhaps never synced.
    fn settle(&self) -> io::Result<Mark> {
        let mut tail = self.tail.lock();
        tail.segment.file.sync_all()?;
        tail.mark.synced = tail.mark.batch;
        self.manifest.note(reached(&tail.segment, tail.at, tail.mark.batch)?)?;
        self.manifest.sync()?;
        Ok(tail.mark)
    }

    fn write(&self, changes: &[&Change], mark: Mark) -> io::Result<()> {
        let tail = &mut *self.tail.lock();
        tail.buffer.clear();
        tail.notes.clear();
        tail.buffer.resize(BatchHead::LEN, 0);
        let place = |from: usize, to: usize| {
            let end = u32::try_from(to - from).ok().zip(u32::try_from(from).ok());
            end.map(|(len, offset)| Place { segment: 0, offset, len }).ok_or_else(too_large)
        };
        // Before the changes: what they say of the same records is newer.
        let moves = if self.has_moves() { self.tidying.take_moves(self.sizes.moves) } else { Vec::new() };
        for moved in moves {
            if self.index.get(&moved.note.short) == Some(moved.note.place) {
                let from = tail.buffer.len();
                tail.buffer.extend_from_slice(&moved.entry);
                tail.notes.push(Note { place: place(from, tail.buffer.len())?, ..moved.note });
            }
        }
        for change in changes {
            let from = tail.buffer.len();
            let write = change.to.is_some().then_some(|out: &mut Vec<u8>| change.encode_into(out));
            Entry::put(&mut tail.buffer, &change.digest, write);
            tail.notes.push(Note::of(&change.digest, place(from, tail.buffer.len())?, change.to.as_ref()));
        }
        let len = tail.buffer.len() as u64;
        let is_full = tail.at + len > self.sizes.segment && tail.at > SegmentHead::LEN as u64;
        if is_full || self.leaves(&tail.segment) {
            self.begin_segment(tail)?;
        }
        let start = u32::try_from(tail.at).map_err(|_| too_large())?;
        start.checked_add(u32::try_from(len).map_err(|_| too_large())?).ok_or_else(too_large)?;
        tail.oldest = self.oldest(tail);
        let entries = u32::try_from(tail.notes.len()).map_err(|_| too_large())?;
        BatchHead::put(&mut tail.buffer, mark, tail.segment.number, tail.oldest, entries);
        BatchHead::seal(&mut tail.buffer, self.manifest.seal(), start);
        tail.write_zeros(len, self.ahead());
        tail.segment.file.write_all_at(&tail.buffer, tail.at)?;
        tail.at += len;
        tail.mark = mark;
        for note in &mut tail.notes {
            note.place.segment = tail.segment.number;
            note.place.offset += start;
        }
        tail.segment.grew(tail.at, mark.batch, &tail.notes);
        self.count(&tail.segment, &tail.notes);
        if tail.buffer.capacity() > KEPT {
            tail.buffer = Vec::new();
        }
        Ok(())
    }

    /// Tells the index what a batch brought.
    fn count(&self, segment: &Arc<Segment>, notes: &[Note]) {
        let segments = self.segments.read();
        for note in notes {
            let before = if note.kind == layout::Noted::Removal {
                self.index.remove(&note.short)
            } else {
                segment.count(note.place);
                self.index.set(&note.short, note.place)
            };
            let Some(before) = before else { continue };
            if before.segment == segment.number {
                segment.overrule(before);
            }
            if let Some(segment) = segments.get(&before.segment) {
                segment.discount(before);
            }
        }
    }

    /// The next segment. What was written to this one is synced first: only the newest may have a torn end. That it was
    /// begun is noted before a batch of it is answered: without it, it is lost.
    fn begin_segment(&self, tail: &mut Tail) -> io::Result<()> {
        tail.segment.file.sync_data()?;
        let after = Mark { synced: tail.mark.batch, ..tail.mark };
        let head = SegmentHead { number: tail.segment.number + 1, oldest: self.oldest(tail), after };
        let segment = Arc::new(Segment::create(&self.dir, head, self.manifest.seal())?);
        self.manifest.note(reached(&segment, SegmentHead::LEN as u64, after.batch)?)?;
        self.manifest.sync()?;
        self.segments.write().insert(segment.number, Arc::clone(&segment));
        (tail.segment, tail.at, tail.zeroed) = (segment, SegmentHead::LEN as u64, SegmentHead::LEN as u64);
        self.tidying.wake();
        Ok(())
    }

    /// The oldest segment that holds something, or the newest.
    fn oldest(&self, tail: &Tail) -> u32 {
        let segments = self.segments.read();
        let needed = segments.values().find(|s| s.number == tail.segment.number || s.live() > 0);
        needed.map_or(tail.oldest, |s| s.number)
    }

    fn read(&self, place: Place) -> Result<(Digest, Bytes), DiskError> {
        let segment = self.segments.read().get(&place.segment).map(Arc::clone);
        let segment = segment.ok_or_else(|| DiskError::new("reading a record")("its segment is gone".into()))?;
        let bytes = Bytes::from(segment.read(place).map_err(failed("reading a record"))?);
        match Entry::read(&bytes) {
            Some((Entry { digest, value: Some(value) }, _)) => Ok((digest, bytes.slice_ref(value))),
            _ => {
                let Place { segment, offset, .. } = place;
                let why = format!("the entry at byte {offset} of segment {segment} is damaged");
                Err(DiskError::new("reading a record")(why.into()))
            }
        }
    }
}

impl Tail {
    /// Sees to it that a batch of `len` bytes goes into blocks that are there. Where there is no room for zeros, there may
    /// still be room for the batch.
    fn write_zeros(&mut self, len: u64, ahead: u64) {
        let end = self.at + len;
        if end <= self.zeroed || ahead == 0 {
            return;
        }
        self.zeros.resize(usize::try_from(ahead).unwrap_or(0), 0);
        match self.segment.file.write_all_at(&self.zeros, end) {
            Ok(()) => self.zeroed = end + ahead,
            Err(e) => tracing::debug!(error = %e, "no zeros ahead of the journal"),
        }
    }
}

/// That all of a segment up to byte `at` is synced, and batch `batch` is the last one.
fn reached(segment: &Segment, at: u64, batch: u64) -> io::Result<Reached> {
    Ok(Reached { segment: segment.number, end: u32::try_from(at).map_err(|_| too_large())?, batch })
}

fn too_large() -> io::Error {
    io::Error::new(io::ErrorKind::FileTooLarge, "the batch is larger than a segment can be")
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> DiskError {
    move |e| DiskError::new(doing)(Box::new(e))
}

/// Makes what was done to the entries of a directory survive a power cut.
fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
