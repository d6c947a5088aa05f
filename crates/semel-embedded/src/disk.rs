//! What keeps the bytes, behind a small trait: the tables of fjall, or a disk that fails on demand.

#[cfg(test)]
pub(crate) mod faulty;
mod journal;
mod tables;

pub(crate) use tables::Tables;

use std::{fmt, io};

use bytes::Bytes;
use semel_core::{
    StoreTime,
    record::{Record, StateCode},
};

/// An identity's digest: the key of everything here.
pub(crate) type Digest = [u8; 32];

/// In which of the two tables of records a digest may have bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Places {
    pub(crate) flight: bool,
    pub(crate) settled: bool,
}

impl Places {
    pub(crate) const NONE: Self = Self { flight: false, settled: false };
    pub(crate) const FLIGHT: Self = Self { flight: true, settled: false };
    pub(crate) const SETTLED: Self = Self { flight: false, settled: true };

    /// Where a record of this process's version belongs.
    pub(crate) fn of(record: &Record) -> Self {
        if is_flight(record) { Self::FLIGHT } else { Self::SETTLED }
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self { flight: self.flight || other.flight, settled: self.settled || other.settled }
    }
}

/// Whether a record is one in flight that this process understands.
pub(crate) fn is_flight(record: &Record) -> bool {
    record.is_readable() && record.state == StateCode::InFlight
}

/// One entry of the index of ends: when a settled record ends, and whose it is. Ordered as the index is.
#[derive(Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct End {
    pub(crate) at: StoreTime,
    pub(crate) digest: Digest,
}

/// What becomes of one digest.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) digest: Digest,
    /// The record from now on.
    pub(crate) to: Option<Record>,
    /// Bytes to store instead of the record's own encoding.
    pub(crate) raw: Option<Bytes>,
    /// Where bytes may be so far.
    pub(crate) was: Places,
    /// Whether there was a record before.
    pub(crate) existed: bool,
    /// Entries of the index of ends that go.
    pub(crate) ends: Vec<End>,
}

impl Change {
    /// This change followed by `later` one of the same digest.
    pub(crate) fn then(&mut self, later: Self) {
        self.to = later.to;
        self.raw = later.raw;
        self.was = self.was.with(later.was);
        self.ends.extend(later.ends);
    }
}

/// The tables that a change touches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Table {
    /// Records in flight, by digest. Read whole at open, and never else.
    Flight,
    /// All other records, by digest.
    Settled,
    /// When each of those ends: time, then digest.
    Ends,
}

impl Change {
    /// What it does to the tables; a value is put, none removes. No key comes twice: within one batch fjall has no order.
    pub(crate) fn spell(&self, mut each: impl FnMut(Table, &[u8], Option<Bytes>)) {
        let mut gone = self.was;
        let mut end = None;
        if let Some(record) = &self.to {
            let bytes = self.raw.clone().unwrap_or_else(|| Bytes::from(record.encode()));
            if is_flight(record) {
                each(Table::Flight, &self.digest, Some(bytes));
                gone.flight = false;
            } else {
                each(Table::Settled, &self.digest, Some(bytes));
                gone.settled = false;
                let at = End { at: record.expires_at, digest: self.digest };
                each(Table::Ends, &at.key(), Some(Bytes::new()));
                end = Some(at);
            }
        }
        if gone.flight {
            each(Table::Flight, &self.digest, None);
        }
        if gone.settled {
            each(Table::Settled, &self.digest, None);
        }
        for (i, old) in self.ends.iter().enumerate() {
            if end != Some(*old) && !self.ends[..i].contains(old) {
                each(Table::Ends, &old.key(), None);
            }
        }
    }
}

/// Length of a key in the index of ends: time and digest.
const END_LEN: usize = 40;

impl End {
    /// Times before the epoch do not come up; if one did, its record would be removed late, not early.
    pub(crate) fn key(&self) -> [u8; END_LEN] {
        let mut key = [0; END_LEN];
        key[..8].copy_from_slice(&u64::try_from(self.at.as_micros()).unwrap_or(0).to_be_bytes());
        key[8..].copy_from_slice(&self.digest);
        key
    }

    pub(crate) fn read(key: &[u8]) -> Option<Self> {
        let key: &[u8; END_LEN] = key.try_into().ok()?;
        let at = u64::from_be_bytes(*key.first_chunk()?);
        Some(Self { at: StoreTime::from_micros(i64::try_from(at).unwrap_or(i64::MAX)), digest: *key.last_chunk()? })
    }
}

/// What each batch says about the whole store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark {
    /// Store time when the batch was made: the floor of the clock at the next open.
    pub(crate) time: StoreTime,
    /// How many records there are with this batch.
    pub(crate) records: u64,
    /// The number of this batch, counted from 1.
    pub(crate) batch: u64,
    /// The number of the last batch that was known to be synced when this one was written.
    pub(crate) synced: u64,
}

impl Mark {
    pub(crate) const LEN: usize = 32;

    pub(crate) fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        out[..8].copy_from_slice(&self.time.as_micros().to_be_bytes());
        out[8..16].copy_from_slice(&self.records.to_be_bytes());
        out[16..24].copy_from_slice(&self.batch.to_be_bytes());
        out[24..].copy_from_slice(&self.synced.to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::LEN] = bytes.try_into().ok()?;
        let number = |at: usize| bytes[at..].first_chunk().copied().map(u64::from_be_bytes);
        Some(Self {
            time: StoreTime::from_micros(bytes.first_chunk().copied().map(i64::from_be_bytes)?),
            records: number(8)?,
            batch: number(16)?,
            synced: number(24)?,
        })
    }
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

/// Bytes that outlive the process. One writer, many readers.
pub(crate) trait Disk: Send + Sync + 'static {
    /// Writes all changes and the mark, or none of them; the operating system has them when it returns. No digest comes
    /// twice. After an error nobody may write again.
    fn write(&self, changes: &[Change], mark: Mark) -> Result<(), DiskError>;

    /// Makes everything written so far survive a power cut.
    fn sync(&self) -> Result<(), DiskError>;

    /// A settled record's bytes.
    fn settled(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError>;

    /// At most `max` settled records in the order of their digests, from `from` on.
    fn settled_from(&self, from: &Digest, max: usize) -> Result<Vec<(Digest, Bytes)>, DiskError>;

    /// At most `max` entries of the index of ends, in order, behind `after` and with times up to `until`.
    fn ends(&self, after: End, until: StoreTime, max: usize) -> Result<Vec<End>, DiskError>;

    /// Bytes in the tables, and all bytes with the journals; cheap enough for once a second.
    fn size(&self) -> Size;
}

/// What is stored takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Size {
    pub(crate) tables: u64,
    pub(crate) all: u64,
}
