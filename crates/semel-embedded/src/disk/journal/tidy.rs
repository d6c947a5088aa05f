//! What a journal does beside the writing, in a thread of its own: it summarises full segments, gives up those that hold
//! nothing, and has copied to the end what an old one still holds.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use super::{
    Inner,
    layout::{Note, Noted},
    segment::Segment,
};

/// How many segments more than twice what counts may lie around, unless room is short.
pub(super) const SLACK: u64 = 4;

/// Which part of a segment has to be worth nothing for the newest one to be left, and how many bytes of it: always more than
/// a segment is begun with, so that leaving one comes to an end.
const LEFT_FROM: u64 = 8;
const LEFT_FROM_BYTES: u64 = 16 << 10;

/// How long after the first note that a power cut would take the notes are synced, about.
const NOTES_SYNCED_WITHIN: Duration = Duration::from_secs(1);

/// For how many batches the oldest segment is read at once, to be copied to the end.
const READ_AHEAD: usize = 4;

/// An entry on its way to the end, unless it is overruled before.
pub(super) struct Move {
    pub(super) note: Note,
    pub(super) entry: Vec<u8>,
}

/// What the writer and the tidier tell each other.
#[derive(Default)]
pub(super) struct Tidying {
    state: Mutex<State>,
    changed: Condvar,
    news: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct State {
    stop: bool,
    wake: bool,
    /// Segments below this are not needed, and a synced batch says so.
    free_below: u32,
    /// How much may be copied to the end; `None` for any amount.
    spare: Option<u64>,
    is_short: bool,
    moves: VecDeque<Move>,
    /// The segment that is being emptied, and its notes that were not looked at.
    emptying: Option<(u32, std::vec::IntoIter<Note>)>,
}

impl Tidying {
    pub(super) fn wake(&self) {
        self.state.lock().wake = true;
        self.changed.notify_one();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_one();
    }

    /// See [`Disk::tell`](crate::disk::Disk::tell). Only the first one is.
    pub(super) fn tell(&self, news: Box<dyn Fn() + Send + Sync>) {
        let _ = self.news.set(news);
    }

    /// See [`Disk::room`](crate::disk::Disk::room).
    pub(super) fn room(&self, spare: u64, is_short: bool) {
        let mut state = self.state.lock();
        state.spare = Some(spare);
        if is_short && !state.is_short {
            // More is wasteful now.
            state.wake = true;
            self.changed.notify_one();
        }
        state.is_short = is_short;
    }

    /// About `bytes` of what moves. When the last of it is taken, the tidier sees to more.
    pub(super) fn take_moves(&self, bytes: usize) -> Vec<Move> {
        let mut state = self.state.lock();
        let mut taken = 0;
        let mut moves = Vec::new();
        while taken < bytes
            && let Some(next) = state.moves.pop_front()
        {
            taken += next.entry.len();
            moves.push(next);
        }
        if state.moves.is_empty() {
            state.wake = true;
            self.changed.notify_one();
        }
        moves
    }
}

impl Inner {
    /// Whether something is ready to move to the end, and there is room for all that has to before its segment goes.
    pub(super) fn has_moves(&self) -> bool {
        let oldest = self.segments.read().first_key_value().map_or(0, |(_, s)| s.live());
        let state = self.tidying.state.lock();
        !state.moves.is_empty() && state.spare.is_none_or(|spare| oldest <= spare)
    }

    /// Whether the newest segment is left before it is full, so that it can be given up: room is short, and most of it is
    /// worth nothing. Not while older ones are to be given up, which may be enough. What it takes, a summary, zeros and the
    /// copy of what lives on, has to fit.
    pub(super) fn leaves(&self, newest: &Segment) -> bool {
        let (len, live) = (newest.len(), newest.live());
        if len < 2 * live + (self.sizes.segment / LEFT_FROM).max(LEFT_FROM_BYTES) {
            return false;
        }
        let older: Vec<_> = self.segments.read().range(..newest.number).map(|(_, s)| Arc::clone(s)).collect();
        if self.is_wasteful(&older) {
            return false;
        }
        let takes = self.sizes.ahead + newest.summary_len() + live;
        let state = self.tidying.state.lock();
        state.is_short && state.spare.is_some_and(|spare| takes <= spare)
    }

    /// How far zeros are written ahead, now.
    pub(super) fn ahead(&self) -> u64 {
        let state = self.tidying.state.lock();
        match state.spare {
            Some(spare) if state.is_short => self.sizes.ahead.min(spare / 4),
            _ => self.sizes.ahead,
        }
    }

