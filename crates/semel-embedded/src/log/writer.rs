//! The writer: one thread that turns what waits into batches.

use std::time::Duration;

use super::{Company, Entry, Need, Work, reclaim::Reclaim};
use crate::{
    disk::{Change, Disk, DiskError, Mark},
    store::Shared,
};

/// Writes until the store is closed or a write fails. Runs in a thread of its own.
pub(crate) fn run(shared: &Shared, disk: &dyn Disk, mark: Mark) {
    let _guard = StopOnPanic(shared);
    let reclaim = Reclaim::of_the_time_before(shared);
    let mut writer = Writer { shared, disk, mark, company: Company::default(), reclaim };
    let end = loop {
        let done = match shared.queue.take(writer.company, writer.reclaim.pause(shared)) {
            Work::Batch(entries) => writer.batch(&entries).map(|()| writer.reclaim.beside_a_batch(shared, disk)),
            Work::Look => writer.look(),
            Work::End => break writer.mark(),
        };
        if let Err(e) = done {
            shared.fail(&e.to_string());
            break Ok(());
        }
    };
    if let Err(e) = end {
        tracing::error!(error = %e, "the store could not be closed cleanly; what was answered is on disk");
    }
}

const GONE: &str = "it is not where it was any more; what is written now would not be found at the next start";

/// How long a batch waits for company, after a sync that took `sync`. Whoever is waited for mostly comes much sooner, and
/// a sync costs more of a processor than all that one caller does; but nobody waits long for callers that may not come.
fn patience(sync: Duration) -> Duration {
    (sync * 4).min(Duration::from_millis(1).max(sync / 4))
}

struct Writer<'a> {
    shared: &'a Shared,
    disk: &'a dyn Disk,
    mark: Mark,
    company: Company,
    reclaim: Reclaim,
}

/// What a batch without changes may write, about: what moves to the end.
const MOVED: u64 = 512 << 10;

impl Writer<'_> {
    /// Nothing is to be written: looks whether there is room, and sees to more of it.
    fn look(&mut self) -> Result<(), DiskError> {
        self.shared.space.look();
        self.tell_room();
        self.reclaim.while_idle(self.shared, self.disk);
        // All that it removes first, so that a run of segments is given up with one sync.
        if self.reclaim.is_under_way() || !self.disk.wants_write() {
            return Ok(());
        }
        self.shared.space.before_write(MOVED);
        self.mark()?;
        self.reclaim.goes_on(self.disk.wants_write());
        Ok(())
    }

    /// One batch: one write, at most one sync.
    fn batch(&mut self, entries: &[Entry]) -> Result<(), DiskError> {
        let bytes = entries.iter().map(|e| e.bytes() as u64).sum();
        self.shared.space.before_write(bytes);
        if self.shared.space.is_gone() {
            return Err(DiskError::new("looking for the directory")(GONE.into()));
        }
        let changes: Vec<_> = entries.iter().filter_map(|e| e.change.as_ref()).collect();
        if !changes.is_empty() {
            self.write(&changes)?;
        }
        let last = entries.last().map_or(0, |e| e.number);
        // Before the answers: whoever got one and asks again meets a record that nobody has to wait for.
        let persisted = || {
            for entry in entries {
                if let Some(change) = &entry.change {
                    self.shared.persisted(&change.digest, entry.number);
                }
            }
        };
        let synced = entries.iter().filter(|e| e.need == Need::Synced).count();
        if synced == 0 {
            persisted();
            self.shared.queue.progress.written(last);
            return Ok(());
        }
        if synced < entries.len() {
            self.shared.queue.progress.written(last);
        }
        if self.mark.synced < self.mark.batch {
            let before = self.shared.space.ticks();
            self.disk.sync()?;
            self.mark.synced = self.mark.batch;
            // Half of those who are under way: who is answered now, and who came meanwhile. The other half goes on while
            // this one waits for the disk. Were nearly all waited for, they would have nothing to do meanwhile.
            let wanted = (synced + self.shared.queue.len()) / 2;
            self.company = Company { wanted, within: patience(self.shared.space.ticks().since(before)) };
        }
        persisted();
        self.shared.queue.progress.synced(last);
        Ok(())
    }

    fn tell_room(&self) {
        self.disk.room(self.shared.space.spare(), self.shared.space.is_pressed());
    }

    fn write(&mut self, changes: &[&Change]) -> Result<(), DiskError> {
        self.tell_room();
        let mark = Mark { time: self.shared.clock.now(), batch: self.mark.batch + 1, synced: self.mark.synced };
        self.disk.write(changes, mark)?;
        self.mark = mark;
        self.shared.count_written(changes.len());
        Ok(())
    }

    /// A batch without changes: it says how late it is, and takes along what the disk has to write.
    fn mark(&mut self) -> Result<(), DiskError> {
        self.write(&[])?;
        self.disk.sync()?;
        self.mark.synced = self.mark.batch;
        Ok(())
    }
}

/// A writer that panics has not answered: nobody may wait for it, and nobody may write past it.
struct StopOnPanic<'a>(&'a Shared);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail("the writer panicked");
        }
    }
}
