//! A disk in memory that fails, hangs or loses power when a test says so.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use semel_core::{StoreTime, record::Record};

use super::{Change, Digest, Disk, DiskError, Mark, Stretch};
use crate::share::share_of;

#[derive(Clone, Default)]
struct Data {
    records: BTreeMap<Digest, Bytes>,
    mark: Mark,
}

/// What happens at a write or a sync.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    Write,
    Sync,
    Panic,
}

#[derive(Default)]
struct State {
    written: Data,
    synced: Data,
    writes: u64,
    syncs: u64,
    /// The fault and the number of its write or sync, counted from 1.
    fault: Option<(Fault, u64)>,
    held: bool,
}

#[derive(Default)]
pub(crate) struct Faulty {
    state: Mutex<State>,
    moved: Condvar,
}

impl Faulty {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Fails at the `n`-th write or sync from now on.
    pub(crate) fn fail(&self, fault: Fault, n: u64) {
        let mut state = self.state.lock();
        let done = if fault == Fault::Sync { state.syncs } else { state.writes };
        state.fault = Some((fault, done + n));
    }

    /// From now on writes do not return until [`go_on`](Self::go_on).
    pub(crate) fn hold(&self) {
        self.state.lock().held = true;
    }

    pub(crate) fn go_on(&self) {
        self.state.lock().held = false;
        self.moved.notify_all();
    }

    /// How many writes and syncs there were.
    pub(crate) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.writes, state.syncs)
    }

    /// The disk as a power cut leaves it, or as the end of the process does.
    pub(crate) fn after(&self, power_cut: bool) -> Arc<Self> {
        let state = self.state.lock();
        let data = if power_cut { state.synced.clone() } else { state.written.clone() };
        let state = State { written: data.clone(), synced: data, ..State::default() };
        Arc::new(Self { state: Mutex::new(state), moved: Condvar::new() })
    }

    pub(crate) fn mark(&self) -> Mark {
        self.state.lock().written.mark
    }

    /// All records.
    pub(crate) fn records(&self) -> Vec<(Digest, Bytes)> {
        self.state.lock().written.records.iter().map(|(d, b)| (*d, b.clone())).collect()
    }
}

fn broken(doing: &'static str) -> DiskError {
    DiskError::new(doing)("input/output error".into())
}

impl Disk for Faulty {
    fn write(&self, changes: &[&Change], mark: Mark) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        while state.held {
            self.moved.wait(&mut state);
        }
        state.writes += 1;
        match state.fault {
            Some((Fault::Write, n)) if state.writes >= n => return Err(broken("writing a batch")),
            Some((Fault::Panic, n)) if state.writes == n => panic!("the test said so"),
            _ => {}
        }
        let data = &mut state.written;
        for change in changes {
            let mut bytes = Vec::new();
            change.encode_into(&mut bytes);
            match change.to {
                Some(_) => drop(data.records.insert(change.digest, bytes.into())),
                None => drop(data.records.remove(&change.digest)),
            }
        }
        data.mark = mark;
        Ok(())
    }

    fn sync(&self) -> Result<(), DiskError> {
        let mut state = self.state.lock();
        state.syncs += 1;
        if state.fault.is_some_and(|(fault, n)| fault == Fault::Sync && state.syncs >= n) {
            return Err(broken("syncing"));
        }
        state.synced = state.written.clone();
        Ok(())
    }

    fn record(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError> {
        Ok(self.state.lock().written.records.get(digest).cloned())
    }

    fn records_from(&self, from: &Digest, max: usize) -> Result<Stretch, DiskError> {
        let state = self.state.lock();
        let mut rest = state.written.records.range(*from..).take_while(|(d, _)| share_of(d) == share_of(from));
        let found = rest.by_ref().take(max).map(|(d, b)| (*d, b.clone())).collect();
        Ok((found, rest.next().is_some()))
    }

    fn purge(&self, until: StoreTime, max: usize) -> Result<usize, DiskError> {
        let mut state = self.state.lock();
        let ended = |bytes: &Bytes| {
            let record = Record::decode(bytes);
            record.is_readable() && !record.is_unresolved() && !record.is_here(until)
        };
        let records = &mut state.written.records;
        let gone: Vec<_> = records.iter().filter(|(_, b)| ended(b)).take(max).map(|(d, _)| *d).collect();
        gone.iter().for_each(|digest| drop(records.remove(digest)));
        Ok(gone.len())
    }

    fn len(&self) -> u64 {
        self.state.lock().written.records.len() as u64
    }

    fn size(&self) -> u64 {
        0
    }

    fn wants_write(&self) -> bool {
        false
    }

    fn room(&self, _spare: u64, _is_short: bool) {}

    fn tell(&self, news: Box<dyn Fn() + Send + Sync>) {
        drop(news);
    }
}
