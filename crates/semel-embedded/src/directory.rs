//! The directory around the journal: who has it, which format it is in, its own secret.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use semel_core::{
    env::{Clock, Rng},
    identity::Secret,
};

use crate::{
    OpenError, audit,
    disk::{Loss, Manifest},
};

/// The version of the directory's format.
pub(crate) const VERSION: u32 = 3;

const NAME: &str = "semel-embedded";
const LOCK: &str = "lock";
const VERSION_FILE: &str = "version";
const SECRET: &str = "secret";
const MANIFEST: &str = "manifest";
/// What a person makes who goes on without a lost part of the journal.
pub(crate) const ACCEPT: &str = "accept-loss";
pub(crate) const RESERVE: &str = "reserve";
const JOURNAL: &str = "journal";
/// A journal that was being made when a first start was interrupted. Nothing was ever answered from it, unless the manifest
/// beside it says so.
const UNFINISHED: &str = "journal.new";

const LOCK_TRIES: u32 = 5;
const LOCK_PAUSE: Duration = Duration::from_millis(40);

/// A directory that is this process's until the value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    lock: File,
}

impl Drop for Directory {
    fn drop(&mut self) {
        // Closing alone is not enough: a child that some thread is just starting has the descriptor until it executes.
        if let Err(e) = self.lock.unlock() {
            tracing::warn!(dir = %self.path.display(), error = %e, "cannot unlock the directory; the end of the process will");
        }
    }
}

impl Directory {
    /// Takes the directory, makes it if need be, and checks its format.
    pub(crate) fn take(path: &Path) -> Result<Self, OpenError> {
        let io = |doing| OpenError::io(doing, path);
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(io("creating the directory"))?;
        let path = path.canonicalize().map_err(io("resolving"))?;
        // A stranger's directory gets no lock file.
        let version = path.join(VERSION_FILE);
        let known = version.try_exists().map_err(OpenError::io("looking for", &version))?;
        if !known {
            refuse_strangers(&path)?;
        }
        let lock = take_lock(&path)?;
        let dir = Self { path, lock };
        dir.check_version()?;
        Ok(dir)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn journal(&self) -> PathBuf {
        self.path.join(JOURNAL)
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.path.join(RESERVE)
    }

    /// Where a new journal is made before [`finish_journal`](Self::finish_journal) puts it in place; nothing is there.
    pub(crate) fn unfinished_journal(&self) -> Result<PathBuf, OpenError> {
        let path = self.path.join(UNFINISHED);
        if path.try_exists().map_err(OpenError::io("looking for", &path))? {
            fs::remove_dir_all(&path).map_err(OpenError::io("removing", &path))?;
        }
        Ok(path)
    }

    /// Puts the new journal in place, under a manifest of its own. In this order: a manifest without a journal, finished or
    /// not, is one whose journal was lost.
    pub(crate) fn finish_journal(&self, key: [u8; 32], proof: [u8; 32]) -> Result<(), OpenError> {
        sync_dir(&self.path)?;
        Manifest::create(&self.path.join(MANIFEST), key, proof)?;
        let from = self.path.join(UNFINISHED);
        fs::rename(&from, self.journal()).map_err(OpenError::io("renaming", &from))?;
        sync_dir(&self.path)
    }

    /// Whether there is a journal. Where there is a manifest there was one, and an empty store in its place would run
    /// everything again: an unfinished one is begun anew only where nothing was ever answered, or where a person accepts
    /// the loss. Without a manifest nobody knows whether a journal is whole, or whether this is its secret.
    pub(crate) fn has_journal(&self, clock: &dyn Clock) -> Result<bool, OpenError> {
        let (journal, manifest) = (self.journal(), self.path.join(MANIFEST));
        let damaged = |path, why: &str| Err(OpenError::Damaged { path, why: why.to_owned() });
        match (exists(&journal)?, exists(&manifest)?) {
            (true, false) => damaged(manifest, "it is missing (that of any backup of this directory fits)"),
            (false, true) if !exists(&self.path.join(UNFINISHED))? => damaged(journal, "it is missing"),
            (false, true) => match Loss::of_all(&journal, &Manifest::open(manifest)?) {
                Some(loss) if !self.accepts(&loss, clock)? => Err(loss.refused(self.path.join(ACCEPT))),
                _ => Ok(false),
            },
            (there, _) => Ok(there),
        }
    }

    /// The manifest of the journal, whose records were made with the secret that `proof` is a digest of: under another one
    /// nothing would be found, and everything would run again.
    pub(crate) fn manifest(&self, proof: &[u8; 32]) -> Result<Manifest, OpenError> {
        let manifest = Manifest::open(self.path.join(MANIFEST))?;
        if manifest.proves(proof) { Ok(manifest) } else { Err(OpenError::OtherSecret { dir: self.path.clone() }) }
    }

    /// Whether a person has said in so many words that the store goes on without this. It is in the audit before it does.
    pub(crate) fn accepts(&self, loss: &Loss, clock: &dyn Clock) -> Result<bool, OpenError> {
        let path = self.path.join(ACCEPT);
        let (words, why) = (loss.words(), loss.why());
        let mut said = String::new();
        let uid = match File::open(&path).and_then(|mut f| f.read_to_string(&mut said).and_then(|_| f.metadata())) {
            Ok(file) if said.trim() == words => file.uid(),
            Ok(_) => return Ok(false),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => return Ok(false),
            Err(e) => return Err(OpenError::io("reading", path)(e)),
        };
        let at = audit::time(clock.wall());
        let line = format!(
            r#"{{"at":"{at}","by":"uid {uid}","action":"accept-loss","reason":"what came {words} is lost: {why}","result":"done"}}"#
        );
        audit::append(&self.path, &line).map_err(OpenError::io("recording a loss in the audit of", &self.path))?;
        tracing::warn!(dir = %self.path.display(), why, "going on without a part of the journal that was lost: requests in it can run again");
        Ok(true)
    }

    /// Takes away what accepted a loss: it is for one time.
    pub(crate) fn end_acceptance(&self) -> Result<(), OpenError> {
        let path = self.path.join(ACCEPT);
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&self.path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(OpenError::io("removing", path)(e)),
        }
    }

