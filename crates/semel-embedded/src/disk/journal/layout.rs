//! The bytes of segments, batches, entries, summaries and the manifest; in words in `FORMAT.md`.

use semel_core::{StoreTime, record::Record};
use xxhash_rust::xxh3::xxh3_64;

use super::index::{Place, Short};
use crate::disk::{Digest, Mark};

/// The first eight bytes of a segment: seven letters and the version.
const SEGMENT: [u8; 8] = *b"SMLJRNL\x03";

/// The first eight bytes of a summary.
const SUMMARY: [u8; 8] = *b"SMLSUMM\x03";

/// The first eight bytes of a manifest.
const MANIFEST: [u8; 8] = *b"SMLMANI\x03";

/// The first four bytes of a batch.
pub(super) const BATCH: [u8; 4] = *b"SMLB";

/// What segments and batches are sealed with: a random key of the directory, and where they begin. What a client sends is
/// stored in batches, and must not be able to look like one.
#[derive(Clone)]
pub(super) struct Seal([u8; 32]);

impl Seal {
    pub(super) const fn new(key: [u8; 32]) -> Self {
        Self(key)
    }

    /// Of a head at byte `at` of its segment, whose last eight bytes are the seal's.
    fn of<const N: usize>(&self, head: &[u8; N], at: u32) -> [u8; 8] {
        // One block of the digest: no head is longer.
        let mut block = [0; 64];
        block[..N - 8].copy_from_slice(&head[..N - 8]);
        block[56..60].copy_from_slice(&at.to_be_bytes());
        let mut seal = [0; 8];
        seal.copy_from_slice(&blake3::keyed_hash(&self.0, &block).as_bytes()[..8]);
        seal
    }
}

/// What a segment begins with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SegmentHead {
    pub(super) number: u32,
    /// No segment before this one was needed when this one was begun.
    pub(super) oldest: u32,
    /// The last batch before it. All of them were synced.
    pub(super) after: Mark,
}

impl SegmentHead {
    pub(super) const LEN: usize = 40;

    pub(super) fn encode(self, key: &Seal) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&SEGMENT);
        out[8..12].copy_from_slice(&self.number.to_be_bytes());
        out[12..16].copy_from_slice(&self.oldest.to_be_bytes());
        out[16..24].copy_from_slice(&self.after.batch.to_be_bytes());
        out[24..32].copy_from_slice(&self.after.time.as_micros().to_be_bytes());
        let seal = key.of(&out, 0);
        out[32..].copy_from_slice(&seal);
        out
    }

    pub(super) fn decode(bytes: &[u8], key: &Seal) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let batch = u64_at(bytes, 16);
        (bytes[..8] == SEGMENT && bytes[32..] == key.of(bytes, 0)).then(|| Self {
            number: u32_at(bytes, 8),
            oldest: u32_at(bytes, 12),
            after: Mark { batch, synced: batch, time: time_at(bytes, 24) },
        })
    }
}

/// What a batch begins with; its entries follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct BatchHead {
    pub(super) mark: Mark,
    pub(super) segment: u32,
    /// No segment before this one is needed.
    pub(super) oldest: u32,
    pub(super) entries: u32,
    /// Bytes of the entries.
    pub(super) len: u32,
    sum: u64,
}

impl BatchHead {
    pub(super) const LEN: usize = 64;

    /// Fills in the head of a batch whose entries stand behind the room for it, but for its seal: see
    /// [`seal`](Self::seal).
    pub(super) fn put(batch: &mut [u8], mark: Mark, segment: u32, oldest: u32, entries: u32) {
        let Some((head, body)) = batch.split_first_chunk_mut::<{ Self::LEN }>() else { return };
        // A batch is bounded far below this, but for a single record, whose length is checked when it is put.
        let len = u32::try_from(body.len()).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&BATCH);
        head[4..8].copy_from_slice(&len.to_be_bytes());
        head[8..16].copy_from_slice(&mark.batch.to_be_bytes());
        head[16..24].copy_from_slice(&mark.synced.to_be_bytes());
        head[24..32].copy_from_slice(&mark.time.as_micros().to_be_bytes());
        head[32..36].copy_from_slice(&segment.to_be_bytes());
        head[36..40].copy_from_slice(&oldest.to_be_bytes());
        head[40..44].copy_from_slice(&entries.to_be_bytes());
        head[44..48].fill(0);
        head[48..56].copy_from_slice(&xxh3_64(body).to_be_bytes());
    }

    /// Seals the head of a batch that goes to byte `at` of its segment.
    pub(super) fn seal(batch: &mut [u8], key: &Seal, at: u32) {
        if let Some(head) = batch.first_chunk_mut::<{ Self::LEN }>() {
            let seal = key.of(head, at);
            head[56..].copy_from_slice(&seal);
        }
    }

    /// The head that stands at byte `at` of `segment`.
    pub(super) fn decode(segment: &[u8], at: usize, key: &Seal) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = segment.get(at..)?.first_chunk()?;
        if bytes[..4] != BATCH || bytes[56..] != key.of(bytes, u32::try_from(at).ok()?) {
            return None;
        }
        Some(Self {
            len: u32_at(bytes, 4),
            mark: Mark { batch: u64_at(bytes, 8), synced: u64_at(bytes, 16), time: time_at(bytes, 24) },
            segment: u32_at(bytes, 32),
            oldest: u32_at(bytes, 36),
            entries: u32_at(bytes, 40),
            sum: u64_at(bytes, 48),
        })
    }

    /// The entries, if they are all there: `bytes` begins with this head.
    pub(super) fn body<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let body = bytes[Self::LEN..].get(..usize::try_from(self.len).ok()?)?;
        (xxh3_64(body) == self.sum).then_some(body)
    }
}

