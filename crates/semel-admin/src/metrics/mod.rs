//! What is counted and how long things take: typed handles, made once, lock-free to feed.

mod again;
mod expose;
mod histogram;
mod label;
mod observe;
mod rule;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use semel_core::engine::{Load, StoreState};
use semel_core::store::StoreFacts;

pub use again::Again;
pub use expose::{CONTENT_TYPE, Levels};
pub use histogram::{Histogram, Snapshot};
pub use label::{Failure, Op, Outcome, Why};
pub use rule::{Counter, RuleMetrics};

type AskLoad = Box<dyn Fn() -> Load + Send + Sync>;
type AskBodies = Box<dyn Fn() -> BodyLoad + Send + Sync>;
type AskUpstreams = Box<dyn Fn() -> Vec<UpstreamCounts> + Send + Sync>;
type AskStore = Box<dyn Fn() -> StoreState + Send + Sync>;

/// All metrics of a process. Cheap to clone; an [`Observer`](semel_core::observe::Observer) of the engine.
///
/// The rules are named at the start, so that every series exists from the first scrape and no name that a client
/// sends becomes a label.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    version: Box<str>,
    store: StoreFacts,
    /// Sorted: with the few rules that there are, two comparisons cost less than a hash.
    by_name: Box<[(Box<str>, usize)]>,
    /// The named rules in order, and last the one for what no rule is about.
    rules: Box<[RuleMetrics]>,
    claim: Histogram,
    store_seconds: Box<[Histogram]>,
    store_errors: Box<[Counter]>,
    store_forgot: Counter,
    missing: Counter,
    restored: Counter,
    breaker_opened: Counter,
    abandoned: Counter,
    unknown_expired: Counter,
    load: OnceLock<AskLoad>,
    store_state: OnceLock<AskStore>,
    bodies: OnceLock<AskBodies>,
    upstreams: OnceLock<AskUpstreams>,
}

/// What the bodies of guarded requests take just now, and how often there was no room.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BodyLoad {
    /// Bytes of requests' bodies.
    pub requests: u64,
    /// Bytes of answers' bodies.
    pub answers: u64,
    /// Requests refused for want of room, since the start.
    pub refused: u64,
    /// Answers recorded without their body for want of room, since the start.
    pub not_kept: u64,
}

/// What happened on the way to one upstream, since the start.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UpstreamCounts {
    /// Its name in the file: no client can make another.
    pub name: Arc<str>,
    /// Connections that carried a request.
    pub connections: u64,
    /// Requests of which nothing was sent.
    pub unreachable: u64,
    /// Requests whose connection ended before an answer began: what became of them is unknown.
    pub broken: u64,
    /// Of those, the ones on a connection that had carried a request before.
    pub broken_reused: u64,
    /// Requests to which no answer began in time: what became of them is unknown.
    pub timed_out: u64,
    /// Requests sent again over a new connection, as nothing of them had been written to the one at rest.
    pub sent_anew: u64,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("rules", &self.0.by_name.len()).finish_non_exhaustive()
    }
}

impl Metrics {
    /// Makes every handle. `version` is the program's, `rules` the names that will be used.
    #[must_use]
    pub fn new<'a>(version: &str, store: StoreFacts, rules: impl IntoIterator<Item = &'a str>) -> Self {
        let mut by_name = BTreeMap::new();
        let mut list = Vec::new();
        for name in rules {
            by_name.entry(Box::from(name)).or_insert_with(|| {
                list.push(RuleMetrics::new(name));
                list.len() - 1
            });
        }
        list.push(RuleMetrics::new(""));
        Self(Arc::new(Inner {
            version: version.into(),
            store,
            by_name: by_name.into_iter().collect(),
            rules: list.into(),
            claim: Histogram::default(),
            store_seconds: Op::ALL.iter().map(|_| Histogram::default()).collect(),
            store_errors: Op::ALL.iter().map(|_| Counter::default()).collect(),
            store_forgot: Counter::default(),
            missing: Counter::default(),
            restored: Counter::default(),
            breaker_opened: Counter::default(),
            abandoned: Counter::default(),
            unknown_expired: Counter::default(),
            load: OnceLock::new(),
            store_state: OnceLock::new(),
            bodies: OnceLock::new(),
            upstreams: OnceLock::new(),
        }))
    }

    /// The handle of a rule; of "no rule" where the name is not one of those given at the start. One search
    /// in a list that never changes: keep the reference where the rule is known.
    #[must_use]
    pub fn rule(&self, name: &str) -> &RuleMetrics {
        let named = self.0.by_name.binary_search_by(|(known, _)| (**known).cmp(name));
        &self.0.rules[named.map_or(self.0.rules.len() - 1, |at| self.0.by_name[at].1)]
    }

    /// `semel_claim_seconds`: from sending a claim to its grant.
    #[must_use]
    pub fn claim(&self) -> &Histogram {
        &self.0.claim
    }

    /// `semel_store_seconds` of one call.
    #[must_use]
    pub fn store_seconds(&self, op: Op) -> &Histogram {
        &self.0.store_seconds[op.index()]
    }

    /// `semel_store_errors_total` of one call.
    #[must_use]
    pub fn store_errors(&self, op: Op) -> &Counter {
        &self.0.store_errors[op.index()]
    }

    /// Where `semel_inflight` and `semel_waiters` come from. The first caller wins; without one both are absent.
    ///
    /// ```
    /// # use semel_admin::Metrics;
    /// # use semel_core::engine::Engine;
    /// # use std::sync::Arc;
    /// # let engine = Engine::memory();
    /// # let metrics = Metrics::new("0.1.0", engine.facts(), ["orders"]);
    /// let of = engine.clone();
    /// metrics.watch(move || of.load());
    /// ```
    pub fn watch(&self, load: impl Fn() -> Load + Send + Sync + 'static) {
        // A second source would contradict the first.
        let _ = self.0.load.set(Box::new(load));
    }

    /// Where the levels of the breaker and of what is answered without the store come from. The first caller wins; without
    /// one they are absent.
    pub fn watch_store(&self, state: impl Fn() -> StoreState + Send + Sync + 'static) {
        let _ = self.0.store_state.set(Box::new(state));
    }

    /// Where the levels of bodies in memory come from. The first caller wins; without one they are absent.
    pub fn watch_bodies(&self, load: impl Fn() -> BodyLoad + Send + Sync + 'static) {
        let _ = self.0.bodies.set(Box::new(load));
    }

    /// Where the counts of upstreams come from. The first caller wins; without one they are absent.
    pub fn watch_upstreams(&self, counts: impl Fn() -> Vec<UpstreamCounts> + Send + Sync + 'static) {
        let _ = self.0.upstreams.set(Box::new(counts));
    }
}
