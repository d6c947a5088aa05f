//! The writer: one thread that turns what waits into batches.

use std::collections::HashMap;

use super::{Company, Entry, Need, Work, answer};
use crate::{
    disk::{Change, Digest, Disk, DiskError, Mark},
    store::Shared,
};

/// Writes until the store is closed or a write fails. Runs in a thread of its own.
pub(crate) fn run(shared: &Shared, disk: &dyn Disk, mark: Mark) {
    let _guard = StopOnPanic(shared);
    let mut writer = Writer { shared, disk, mark, company: Company::default() };
    let end = loop {
        match shared.queue.take(writer.company) {
            Work::Batch(entries) => {
                if let Err((e, entries)) = writer.batch(entries) {
                    let stopped = shared.fail(&e.to_string());
                    answer(entries, &Err(stopped));
                    break Ok(());
                }
            }
            Work::Nudge => shared.space.look(disk.size()),
            Work::End => break writer.last_mark(),
        }
    };
    if let Err(e) = end {
        tracing::error!(error = %e, "the store could not be closed cleanly; what was answered is on disk");
    }
}

const GONE: &str = "it is not where it was any more; what is written now would not be found at the next start";

/// The part of a sync's time that a batch may wait for company.
const PATIENCE: u32 = 4;

struct Writer<'a> {
    shared: &'a Shared,
    disk: &'a dyn Disk,
    mark: Mark,
    company: Company,
}

impl Writer<'_> {
    /// One batch: one write, at most one sync. On failure the entries that got no answer come back.
    fn batch(&mut self, entries: Vec<Entry>) -> Result<(), (DiskError, Vec<Entry>)> {
        let bytes = entries.iter().map(|e| e.bytes() as u64).sum();
        self.shared.space.before_write(bytes, || self.disk.size());
        if self.shared.space.is_gone() {
            return Err((DiskError::new("looking for the directory")(GONE.into()), entries));
        }
        let numbers: Vec<_> = entries.iter().filter_map(|e| Some((e.change.as_ref()?.digest, e.number))).collect();
        let mut entries = entries;
        let changes = coalesce(&mut entries);
        if !changes.is_empty() {
            let mark = self.next_mark(&changes);
            if let Err(e) = self.disk.write(&changes, mark) {
                return Err((e, entries));
            }
            self.mark = mark;
            self.shared.count_written(&changes, mark);
        }
        let (synced, written): (Vec<_>, Vec<_>) = entries.into_iter().partition(|e| e.need == Need::Synced);
        let persisted = || numbers.iter().for_each(|(digest, number)| self.shared.persisted(digest, *number));
        // Before the answers: whoever got one and asks again meets a record that nobody has to wait for.
        if synced.is_empty() {
            persisted();
            answer(written, &Ok(()));
            return Ok(());
        }
        answer(written, &Ok(()));
        if self.mark.synced < self.mark.batch {
            let before = self.shared.space.ticks();
            if let Err(e) = self.disk.sync() {
                return Err((e, synced));
            }
            self.mark.synced = self.mark.batch;
            // Everybody who is under way: who is answered now, and who came meanwhile.
            let wanted = (synced.len() + self.shared.queue.len()) * 7 / 8;
            self.company = Company { wanted, within: self.shared.space.ticks().since(before) / PATIENCE };
        }
        persisted();
        answer(synced, &Ok(()));
        Ok(())
    }

    fn next_mark(&self, changes: &[Change]) -> Mark {
        let come = changes.iter().filter(|c| !c.existed && c.to.is_some()).count() as u64;
        let gone = changes.iter().filter(|c| c.existed && c.to.is_none()).count() as u64;
        Mark {
            time: self.shared.clock.now(),
            records: (self.mark.records + come).saturating_sub(gone),
            batch: self.mark.batch + 1,
            synced: self.mark.synced,
        }
    }

    fn last_mark(&self) -> Result<(), DiskError> {
        self.disk.write(&[], self.next_mark(&[]))?;
        self.disk.sync()
    }
}

/// The changes of a batch, one for each digest: the last one, with all the places where earlier bytes may be. Within one
/// batch fjall has no order.
fn coalesce(entries: &mut [Entry]) -> Vec<Change> {
    let mut changes: Vec<Change> = Vec::with_capacity(entries.len());
    let mut at: HashMap<Digest, usize> = HashMap::with_capacity(entries.len());
    for change in entries.iter_mut().filter_map(|e| e.change.take()) {
        match at.entry(change.digest) {
            std::collections::hash_map::Entry::Occupied(o) => changes[*o.get()].then(change),
            std::collections::hash_map::Entry::Vacant(v) => {
                v.insert(changes.len());
                changes.push(change);
            }
        }
    }
    changes
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
