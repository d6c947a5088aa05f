//! A disk in memory that fails, hangs or loses power when a test says so.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use semel_core::StoreTime;

use super::{Change, Digest, Disk, DiskError, End, Mark, Size, Table};

#[derive(Clone, Default)]
struct Data {
    flight: BTreeMap<Digest, Bytes>,
    settled: BTreeMap<Digest, Bytes>,
    ends: BTreeSet<End>,
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

    pub(crate) fn flights(&self) -> Vec<(Digest, Bytes)> {
        self.state.lock().written.flight.iter().map(|(d, b)| (*d, b.clone())).collect()
    }

    /// The settled records and the ends that the index has.
    pub(crate) fn index(&self) -> (Vec<(Digest, Bytes)>, Vec<End>) {
        let state = self.state.lock();
        let settled = state.written.settled.iter().map(|(d, b)| (*d, b.clone())).collect();
        (settled, state.written.ends.iter().copied().collect())
    }
}

fn broken(doing: &'static str) -> DiskError {
    DiskError::new(doing)("input/output error".into())
}

impl Disk for Faulty {
    fn write(&self, changes: &[Change], mark: Mark) -> Result<(), DiskError> {
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
        let mut seen = BTreeSet::new();
        for change in changes {
            change.spell(|table, key, value| {
                assert!(seen.insert((table as u8, key.to_vec())), "a batch names a key once");
                let digest = *key.last_chunk().unwrap();
                match (table, value) {
                    (Table::Flight, Some(bytes)) => drop(data.flight.insert(digest, bytes)),
                    (Table::Flight, None) => drop(data.flight.remove(&digest)),
                    (Table::Settled, Some(bytes)) => drop(data.settled.insert(digest, bytes)),
                    (Table::Settled, None) => drop(data.settled.remove(&digest)),
                    (Table::Ends, Some(_)) => drop(data.ends.insert(End::read(key).unwrap())),
                    (Table::Ends, None) => {
                        data.ends.remove(&End::read(key).unwrap());
                    }
                }
            });
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

    fn settled(&self, digest: &Digest) -> Result<Option<Bytes>, DiskError> {
        Ok(self.state.lock().written.settled.get(digest).cloned())
    }

    fn settled_from(&self, from: &Digest, max: usize) -> Result<Vec<(Digest, Bytes)>, DiskError> {
        let state = self.state.lock();
        Ok(state.written.settled.range(*from..).take(max).map(|(d, b)| (*d, b.clone())).collect())
    }

    fn ends(&self, after: End, until: StoreTime, max: usize) -> Result<Vec<End>, DiskError> {
        let state = self.state.lock();
        let behind = state.written.ends.range((Bound::Excluded(after), Bound::Unbounded));
        Ok(behind.take_while(|e| e.at <= until).take(max).copied().collect())
    }

    fn size(&self) -> Size {
        Size::default()
    }
}
