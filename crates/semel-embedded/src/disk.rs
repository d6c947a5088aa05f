//! What keeps the bytes, behind a small trait: a journal of segments, or a disk that fails on demand.

#[cfg(test)]
pub(crate) mod faulty;
mod journal;

pub(crate) use journal::{Journal, Loss, Manifest, Opened};

use std::{fmt, io};

use bytes::Bytes;
use semel_core::{
    StoreTime,
    record::{Record, StateCode},
};

/// An identity's digest: the key of everything here.
pub(crate) type Digest = [u8; 32];

/// Whether a record is one in flight that this process understands.
pub(crate) fn is_flight(record: &Record) -> bool {
    record.is_readable() && record.state == StateCode::InFlight
}

/// What becomes of one digest.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) digest: Digest,
    /// The record from now on; `None` removes it.
    pub(crate) to: Option<Record>,
    /// Bytes to store instead of the record's own encoding.
    pub(crate) raw: Option<Bytes>,
}

impl Change {
    /// Adds the bytes that the disk keeps; nothing for a removal.
    pub(crate) fn encode_into(&self, out: &mut Vec<u8>) {
        match (&self.raw, &self.to) {
            (Some(raw), _) => out.extend_from_slice(raw),
            (None, Some(record)) => record.encode_into(out),
            (None, None) => {}
        }
    }
}

/// What each batch says about the whole store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark {
    /// Store time when the batch was made: the floor of the clock at the next open.
    pub(crate) time: StoreTime,
    /// The number of this batch, counted from 1.
    pub(crate) batch: u64,
    /// The number of the last batch that was known to be synced when this one was written.
    pub(crate) synced: u64,
}

/// What a disk has to say when it does not do what it was told.
#[derive(Debug)]
pub(crate) struct DiskError {
    pub(crate) doing: &'static str,
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

impl DiskError {
    pub(crate) fn new(doing: &'static str) -> impl FnOnce(Box<dyn std::error::Error + Send + Sync>) -> Self {
        move |source| Self { doing, source }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.doing, self.source)
    }
}

impl std::error::Error for DiskError {}

impl From<DiskError> for io::Error {
    fn from(e: DiskError) -> Self {
        Self::other(e)
    }
}

/// Records in the order of their digests, and whether there are more behind them.
pub(crate) type Stretch = (Vec<(Digest, Bytes)>, bool);

/// Bytes that outlive the process. One writer, many readers.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Writes all changes, in their order, and the mark, or none of them; the operating system has them when it returns.
    /// After an error nobody may write again.
    fn write(&self, changes: &[&Change], mark: Mark) -> Result<(), DiskError>;

    /// Makes everything written so far survive a power cut.
    fn sync(&self) -> Result<(), DiskError>;

    /// A record's bytes.
    fn record(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError>;

    /// At most `max` records in the order of their digests, from `from` to the end of its share of all digests, and
    /// whether there are more in that.
    fn records_from(&self, from: &Digest, max: usize) -> Result<Stretch, DiskError>;

    /// Forgets at most `max` records whose end is not after `until`, and says how many it forgot: fewer only when none is
    /// left. Those that are unresolved stay: their end is told, and a change removes them. Writes nothing: whatever had
    /// ended at the last mark is forgotten when the disk is opened again.
    fn purge(&self, until: StoreTime, max: usize) -> Result<usize, DiskError>;

    /// How many records there are.
    fn len(&self) -> u64;

    /// Bytes that it takes; cheap enough for once a second.
    fn size(&self) -> u64;

    /// Whether a batch without changes would let it give up space.
    fn wants_write(&self) -> bool;

    /// From now on: how many bytes may be written that nobody wants written, to make room, and whether it is short.
    fn room(&self, spare: u64, is_short: bool);

    /// Has `news` called, from a thread of the disk's own, when it has given up space, or
    /// [`wants_write`](Self::wants_write) begins to hold without a call from outside.
    fn tell(&self, news: Box<dyn Fn() + Send + Sync>);
}
