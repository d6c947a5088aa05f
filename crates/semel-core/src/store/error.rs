//! A store's error: what it did, why, and when to come back.

use std::{fmt, time::Duration};

/// A call that was not answered. Every error of every store says whether the change can have happened.
pub struct StoreError {
    /// Whether the change can have happened. [`Did::Unknown`] is answered by repeating with the same owner.
    pub did: Did,
    /// What kind of trouble it is.
    pub kind: StoreErrorKind,
    /// When it is worth coming back, if the store knows.
    pub retry_after: Option<Duration>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// Whether a failed call can have changed anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Did {
    /// It certainly did not, and will not.
    Nothing,
    /// Nobody can tell.
    Unknown,
}

/// What kind of trouble a store is in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Not reachable, too slow, or not answering.
    Unavailable,
    /// No room for another record.
    Full,
    /// A write or sync failed: the store takes no more writes until it is opened again.
    ReadOnly,
    /// The store was closed.
    Closed,
}

impl StoreError {
    /// An error of a kind, with its cause.
    pub fn new(did: Did, kind: StoreErrorKind, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self { did, kind, retry_after: None, source: Some(source.into()) }
    }

    /// Not reachable or too slow.
    #[must_use]
    pub const fn unavailable(did: Did) -> Self {
        Self { did, kind: StoreErrorKind::Unavailable, retry_after: None, source: None }
    }

    /// No room for another record; nothing was written.
    #[must_use]
    pub const fn full() -> Self {
        Self { did: Did::Nothing, kind: StoreErrorKind::Full, retry_after: None, source: None }
    }

    /// Whether there was no room, and nothing was written.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.kind == StoreErrorKind::Full && self.did == Did::Nothing
    }

    /// The same for a call that would have changed nothing in any case.
    #[must_use]
    pub const fn of_nothing(mut self) -> Self {
        self.did = Did::Nothing;
        self
    }

    /// The same with the time after which it is worth coming back.
    #[must_use]
    pub const fn after(mut self, retry_after: Duration) -> Self {
        self.retry_after = Some(retry_after);
        self
    }
}

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("did", &self.did)
            .field("kind", &self.kind)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::Unavailable => "the store does not answer",
            StoreErrorKind::Full => "the store is full",
            StoreErrorKind::ReadOnly => "the store takes no more writes since one failed",
            StoreErrorKind::Closed => "the store is closed",
        })?;
        f.write_str(match self.did {
            Did::Nothing => " (nothing was changed)",
            Did::Unknown => " (whether the change took place is unknown)",
        })?;
        if let Some(source) = &self.source {
            write!(f, ": {source}")?;
        }
        Ok(())
    }
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|e| e as _)
    }
}
