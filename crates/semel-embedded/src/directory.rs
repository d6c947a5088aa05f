//! The directory around the journal: who has it, which format it is in, its own secret.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use semel_core::{
    env::Rng,
    identity::{Purpose, Secret},
};

use crate::OpenError;

/// The version of the directory's format.
pub(crate) const VERSION: u32 = 2;

const NAME: &str = "semel-embedded";
const LOCK: &str = "lock";
const VERSION_FILE: &str = "version";
const SECRET: &str = "secret";
const PROOF: &str = "secret-proof";
const RESERVE: &str = "reserve";
const JOURNAL: &str = "journal";
/// A journal that was being made when a first start was interrupted. Nothing was ever answered from it.
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

    pub(crate) fn finish_journal(&self) -> Result<(), OpenError> {
        let from = self.path.join(UNFINISHED);
        fs::rename(&from, self.journal()).map_err(OpenError::io("renaming", &from))?;
        sync_dir(&self.path)
    }

    /// Whether there is a journal. Where a secret was proved there was one, and an empty store in its place would run
    /// everything again.
    pub(crate) fn has_journal(&self) -> Result<bool, OpenError> {
        let (journal, proof) = (self.journal(), self.path.join(PROOF));
        let there = exists(&journal)?;
        if !there && exists(&proof)? {
            return Err(OpenError::Damaged { path: journal, why: "it is missing".to_owned() });
        }
        Ok(there)
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
            let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
            put_file(&path, hex.as_bytes())?;
        }
        let material = fs::read(&path).map_err(OpenError::io("reading", &path))?;
        Secret::from_material(&material).map_err(|e| OpenError::Damaged { path, why: e.to_string() })
    }

    /// Checks that `secret` is the one that the records were made with: under another nothing is found, and everything runs
    /// again. Called when the journal is there; what it was made with is written down the first time.
    pub(crate) fn prove(&self, secret: &Secret) -> Result<(), OpenError> {
        let path = self.path.join(PROOF);
        let proof: String = secret.digest(Purpose::Proof, &[]).as_bytes().iter().map(|b| format!("{b:02x}")).collect();
        match fs::read(&path) {
            Ok(found) if found == proof.as_bytes() => Ok(()),
            Ok(_) => Err(OpenError::OtherSecret { dir: self.path.clone() }),
            Err(e) if e.kind() == io::ErrorKind::NotFound => put_file(&path, proof.as_bytes()),
            Err(e) => Err(OpenError::io("reading", path)(e)),
        }
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
fn put_file(path: &Path, bytes: &[u8]) -> Result<(), OpenError> {
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