/// What became of one digest.
pub(super) struct Entry<'a> {
    pub(super) digest: Digest,
    /// The record's bytes; `None` where it was removed.
    pub(super) value: Option<&'a [u8]>,
}

/// Bytes of an entry before its value.
pub(super) const ENTRY_HEAD: usize = 48;

const RECORD: u8 = 1;
const REMOVAL: u8 = 2;

impl<'a> Entry<'a> {
    /// Adds an entry whose value `write` adds.
    pub(super) fn put(out: &mut Vec<u8>, digest: &Digest, write: Option<impl FnOnce(&mut Vec<u8>)>) {
        let start = out.len();
        out.extend_from_slice(&[0; ENTRY_HEAD]);
        let kind = if write.is_some() { RECORD } else { REMOVAL };
        if let Some(write) = write {
            write(out);
        }
        let len = u32::try_from(out.len() - start - ENTRY_HEAD).unwrap_or(u32::MAX);
        let entry = &mut out[start..];
        entry[8..12].copy_from_slice(&len.to_be_bytes());
        entry[12] = kind;
        entry[16..ENTRY_HEAD].copy_from_slice(digest);
        let sum = xxh3_64(&entry[8..]);
        entry[..8].copy_from_slice(&sum.to_be_bytes());
    }

    /// The first entry of `bytes` and its length, if it is whole.
    pub(super) fn read(bytes: &'a [u8]) -> Option<(Self, usize)> {
        let head: &[u8; ENTRY_HEAD] = bytes.first_chunk()?;
        let end = ENTRY_HEAD.checked_add(usize::try_from(u32_at(head, 8)).ok()?)?;
        let whole = bytes.get(..end)?;
        if xxh3_64(&whole[8..]) != u64_at(head, 0) {
            return None;
        }
        let value = match head[12] {
            RECORD => Some(&whole[ENTRY_HEAD..]),
            REMOVAL => None,
            _ => return None,
        };
        Some((Self { digest: *head.last_chunk()?, value }, end))
    }
}

/// The first half of a digest: what the index knows a record by.
pub(super) fn short(digest: &Digest) -> Short {
    let mut short = Short::default();
    short.copy_from_slice(&digest[..16]);
    short
}

/// What kind of entry a note speaks of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Noted {
    Removal,
    /// Its end is nobody's concern.
    Resolved,
    /// In flight, unknown, or not readable: its end is told, and it is read at open.
    Unresolved,
    /// A later entry of the same segment is about the same digest. Never in a summary.
    Overruled,
}

/// All that an open and a purge have to know of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Note {
    pub(super) short: Short,
    pub(super) place: Place,
    pub(super) ends: StoreTime,
    pub(super) kind: Noted,
}

impl Note {
    pub(super) const LEN: usize = 40;

    /// What is noted of the record of `digest` that stands at `place`; `None` for its removal.
    pub(super) fn of(digest: &Digest, place: Place, record: Option<&Record>) -> Self {
        let (ends, kind) = match record {
            None => (StoreTime::from_micros(i64::MIN), Noted::Removal),
            Some(record) if record.is_readable() && !record.is_unresolved() => (record.expires_at, Noted::Resolved),
            Some(record) => (record.expires_at, Noted::Unresolved),
        };
        Self { short: short(digest), place, ends, kind }
    }

    fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..16].copy_from_slice(&self.short);
        out[16..20].copy_from_slice(&self.place.offset.to_be_bytes());
        out[20..24].copy_from_slice(&self.place.len.to_be_bytes());
        out[24..32].copy_from_slice(&self.ends.as_micros().to_be_bytes());
        out[32] = match self.kind {
            Noted::Removal | Noted::Overruled => 0,
            Noted::Resolved => 1,
            Noted::Unresolved => 2,
        };
        out
    }

    pub(super) fn decode(bytes: &[u8; Self::LEN], segment: u32) -> Option<Self> {
        let mut short = Short::default();
        short.copy_from_slice(&bytes[..16]);
        let place = Place { segment, offset: u32_at(bytes, 16), len: u32_at(bytes, 20) };
        let kind = match bytes[32] {
            0 => Noted::Removal,
            1 => Noted::Resolved,
            2 => Noted::Unresolved,
            _ => return None,
        };
        Some(Self { short, place, ends: time_at(bytes, 24), kind })
    }
}