    /// The directory's own secret. `may_make`: there are no records yet. A new secret for old records would find none of
    /// them, and run everything again.
    pub(crate) fn secret(&self, rng: &dyn Rng, may_make: bool) -> Result<Secret, OpenError> {
        let path = self.path.join(SECRET);
        if !exists(&path)? {
            if !may_make {
                let why = "it is missing, and no secret is configured that the records were made with".to_owned();
                return Err(OpenError::Damaged { path, why });
            }
            let mut bytes = [0; 32];
            rng.fill(&mut bytes);
            put_file(&path, const_hex::encode(bytes).as_bytes())?;
        }
        let material = fs::read(&path).map_err(OpenError::io("reading", &path))?;
        Secret::from_material(&material).map_err(|e| OpenError::Damaged { path, why: e.to_string() })
    }

    fn check_version(&self) -> Result<(), OpenError> {
        let path = self.path.join(VERSION_FILE);
        let ours = format!("{NAME} {VERSION}\n");
        match fs::read_to_string(&path) {
            Ok(text) if text == ours => Ok(()),
            Ok(text) => {
                let found = text.trim().chars().take(80).collect();
                Err(OpenError::Version { dir: self.path.clone(), found, known: VERSION })
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => put_file(&path, ours.as_bytes()),
            Err(e) => Err(OpenError::io("reading", path)(e)),
        }
    }
}

fn exists(path: &Path) -> Result<bool, OpenError> {
    path.try_exists().map_err(OpenError::io("looking for", path))
}

fn refuse_strangers(dir: &Path) -> Result<(), OpenError> {
    for entry in fs::read_dir(dir).map_err(OpenError::io("reading", dir))? {
        let name = entry.map_err(OpenError::io("reading", dir))?.file_name();
        let name = name.to_string_lossy();
        // What an interrupted first start leaves, and what a file system puts there by itself.
        if name != LOCK && name != "lost+found" && !name.ends_with(".tmp") {
            return Err(OpenError::NotAStore { dir: dir.to_owned(), found: name.into_owned() });
        }
    }
    Ok(())
}

/// The lock ends with the file descriptor, so with the process however it ends; the file itself stays.
fn take_lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join(LOCK);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(OpenError::io("opening", &path))?;
    let mut tries = 0;
    while let Err(e) = file.try_lock() {
        tries += 1;
        match e {
            // A process that was killed a moment ago may not be gone altogether.
            TryLockError::WouldBlock if tries < LOCK_TRIES => std::thread::park_timeout(LOCK_PAUSE),
            TryLockError::WouldBlock => {
                let mut text = String::new();
                let process = file.read_to_string(&mut text).ok().and_then(|_| text.trim().parse().ok());
                return Err(OpenError::InUse { dir: dir.to_owned(), process });
            }
            TryLockError::Error(e) => return Err(OpenError::io("locking", path)(e)),
        }
    }
    // For people and for the other process's error; nothing depends on it, so a full disk is no reason to refuse.
    if file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).is_err() {
        tracing::warn!(path = %path.display(), "could not write the process id into the lock file");
    }
    Ok(file)
}

/// Writes a small file whole or not at all.
pub(crate) fn put_file(path: &Path, bytes: &[u8]) -> Result<(), OpenError> {
    let temporary = path.with_extension("tmp");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, path)
    };
    write().map_err(OpenError::io("writing", path))?;
    sync_dir(path.parent().unwrap_or(path))
}

fn sync_dir(dir: &Path) -> Result<(), OpenError> {
    File::open(dir).and_then(|d| d.sync_all()).map_err(OpenError::io("syncing", dir))
}
