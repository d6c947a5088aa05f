//! How many work on a key in one process at once: never more than one, whatever its store does.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::Mutex;

/// Everybody who works now.
#[derive(Default)]
pub(super) struct Crowd {
    /// More than one at a time may be right: takeover, a store that forgets.
    may_meet: bool,
    inside: Mutex<BTreeMap<(usize, u64), usize>>,
    /// What is wrong.
    pub(super) wrongs: Mutex<Vec<String>>,
}

/// Work on a key in a process, until it is dropped.
pub(super) struct Inside(Arc<Crowd>, (usize, u64));

impl Drop for Inside {
    fn drop(&mut self) {
        *self.0.inside.lock().entry(self.1).or_default() -= 1;
    }
}

impl Crowd {
    pub(super) fn new(may_meet: bool) -> Self {
        Self { may_meet, ..Self::default() }
    }

    /// Work on a key begins in a process.
    pub(super) fn enter(self: &Arc<Self>, process: usize, key: u64) -> Inside {
        let at = (process, key);
        let others = {
            let mut inside = self.inside.lock();
            let others = inside.entry(at).or_default();
            *others += 1;
            *others - 1
        };
        if others > 0 && !self.may_meet {
            self.wrongs.lock().push(format!("key {key}: process {process} works on it {} times at once", others + 1));
        }
        Inside(Arc::clone(self), at)
    }
}
