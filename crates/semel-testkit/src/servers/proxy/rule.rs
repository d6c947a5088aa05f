//! What becomes of single requests.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use super::lens::Request;

/// What becomes of a connection after something on it was lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// It is reset.
    Close,
    /// It stays open, and nothing passes on it any more.
    Silence,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fate {
    LosesRequest(Then),
    LosesReply(Then),
    DelaysRequest(Duration),
    HoldsRequest,
    DelaysReply(Duration),
}

/// Chooses requests and says what becomes of them: the first that fits, unless [`after`](Self::after) and
/// [`times`](Self::times) say otherwise.
pub struct Rule {
    fits: Box<dyn FnMut(&Request<'_>) -> bool + Send>,
    skips: u64,
    left: u64,
    fate: Fate,
    fired: Fired,
}

impl Rule {
    /// About requests that fit. It loses their reply and resets the connection, if nothing else is said.
    #[must_use]
    pub fn when(fits: impl FnMut(&Request<'_>) -> bool + Send + 'static) -> Self {
        Self { fits: Box::new(fits), skips: 0, left: 1, fate: Fate::LosesReply(Then::Close), fired: Fired::new() }
    }

    /// About requests that execute something with these words in it, upper or lower case alike: a command, a script's
    /// digest, a part of a statement.
    #[must_use]
    pub fn runs(words: &str) -> Self {
        let words = words.to_owned();
        Self::when(move |request| request.executes && request.contains(&words))
    }

    /// About all requests.
    #[must_use]
    pub fn any() -> Self {
        Self::when(|_| true)
    }

    /// Lets the first `n` that fit go by.
    #[must_use]
    pub const fn after(mut self, n: u64) -> Self {
        self.skips = n;
        self
    }

    /// Acts on so many, instead of one.
    #[must_use]
    pub const fn times(mut self, n: u64) -> Self {
        self.left = n;
        self
    }

    /// The server gets the request and answers; the client never sees the answer. Not before the whole answer is there
    /// the connection is reset: what was asked for was done.
    #[must_use]
    pub const fn lose_reply(mut self, then: Then) -> Self {
        self.fate = Fate::LosesReply(then);
        self
    }

    /// The server never gets the request.
    #[must_use]
    pub const fn lose_request(mut self, then: Then) -> Self {
        self.fate = Fate::LosesRequest(then);
        self
    }

    /// The server gets it late, and what follows on this connection after it.
    #[must_use]
    pub const fn delay_request(mut self, by: Duration) -> Self {
        self.fate = Fate::DelaysRequest(by);
        self
    }

    /// The server gets it, and what follows on this connection, when the proxy is told to
    /// [let go](super::Proxy::let_go).
    #[must_use]
    pub const fn hold_request(mut self) -> Self {
        self.fate = Fate::HoldsRequest;
        self
    }

    /// The client gets the answer late, and what follows on this connection after it.
    #[must_use]
    pub const fn delay_reply(mut self, by: Duration) -> Self {
        self.fate = Fate::DelaysReply(by);
        self
    }

    /// How often it acted, to be asked at any time.
    pub(super) fn fired(&self) -> Fired {
        self.fired.clone()
    }

    /// What becomes of a request, if this rule is about it.
    pub(super) fn judge(&mut self, request: &Request<'_>) -> Option<Fate> {
        if self.left == 0 || !(self.fits)(request) {
            return None;
        }
        if self.skips > 0 {
            self.skips -= 1;
            return None;
        }
        self.left -= 1;
        self.fired.again();
        Some(self.fate)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rule({:?}, after {}, {} more)", self.fate, self.skips, self.left)
    }
}

/// How often a rule, or a rewording, acted.
#[derive(Clone, Debug)]
pub struct Fired(Arc<AtomicU64>);

impl Fired {
    pub(super) fn new() -> Self {
        Self(Arc::default())
    }

    pub(super) fn again(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// How often by now.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
