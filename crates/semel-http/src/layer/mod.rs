//! The tower layer.
//!
//! - `admit`: from a request's head to a pass, a refusal, or a ticket.
//! - `service`, `future`: what a server polls. What passes is polled in place; what is guarded is boxed once.
//! - `aside`: fingerprints, those of large bodies on a thread of their own.
//! - `flow`: body → fingerprint → engine → answer, for one guarded request.
//! - `work`: what runs under the grant; `sign`: what the service is told of it; `record`: the recording of its answer.
//! - `watch`: what is remembered of it by rules that look for suspects.
//! - `then`: one future after another.
//! - `early`: answers that go ahead of their recording.
//! - `answer`: from what the engine says to an answer.
//! - `gather`, `body`: bodies; `arrival`: a request's, within its time; `bodies`: what all of them may take.

mod admit;
mod answer;
mod arrival;
mod aside;
mod bodies;
mod body;
mod early;
mod flow;
mod future;
mod gather;
mod record;
mod seen;
mod service;
mod sign;
mod then;
mod watch;
mod work;

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

pub use arrival::Overdue;
pub use bodies::{Bodies, HeldBodies};
pub use body::{RequestBody, ResponseBody};
pub use future::ResponseFuture;
use semel_core::{engine::Engine, store::Durability};
pub use service::Guard;
use tokio::sync::Semaphore;
use tower_layer::Layer;

use crate::{
    cors::Cors,
    rule::{Rule, Rules},
    view::RequestView,
};

/// A boxed error, as bodies have it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Guards a service; see the [crate](crate).
#[derive(Clone)]
pub struct GuardLayer(Arc<Shared>);

#[derive(Clone)]
pub(crate) struct Shared {
    engine: Engine,
    rules: RuleSet,
    bodies: Bodies,
    /// Whether all that it keeps is gone when its process ends.
    forgets: bool,
    /// For fingerprints that take long, over all services of the layer.
    turns: Arc<Semaphore>,
    cors: Option<Cors>,
    /// Whether the service finds the run in the request's extensions, and not in its body alone.
    run_in_extensions: bool,
}

#[derive(Clone)]
enum RuleSet {
    One(Arc<Rule>),
    Many(Arc<Box<dyn Rules>>),
}

impl RuleSet {
    fn find(&self, request: &RequestView<'_>) -> Option<Arc<Rule>> {
        match self {
            Self::One(rule) => Some(Arc::clone(rule)),
            Self::Many(rules) => rules.find(request),
        }
    }
}

impl GuardLayer {
    /// One rule: for a layer that is put on the routes it is for.
    #[must_use]
    pub fn new(engine: Engine, rule: Rule) -> Self {
        Self::made(engine, RuleSet::One(Arc::new(rule)), true)
    }

    /// A rule for each request, or none: for a layer in front of many routes.
    #[must_use]
    pub fn routed(engine: Engine, rules: impl Rules) -> Self {
        Self::made(engine, RuleSet::Many(Arc::new(Box::new(rules))), true)
    }

    /// As [`routed`](Self::routed), in front of a proxy: it finds the run in [`RequestBody::run`] alone. In the request's
    /// extensions, where an application's handlers look for it, it costs three allocations more.
    #[must_use]
    pub fn proxied(engine: Engine, rules: impl Rules) -> Self {
        Self::made(engine, RuleSet::Many(Arc::new(Box::new(rules))), false)
    }

    fn made(engine: Engine, rules: RuleSet, run_in_extensions: bool) -> Self {
        let forgets = engine.facts().durability == Durability::None;
        let (bodies, turns) = (Bodies::default(), aside::turns());
        let shared = Shared { engine, rules, bodies, forgets, turns, cors: None, run_in_extensions };
        if let RuleSet::One(rule) = &shared.rules {
            shared.look_at(rule);
        }
        Self(Arc::new(shared))
    }

    /// What the bodies of guarded requests may take, and how long. A layer without this has the defaults to itself.
    #[must_use]
    pub fn bodies(mut self, bodies: Bodies) -> Self {
        Arc::make_mut(&mut self.0).bodies = bodies;
        self
    }

    /// Lets pages of other origins send keys, and read what became of their requests: see [`Cors`]. Without it the guard
    /// adds nothing to what the service says to browsers. Not needed where a CORS layer in front of the guard allows the
    /// key's header field and exposes those of [`names`](crate::names).
    #[must_use]
    pub fn cors(mut self, cors: Cors) -> Self {
        Arc::make_mut(&mut self.0).cors = Some(cors);
        self
    }
}

impl Shared {
    /// Warns, once, of a rule for money on a store that forgets.
    fn look_at(&self, rule: &Rule) {
        if self.forgets && rule.unwarned.load(Ordering::Relaxed) {
            forgetful(rule);
        }
    }
}

#[cold]
fn forgetful(rule: &Rule) {
    // Of two at once one tells it.
    if rule.unwarned.swap(false, Ordering::Relaxed) {
        tracing::warn!(
            rule = rule.name(),
            "payments on a store that forgets: when this process ends every key is gone, and a retry pays again; take the \
             embedded store, or one that processes share"
        );
    }
}

impl<S> Layer<S> for GuardLayer {
    type Service = Guard<S>;

    fn layer(&self, inner: S) -> Guard<S> {
        // Each service with counts of references of its own: a server makes one for each of its runtimes.
        let shared = Shared { engine: self.0.engine.apart(), ..Shared::clone(&self.0) };
        Guard::new(inner, Arc::new(shared))
    }
}

impl fmt::Debug for GuardLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GuardLayer").field(&self.0.engine).finish()
    }
}
