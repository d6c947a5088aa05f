//! From a directory to a store.

use std::{path::Path, sync::Arc};

use semel_core::{
    StoreTime,
    env::{Env, LocalStoreClock},
    identity::Purpose,
    record::Record,
};

use crate::{
    EmbeddedStore, OpenError, Options,
    directory::Directory,
    disk::{Digest, Disk, Journal, Loss, Mark, Opened, is_flight},
    log,
    space::Space,
    store::Shared,
};

impl EmbeddedStore {
    /// Opens the store in `dir`, or makes one there. Blocks: it reads the newest segment of the journal (at most 64 MiB),
    /// 40 bytes for each record in the others, and the records in flight; never the settled ones.
    ///
    /// Every record that was in flight when the directory was last used has its lease end now.
    ///
    /// # Errors
    /// [`OpenError`] says what, where, why and what to do. A second process on the directory gets
    /// [`OpenError::InUse`].
    pub fn open(dir: &Path, env: &Env, options: &Options) -> Result<Self, OpenError> {
        let directory = Directory::take(dir)?;
        let has_journal = directory.has_journal(&*env.clock)?;
        // Before the journal, so that there is never one without the secret that its records were made with.
        let secret = match &options.secret {
            Some(configured) => configured.clone(),
            None => directory.secret(&*env.rng, !has_journal)?,
        };
        let proof = *secret.digest(Purpose::Proof, &[]).as_bytes();
        if !has_journal {
            let mut key = [0; 32];
            env.rng.fill(&mut key);
            Journal::create(&directory.unfinished_journal()?, key)?;
            directory.finish_journal(key, proof)?;
        }
        let accepts = |loss: &Loss| directory.accepts(loss, &*env.clock);
        let manifest = directory.manifest(&proof)?;
        let (journal, Opened { mark, unresolved }) =
            Journal::open(&directory.journal(), manifest, options.segment, &accepts)?;
        directory.end_acceptance()?;
        let space = Space::watch(directory.path(), directory.reserve(), options, Arc::clone(&env.clock));
        let disk: Arc<dyn Disk> = Arc::new(journal);
        let shared = Shared::new(directory.path(), Arc::clone(&disk), space, options, store_clock(env, mark));
        shared.take_in(unresolved.into_iter().map(|(digest, bytes)| (digest, Record::decode(&bytes))));
        Self::start(shared, disk, mark, Some(directory), options.secret.is_none().then_some(secret))
    }

    /// Starts the writer. The directory is held as long as the store.
    pub(crate) fn start(
        shared: Shared,
        disk: Arc<dyn Disk>,
        mark: Mark,
        directory: Option<Directory>,
        secret: Option<semel_core::identity::Secret>,
    ) -> Result<Self, OpenError> {
        shared.space.look();
        let (shared, told) = (Arc::new(shared), Arc::clone(&disk));
        let path = directory.as_ref().map_or_else(Default::default, |d| d.path().to_owned());
        let writer = std::thread::Builder::new()
            .name("semel-embedded".to_owned())
            .spawn({
                let shared = Arc::clone(&shared);
                move || log::run(&shared, &*disk, mark)
            })
            .map_err(OpenError::io("starting the writer of", path))?;
        // The store, which is there from here on, ends the disk before the last of these is dropped.
        let writers = Arc::downgrade(&shared);
        told.tell(Box::new(move || writers.upgrade().into_iter().for_each(|shared| shared.queue.nudge())));
        // For what was not told before.
        shared.queue.nudge();
        Ok(Self::running(shared, writer, directory, secret))
    }
}

/// Boot time from here on, starting at the wall clock or where the store was already.
pub(crate) fn store_clock(env: &Env, mark: Mark) -> LocalStoreClock {
    LocalStoreClock::new(Arc::clone(&env.clock), mark.time)
}

impl Shared {
    /// Takes what is unresolved into memory. Nobody holds what is in flight any more: its leases are over.
    pub(crate) fn take_in(&self, unresolved: impl Iterator<Item = (Digest, Record)>) {
        let now: StoreTime = self.clock.now();
        for (digest, record) in unresolved {
            let lease_until = if is_flight(&record) { now } else { record.lease_until };
            self.shard(&digest).lock().load(&digest, Record { lease_until, ..record });
        }
    }
}
