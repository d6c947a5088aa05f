//! From a directory to what its segments say: summaries of the full ones, every batch of the newest.

use std::{
    collections::{BTreeMap, HashMap},
    fs::{self, File, OpenOptions},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use semel_core::{StoreTime, record::Record};

use super::{
    Accepts, Manifest,
    index::{Index, Place, Short},
    layout::{BATCH, BatchHead, Entry, Note, Noted, Reached, Seal, SegmentHead, SummaryHead},
    segment::{self, Known, Segment, Summary, path_of},
};
use crate::{OpenError, directory::ACCEPT, disk::Mark};

/// The end of a journal that was synced and is not there.
pub(crate) struct Loss {
    /// The file where it ends.
    pub(crate) path: PathBuf,
    found: Reached,
    noted: Reached,
    /// Not its end alone.
    is_all: bool,
}

impl Loss {
    /// The whole journal, which is to be at `journal` and is not. `None`: nothing was ever answered from it.
    pub(crate) fn of_all(journal: &Path, manifest: &Manifest) -> Option<Self> {
        let loss = Self::of(journal, Reached::NOTHING, manifest.reached())?;
        Some(Self { path: journal.to_owned(), is_all: true, ..loss })
    }

    /// `None`: everything is there that was noted. A segment that was begun is missed though it may hold nothing: batches
    /// may have been synced that a power cut left no note of.
    fn of(dir: &Path, found: Reached, noted: Reached) -> Option<Self> {
        let short = found.batch < noted.batch || found.segment < noted.segment;
        let path = path_of(dir, noted.segment.max(found.segment));
        short.then_some(Self { path, found, noted, is_all: false })
    }

    /// The refusal, for as long as nobody has written its words into the file `accept`.
    pub(crate) fn refused(self, accept: PathBuf) -> OpenError {
        let (words, why) = (self.words(), self.why());
        OpenError::Lost { path: self.path, why, accept, words }
    }

    /// What stays, in words that are of no other loss.
    pub(crate) fn words(&self) -> String {
        format!("after batch {}", self.found.batch)
    }

    pub(crate) fn why(&self) -> String {
        let Self { found, noted, .. } = self;
        if self.is_all {
            return format!(
                "it was synced up to batch {} (byte {} of segment {}), and it is missing (if it was renamed, rename it back)",
                noted.batch, noted.end, noted.segment
            );
        }
        format!(
            "it was synced up to batch {} (byte {} of segment {}), and what is there ends with batch {} (byte {} of segment \
             {})",
            noted.batch, noted.end, noted.segment, found.batch, found.end, found.segment
        )
    }
}

/// What was read.
pub(super) struct Replayed {
    pub(super) index: Index,
    pub(super) segments: BTreeMap<u32, Arc<Segment>>,
    pub(super) tail: Arc<Segment>,
    /// Where the next batch goes, and up to where the file is zeros from there.
    pub(super) at: u64,
    pub(super) zeroed: u64,
    pub(super) mark: Mark,
    pub(super) oldest: u32,
    /// Records whose end is told, and those that this process cannot read.
    pub(super) unresolved: Vec<Place>,
    /// Its end was lost, and it goes on without.
    pub(super) lost: bool,
}

/// Reads the segments in `dir`. A torn end of the newest one is cut off. Before that, what is there is held against what
/// the manifest says was synced.
pub(super) fn replay(dir: &Path, manifest: &Manifest, accepts: Accepts<'_>) -> Result<Replayed, OpenError> {
    let (seal, noted) = (manifest.seal(), manifest.reached());
    let mut numbers = numbers(dir)?;
    let damaged = |path: PathBuf, why: String| OpenError::Damaged { path, why };
    let missing = |number| damaged(path_of(dir, number), "it is missing".to_owned());
    let mut newest = loop {
        let Some(last) = numbers.last() else { return Err(missing(noted.segment)) };
        match Scanned::read(dir, *last, seal)? {
            Some(scanned) => break scanned,
            // Begun, and no batch was ever written to it: the process ended in between.
            None if numbers.len() > 1 => drop(numbers.pop()),
            None => {
                return Err(damaged(path_of(dir, *last), "its head is no segment's under this manifest".to_owned()));
            }
        }
    };
    let loss = Loss::of(dir, newest.reached()?, noted);
    let lost = loss.is_some();
    if let Some(loss) = loss {
        if !accepts(&loss)? {
            return Err(loss.refused(dir.with_file_name(ACCEPT)));
        }
        newest.forget_summary()?;
        // What is lost may have said that these are not needed, and have held what moved out of them.
        newest.oldest = newest.oldest.max(numbers.first().copied().unwrap_or_default());
    }
    newest.cut()?;
    let (at, zeroed, mark, oldest) = (newest.end, newest.len, newest.mark, newest.oldest);
    for leftover in numbers.extract_if(.., |n| *n < oldest) {
        segment::remove(&path_of(dir, leftover)).map_err(OpenError::io("removing", path_of(dir, leftover)))?;
    }
    let mut state = State { until: mark.time, ..State::default() };
    let mut last_batch = None;
    let last = newest.head.number;
    let mut newest = Some(newest.into_segment());
    for (number, expected) in numbers.into_iter().zip(oldest..) {
        if number != expected {
            return Err(missing(expected));
        }
        let read = match newest.take_if(|_| number == last) {
            Some(newest) => newest,
            None => full(dir, number, seal)?,
        };
        if last_batch.replace(read.last_batch).is_some_and(|batch| batch != read.head.after.batch) {
            return Err(damaged(path_of(dir, number - 1), "batches are missing at its end".to_owned()));
        }
        state.take_in(read);
    }
    let State { index, segments, unresolved, .. } = state;
    let tail = segments.get(&last).map(Arc::clone).ok_or_else(|| missing(last))?;
    let unresolved = unresolved.into_values().collect();
    Ok(Replayed { index, segments, tail, at, zeroed, mark, oldest, unresolved, lost })
}

fn numbers(dir: &Path) -> Result<Vec<u32>, OpenError> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(dir).map_err(OpenError::io("reading", dir))? {
        let name = entry.map_err(OpenError::io("reading", dir))?.file_name();
        numbers.extend(name.to_str().and_then(|n| n.strip_suffix(".log")).and_then(|n| n.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// A segment's notes, in an order in which the last one about a record counts.
struct ReadSegment {
    head: SegmentHead,
    path: PathBuf,
    file: File,
    len: u64,
    last_batch: u64,
    notes: Vec<Note>,
    summary: Option<Summary>,
}

#[derive(Default)]
struct State {
    /// What had ended by then is not there: store time never runs back, and what somebody purged stays so.
    until: StoreTime,
    index: Index,
    segments: BTreeMap<u32, Arc<Segment>>,
    unresolved: HashMap<Short, Place>,
}

impl State {
    fn take_in(&mut self, read: ReadSegment) {
        let ReadSegment { head, path, file, len, last_batch, notes, summary } = read;
        let kept = summary.map_or_else(Known::none, Known::There);
        let segment = Arc::new(Segment::new(head.number, path, file, kept, len, last_batch));
        self.segments.insert(head.number, Arc::clone(&segment));
        for note in &notes {
            let before = match note.kind {
                Noted::Removal | Noted::Overruled => self.index.remove(&note.short),
                Noted::Resolved if note.ends <= self.until => self.index.remove(&note.short),
                Noted::Resolved | Noted::Unresolved => {
                    segment.count(note.place);
                    self.index.set(&note.short, note.place)
                }
            };
            if let Some(before) = before
                && let Some(segment) = self.segments.get(&before.segment)
            {
                segment.discount(before);
            }
            match note.kind {
                Noted::Unresolved => self.unresolved.insert(note.short, note.place),
                _ => self.unresolved.remove(&note.short),
            };
        }
        if !segment.is_summarised() {
            segment.grew(len, last_batch, &notes);
        }
    }
}

/// A full segment: by its summary, or, where there is no good one, by all its batches.
fn full(dir: &Path, number: u32, seal: &Seal) -> Result<ReadSegment, OpenError> {
    let path = path_of(dir, number);
    let summary_path = path.with_extension("sum");
    match fs::read(&summary_path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(OpenError::io("reading", summary_path)(e)),
        Ok(bytes) => {
            let read = SummaryHead::read(&bytes).and_then(|(head, notes)| Some((head, notes.collect::<Option<_>>()?)));
            if let Some((head, notes)) = read.filter(|(head, _): &(SummaryHead, Vec<Note>)| head.segment == number) {
                let file = File::open(&path).map_err(OpenError::io("opening", &path))?;
                let len = file.metadata().map_err(OpenError::io("reading", &path))?.len();
                if len < u64::from(head.end) {
                    let why = format!("it was synced up to byte {}, and has {len} bytes", head.end);
                    return Err(OpenError::Damaged { path, why });
                }
                let mut first = [0; SegmentHead::LEN];
                (&file).read_exact(&mut first).map_err(OpenError::io("reading", &path))?;
                if let Some(segment) = SegmentHead::decode(&first, seal).filter(|s| s.number == number) {
                    let summary =
                        Summary::open(&summary_path, &notes).map_err(OpenError::io("opening", summary_path))?;
                    let (last_batch, summary) = (head.last_batch, Some(summary));
                    return Ok(ReadSegment { head: segment, path, file, len, last_batch, notes, summary });
                }
            } else {
                tracing::warn!(path = %summary_path.display(), "a summary is damaged; its segment is read instead");
            }
        }
    }
    match Scanned::read(dir, number, seal)? {
        Some(scanned) => Ok(scanned.into_segment()),
        None => Err(OpenError::Damaged { path, why: "its head is no segment's under this manifest".to_owned() }),
    }
}

/// A segment read batch by batch.
struct Scanned {
    head: SegmentHead,
    /// The byte behind the last whole batch, and of the file.
    end: u64,
    len: u64,
    /// Something else than zeros follows the last whole batch.
    is_torn: bool,
    mark: Mark,
    oldest: u32,
    notes: Vec<Note>,
    file: File,
    path: PathBuf,
}

impl Scanned {
    /// `None`: the file has neither a head nor a batch.
    fn read(dir: &Path, number: u32, seal: &Seal) -> Result<Option<Self>, OpenError> {
        let path = path_of(dir, number);
        let damaged = |why: String| OpenError::Damaged { path: path.clone(), why };
        let mut file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(OpenError::io("opening", &path))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(OpenError::io("reading", &path))?;
        let bytes = Bytes::from(bytes);
        let Some(head) = SegmentHead::decode(&bytes, seal).filter(|h| h.number == number) else {
            let batch = batches_behind(&bytes, 0, number, seal).next();
            return if batch.is_none() { Ok(None) } else { Err(damaged("its head is damaged".to_owned())) };
        };
        let mut notes = Vec::new();
        let (mut mark, mut oldest, mut end) = (head.after, head.oldest, SegmentHead::LEN);
        while let Some(batch) = batch_at(&bytes, end, number, mark.batch + 1, seal, &mut notes) {
            end += BatchHead::LEN + usize::try_from(batch.len).unwrap_or(usize::MAX);
            (mark, oldest) = (batch.mark, batch.oldest);
        }
        // What was never synced may be given up.
        if batches_behind(&bytes, end, number, seal).any(|b| b.mark.batch > mark.batch && b.mark.synced > mark.batch) {
            return Err(damaged(format!("byte {end} is in no whole batch, yet synced batches follow it")));
        }
        let is_torn = bytes[end..].iter().any(|b| *b != 0);
        let (end, len) = (end as u64, bytes.len() as u64);
        Ok(Some(Self { head, end, len, is_torn, mark, oldest, notes, file, path }))
    }

    fn reached(&self) -> Result<Reached, OpenError> {
        let end = u32::try_from(self.end).map_err(|_| OpenError::Damaged {
            path: self.path.clone(),
            why: "it is larger than a segment can be".to_owned(),
        })?;
        Ok(Reached { segment: self.head.number, end, batch: self.mark.batch })
    }

    /// Removes its summary: it was full, and is the newest again.
    fn forget_summary(&self) -> Result<(), OpenError> {
        let path = self.path.with_extension("sum");
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(OpenError::io("removing", path)(e)),
            _ => Ok(()),
        }
    }

    /// Cuts off what follows the last whole batch: a later batch could come to stand right before it.
    fn cut(&mut self) -> Result<(), OpenError> {
        if !self.is_torn {
            return Ok(());
        }
        let path = &self.path;
        tracing::warn!(path = %path.display(), kept = self.end, "cutting a torn batch off the end of the journal");
        self.len = self.end;
        let cut = self.file.set_len(self.end).and_then(|()| self.file.sync_all());
        cut.map_err(OpenError::io("cutting", path))
    }

    fn into_segment(self) -> ReadSegment {
        let Self { head, end, mark, notes, file, path, .. } = self;
        ReadSegment { head, path, file, len: end, last_batch: mark.batch, notes, summary: None }
    }
}

/// The batch number `expected` of segment `number`, if it is whole and stands at `at`. Adds its notes.
fn batch_at(
    bytes: &Bytes,
    at: usize,
    number: u32,
    expected: u64,
    seal: &Seal,
    notes: &mut Vec<Note>,
) -> Option<BatchHead> {
    let batch = bytes.get(at..)?;
    let head = BatchHead::decode(bytes, at, seal).filter(|h| h.segment == number && h.mark.batch == expected)?;
    let mut body = head.body(batch)?;
    let before = notes.len();
    while !body.is_empty() {
        let Some((entry, len)) = Entry::read(body) else {
            notes.truncate(before);
            return None;
        };
        let offset = u32::try_from(body.as_ptr().addr() - bytes.as_ptr().addr()).ok()?;
        let place = Place { segment: number, offset, len: u32::try_from(len).ok()? };
        let record = entry.value.map(|value| Record::decode(&bytes.slice_ref(value)));
        notes.push(Note::of(&entry.digest, place, record.as_ref()));
        body = &body[len..];
    }
    Some(head)
}

/// Heads of batches of segment `number` anywhere in `bytes` from `from` on.
fn batches_behind<'a>(
    bytes: &'a [u8],
    from: usize,
    number: u32,
    seal: &'a Seal,
) -> impl Iterator<Item = BatchHead> + 'a {
    let starts = bytes[from..].windows(BATCH.len()).enumerate().filter(|(_, w)| **w == BATCH);
    starts.filter_map(move |(i, _)| BatchHead::decode(bytes, from + i, seal).filter(|h| h.segment == number))
}
