//! What is known of a journal beside the journal: what keys its sums, which secret its records were made with, and how far
//! it was synced. A journal that ends earlier than that has lost something; what follows is a batch that a crash cut short.
//!
//! ```text
//! begin a segment    note, synced before a batch of it is answered
//! sync a batch       note: the operating system has it before the batch is answered, whatever becomes of the process
//! a second later     synced, by the tidier: what a power cut leaves
//! close              synced
//! ```
//!
//! A note never says more than the disk has: it is written when the batch is synced. So a genuine crash is never taken for a
//! loss, whichever of the notes it leaves.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use super::layout::{ManifestHead, Reached, Seal};
use crate::{OpenError, directory::put_file};

/// Where the two notes stand, which are written in turn: each in a block of its own, so that a write that the power cuts
/// short leaves the other.
const NOTES: [u64; 2] = [4_096, 8_192];
const LEN: usize = 3 * 4_096;

pub(crate) struct Manifest {
    head: ManifestHead,
    file: File,
    state: Mutex<State>,
}

struct State {
    count: u64,
    reached: Reached,
    unsynced: bool,
}

impl Manifest {
    /// Makes the manifest of a new journal, whole and synced. `key` is random, and nobody knows it who cannot read the
    /// directory.
    pub(crate) fn create(path: &Path, key: [u8; 32], proof: [u8; 32]) -> Result<(), OpenError> {
        let mut bytes = vec![0; LEN];
        let head = ManifestHead { key: Seal::new(key), proof }.encode();
        bytes[..head.len()].copy_from_slice(&head);
        for (count, at) in (1..).zip(NOTES) {
            let note = Reached::NOTHING.encode(count);
            let at = usize::try_from(at).unwrap_or(LEN);
            bytes[at..at + note.len()].copy_from_slice(&note);
        }
        put_file(path, &bytes)
    }

    pub(crate) fn open(path: PathBuf) -> Result<Self, OpenError> {
        let file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(OpenError::io("opening", path.clone()))?;
        let mut bytes = vec![0; LEN];
        if let Err(e) = file.read_exact_at(&mut bytes, 0) {
            return match e.kind() {
                io::ErrorKind::UnexpectedEof => Err(OpenError::Damaged { path, why: "it is too short".to_owned() }),
                _ => Err(OpenError::io("reading", path)(e)),
            };
        }
        let notes = NOTES.map(|at| Reached::decode(&bytes[usize::try_from(at).unwrap_or(LEN)..]));
        let newest = notes.into_iter().flatten().max_by_key(|(count, _)| *count);
        match ManifestHead::decode(&bytes).zip(newest) {
            Some((head, (count, reached))) => {
                Ok(Self { head, file, state: Mutex::new(State { count, reached, unsynced: false }) })
            }
            None => Err(OpenError::Damaged { path, why: "it is no manifest".to_owned() }),
        }
    }

    /// Whether the records were made with the secret that this is a digest of.
    pub(crate) fn proves(&self, proof: &[u8; 32]) -> bool {
        self.head.proof == *proof
    }

    pub(super) const fn seal(&self) -> &Seal {
        &self.head.key
    }

    /// As the last note says.
    pub(super) fn reached(&self) -> Reached {
        self.state.lock().reached
    }

    /// Notes how far the journal is synced. One small write into a block that is there. Says whether it is the first one
    /// since [`sync`](Self::sync).
    pub(super) fn note(&self, reached: Reached) -> io::Result<bool> {
        let mut state = self.state.lock();
        state.count += 1;
        let at = NOTES[usize::from(state.count.is_multiple_of(2))];
        self.file.write_all_at(&reached.encode(state.count), at)?;
        state.reached = reached;
        Ok(!std::mem::replace(&mut state.unsynced, true))
    }

    pub(super) fn is_unsynced(&self) -> bool {
        self.state.lock().unsynced
    }

    /// Makes what is noted survive a power cut.
    pub(super) fn sync(&self) -> io::Result<()> {
        // Before: what is noted during the sync may not be in it.
        if std::mem::take(&mut self.state.lock().unsynced) { self.file.sync_data() } else { Ok(()) }
    }
}
