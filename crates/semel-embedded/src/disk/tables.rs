//! fjall keeps the bytes: four tables and one journal.

use std::{ops::Bound, path::Path, time::Duration};

use bytes::Bytes;
use fjall::{
    Database, Keyspace, KeyspaceCreateOptions, PersistMode,
    config::{PartitioningPolicy, PinningPolicy},
};
use semel_core::StoreTime;

use super::{Change, Digest, Disk, DiskError, End, Mark, Size, Table, journal};
use crate::OpenError;

const FLIGHT: &str = "flight";
const SETTLED: &str = "settled";
const ENDS: &str = "ends";
const STATE: &str = "state";

/// The key of the mark in its table.
pub(super) const MARK: &[u8] = b"mark";

/// A table's part that is in memory and in the journal only. Small, so that a flush needs little of a nearly full disk.
const IN_MEMORY: u64 = 16 << 20;

/// All journals together. They are read at open, so this bounds how long that takes.
const JOURNALS: u64 = 128 << 20;

/// Blocks kept in memory. Finished records have a cache of their own above this.
const BLOCKS: u64 = 16 << 20;

/// fjall halts a writer, without looking whether its workers live, at four sealed tables in memory and at thirty tables
/// of the first level. We wait before that, and look.
const SEALED_LIMIT: usize = 3;
const FIRST_LEVEL_LIMIT: usize = 20;

pub(crate) struct Tables {
    flight: Keyspace,
    settled: Keyspace,
    ends: Keyspace,
    state: Keyspace,
    // Dropped last: it waits for its workers.
    db: Database,
}

impl Tables {
    /// Makes empty tables at `path`, whole and synced, and closes them.
    pub(crate) fn create(path: &Path) -> Result<(), OpenError> {
        let tables = Self::start(path)?;
        tables.db.persist(PersistMode::SyncAll).map_err(|e| explain(path, e))
    }

    /// Opens what [`create`](Self::create) made. A torn end of the journal is cut off first.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        journal::cut_torn_end(path)?;
        Self::start(path)
    }

    fn start(path: &Path) -> Result<Self, OpenError> {
        let db = Database::builder(path)
            .cache_size(BLOCKS)
            .max_journaling_size(JOURNALS)
            // With two, the first spins while the second compacts.
            .worker_threads(1)
            .manual_journal_persist(true)
            .open()
            .map_err(|e| explain(path, e))?;
        let open = |name: &str, options: fn() -> KeyspaceCreateOptions| {
            db.keyspace(name, options).map_err(|e| explain(path, e))
        };
        Ok(Self {
            flight: open(FLIGHT, table)?,
            settled: open(SETTLED, table)?,
            ends: open(ENDS, table)?,
            state: open(STATE, table)?,
            db,
        })
    }

    /// The mark of the last batch; none in new tables.
    pub(crate) fn mark(&self) -> Result<Option<Mark>, DiskError> {
        let bytes = self.state.get(MARK).map_err(failed("reading the mark"))?;
        bytes.map(|b| Mark::decode(&b).ok_or_else(|| odd("reading the mark", "it has another length"))).transpose()
    }

    /// All records in flight. Only for the open: what is in flight is in memory from then on.
    pub(crate) fn all_in_flight(&self) -> Result<Vec<(Digest, Bytes)>, DiskError> {
        self.flight.iter().map(pair).collect()
    }

    /// Waits while fjall's worker is behind, as long as it lives.
    fn let_worker_catch_up(&self) -> Result<(), DiskError> {
        let behind = |table: &Keyspace| {
            table.sealed_memtable_count() >= SEALED_LIMIT || table.l0_table_count() >= FIRST_LEVEL_LIMIT
        };
        while [&self.flight, &self.settled, &self.ends, &self.state].into_iter().any(behind) {
            self.db.persist(PersistMode::Buffer).map_err(failed("waiting for the tables"))?;
            std::thread::park_timeout(Duration::from_millis(5));
        }
        Ok(())
    }
}

fn table() -> KeyspaceCreateOptions {
    KeyspaceCreateOptions::default()
        .max_memtable_size(IN_MEMORY)
        .manual_journal_persist(true)
        // A claim on a fresh key asks every table's filter: none of these questions may go to the disk.
        .filter_block_pinning_policy(PinningPolicy::all(true))
        .index_block_pinning_policy(PinningPolicy::all(true))
        .filter_block_partitioning_policy(PartitioningPolicy::all(false))
        .index_block_partitioning_policy(PartitioningPolicy::all(false))
}

impl Disk for Tables {
    fn write(&self, changes: &[Change], mark: Mark) -> Result<(), DiskError> {
        self.let_worker_catch_up()?;
        let mut batch = self.db.batch().durability(Some(PersistMode::Buffer));
        for change in changes {
            change.spell(|table, key, value| {
                let table = match table {
                    Table::Flight => &self.flight,
                    Table::Settled => &self.settled,
                    Table::Ends => &self.ends,
                };
                match value {
                    Some(value) => batch.insert(table, key, value),
                    None => batch.remove(table, key),
                }
            });
        }
        batch.insert(&self.state, MARK, mark.encode());
        batch.commit().map_err(failed("writing a batch"))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.db.persist(PersistMode::SyncData).map_err(failed("syncing the journal"))
    }

    fn settled(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError> {
        let found = self.settled.get(digest).map_err(failed("reading a record"))?;
        Ok(found.map(Bytes::from))
    }

    fn settled_from(&self, from: &Digest, max: usize) -> Result<Vec<(Digest, Bytes)>, DiskError> {
        self.settled.range(from.as_slice()..).take(max).map(pair).collect()
    }

    fn ends(&self, after: End, until: StoreTime, max: usize) -> Result<Vec<End>, DiskError> {
        let last = End { at: until, digest: [0xff; 32] }.key();
        let read = |guard: fjall::Guard| {
            let key = guard.key().map_err(failed("reading the index of ends"))?;
            End::read(&key).ok_or_else(|| odd("reading the index of ends", "a key has another length"))
        };
        self.ends.range((Bound::Excluded(after.key()), Bound::Included(last))).take(max).map(read).collect()
    }

    fn size(&self) -> Size {
        let tables = [&self.flight, &self.settled, &self.ends, &self.state].into_iter().map(|t| t.disk_space()).sum();
        Size { tables, all: self.db.disk_space().unwrap_or(tables) }
    }
}

fn pair(guard: fjall::Guard) -> Result<(Digest, Bytes), DiskError> {
    let (key, value) = guard.into_inner().map_err(failed("reading records"))?;
    let digest = (*key).try_into().map_err(|_| odd("reading records", "a key has another length"))?;
    Ok((digest, Bytes::from(value)))
}

fn failed(doing: &'static str) -> impl FnOnce(fjall::Error) -> DiskError {
    move |e| DiskError::new(doing)(Box::new(e))
}

fn odd(doing: &'static str, why: &'static str) -> DiskError {
    DiskError::new(doing)(why.into())
}

fn explain(path: &Path, e: fjall::Error) -> OpenError {
    let why = match e {
        fjall::Error::Io(source) => return OpenError::io("opening the tables in", path)(source),
        fjall::Error::Locked => return OpenError::InUse { dir: path.to_owned(), process: None },
        other => other.to_string(),
    };
    OpenError::Damaged { path: path.to_owned(), why }
}