    /// No segment below `oldest` is needed any more, and that is synced.
    pub(super) fn free_below(&self, oldest: u32) {
        let mut state = self.tidying.state.lock();
        if state.free_below < oldest {
            state.free_below = oldest;
            state.wake = true;
            self.tidying.changed.notify_one();
        }
    }

    /// Has the tidier sync the manifest, which was just written to, within a second or so.
    pub(super) fn sync_manifest_soon(&self) {
        // The tidier looks at the manifest under this lock before it sleeps.
        drop(self.tidying.state.lock());
        self.tidying.changed.notify_one();
    }

    pub(super) fn sync_manifest(&self) {
        if let Err(e) = self.manifest.sync() {
            tracing::error!(dir = %self.dir.display(), error = %e,
                "syncing the manifest failed: what a power cut loses at the end of the journal may go unnoticed");
        }
    }

    /// Tidies up whenever there may be something to do, until it is told to stop.
    pub(super) fn keep_tidy(&self) {
        loop {
            let mut state = self.tidying.state.lock();
            while !state.wake && !state.stop {
                if !self.manifest.is_unsynced() {
                    self.tidying.changed.wait(&mut state);
                } else if self.tidying.changed.wait_for(&mut state, NOTES_SYNCED_WITHIN).timed_out() {
                    break;
                }
            }
            if state.stop {
                return;
            }
            let woken = std::mem::take(&mut state.wake);
            drop(state);
            self.sync_manifest();
            if woken && let Err(e) = self.tidy() {
                tracing::warn!(dir = %self.dir.display(), error = %e, "tidying up the journal failed; it only takes more room");
            }
        }
    }

    pub(super) fn tidy(&self) -> io::Result<()> {
        let gave_up = self.give_up();
        let tidied = gave_up.as_ref().map_or(Ok(()), |_| self.tidy_up());
        if (matches!(gave_up, Ok(true)) || self.has_moves())
            && let Some(news) = self.tidying.news.get()
        {
            news();
        }
        gave_up.and(tidied)
    }

    fn tidy_up(&self) -> io::Result<()> {
        let segments: Vec<_> = self.segments.read().values().map(Arc::clone).collect();
        let Some((_newest, full)) = segments.split_last() else { return Ok(()) };
        for segment in full.iter().filter(|s| !s.is_summarised()) {
            segment.summarise()?;
        }
        match full.first() {
            Some(oldest) if self.is_wasteful(full) => self.empty(oldest),
            _ => Ok(()),
        }
    }

    /// Gives up all segments that nobody needs, and says whether there were any.
    fn give_up(&self) -> io::Result<bool> {
        let below = self.tidying.state.lock().free_below;
        let mut any = false;
        loop {
            let oldest = self.segments.read().first_key_value().map(|(_, s)| Arc::clone(s));
            let Some(oldest) = oldest.filter(|s| s.number < below) else { return Ok(any) };
            oldest.remove()?;
            self.segments.write().remove(&oldest.number);
            any = true;
        }
    }

    fn is_wasteful(&self, full: &[Arc<Segment>]) -> bool {
        let taken: u64 = full.iter().map(|s| s.len()).sum();
        let counts: u64 = full.iter().map(|s| s.live()).sum();
        let slack = if self.tidying.state.lock().is_short { 0 } else { SLACK * self.sizes.segment };
        taken > 2 * counts + slack
    }

    /// Makes ready what of the oldest segment moves to the end next.
    fn empty(&self, oldest: &Segment) -> io::Result<()> {
        let begun = {
            let mut state = self.tidying.state.lock();
            if !state.moves.is_empty() || oldest.live() == 0 {
                return Ok(());
            }
            state.emptying.take().filter(|(number, _)| *number == oldest.number)
        };
        let mut notes = match begun {
            Some((_, notes)) => notes,
            None => oldest.notes()?.into_iter(),
        };
        let mut moves = VecDeque::new();
        let mut read = 0;
        while read < READ_AHEAD * self.sizes.moves
            && let Some(note) = notes.next()
        {
            // Removals stay behind: nothing that they overrule is older than the oldest.
            if !matches!(note.kind, Noted::Removal | Noted::Overruled)
                && self.index.get(&note.short) == Some(note.place)
            {
                let entry = oldest.read(note.place)?;
                read += entry.len();
                moves.push_back(Move { note, entry });
            }
        }
        let mut state = self.tidying.state.lock();
        state.emptying = Some((oldest.number, notes));
        state.moves = moves;
        Ok(())
    }
}
