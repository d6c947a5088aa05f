//! From a directory to a store.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::Arc,
};

use semel_core::{
    StoreTime,
    env::{Env, LocalStoreClock},
    record::Record,
};

use crate::{
    EmbeddedStore, OpenError, Options,
    directory::Directory,
    disk::{Digest, Disk, DiskError, Mark, Tables, is_flight},
    log,
    space::Space,
    store::Shared,
};

impl EmbeddedStore {
    /// Opens the store in `dir`, or makes one there. Blocks: it reads the journals (at most 128 MiB) and the records in
    /// flight, never the settled ones.
    ///
    /// Every record that was in flight when the directory was last used has its lease end now.
    ///
    /// # Errors
    /// [`OpenError`] says what, where, why and what to do. A second process on the directory gets
    /// [`OpenError::InUse`].
    pub fn open(dir: &Path, env: &Env, options: &Options) -> Result<Self, OpenError> {
        let directory = Directory::take(dir)?;
        let has_tables = directory.has_tables()?;
        // Before the tables, so that there are never tables without the secret that their records were made with.
        let secret = match &options.secret {
            Some(_) => None,
            None => Some(directory.secret(&*env.rng, !has_tables)?),
        };
        let tables = directory.tables();
        if !has_tables {
            Tables::create(&directory.unfinished_tables()?)?;
            directory.finish_tables()?;
        }
        if let Some(secret) = secret.as_ref().or(options.secret.as_ref()) {
            directory.prove(secret)?;
        }
        let damaged = |why: String| OpenError::Damaged { path: tables.clone(), why };
        // Damage that no checksum shows can make the reader of the tables panic.
        let disk = catch_unwind(AssertUnwindSafe(|| Tables::open(&tables)))
            .map_err(|_| damaged("reading it panicked".to_owned()))??;
        let read = |e: DiskError| damaged(e.to_string());
        let mark = disk.mark().map_err(read)?.unwrap_or_default();
        let flights = disk.all_in_flight().map_err(read)?;
        let space = Space::watch(directory.path(), directory.reserve(), options, Arc::clone(&env.clock));
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let shared = Shared::new(directory.path(), Arc::clone(&disk), space, options, store_clock(env, mark));
        shared.load(flights.into_iter().map(|(digest, bytes)| (digest, Record::decode(&bytes))), mark);
        Self::start(shared, disk, mark, Some(directory), secret)
    }

    /// Starts the writer. The directory is held as long as the store.
    pub(crate) fn start(
        shared: Shared,
        disk: Arc<dyn Disk>,
        mark: Mark,
        directory: Option<Directory>,
        secret: Option<semel_core::identity::Secret>,
    ) -> Result<Self, OpenError> {
        shared.space.look(disk.size());
        let shared = Arc::new(shared);
        let path = directory.as_ref().map_or_else(Default::default, |d| d.path().to_owned());
        let writer = std::thread::Builder::new()
            .name("semel-embedded".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || log::run(&shared, &*disk, mark)
            })
            .map_err(OpenError::io("starting the writer of", path))?;
        Ok(Self::running(shared, writer, directory, secret))
    }
}

/// Boot time from here on, starting at the wall clock or where the store was already.
pub(crate) fn store_clock(env: &Env, mark: Mark) -> LocalStoreClock {
    LocalStoreClock::new(Arc::clone(&env.clock), mark.time)
}

impl Shared {
    /// Takes the records in flight into memory. Nobody holds them any more: their leases are over.
    pub(crate) fn load(&self, flights: impl Iterator<Item = (Digest, Record)>, mark: Mark) {
        let now: StoreTime = self.clock.now();
        for (digest, record) in flights {
            let lease_until = if is_flight(&record) { now } else { record.lease_until };
            self.shard(&digest).lock().load_flight(&digest, Record { lease_until, ..record });
        }
        self.count_written(&[], mark);
    }
}
