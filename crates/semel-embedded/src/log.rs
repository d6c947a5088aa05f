//! The log: changes in the order of their decisions, one writer that makes batches of them, and who waits for what.

mod progress;
mod reclaim;
mod writer;

pub(crate) use progress::Ticket;
pub(crate) use writer::run;

use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use semel_core::store::{Did, StoreError, StoreErrorKind};

use self::progress::Progress;
use crate::disk::Change;

/// How many changes go into one batch at most, and how many bytes.
const BATCH_CHANGES: usize = 4_096;
const BATCH_BYTES: usize = 8 << 20;

/// Running work settles where claims are refused already: it may fill the queue this much further.
const SETTLE_FACTOR: usize = 4;

/// What an answer waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Need {
    /// The operating system has it.
    Written,
    /// It survives a power cut.
    Synced,
}

/// Why nobody gets an answer any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Stopped {
    /// A write, a sync or the writer itself failed.
    Failed(String),
    /// The store was closed.
    Closed,
}

impl Stopped {
    pub(crate) fn error(&self, did: Did) -> StoreError {
        match self {
            Self::Failed(why) => StoreError::new(did, StoreErrorKind::ReadOnly, why.clone()),
            Self::Closed => StoreError::new(did, StoreErrorKind::Closed, "the store was closed"),
        }
    }
}

pub(crate) struct Entry {
    /// None: only to wait for what came before.
    pub(crate) change: Option<Change>,
    pub(crate) number: u64,
    pub(crate) need: Need,
}

impl Entry {
    fn bytes(&self) -> usize {
        let rest = self.change.as_ref().and_then(|c| c.to.as_ref()).map_or(0, |r| r.rest.len());
        200 + rest
    }
}

/// Why an entry was not taken.
pub(crate) enum Refused {
    Stopped(Stopped),
    /// Too much waits already.
    Busy,
}

#[derive(Default)]
struct Waiting {
    entries: std::collections::VecDeque<Entry>,
    last: u64,
    stopped: Option<Stopped>,
    /// The writer sleeps until so many entries wait.
    sleeps_until: Option<usize>,
    /// Somebody wants the writer to look at the disk's space.
    nudged: bool,
}

/// Where decisions meet the writer.
pub(crate) struct Queue {
    progress: Progress,
    waiting: Mutex<Waiting>,
    wake: Condvar,
    max: usize,
}

/// What the writer finds.
pub(crate) enum Work {
    Batch(Vec<Entry>),
    /// Nothing to write, but it is time to look around, or somebody wants that.
    Look,
    /// Closed, and everything is written.
    End,
}

impl Queue {
    pub(crate) fn new(max: usize) -> Self {
        Self { progress: Progress::default(), waiting: Mutex::default(), wake: Condvar::new(), max }
    }

    /// Takes a change into the log and says its number. Called under the shard's lock, so that the log has the changes of
    /// one record in the order of their decisions.
    pub(crate) fn push(&self, change: Change, need: Need, settles: bool) -> Result<(u64, Ticket<'_>), Refused> {
        let mut waiting = self.waiting.lock();
        if let Some(stopped) = &waiting.stopped {
            return Err(Refused::Stopped(stopped.clone()));
        }
        let max = if settles { self.max * SETTLE_FACTOR } else { self.max };
        if waiting.entries.len() >= max {
            return Err(Refused::Busy);
        }
        waiting.last += 1;
        let number = waiting.last;
        waiting.entries.push_back(Entry { change: Some(change), number, need });
        self.wake(waiting);
        Ok((number, self.progress.ticket(number, need)))
    }

    /// Waits for everything that is in the log so far.
    pub(crate) fn barrier(&self, need: Need) -> Result<Ticket<'_>, Stopped> {
        let mut waiting = self.waiting.lock();
        if let Some(stopped) = &waiting.stopped {
            return Err(stopped.clone());
        }
        waiting.last += 1;
        let number = waiting.last;
        waiting.entries.push_back(Entry { change: None, number, need });
        self.wake(waiting);
        Ok(self.progress.ticket(number, need))
    }

    /// Makes the writer look around soon.
    pub(crate) fn nudge(&self) {
        let mut waiting = self.waiting.lock();
        waiting.nudged = true;
        self.wake(waiting);
    }

    fn wake(&self, waiting: parking_lot::MutexGuard<'_, Waiting>) {
        let wake = waiting.sleeps_until.is_some_and(|n| waiting.entries.len() >= n || waiting.nudged);
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Takes no more entries; those that wait are still written.
    pub(crate) fn close(&self) {
        let mut waiting = self.waiting.lock();
        waiting.stopped.get_or_insert(Stopped::Closed);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Takes no more entries, and fails those that wait.
    pub(crate) fn fail(&self, why: &str) {
        let stopped = Stopped::Failed(why.to_owned());
        let mut waiting = self.waiting.lock();
        waiting.stopped = Some(stopped.clone());
        waiting.entries.clear();
        drop(waiting);
        self.progress.fail(stopped);
    }

    /// How many entries wait.
    fn len(&self) -> usize {
        self.waiting.lock().entries.len()
    }

    /// Why it stopped, if it did.
    pub(crate) fn stopped(&self) -> Option<Stopped> {
        self.waiting.lock().stopped.clone()
    }

    /// Waits for work, at most for `idle`, then a little for company. For the writer alone.
    fn take(&self, company: Company, idle: Option<Duration>) -> Work {
        let mut waiting = self.waiting.lock();
        while waiting.entries.is_empty() {
            if waiting.stopped.is_some() {
                return Work::End;
            }
            if std::mem::take(&mut waiting.nudged) {
                return Work::Look;
            }
            if idle == Some(Duration::ZERO) {
                drop(waiting);
                self.progress.wake_due();
                return Work::Look;
            }
            waiting.sleeps_until = Some(1);
            if self.progress.has_due() {
                if self.wake.wait_for(&mut waiting, GRACE).timed_out() {
                    self.progress.wake_due();
                }
            } else if let Some(idle) = idle {
                // Whatever woke it: a look too many does no harm.
                waiting.nudged |= self.wake.wait_for(&mut waiting, idle).timed_out();
            } else {
                self.wake.wait(&mut waiting);
            }
            waiting.sleeps_until = None;
        }
        if waiting.entries.len() < company.wanted && waiting.stopped.is_none() && company.within >= WORTH_WAITING {
            waiting.sleeps_until = Some(company.wanted);
            self.wake.wait_for(&mut waiting, company.within);
            waiting.sleeps_until = None;
        }
        if waiting.entries.len() <= BATCH_CHANGES
            && waiting.entries.iter().map(Entry::bytes).sum::<usize>() <= BATCH_BYTES
        {
            return Work::Batch(std::mem::take(&mut waiting.entries).into());
        }
        let mut bytes = 0;
        let fits = |e: &&Entry| {
            bytes += e.bytes();
            bytes <= BATCH_BYTES
        };
        let n = waiting.entries.iter().take(BATCH_CHANGES).take_while(fits).count().max(1);
        Work::Batch(waiting.entries.drain(..n).collect())
    }
}

/// Whom the writer waits for before it begins a batch. Callers that were answered together come back together: without a
/// moment's patience the first of them gets a sync of its own, and all the others wait for two.
#[derive(Clone, Copy, Default)]
struct Company {
    wanted: usize,
    within: Duration,
}

/// A shorter wait than this is not kept by the clock.
const WORTH_WAITING: Duration = Duration::from_micros(50);

/// How long the writer leaves it to callers to wake each other when it has nothing else to do.
const GRACE: Duration = Duration::from_millis(10);
