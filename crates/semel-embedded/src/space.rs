//! Free space, and the reserve that lets running work settle when there is none.
//!
//! After a write that failed nothing is written any more. So the disk must not become full under the store: claims are
//! refused while there is still room for everything that runs to settle.
//!
//! ```text
//! roomy    claims are taken
//!   │ less than the headroom is free
//! tight    claims are refused; settlements still have the headroom, then the reserve
//!   │ less than a quarter of it is free: something else fills the disk
//! spent    the reserve is given up, settlements go on without large bodies
//! ```
//!
//! Back to roomy when the headroom and a little more is free, with the reserve taken again first. Where less than one and a
//! half of it is free, what has ended is given back at once, and not when somebody purges: see [`is_pressed`](Space::is_pressed).

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use semel_core::env::{Clock, Tick};

use crate::Options;

/// How much room there is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum Room {
    /// Enough.
    Roomy = 0,
    /// For settlements only.
    Tight = 1,
    /// For settlements without large bodies, out of the reserve.
    Spent = 2,
}

/// Watches the file system that the store is on.
pub(crate) struct Space {
    dir: PathBuf,
    /// Device and number of the directory, while it was looked for and found.
    home: Option<(u64, u64)>,
    is_gone: AtomicBool,
    reserve: Option<Reserve>,
    headroom: u64,
    every: Duration,
    clock: Arc<dyn Clock>,
    room: AtomicU8,
    pressed: AtomicBool,
    spare: AtomicU64,
    last: Mutex<Looked>,
}

#[derive(Default)]
struct Looked {
    at: Option<Tick>,
    /// Written since.
    written: u64,
}

impl Space {
    /// Looks at the file system for the first time, and takes the reserve if there is room for it.
    pub(crate) fn watch(dir: &Path, reserve: PathBuf, options: &Options, clock: Arc<dyn Clock>) -> Self {
        let reserve = (options.reserve > 0).then_some(Reserve { path: reserve, len: options.reserve });
        Self {
            dir: dir.to_owned(),
            home: place(dir).ok(),
            is_gone: AtomicBool::new(false),
            reserve,
            headroom: options.headroom,
            every: options.space_check,
            clock,
            room: AtomicU8::new(Room::Roomy as u8),
            pressed: AtomicBool::new(false),
            spare: AtomicU64::new(u64::MAX),
            last: Mutex::default(),
        }
    }

    /// The local clock.
    pub(crate) fn ticks(&self) -> Tick {
        self.clock.now()
    }

    /// As of the last look.
    pub(crate) fn room(&self) -> Room {
        match self.room.load(Ordering::Relaxed) {
            0 => Room::Roomy,
            1 => Room::Tight,
            _ => Room::Spent,
        }
    }

    /// As of the last look, whether room is short, or soon will be.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    /// As of the last look, how many bytes may be written to make room: what running work may need is left alone, and of
    /// what was the reserve three quarters.
    pub(crate) fn spare(&self) -> u64 {
        self.spare.load(Ordering::Relaxed)
    }

    /// How often it is looked at, at most.
    pub(crate) const fn every(&self) -> Duration {
        self.every
    }

