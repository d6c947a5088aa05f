//! The store: decisions in memory, answers when the disk has them.

mod calls;
mod decide;
mod people;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::JoinHandle,
};

use parking_lot::{Mutex, RwLock};
use semel_core::{
    StoreTime,
    env::LocalStoreClock,
    identity::{Identity, Secret},
    store::{Did, StoreError, StoreErrorKind},
};

use crate::{
    Options, Power,
    directory::Directory,
    disk::{Digest, Disk, DiskError},
    log::{Need, Queue, Stopped},
    shard::Shard,
    share::{SHARES, part_of, share_of},
    space::Space,
};

/// Records in a directory of this process. See the [crate](crate) for what survives what, and for the cost.
///
/// Dropping it writes what waits, which blocks for at most one batch, and gives the directory free.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    writer: Mutex<Option<JoinHandle<()>>>,
    secret: Option<Secret>,
    directory: Mutex<Option<Directory>>,
}

impl EmbeddedStore {
    pub(crate) fn running(
        shared: Arc<Shared>,
        writer: JoinHandle<()>,
        directory: Option<Directory>,
        secret: Option<Secret>,
    ) -> Self {
        Self { shared, writer: Mutex::new(Some(writer)), secret, directory: Mutex::new(directory) }
    }

    /// The secret that the directory keeps; `None` where one was configured.
    #[must_use]
    pub const fn secret(&self) -> Option<&Secret> {
        self.secret.as_ref()
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// How many changes were written since the open. A duplicate adds nothing to it.
    #[must_use]
    pub fn written(&self) -> u64 {
        self.shared.written.load(Ordering::Relaxed)
    }

    /// Puts `bytes` in place of a record, as a restored backup or a newer process would; `None` takes the record away, as
    /// a flush would. For the conformance suite.
    #[cfg(feature = "testing")]
    pub fn plant<'a>(
        &'a self,
        id: &semel_core::identity::Identity,
        bytes: Option<bytes::Bytes>,
    ) -> semel_core::store::Reply<'a, ()> {
        use semel_core::store::StoreFuture;
        match self.shared.plant(id.digest(), bytes) {
            Ok(ticket) => StoreFuture::new(decide::wait(ticket)),
            Err(e) => StoreFuture::ready(Err(e)),
        }
    }

    /// Writes and syncs what waits, takes no more calls and gives the directory free. Blocks for at most one batch and one
    /// step of the journal's tidying; a second call does nothing.
    pub fn close(&self) {
        self.shared.closed.store(true, Ordering::Relaxed);
        self.shared.queue.close();
        if let Some(writer) = self.writer.lock().take()
            && writer.join().is_err()
        {
            tracing::error!(dir = %self.dir().display(), "the store's writer had panicked");
        }
        // In this order: the journal is closed before the next one may open it.
        drop(self.shared.disk.write().take());
        drop(self.directory.lock().take());
    }
}

impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EmbeddedStore({})", self.shared.dir.display())
    }
}

/// What callers and the writer share.
pub(crate) struct Shared {
    dir: PathBuf,
    /// None: closed.
    disk: RwLock<Option<Arc<dyn Disk>>>,
    pub(crate) space: Space,
    pub(crate) queue: Queue,
    pub(crate) clock: LocalStoreClock,
    shards: Box<[Mutex<Shard>]>,
    durability: Power,
    max_rest: u64,
    closed: AtomicBool,
    written: AtomicU64,
    /// Purged without anybody having told their outcome, and nobody has been told of that yet.
    unresolved: Mutex<Vec<Identity>>,
    /// Removed without being asked, and not counted by a purge yet.
    reclaimed: Mutex<usize>,
}

impl Shared {
    pub(crate) fn new(
        dir: &Path,
        disk: Arc<dyn Disk>,
        space: Space,
        options: &Options,
        clock: LocalStoreClock,
    ) -> Self {
        let shards = (0..SHARES).map(|share| Mutex::new(Shard::new(part_of(options.cache, share)))).collect();
        Self {
            dir: dir.to_owned(),
            disk: RwLock::new(Some(disk)),
            space,
            queue: Queue::new(options.max_waiting),
            clock,
            shards,
            durability: options.durability,
            max_rest: options.max_rest,
            closed: AtomicBool::new(false),
            written: AtomicU64::new(0),
            unresolved: Mutex::default(),
            reclaimed: Mutex::default(),
        }
    }

    /// The shard of a digest. Shards in order hold digests in order.
    pub(crate) fn shard(&self, digest: &Digest) -> &Mutex<Shard> {
        &self.shards[share_of(digest)]
    }

    /// Asks the disk.
    fn disk<T>(&self, question: impl FnOnce(&dyn Disk) -> Result<T, DiskError>) -> Result<T, StoreError> {
        match &*self.disk.read() {
            Some(disk) => question(&**disk).map_err(|e| StoreError::new(Did::Nothing, StoreErrorKind::Unavailable, e)),
            None => Err(Stopped::Closed.error(Did::Nothing)),
        }
    }

    /// What settlements wait for.
    const fn settled(&self) -> Need {
        match self.durability {
            Power::Power => Need::Synced,
            Power::Process => Need::Written,
        }
    }

    pub(crate) fn now(&self) -> StoreTime {
        self.clock.now()
    }

    pub(crate) fn count_written(&self, changes: usize) {
        self.written.fetch_add(changes as u64, Ordering::Relaxed);
    }

    /// The disk has change `number` of a digest: memory need not keep it for reading.
    pub(crate) fn persisted(&self, digest: &Digest, number: u64) {
        self.shard(digest).lock().persisted(digest, number);
    }

    /// No more writes, and why.
    pub(crate) fn fail(&self, why: &str) {
        let dir = self.dir.display();
        tracing::error!(%dir, why, "the store takes no more writes; what it has is still answered");
        let why = format!("{why} ({dir}); see to the disk, then restart: replays go on meanwhile");
        self.queue.fail(&why);
    }
}

#[cfg(test)]
mod tests;
