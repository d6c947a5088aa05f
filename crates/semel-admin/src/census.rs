//! How many records need a person: unknown and parked ones, counted in the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use semel_core::record::StateCode;
use semel_core::store::{Filter, StoreAdmin, StoreError};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// A count walks the store, so it stands for a while.
const FRESH_FOR: Duration = Duration::from_mins(1);

/// Records asked for at a time.
const PAGE: usize = 1_000;

/// More are not counted: a person who sees this many has all the news there is.
const MOST: usize = 10_000;

/// Records that wait for a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Whose outcome nobody can tell. At most 10,000 are counted.
    pub unknown: usize,
    /// That failed too often. At most 10,000 are counted.
    pub parked: usize,
}

/// Counts at most once a minute, whoever asks.
pub(crate) struct Census {
    store: Arc<dyn StoreAdmin>,
    last: Mutex<Option<(Instant, Counts)>>,
}

impl fmt::Debug for Census {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Census")
    }
}

impl Census {
    pub(crate) fn new(store: Arc<dyn StoreAdmin>) -> Self {
        Self { store, last: Mutex::new(None) }
    }

    /// The counts of the last minute. One caller counts, others wait for it; `None` where the store does not answer.
    pub(crate) async fn take(&self) -> Option<Counts> {
        let mut last = self.last.lock().await;
        match *last {
            Some((at, counts)) if at.elapsed() < FRESH_FOR => Some(counts),
            _ => {
                let unknown = self.count(StateCode::Unknown).await.ok()?;
                let parked = self.count(StateCode::Parked).await.ok()?;
                let counts = Counts { unknown, parked };
                *last = Some((Instant::now(), counts));
                Some(counts)
            }
        }
    }

    async fn count(&self, state: StateCode) -> Result<usize, StoreError> {
        let filter = Filter { state: Some(state), ..Filter::default() };
        let mut count = 0;
        let mut after = None;
        loop {
            let page = self.store.list(&filter, after.as_ref(), PAGE).await?;
            count += page.entries.len();
            match page.next {
                Some(next) if count < MOST => after = Some(next),
                _ => return Ok(count.min(MOST)),
            }
        }
    }
}