/// What a summary begins with; its notes follow, by their ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SummaryHead {
    pub(super) segment: u32,
    pub(super) notes: u32,
    /// The number of the last batch in the segment, and the byte behind it.
    pub(super) last_batch: u64,
    pub(super) end: u32,
    sum: u64,
}

impl SummaryHead {
    pub(super) const LEN: usize = 48;

    /// A whole summary.
    pub(super) fn write(segment: u32, last_batch: u64, end: u32, notes: &[Note]) -> Vec<u8> {
        let mut out = vec![0; Self::LEN];
        out.reserve_exact(notes.len() * Note::LEN);
        for note in notes {
            out.extend_from_slice(&note.encode());
        }
        let sum = xxh3_64(&out[Self::LEN..]);
        if let Some(head) = out.first_chunk_mut::<{ Self::LEN }>() {
            head[..8].copy_from_slice(&SUMMARY);
            head[8..12].copy_from_slice(&segment.to_be_bytes());
            head[12..16].copy_from_slice(&u32::try_from(notes.len()).unwrap_or(u32::MAX).to_be_bytes());
            head[16..24].copy_from_slice(&last_batch.to_be_bytes());
            head[24..28].copy_from_slice(&end.to_be_bytes());
            head[32..40].copy_from_slice(&sum.to_be_bytes());
            seal(head);
        }
        out
    }

    /// A whole summary's head and notes.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, impl Iterator<Item = Option<Note>>)> {
        let (head, body) = bytes.split_first_chunk::<{ Self::LEN }>()?;
        if head[..8] != SUMMARY || !is_sealed(head) {
            return None;
        }
        let head = Self {
            segment: u32_at(head, 8),
            notes: u32_at(head, 12),
            last_batch: u64_at(head, 16),
            end: u32_at(head, 24),
            sum: u64_at(head, 32),
        };
        let (notes, rest) = body.as_chunks::<{ Note::LEN }>();
        let whole = rest.is_empty() && notes.len() as u64 == u64::from(head.notes) && xxh3_64(body) == head.sum;
        whole.then(|| (head, notes.iter().map(move |n| Note::decode(n, head.segment))))
    }
}

/// What a manifest begins with, written once.
pub(super) struct ManifestHead {
    pub(super) key: Seal,
    /// A digest that only the secret makes that the records were made with.
    pub(super) proof: [u8; 32],
}

impl ManifestHead {
    const LEN: usize = 80;

    pub(super) fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&MANIFEST);
        out[8..40].copy_from_slice(&self.key.0);
        out[40..72].copy_from_slice(&self.proof);
        seal(&mut out);
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let (mut key, mut proof) = ([0; 32], [0; 32]);
        key.copy_from_slice(&bytes[8..40]);
        proof.copy_from_slice(&bytes[40..72]);
        (bytes[..8] == MANIFEST && is_sealed(bytes)).then_some(Self { key: Seal(key), proof })
    }
}

/// How far a journal is synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Reached {
    /// The newest segment.
    pub(super) segment: u32,
    /// The byte behind its last batch, and the number of that.
    pub(super) end: u32,
    pub(super) batch: u64,
}

impl Reached {
    /// A segment was begun.
    pub(super) const NOTHING: Self = Self { segment: 1, end: SegmentHead::LEN as u32, batch: 0 };

    const LEN: usize = 32;

    /// As note number `count` of the manifest.
    pub(super) fn encode(self, count: u64) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&count.to_be_bytes());
        out[8..12].copy_from_slice(&self.segment.to_be_bytes());
        out[12..16].copy_from_slice(&self.end.to_be_bytes());
        out[16..24].copy_from_slice(&self.batch.to_be_bytes());
        seal(&mut out);
        out
    }

    /// A note, and its number.
    pub(super) fn decode(bytes: &[u8]) -> Option<(u64, Self)> {
        let bytes: &[u8; Self::LEN] = bytes.first_chunk()?;
        let reached = Self { segment: u32_at(bytes, 8), end: u32_at(bytes, 12), batch: u64_at(bytes, 16) };
        is_sealed(bytes).then_some((u64_at(bytes, 0), reached))
    }
}

/// Puts the sum of what stands before it into the last eight bytes.
fn seal<const N: usize>(head: &mut [u8; N]) {
    let sum = xxh3_64(&head[..N - 8]);
    head[N - 8..].copy_from_slice(&sum.to_be_bytes());
}

fn is_sealed<const N: usize>(head: &[u8; N]) -> bool {
    u64_at(head, N - 8) == xxh3_64(&head[..N - 8])
}

fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut out = [0; 4];
    out.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(out)
}

fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut out = [0; 8];
    out.copy_from_slice(&bytes[at..at + 8]);
    u64::from_be_bytes(out)
}

fn time_at<const N: usize>(bytes: &[u8; N], at: usize) -> StoreTime {
    StoreTime::from_micros(u64_at(bytes, at).cast_signed())
}
