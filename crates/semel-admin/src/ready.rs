//! Whether this process should get traffic.

use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use semel_core::engine::StoreState;
use semel_core::store::{Health, StoreAdmin, StoreErrorKind};
use serde::Serialize;

use crate::census::Census;
use crate::metrics::Levels;

/// Longest time the store gets to say how it is.
const PATIENCE: Duration = Duration::from_secs(1);

const STARTING: u8 = 0;
const SERVING: u8 = 1;
const DRAINING: u8 = 2;

/// Whether this process should get traffic: it serves, and its store takes claims. Cheap to clone.
#[derive(Clone)]
pub struct Readiness {
    phase: Arc<AtomicU8>,
    store: Arc<dyn StoreAdmin>,
    census: Arc<Census>,
    state: Arc<OnceLock<AskStore>>,
}

type AskStore = Box<dyn Fn() -> StoreState + Send + Sync>;

/// How long a store that lost its records is spoken of.
const SPOKEN_OF: Duration = Duration::from_hours(24);

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").field("phase", &self.phase.load(Ordering::Relaxed)).finish_non_exhaustive()
    }
}

/// Why a process should get no traffic.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Reason {
    /// `starting`, `draining`, `store` or `breaker`; of a note `store-lost`.
    pub what: &'static str,
    /// In words.
    pub detail: String,
}

impl Reason {
    fn new(what: &'static str, detail: impl Into<String>) -> Self {
        Self { what, detail: detail.into() }
    }
}

impl Readiness {
    /// Not ready until [`serving`](Self::serving) is called.
    #[must_use]
    pub fn new(store: Arc<dyn StoreAdmin>) -> Self {
        let census = Arc::new(Census::new(Arc::clone(&store)));
        Self { phase: Arc::new(AtomicU8::new(STARTING)), store, census, state: Arc::default() }
    }

    /// Where the engine's view of its store comes from. The first caller wins; without one there is only what the store
    /// says of itself.
    pub fn watch_store(&self, state: impl Fn() -> StoreState + Send + Sync + 'static) {
        let _ = self.state.set(Box::new(state));
    }

    /// Requests are accepted from now on.
    pub fn serving(&self) {
        self.phase.store(SERVING, Ordering::Relaxed);
    }

    /// The process is on its way out; running work still finishes.
    pub fn draining(&self) {
        self.phase.store(DRAINING, Ordering::Relaxed);
    }

    /// Whether the process is on its way out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == DRAINING
    }

    /// Asks the store. Waits at most a second. Cancel safe.
    ///
    /// # Errors
    /// Why there is no answer, in words.
    pub async fn health(&self) -> Result<Health, String> {
        match tokio::time::timeout(PATIENCE, self.store.health()).await {
            Ok(Ok(health)) => Ok(health),
            // The error's own words begin with these, or with others that say more.
            Ok(Err(error)) => Err(match std::error::Error::source(&error) {
                Some(cause) => format!("the store does not answer: {cause}"),
                None if error.kind == StoreErrorKind::Unavailable => "the store does not answer".to_owned(),
                None => error.to_string(),
            }),
            Err(_) => Err(format!("the store does not answer within {} s", PATIENCE.as_secs())),
        }
    }

    /// What a scrape wants to know. Waits at most a second for the store's health; the counts of unknown and parked
    /// records walk the store at most once a minute.
    pub async fn levels(&self) -> Levels {
        Levels { health: self.health().await.ok(), counts: self.census.take().await, draining: self.is_draining() }
    }

    /// Why this process should get no traffic; nothing where it should. Waits at most a second for the store.
    pub async fn reasons(&self) -> Vec<Reason> {
        let mut reasons = Vec::new();
        match self.phase.load(Ordering::Relaxed) {
            STARTING => reasons.push(Reason::new("starting", "no requests are accepted yet")),
            DRAINING => reasons.push(Reason::new("draining", "running work finishes, no new connection is accepted")),
            _ => {}
        }
        let state = self.state.get().map(|state| state()).unwrap_or_default();
        match self.health().await {
            Ok(health) if health.writable && state.full => {
                reasons.push(Reason::new("store", "the store has no room: a new key was refused a moment ago"));
            }
            Ok(health) if health.writable => {}
            Ok(health) if health.trouble.is_empty() => reasons.push(Reason::new("store", "the store takes no claims")),
            Ok(health) => reasons.push(Reason::new("store", health.trouble)),
            Err(why) => reasons.push(Reason::new("store", why)),
        }
        if state.breaker_open {
            let why = "too many calls were not answered; the store is asked once a second until it answers again";
            reasons.push(Reason::new("breaker", why));
        }
        reasons
    }

    /// What a person should know although it keeps no traffic away.
    #[must_use]
    pub fn notes(&self) -> Vec<Reason> {
        let state = self.state.get().map(|state| state()).unwrap_or_default();
        let recent = state.since_lost.filter(|ago| *ago < SPOKEN_OF);
        let lost = recent.map(|ago| {
            let detail = format!(
                "the store was found without its records {} s ago ({} in all): what was recorded before can run again",
                ago.as_secs(),
                if state.lost == 1 { "once".to_owned() } else { format!("{} times", state.lost) }
            );
            Reason::new("store-lost", detail)
        });
        lost.into_iter().collect()
    }
}