    /// As of the last look, whether another directory, or none, is where the store's was: moved, deleted, or mounted over.
    /// What is written still reaches its files, but who opens the path next does not find it.
    pub(crate) fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Relaxed)
    }

    /// Whether it is time to look again.
    pub(crate) fn is_stale(&self) -> bool {
        let last = self.last.lock();
        last.at.is_none_or(|at| self.clock.now().since(at) >= self.every) || last.written > self.headroom / 8
    }

    /// Counts what is about to be written, and looks where that is due. Only the writer calls this.
    pub(crate) fn before_write(&self, bytes: u64) {
        self.last.lock().written += bytes;
        if self.is_stale() || self.is_short(bytes) {
            self.see(true);
        }
    }

    /// Whether the room of the last look is gone: others fill a disk in less time than lies between two looks, and the
    /// first write that fails is the last one. One system call.
    fn is_short(&self, bytes: u64) -> bool {
        self.room() != Room::Spent && free(&self.dir).is_ok_and(|free| free < self.headroom / 4 + bytes)
    }

    /// Looks, and takes the reserve where there is room again.
    pub(crate) fn look(&self) {
        self.see(false);
    }

    fn see(&self, writing: bool) {
        *self.last.lock() = Looked { at: Some(self.clock.now()), written: 0 };
        if let Some(home) = self.home
            && place(&self.dir).map_or_else(|e| e.kind() == io::ErrorKind::NotFound, |found| found != home)
        {
            self.is_gone.store(true, Ordering::Relaxed);
            return;
        }
        let free = match free(&self.dir) {
            Ok(free) => free,
            Err(e) => {
                tracing::warn!(dir = %self.dir.display(), error = %e, "cannot tell how much space is free");
                return;
            }
        };
        let (before, wanted) = (self.room(), self.headroom);
        let after = self.judge(before, free, wanted, writing);
        if before != after {
            let dir = self.dir.display();
            tracing::warn!(%dir, free, wanted, ?before, ?after, "room on the store's file system");
        }
        self.room.store(after as u8, Ordering::Relaxed);
        let pressed = after != Room::Roomy || free < wanted.saturating_add(wanted / 2);
        self.pressed.store(pressed, Ordering::Relaxed);
        let spare = if after == Room::Spent { free / 4 } else { free.saturating_sub(wanted / 4) };
        self.spare.store(spare, Ordering::Relaxed);
    }

    fn judge(&self, before: Room, free: u64, wanted: u64, writing: bool) -> Room {
        let missing = self.reserve.as_ref().map_or(0, Reserve::missing);
        // A little more than it takes to become tight, so that it does not flap.
        let enough = if before == Room::Roomy { wanted } else { wanted + wanted / 8 };
        if free >= enough.saturating_add(missing) {
            return if missing == 0 || self.take() { Room::Roomy } else { Room::Tight };
        }
        // It is given up for what is about to be written, not for whoever fills the disk.
        if free >= wanted / 4 || !writing {
            // Given up, it stays so until there is room to take it again.
            return if before == Room::Spent { Room::Spent } else { Room::Tight };
        }
        if let Some(reserve) = &self.reserve
            && let Err(e) = reserve.give_up()
        {
            tracing::error!(path = %reserve.path.display(), error = %e, "cannot give up the reserve");
        }
        Room::Spent
    }

    fn take(&self) -> bool {
        let Some(reserve) = &self.reserve else { return true };
        match reserve.take() {
            Ok(()) => true,
            Err(e) => {
                tracing::warn!(path = %reserve.path.display(), error = %e, "cannot take the reserve");
                false
            }
        }
    }
}

/// A file of blocks that nobody needs, until somebody does.
struct Reserve {
    path: PathBuf,
    len: u64,
}

impl Reserve {
    /// How much of it has to be allocated yet.
    fn missing(&self) -> u64 {
        let held = std::fs::metadata(&self.path).map_or(0, |m| m.len());
        self.len.saturating_sub(held)
    }

    fn take(&self) -> io::Result<()> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&self.path)?;
        let taken = match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, self.len) {
            Err(rustix::io::Errno::OPNOTSUPP) => fill(&file, self.len),
            other => other.map_err(io::Error::from),
        };
        if taken.is_err() {
            file.set_len(0)?;
        }
        taken
    }

    fn give_up(&self) -> io::Result<()> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&self.path).map(drop)
    }
}

/// Blocks by writing them, where the file system cannot allocate otherwise.
fn fill(mut file: &File, len: u64) -> io::Result<()> {
    let page = vec![0_u8; 1 << 20];
    let mut left = len;
    while left > 0 {
        let n = usize::try_from(left).map_or(page.len(), |l| l.min(page.len()));
        file.write_all(&page[..n])?;
        left -= n as u64;
    }
    file.sync_all()
}

fn place(dir: &Path) -> io::Result<(u64, u64)> {
    std::fs::metadata(dir).map(|m| (m.dev(), m.ino()))
}

fn free(dir: &Path) -> io::Result<u64> {
    let fs = rustix::fs::statvfs(dir)?;
    Ok(fs.f_bavail.saturating_mul(fs.f_frsize))
}
