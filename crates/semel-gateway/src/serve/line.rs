//! What the pieces of a client's connection tell each other.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
};

use futures_util::task::AtomicWaker;

/// Whom a connection waits for. Only the client's silence has a limit here; the upstream's is the forwarder's matter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waiting {
    /// A new connection's first byte, or the rest of a head.
    Head,
    /// The next request.
    Next,
    /// More of a body that somebody wants to read.
    Body,
    /// Room for more of the answer.
    Reader,
    /// Us.
    Nothing,
}

/// Written by whoever moves, read by the connection's own task after each poll. Relaxed: a stale read is corrected by
/// the poll that the same movement causes.
#[derive(Default)]
pub(super) struct Line {
    serving: AtomicBool,
    served: AtomicBool,
    head_begun: AtomicBool,
    body_wanted: AtomicBool,
    write_blocked: AtomicBool,
    stalled: AtomicBool,
    /// The request in service goes on without its client.
    lasts: AtomicBool,
    /// The client has ended its side, and that is not told yet.
    end_kept: AtomicBool,
    moves: AtomicU32,
    pub(super) body: AtomicWaker,
}

impl Line {
    pub(super) fn waiting(&self) -> (Waiting, u32) {
        let waiting = if self.write_blocked.load(Relaxed) {
            Waiting::Reader
        } else if self.serving.load(Relaxed) {
            if self.body_wanted.load(Relaxed) { Waiting::Body } else { Waiting::Nothing }
        } else if self.head_begun.load(Relaxed) || !self.served.load(Relaxed) {
            Waiting::Head
        } else {
            Waiting::Next
        };
        (waiting, self.moves.load(Relaxed))
    }

    fn moved(&self) {
        self.moves.fetch_add(1, Relaxed);
    }

    pub(super) fn received(&self) {
        if !self.serving.load(Relaxed) && !self.head_begun.load(Relaxed) {
            self.head_begun.store(true, Relaxed);
        }
    }

    pub(super) fn written(&self, blocked: bool) {
        if self.write_blocked.load(Relaxed) != blocked {
            self.write_blocked.store(blocked, Relaxed);
            self.moved();
        }
    }

    pub(super) fn request_begins(&self) {
        self.head_begun.store(false, Relaxed);
        self.served.store(true, Relaxed);
        self.serving.store(true, Relaxed);
        self.moved();
    }

    pub(super) fn lasts(&self, lasts: bool) {
        self.lasts.store(lasts, Relaxed);
    }

    /// The client has ended its side. True where that is kept back: the answer will be sent to whoever is there.
    pub(super) fn keeps_end(&self) -> bool {
        let kept = self.serving.load(Relaxed) && self.lasts.load(Relaxed);
        if kept {
            self.end_kept.store(true, Relaxed);
            // Whoever still reads the body waits for what will not come.
            self.body.wake();
        }
        kept
    }

    pub(super) fn is_end_kept(&self) -> bool {
        self.end_kept.load(Relaxed)
    }

    /// Whether an end that was kept back is to be told now: once, when the answer has been written.
    pub(super) fn tells_end(&self) -> bool {
        self.end_kept.load(Relaxed)
            && !self.serving.load(Relaxed)
            && !self.write_blocked.load(Relaxed)
            && self.end_kept.swap(false, Relaxed)
    }

    pub(super) fn body_wanted(&self) {
        self.body_wanted.store(true, Relaxed);
    }

    pub(super) fn body_came(&self) {
        self.body_wanted.store(false, Relaxed);
        self.moved();
    }

    pub(super) fn body_dropped(&self) {
        if self.body_wanted.load(Relaxed) {
            self.body_wanted.store(false, Relaxed);
        }
    }

    /// The client owes its body for too long: whoever reads it gets an error.
    pub(super) fn stall(&self) {
        self.body_wanted.store(false, Relaxed);
        self.stalled.store(true, Relaxed);
        self.body.wake();
    }

    pub(super) fn is_stalled(&self) -> bool {
        self.stalled.load(Relaxed)
    }

    /// Whether any bytes of a head have come that is not complete.
    pub(super) fn is_in_head(&self) -> bool {
        self.head_begun.load(Relaxed)
    }
}

/// A request in service, from its head to the end of its answer's body.
pub(super) struct InService(Arc<Line>);

impl InService {
    pub(super) fn new(line: Arc<Line>) -> Self {
        Self(line)
    }
}

impl Drop for InService {
    fn drop(&mut self) {
        self.0.serving.store(false, Relaxed);
    }
}
